/**
 * What a run lives in. Every verb is atomic and one round trip. A thread is a fixed set of values under one name: its log, its open calls,
 * its mailbox, its runs, its idempotency keys, its meta and its lease. Verbs read and write headers of entries, never bodies.
 *
 * Threads are named by `threadKey`, runs by their ids; both are minted by the caller, as is everything random. Times are Unix
 * milliseconds. Drivers hold the time to live and push a thread's end outwards only.
 */
import type { MailKind } from "./entry.ts";
import type { Delivery } from "./queue.ts";
import type { Status } from "./run.ts";

/** The exclusive right to advance a thread's run. Every commit carries it and is refused without it (DESIGN rule 1). */
export interface Lease {
  thread: string;
  incarnation: string;
  token: number;
}

export interface MailCounts {
  steering: number;
  followUps: number;
}

/** A part of a commit. */
export interface Change {
  /** Entries for the log. */
  append?: string[];
  /**
   * Calls that have no result yet, by path: a letter (p not begun, s started, w waits for an answer; a answered, which only `submit`
   * writes) and the result entry that a cancel would append.
   */
  open?: Record<string, string>;
  /** Paths of calls that got their result. */
  close?: string[];
  /** The run's progress, JSON of at most 4 KB. */
  progress?: string;
  /** Ends the slice: the lease is released. */
  leave?:
    | { status: "queued" | "waiting"; wakeAt?: number }
    /** `ending` is kept with the run. `successor` names the run that opens, with the same settings, if mail is left. */
    | { status: "completed" | "failed"; ending: string; successor?: string };
}

/** The oldest mail of these kinds, or all of it, in the order in which it came. */
export interface Take {
  kinds: MailKind[];
  all: boolean;
}

export interface Commit {
  /** last + 1 applies; last repeats the answer and changes nothing; anything else throws. Starts at 1 with each claim. */
  sequence: number;
  /** How many entries of the log the sender holds. */
  known: number;
  /** Applies always. */
  change: Change;
  /** Applies after `change`, if the sender knew every entry that was there before this commit: no mail or answer came that it has not seen. */
  quiet?: Change;
  /** Then mail moves to the log: of the first of these for which there is any; but not if there is a `quiet` that did not apply. */
  take?: Take[];
  /** Header of the taken entries up to their id, which the mail brings: `user RUN FRAME 0`. */
  head?: string;
  /** Says that a message or result is in it: attempts are counted from here again. */
  advances?: boolean;
  /** When the delivery that `leave` makes necessary must have come (sweep). */
  due: number;
}

export type Committed =
  | { is: "lost" }
  | {
    is: "ok";
    /** Whether `quiet` applied. */
    quiet: boolean;
    /** What to publish now that the slice has ended. */
    publish?: Delivery;
    mail: MailCounts;
    watched: boolean;
    /** Everything after `known`, what this commit wrote included. */
    entries: string[];
  };

export interface Submission {
  thread: string;
  /** Used if the thread is made by this. */
  incarnation: string;
  /** Id of the run that starts where none is active. */
  run: string;
  /** Its settings. Absent: those of `like`; only mail for an existing run has none. */
  settings?: string;
  /** A run of this thread that the caller names: if it is unknown nothing happens. */
  like?: string;
  mail?: {
    kind: MailKind;
    id: string;
    /** JSON: the body of the `user` entry it will be. */
    body: string;
    /** JSON: the body of the `queued` entry of the active run that it has to wait for. */
    note: string;
  };
  /** The answer to a waiting call of `like`: its path, and the entry to append. */
  answer?: { path: string; entry: string };
  /** An idempotency key, and the hash of what came with it. */
  key?: { name: string; hash: string };
  /** When a run is active: its mail, refuse, or end that run (with this body of its `end` entry) and start. */
  ifBusy?: "mail" | "reject" | "interrupt";
  endBody?: string;
  due: number;
}

export type Submitted =
  /** ok: accepted. repeat: this key was accepted before, or this call was answered before; nothing changed. */
  | {
    is: "ok" | "repeat";
    run: string;
    message: string;
    status: Status;
    started: boolean;
    publish?: Delivery;
  }
  /**
   * conflict: the key came with something else. busy: a run is active. closed: the call waits no longer, or never did. full: 64 messages
   * or 1 MB wait. unknown: no such thread or run.
   */
  | { is: "conflict" | "busy" | "closed" | "full" | "unknown" };

export interface ClaimOptions {
  /** The queue's message, the same for all its tries and duplicates, and which try it is; absent: every one is a later try. */
  message: string;
  retried?: number;
  leaseMs: number;
  known?: number;
  incarnation?: string;
}

/** Who holds a lease, as drivers keep it. */
export function holderOf({ message, retried }: ClaimOptions): string {
  return `${retried ?? "*"} ${message}`;
}

