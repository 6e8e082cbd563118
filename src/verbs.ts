/** What can be done to runs from outside: the HTTP face, the library face and the command line all stand on these. */
import type { Answer, Bodies, MailKind } from "./entry.ts";
import type { Placed } from "./event.ts";
import type { Message, UserBlock } from "./message.ts";
import type { Delivery } from "./queue.ts";
import type { RunView, Settings, Status } from "./run.ts";
import type { Menu } from "./tool.ts";

export type { RunView };

export type Content = string | UserBlock[];

/** An idempotency key, and a hash of what it came with: another hash under the same key is a conflict. */
export interface Key {
  name: string;
  hash: string;
}

export interface StartOptions {
  /** Absent: a new thread; with a key, one derived from it, so that a repeat finds it. */
  thread?: string;
  /** What to do when the thread has an active run. */
  ifBusy?: "steer" | "follow_up" | "reject" | "interrupt";
  source?: string;
  key?: Key;
}

/** What was accepted, durably. */
export interface Accepted {
  /** The run that will see it. */
  run: string;
  thread: string;
  status: Status;
  messageId: string;
}

/**
 * Every verb throws InputError when the caller is at fault: "not_found" for what is unknown or another tenant's, "conflict" where the
 * state does not allow it, "unavailable" when nothing was accepted and the same call should be made again.
 */
export interface Verbs {
  start(tenant: string, content: Content, settings: Settings, options?: StartOptions): Promise<Accepted>;
  /** To the thread's active run, else to a new one with the settings of `run`. */
  send(tenant: string, run: string, kind: MailKind, content: Content, key?: Key): Promise<Accepted>;
  /** Again for a cancelled run: the same. Conflict when it ended otherwise. */
  cancel(tenant: string, run: string): Promise<RunView>;
  /** Answers a waiting call. `repeat`: it was answered before. Conflict when it is closed; not_found when there never was such a call. */
  resolve(
    tenant: string,
    run: string,
    toolCallId: string,
    answer: Answer,
    key?: Key,
  ): Promise<{ repeat: boolean; run: RunView }>;
  run(tenant: string, run: string): Promise<RunView>;
  /** The run once it has ended, or waits where `orWaits` (default true), at the latest after `ms`. */
  settled(
    tenant: string,
    run: string,
    ms: number,
    options?: { signal?: AbortSignal; orWaits?: boolean },
  ): Promise<RunView>;
  /** Newest first. `next` is the `after` of the next page. */
  runs(
    tenant: string,
    options: { status?: Status; limit: number; after?: string },
  ): Promise<{ runs: RunView[]; next?: string }>;
  /** Of a run, or of a whole thread; `next` is the `after` of the next page. */
  messages(
    tenant: string,
    of: { run: string } | { thread: string },
    options?: { after?: string; limit?: number; frame?: string },
  ): Promise<{ messages: Message[]; next?: string }>;
  /**
   * Events after the id `after`, each once; an id that cannot be honoured gets one `resync`. Ends after `agent_end`, when `signal`
   * aborts, or after some minutes with the run going on.
   */
  events(
    tenant: string,
    run: string,
    options: { after?: string; signal: AbortSignal },
  ): AsyncIterable<Placed>;
  delete(tenant: string, thread: string): Promise<void>;
  /** The menu that a run with these settings would get now, and what else it would be warned of. */
  menu(settings: Settings): Promise<Menu & { warnings: Bodies["warning"][] }>;
  /**
   * Advances a run by one slice. Resolves when the delivery may be acknowledged; throws RetryableError when it must come again, FatalError
   * when that is of no use before the operator has acted. `message` and `retried`: see `Received`.
   */
  deliver(delivery: Delivery, message: string, retried?: number): Promise<void>;
  /** The queue has given up on this delivery: it is published once more, in a minute, if its run goes on. How often is for the claims to limit. */
  failed(delivery: Delivery): Promise<void>;
  /** Publishes again what should have come and did not, at most `limit`; answers how many. As many as the limit: there may be more. */
  sweep(limit?: number): Promise<number>;
}
