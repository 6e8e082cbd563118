/**
 * The entries of a thread's log. The log is transcript, journal and event stream in one: the state of a run is a fold over it
 * (`transcript.ts`), its events are a projection of it (`event.ts`).
 *
 * An entry is one header line, `kind run path n id`, and a body, JSON text. Stores may read and write headers, never bodies: so what
 * comes back is what went in, byte for byte (DESIGN rule 6).
 *
 * Paths. The outermost loop is ".". Its turn 3's first call is "3.0". The loop that an agentic function opened there under the key
 * "facts" is "3.0/facts", that loop's calls are "3.0/facts/1.0". A call's identity is (run, path), never the vendor's id (rule 5).
 */
import type { AssistantMessage, ToolCall, ToolMessage, UserMessage } from "./message.ts";
import type { FinishReason, RunError, RunView, WaitFor, WaitingCall } from "./run.ts";
import { FatalError } from "./errors.ts";

export type MailKind = "steering" | "follow_up";

/** What each kind's body holds. */
export interface Bodies {
  /** A run begins. */
  start: { at: number };
  /** A slice begins; n counts them. */
  slice: { at: number };
  /** Mail waits in the mailbox; id is its message id. */
  queued: { kind: MailKind; at: number };
  /** Waiting mail was taken back by its sender; id is its message id. */
  withdrawn: Record<string, never>;
  /** A user message; path is the frame that took it. A prompt is the first of its run. */
  user: Omit<UserMessage, "role" | "id">;
  /** The model is asked once more for a choice, a value or a call, in turn n; id is the message's. */
  reask: { content: string; at: number };
  /** Turn n begins, so a model call is permitted; `ended` says what the turn before it held. */
  turn: { ended?: { message: string; results: string[] } };
  /** The model's message of turn n. `menu` tells the tools that it was shown from others, where they are not those of the message before. */
  assistant: Omit<AssistantMessage, "role" | "id"> & { menu?: string };
  /** A model call failed and will be tried again, not before `until`; n counts the failures of this turn, id is the message's. `heard`: something had come. `passes`: by the next model. */
  retry: { code: string; message: string; until: number; heard?: boolean; passes?: boolean };
  /** What the model gets of the frame begins anew; n is the turn, id the summary's. */
  compact: Compacted & { at: number };
  /**
   * A tool call is permitted to run; path is the call's. `key` is handed to the tool as idempotencyKey; `effect` has the tool's own key.
   * `arguments`: those it runs with, if they are not the model's.
   */
  call: {
    key: string;
    effect?: { id: string; args: string };
    arguments?: ToolCall["arguments"];
    at: number;
  };
  /** A call waits; `shown` tells whether it still means what is to be approved. After its `call`: what it began ends elsewhere. */
  wait: { for: WaitFor; until: number; reason?: string; shown?: string };
  /** The answer to a waiting call. */
  answer: Answer;
  /**
   * A call's result. `ran`: the tool's body did run, for this call or an earlier one with the same effect. `unknown`: nobody knows what
   * became of its effect. `notRun`: the loop decided not to run it; such results are not the tool's failures. `loads`: deferred tools that
   * requests show from now on. `terminate`: the loop may end after this batch. `reusable`: it also answers the same call later, whose result
   * is then `reused`.
   */
  result: Omit<ToolMessage, "role" | "id" | "toolCallId"> & {
    ran?: boolean;
    unknown?: boolean;
    notRun?: "skipped" | "cancelled" | "stopped" | "refused";
    loads?: readonly string[];
    terminate?: boolean;
    reusable?: boolean;
    reused?: boolean;
  };
  /** A nested loop opens; path is its frame. */
  enter: { fingerprint: string };
  /** What a step of an agentic function returned; path is the call's path and the step's name. `value` undefined: nothing. */
  step: { value?: unknown };
  /** A nested loop ended; `error`: without the choice or the value that was asked for. */
  return: Returned & { ended?: { message: string; results: string[] } };
  /** A listener should know of this. */
  warning: { code: string; message: string };
  /** A slice ends and the run goes on later. */
  pause: { status: "queued" | "waiting"; wakeAt?: number; waitingFor?: WaitingCall[] };
  /** The run is over. */
  end: {
    status: "completed" | "failed" | "cancelled";
    finishReason?: FinishReason;
    error?: RunError;
    ended?: { message: string; results: string[] };
    at: number;
  };
}

