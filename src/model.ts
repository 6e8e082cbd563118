/** A language model: a transcript and tools in, one assistant message out. */
import type { Json, Message, StopReason, Text, Thinking, ToolCall, Usage } from "./message.ts";
import type { ToolChoice } from "./run.ts";

/** A tool as the model sees it. `parameters` is a JSON Schema of type object. */
export interface ToolSpec {
  name: string;
  description: string;
  parameters: { [key: string]: Json };
}

export interface ModelRequest {
  system?: string;
  /** Sendable: every call has one result, right after its message, and the last message is not the assistant's (DESIGN rule 9). */
  messages: Message[];
  tools: ToolSpec[];
  /** What no wire can say is enforced by the loop. With no tools, neither this nor `parallelToolCalls` is sent (CASES D04). */
  toolChoice: ToolChoice;
  parallelToolCalls?: boolean;
  /** JSON Schema of type object that the text of a message without calls must suit. Only for models whose `formats` takes it. */
  responseFormat?: { [key: string]: Json };
  /** The message may have no more tokens than this, reasoning included. */
  maxOutputTokens?: number;
}

/** A piece of a message that is being streamed. For observers only: the reply says it all again. */
export type Delta =
  | { type: "text" | "thinking"; text: string }
  | { type: "tool_call"; index: number; name?: string; text: string };

export type ReplyBlock = Text | Thinking | Omit<ToolCall, "id">;

export interface ModelReply {
  content: ReplyBlock[];
  stopReason: StopReason;
  /** The vendor's word, where `stopReason` is "other" or "refusal". */
  stopDetail?: string;
  usage: Usage;
}

export interface ModelOptions {
  signal: AbortSignal;
  /** Must not throw. */
  onDelta(delta: Delta): void;
  /** The vendor has sent something, be it nothing to show: it is still there. Must not throw. */
  onSign?(): void;
}

export interface Model {
  /** "vendor/model" */
  readonly name: string;
  /**
   * One try: no retries inside. Resolves with a whole message only; a stream that was cut, aborted, or ended without saying why is a
   * ModelError, and nothing of it is executed.
   */
  reply(request: ModelRequest, options: ModelOptions): Promise<ModelReply>;
  /**
   * Whether the vendor itself can hold answers to this JSON Schema, in a request with these tools. Where not, the prompt asks for it; the
   * loop checks in either case.
   */
  formats?(schema: { [key: string]: Json }, tools: readonly ToolSpec[]): boolean;
}

/** The names in "vendor/model, vendor/other": the first is asked, those after it where the ones before cannot answer. */
export function modelNames(list: string): string[] {
  return list.split(",").map((name) => name.trim());
}

/** Where models come from. */
export interface Models {
  /** "vendor/model", or a list of them. */
  readonly default: string;
  /** Throws InputError for a vendor that is unknown or has no key; its message says what to set. */
  get(name: string): Model;
  /** What models cost, by name; undefined for those of which nobody knows it. Absent: it is known of none. */
  prices?(): Promise<(name: string) => Price | undefined>;
}

/** USD for what one call used. */
export type Price = (usage: Usage) => number;

export type ModelErrorCode =
  | "network"
  | "timeout"
  | "rate_limit"
  | "overloaded"
  | "server"
  | "empty"
  | "auth"
  | "quota"
  | "bad_request"
  | "context_overflow"
  | "content_policy"
  | "aborted";

const retryable: ReadonlySet<ModelErrorCode> = new Set([
  "network",
  "timeout",
  "rate_limit",
  "overloaded",
  "server",
  "empty",
]);

/** The vendor refused the request as it was: it made nothing, and asks for nothing. */
const free: ReadonlySet<ModelErrorCode> = new Set([
  "rate_limit",
  "overloaded",
  "auth",
  "quota",
  "bad_request",
  "context_overflow",
]);

/** A model call that gave no message. Its code says whether the same call may succeed later. */
export class ModelError extends Error {
  override name = "ModelError";
  readonly retryable: boolean;
  /** The vendor had begun to answer. */
  begun = false;
  constructor(
    readonly code: ModelErrorCode,
    message: string,
    /** What the vendor asked us to wait. */
    readonly retryAfterMs?: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.retryable = retryable.has(code);
  }

  /** The call used nothing. */
  get free(): boolean {
    return !this.begun && free.has(this.code);
  }
}
