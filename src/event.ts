/**
 * What a watcher sees of a run, in the seed's names: a projection of the log. An event's id is `offset.k`: its entry's index in the log,
 * and its place among that entry's events. Pieces of a message that is still being streamed are not in the log; their ids are those of
 * the entry that will come, with k from 1000 on.
 */
import { type Entry, frameOf, type MailKind, publicId } from "./entry.ts";
import {
  type AssistantMessage,
  callsOf,
  type Message,
  type ToolCall,
  type ToolMessage,
  type UserMessage,
} from "./message.ts";
import type { Delta } from "./model.ts";
import type { FinishReason, RunError, RunView, WaitingCall } from "./run.ts";

export type Event =
  | { type: "agent_start" }
  | {
    type: "agent_end";
    status: "completed" | "failed" | "cancelled";
    finishReason?: FinishReason;
    error?: RunError;
  }
  | { type: "turn_start"; turn: number }
  | { type: "turn_end"; turn: number; messageId: string; toolResults: string[] }
  | {
    type: "message_start";
    message: UserMessage | AssistantMessage | ToolMessage | { role: "assistant"; id: string };
  }
  | { type: "message_update"; messageId: string; delta: Delta }
  | { type: "message_end"; message: UserMessage | AssistantMessage | ToolMessage }
  | { type: "message_retry"; messageId: string; code: string; message: string }
  | { type: "tool_execution_start"; toolCallId: string; toolName: string; args: ToolCall["arguments"] }
  | { type: "tool_execution_update"; toolCallId: string; text: string }
  | {
    type: "tool_execution_end";
    toolCallId: string;
    toolName: string;
    result: ToolMessage["content"];
    isError: boolean;
  }
  | { type: "slice_start"; slice: number }
  | { type: "slice_end"; status: "queued" | "waiting" | "ended" }
  | { type: "mail_queued"; messageId: string; kind: MailKind }
  | { type: "mail_taken"; messageId: string }
  | { type: "run_waiting"; waitingFor: WaitingCall[]; until?: number }
  | { type: "warning"; code: string; message: string }
  | { type: "resync"; messages: Message[]; run: RunView };

/** An event and where it stands. */
export interface Placed {
  id: string;
  run: string;
  frame: string;
  event: Event;
}

/** k of the first live piece; no entry projects as many events. */
export const liveFrom = 1000;

/** Projects one run's entries, to be given to it in order from the run's first. */
export class Projector {
  readonly #run: string;
  readonly #calls = new Map<string, { call: ToolCall; started: boolean }>();
  readonly #frames = new Map<string, { turn: number }>();
  readonly #messages = new Set<string>();
  ended = false;

  constructor(run: string) {
    this.#run = run;
  }

  /** The events of the entry at `offset`; none for entries of other runs. */
  project(entry: Entry, offset: number): Placed[] {
    if (entry.run !== this.#run || this.ended) return [];
    return this.#events(entry).map((event, k) => ({
      id: `${offset}.${k}`,
      run: entry.run,
      frame: frameShown(entry),
      event,
    }));
  }

  /** Whether this assistant message is in the log. */
  has(message: string): boolean {
    return this.#messages.has(message);
  }

  #events(entry: Entry): Event[] {
    switch (entry.kind) {
      case "start":
        return [{ type: "agent_start" }];
      case "slice":
        return [{ type: "slice_start", slice: entry.n }];
      case "queued":
        return [{ type: "mail_queued", messageId: entry.id, kind: entry.body.kind }];
      case "user": {
        const message: UserMessage = { role: "user", id: entry.id, ...entry.body };
        const said: Event[] = [{ type: "message_start", message }, { type: "message_end", message }];
        // What the frame's first turn takes is its prompt; only later mail has been announced as waiting.
        return entry.n > 1 ? [{ type: "mail_taken", messageId: entry.id }, ...said] : said;
      }
      case "reask": {
        const message: UserMessage = { role: "user", id: entry.id, source: "pawl", ...entry.body };
        return [{ type: "message_start", message }, { type: "message_end", message }];
      }
      case "turn": {
        this.#frames.set(entry.path, { turn: entry.n });
        return [...this.#turnEnd(entry.n - 1, entry.body.ended), { type: "turn_start", turn: entry.n }];
      }
      case "assistant": {
        const { menu: _, ...body } = entry.body;
        const message: AssistantMessage = { role: "assistant", id: entry.id, ...body };
        this.#messages.add(entry.id);
        callsOf(message).forEach((call) => this.#calls.set(call.id, { call, started: false }));
        return [{ type: "message_start", message }, { type: "message_end", message }];
      }
      case "wait":
      case "call":
        return this.#start(publicId(entry.run, entry.path));
      case "result": {
        const { content, isError, toolName, at } = entry.body;
        const toolCallId = publicId(entry.run, entry.path);
        const message: ToolMessage = {
          role: "tool",
          id: `${toolCallId}-result`,
          toolCallId,
          toolName,
          content,
          isError,
          at,
        };
        return [
          ...this.#start(toolCallId),
          { type: "tool_execution_end", toolCallId, toolName, result: content, isError },
          { type: "message_start", message },
          { type: "message_end", message },
        ];
      }
      case "retry":
        return [{
          type: "message_retry",
          messageId: entry.id,
          code: entry.body.code,
          message: entry.body.message,
        }];
      case "return":
        return this.#turnEnd(this.#frames.get(entry.path)?.turn ?? 0, entry.body.ended);
      case "compact": {
        const message = "failed" in entry.body
          ? `The context could not be made shorter: ${entry.body.failed}`
          : "Older messages were summarised: the model no longer gets them word for word";
        return [{ type: "warning", code: "compaction", message }];
      }
      case "warning":
        return [{ type: "warning", ...entry.body }];
      case "pause": {
        const { status, wakeAt, waitingFor = [] } = entry.body;
        const end: Event = { type: "slice_end", status };
        return status === "queued" ? [end] : [{ type: "run_waiting", waitingFor, until: wakeAt }, end];
      }
      case "end": {
        this.ended = true;
        const { status, finishReason, error, ended } = entry.body;
        return [...this.#turnEnd(this.#frames.get(entry.path)?.turn ?? 0, ended), {
          type: "agent_end",
          status,
          finishReason,
          error,
        }];
      }
      default:
        return [];
    }
  }

  #turnEnd(turn: number, ended?: { message: string; results: string[] }): Event[] {
    return ended ? [{ type: "turn_end", turn, messageId: ended.message, toolResults: ended.results }] : [];
  }

  #start(toolCallId: string): Event[] {
    const known = this.#calls.get(toolCallId);
    if (!known || known.started) return [];
    known.started = true;
    return [{
      type: "tool_execution_start",
      toolCallId,
      toolName: known.call.name,
      args: known.call.arguments,
    }];
  }
}

/** Entries of a call stand under the call's path; what is shown is the frame that made it. */
function frameShown(entry: Entry): string {
  const ofCall = entry.kind === "call" || entry.kind === "wait" || entry.kind === "answer" ||
    entry.kind === "result";
  return ofCall ? frameOf(entry.path) : entry.path;
}
