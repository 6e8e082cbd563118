/** What the log says of one loop, one call and one effect: the words in which `transcript.ts` keeps it. */
import type { Answer, Bodies, Returned } from "./entry.ts";
import type { AssistantMessage, Message, ToolCall, UserMessage } from "./message.ts";

export interface CallState {
  path: string;
  call: ToolCall;
  /** begun: a commit permitted it to run. */
  state: "pending" | "waiting" | "begun" | "done";
  wait?: Bodies["wait"];
  /** To what it waits for now, or waited for last. */
  answer?: Answer;
  /** The arguments that its approval put in the place of the model's. */
  edited?: ToolCall["arguments"];
  /** From when it begins: its idempotency key, the moment, and the arguments if they are not the model's. */
  key?: string;
  at?: number;
  arguments?: ToolCall["arguments"];
  /** The effect that it has, by the tool's own key. */
  effect?: string;
  /** When it began, nobody knew whether its effect had been had before. */
  doubtful?: boolean;
  result?: Bodies["result"];
}

/** What is known of an effect. `key`: the idempotency key it went under. */
export interface Remembered {
  args: string;
  key: string;
  state: "begun" | "done" | "failed" | "unknown";
  result?: Pick<Bodies["result"], "content">;
}

export interface Frame {
  path: string;
  /** The present turn; 0 before the first. */
  turn: number;
  /** What the model said in the present turn. */
  message?: AssistantMessage;
  calls: CallState[];
  /** Failed model calls of the present turn, and when the next may be made. */
  retries: number;
  retryAt: number;
  /** How many models of the run's list could not answer, and are not asked again. */
  passed: number;
  /** Something of the present turn's message came before it broke off: another model does not go on with it. */
  heard: boolean;
  /** The turn in which a call first ran, or had its result from an earlier one: after it a forced choice holds no longer. */
  released?: number;
  /** Errors in a row of calls with the same tool and arguments. */
  failures: Map<string, { text: string; times: number }>;
  /** All that was said: for the root in all runs of the thread. What the model gets of it: `contextOf` (`compaction.ts`). */
  messages: Message[];
  /** Stands for the messages before the index `from`. */
  summary?: { message: UserMessage; from: number };
  /** Tokens of the last model call; 0 after a summary. */
  used: number;
  /** How often the vendor has refused the present turn's context, or what was to be summarised of it, as too long. */
  overflows: number;
  /** A summary was tried since the model last said something. */
  compacted: boolean;
  /** Tools that it has found or called, in that order: what `messages` show of deferred ones holds as long as they do. */
  loaded: Set<string>;
  /** What the tools of its last request are told apart by. */
  menu?: string;
  /** The last text that the model said in this frame and run. */
  text: string;
  /** The message that opened the frame, or the last of those: what the run is to end with is said there. */
  prompt?: string;
  /** The model was asked once more for what the run is to end with. */
  reasked: boolean;
  returned?: Returned;
  fingerprint?: string;
}

/** What outlives a run. */
export type Kept = Pick<Frame, "messages" | "summary" | "used" | "loaded">;

/** A frame in which nothing has been said yet, or not in this run. */
export function newFrame(path: string, kept: Kept = { messages: [], used: 0, loaded: new Set() }): Frame {
  return {
    path,
    turn: 0,
    calls: [],
    retries: 0,
    retryAt: 0,
    passed: 0,
    heard: false,
    failures: new Map(),
    reasked: false,
    messages: kept.messages,
    summary: kept.summary,
    used: kept.used,
    overflows: 0,
    compacted: false,
    loaded: kept.loaded,
    text: "",
  };
}