/** Whether this holder may take a lease from that one: a later try of the same message may; a duplicate of a try may not. */
export function takesOver(holder: string, from: string): boolean {
  const [, tries, message] = /^(\S+) (.*)$/s.exec(holder)!, [, before, other] = /^(\S+) (.*)$/s.exec(from)!;
  return message === other && (tries === "*" || before === "*" || Number(tries) > Number(before));
}

export type Claimed =
  /** Nothing to do for this delivery. `publish`: a ticket that nobody holds, to be published for its time. */
  | { is: "nothing"; publish?: Delivery }
  /** Another holds the lease. `publish` comes when that lease ends. */
  | { is: "busy"; publish: Delivery }
  | {
    is: "claimed";
    lease: Lease;
    run: string;
    settings: string;
    progress: string;
    /** Claims since the last commit that advanced, and of the run in all; this one included. Claims that ended in a wait don't count. */
    attempts: number;
    claims: number;
    open: Record<string, string>;
    mail: MailCounts;
    watched: boolean;
    /** The index of the first entry in `entries`. */
    from: number;
    length: number;
    /** At most 2 MB; `read` gives the rest. */
    entries: string[];
  };

export type Renewed = { is: "lost" } | { is: "ok"; mail: MailCounts; watched: boolean };

/** The partial of a message that is being streamed, kept only while somebody watches. */
export interface Live {
  /** Length of the log when the first item came. */
  base: number;
  /** The position of the first item; positions go on counting while `base` stays. */
  skip: number;
  items: string[];
}

export interface RunRecord {
  id: string;
  status: Status;
  settings: string;
  /** JSON: `Ending` once it has ended, `Progress` before. */
  progress: string;
  /** Index of the run's first entry. */
  first: number;
  successor?: string;
}

export interface Reading {
  incarnation: string;
  length: number;
  /** The latest run of the thread. */
  current: string;
  run?: RunRecord;
  mail: MailCounts;
  /** At most 2 MB of entries from the index asked for. */
  entries: string[];
  live?: Live;
}

export interface Store {
  /** What it is, for people: "pawl.db", "Upstash Redis". */
  readonly name: string;

  /**
   * Accepts mail or an answer. Starts a run where none is active; wakes one that waits (a follow-up does not). A repeat of a key answers
   * the ids it answered before and the present status. Publish what it says, also at a repeat; if that fails, `withdraw`.
   */
  submit(submission: Submission): Promise<Submitted>;

  /** Takes back what a `submit` that was "ok" did, if nobody has seen it yet; answers whether it did. */
  withdraw(submission: Submission): Promise<boolean>;

  /**
   * Takes the lease on the run of a delivery. A later try of the message that holds it takes over at once: it comes because the try before
   * died. `known` entries of `incarnation` are held already and are not sent again.
   */
  claim(delivery: Delivery, options: ClaimOptions): Promise<Claimed>;

  commit(lease: Lease, commit: Commit): Promise<Committed>;

  renew(lease: Lease, leaseMs: number): Promise<Renewed>;

  /** Adds to the partial that watchers see; `reset` begins a new one. Answers false when the lease is lost. */
  stream(lease: Lease, items: string[], reset: boolean): Promise<boolean>;

  /**
   * Final at once: appends the ready-made results of open calls and an `end` entry with this body, and makes every later commit of the
   * run's slice "lost". ok: cancelled now. repeat: was cancelled before. ended: ended otherwise. unknown: no such run.
   */
  cancel(thread: string, run: string, endBody: string): Promise<"ok" | "repeat" | "ended" | "unknown">;

  /** Undefined when the thread is unknown. `run` absent in the answer: no such run. */
  read(thread: string, options: { run?: string; from?: number }): Promise<Reading | undefined>;

  /**
   * Calls `wake` when there may be something new to read, until the returned function is called. May call too often, or late. Only with
   * `live` does the thread count as watched, so that partials are streamed.
   */
  watch(thread: string, wake: () => void, options?: { live: boolean }): () => void;

  /** A value too large for an entry, under its hash; and back. */
  put(thread: string, hash: string, value: string): Promise<void>;
  get(thread: string, hash: string): Promise<string | undefined>;

  /** Everything of the thread is gone, with its active run. Answers whether there was anything. */
  delete(thread: string): Promise<boolean>;

  /** Deliveries that must have come before `before` and did not; they are due again at `next`. */
  overdue(before: number, next: number, limit: number): Promise<Delivery[]>;

  /**
   * Ids of runs of threads whose names begin with `prefix`, newest first, from after the run `after` on. A prefix is a tenant's: it ends
   * with the name's first "~". A hint: it may lag.
   */
  runs(
    prefix: string,
    options: { status?: Status; limit: number; after?: string },
  ): Promise<{ thread: string; run: string }[]>;

  close(): Promise<void>;
}