/** `from`: the id of the first message that the summary does not cover. `failed`: why there is none. */
export type Compacted = { summary: string; from: string } | { failed: string };

/** A call's result before it is written: for whom and when is added then. */
export type Result = Omit<Bodies["result"], "toolName" | "at">;

/** What a nested loop comes to. */
export interface Returned extends Pick<RunView, "choice" | "output" | "error"> {
  text: string;
  finishReason: FinishReason;
}

/**
 * `arguments`: instead of the model's, for a call that is approved. `always`: the same for all later calls of its tool in the thread.
 */
export type Answer =
  | { content: string; isError?: boolean }
  | { approve: boolean; reason?: string; arguments?: ToolCall["arguments"]; always?: boolean };

export type Kind = keyof Bodies;
export type EntryOf<K extends Kind> = {
  kind: K;
  run: string;
  path: string;
  n: number;
  id: string;
  body: Bodies[K];
};
export type Entry = { [K in Kind]: EntryOf<K> }[Kind];

/** Writes an entry. `path` and `id` must hold no white space; "-" stands for no id. */
export function encode<K extends Kind>(
  kind: K,
  run: string,
  path: string,
  body: Bodies[K],
  { n = 0, id = "-" }: { n?: number; id?: string } = {},
): string {
  return `${kind} ${run} ${path} ${n} ${id}\n${JSON.stringify(body)}`;
}

/** All there are. */
export const kinds: Readonly<Record<Kind, true>> = {
  ...{ start: true, slice: true, queued: true, withdrawn: true, user: true, reask: true, turn: true },
  ...{ assistant: true, retry: true, compact: true, call: true, wait: true, answer: true, result: true },
  ...{ enter: true, step: true, return: true, warning: true, pause: true, end: true },
};

/** Reads an entry. Throws FatalError at anything that this version did not write. */
export function decode(text: string): Entry {
  const cut = text.indexOf("\n");
  const [kind, run, path, n, id] = text.slice(0, cut).split(" ");
  if (cut < 0 || !run || !path || !id) {
    throw new FatalError(
      "schema",
      `Read the log: expected "kind run path n id", found "${text.slice(0, 80)}"`,
    );
  }
  if (!Object.hasOwn(kinds, kind!)) {
    throw new FatalError(
      "schema",
      `Read the log: "${kind}" is an entry of another version. Run a newer Pawl`,
    );
  }
  return { kind, run, path, n: Number(n), id, body: JSON.parse(text.slice(cut + 1)) } as Entry;
}

/** Where the outermost loop lives. */
export const root = ".";

export function turnPath(frame: string, turn: number): string {
  return `${frame === root ? "" : frame + "/"}${turn}`;
}

export function callPath(frame: string, turn: number, index: number): string {
  return `${turnPath(frame, turn)}.${index}`;
}

/** The frame a call belongs to: of "3.0/facts/1.0" it is "3.0/facts", of "3.0" the root. */
export function frameOf(call: string): string {
  const cut = call.lastIndexOf("/");
  return cut < 0 ? root : call.slice(0, cut);
}

/**
 * Pawl's own id of a call, and of an assistant message where `path` is its frame and turn: unique in the thread, in letters, digits, "-"
 * and "_", so that every vendor takes it.
 */
export function publicId(run: string, path: string): string {
  const spelled = path.replace(
    /[^A-Za-z0-9]/g,
    (c) => c === "." ? "-" : c === "/" ? "_" : `-${c.charCodeAt(0).toString(16)}-`,
  );
  return `${run.slice(run.indexOf("~") + 1)}-${spelled}`;
}
