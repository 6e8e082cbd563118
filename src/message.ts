/**
 * The transcript's words: what a user, a model and a tool say. This is the form in which they are stored and handed to
 * providers and tools; the HTTP face spells the same in snake_case.
 */

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Text {
  type: "text";
  text: string;
}

export interface Image {
  type: "image";
  mediaType: string;
  /** base64 */
  data?: string;
  url?: string;
}

/**
 * What the model thought before it spoke. `opaque` is the vendor's own item as JSON text (signature, encrypted content): it goes back
 * to that vendor byte for byte and to nobody else.
 */
export interface Thinking {
  type: "thinking";
  text: string;
  vendor: string;
  opaque?: string;
}

/**
 * A call the model asks for. `id` is Pawl's own, unique in the thread; the vendor's id is not kept (it may be missing, repeated or
 * too long: CASES A10, A12, A13). `raw` is there when the model's text is not what `JSON.stringify(arguments)` gives; when that text is
 * no JSON object, `invalid` says why, `arguments` is {} and the call is never run (CASES B02, B06).
 */
export interface ToolCall {
  type: "tool_call";
  id: string;
  name: string;
  arguments: { [key: string]: Json };
  raw?: string;
  invalid?: string;
  /** The vendor's own item about this call as JSON text, for that vendor alone. */
  opaque?: string;
}

export type UserBlock = Text | Image;
export type AssistantBlock = Text | Thinking | ToolCall;

export interface UserMessage {
  role: "user";
  id: string;
  content: string | UserBlock[];
  /** Where it came from, when not from a user: "webhook", "cron". */
  source?: string;
  /** Unix milliseconds, as in every message. */
  at: number;
}

/** Why the model stopped. `other` is a reason that nobody knew when this was written; it is never a success. */
export type StopReason = "stop" | "tool_calls" | "length" | "refusal" | "other";

/**
 * In tokens. `input` counts all of the prompt, `cached` the part of it that the vendor's cache served, `written` the part that it took in at a
 * price of its own; `output` counts `reasoning` too.
 */
export interface Usage {
  input: number;
  output: number;
  cached?: number;
  written?: number;
  reasoning?: number;
}

export interface AssistantMessage {
  role: "assistant";
  id: string;
  content: AssistantBlock[];
  stopReason: StopReason;
  /** The vendor's word for why it stopped, where `stopReason` is "other" or "refusal". */
  stopDetail?: string;
  /** "vendor/model" */
  model: string;
  usage: Usage;
  at: number;
}

export interface ToolMessage {
  role: "tool";
  id: string;
  toolCallId: string;
  toolName: string;
  content: string | UserBlock[];
  isError: boolean;
  at: number;
}

export type Message = UserMessage | AssistantMessage | ToolMessage;

/** All text blocks of a message, joined without a separator: the text result of a run is that of its last assistant message. */
export function textOf(content: string | readonly { type: string; text?: string }[]): string {
  if (typeof content === "string") return content;
  return content.map((block) => block.type === "text" ? block.text ?? "" : "").join("");
}

export function callsOf(message: AssistantMessage): ToolCall[] {
  return message.content.filter((block) => block.type === "tool_call");
}

export function addUsage(a: Usage, b: Usage): Usage {
  const sum = { ...a, input: a.input + b.input, output: a.output + b.output };
  for (const part of ["cached", "written", "reasoning"] as const) {
    if (b[part] !== undefined) sum[part] = (a[part] ?? 0) + b[part];
  }
  return sum;
}
