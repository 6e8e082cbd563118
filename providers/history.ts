/**
 * Makes a transcript one that every vendor takes: the one place where its faults are mended, whatever crash, cancel, compaction or odd model
 * made them (DESIGN rule 9). Pure, and run before every request; what is stored stays as it is.
 */
import { FatalError } from "../src/errors.ts";
import type { AssistantBlock, AssistantMessage, Message, ToolMessage, UserBlock } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";

/**
 * The request as it can be sent to the model `name`. Thinking and opaque items stay only where this very model made them: vendors refuse
 * foreign ones (CASES A16; `unsigned`: also what has no opaque item), and OpenAI also those of its reasoning models in a request to another model. Without tools it holds nothing
 * about tools (CASES D04).
 */
export function sendable(request: ModelRequest, name: string, unsigned = false): ModelRequest {
  const { system, tools, toolChoice, parallelToolCalls, responseFormat, maxOutputTokens } = request;
  const vendor = name.slice(0, name.indexOf("/"));
  const messages = request.messages.map((message) =>
    message.role === "assistant" ? ownOnly(message, vendor, message.model === name, unsigned) : message
  );
  return {
    ...(system?.trim() ? { system: wellFormed(system) } : {}),
    messages: repair(messages),
    tools: wellFormed(tools),
    toolChoice: tools.length ? toolChoice : "auto",
    ...(tools.length && parallelToolCalls !== undefined ? { parallelToolCalls } : {}),
    ...(responseFormat ? { responseFormat: wellFormed(responseFormat) } : {}),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
  };
}

function ownOnly(
  message: AssistantMessage,
  vendor: string,
  own: boolean,
  unsigned: boolean,
): AssistantMessage {
  const content = message.content.flatMap((block): AssistantBlock[] => {
    if (block.type === "thinking") {
      return own && block.vendor === vendor && (block.opaque || unsigned) ? [block] : [];
    }
    if (block.type !== "tool_call" || own || block.opaque === undefined) return [block];
    const { opaque: _, ...call } = block;
    return [call];
  });
  return { ...message, content };
}

/**
 * Messages in which every call has exactly one result, right after its message and in the order of the calls; no message or block is
 * empty; no string holds half a surrogate pair; the first message is the user's and the last is not the assistant's.
 *
 * Throws FatalError where mending would mean to invent a question: nothing to send, or an answer at the end. The loop never asks then
 * (CASES A23).
 */
export function repair(messages: readonly Message[]): Message[] {
  const results = new Map<string, ToolMessage>();
  for (const message of messages) {
    if (message.role === "tool" && !results.has(message.toolCallId)) results.set(message.toolCallId, message);
  }
  const repaired: Message[] = [];
  const called = new Set<string>();
  for (const message of messages) {
    if (message.role === "user") {
      repaired.push({ ...message, content: visible(message.content, "(empty message)") });
    }
    if (message.role !== "assistant") continue;
    const content = spoken(message.content, called);
    if (content.length) repaired.push({ ...message, content });
    for (const block of content) {
      if (block.type === "tool_call") repaired.push(resultOf(block.id, block.name, message, results));
    }
  }
  const first = repaired[0], last = repaired.at(-1);
  if (!first || !last) throw new FatalError("history", "Send a transcript: it holds nothing to answer");
  if (last.role === "assistant") {
    throw new FatalError(
      "history",
      "Send a transcript: it ends with the assistant's message, so nothing is asked",
    );
  }
  // What compaction leaves may begin with an answer; some vendors insist on a question before it.
  if (first.role !== "user") {
    repaired.unshift({ role: "user", id: "", content: "(earlier messages omitted)", at: first.at });
  }
  return repaired;
}

function resultOf(
  id: string,
  name: string,
  call: AssistantMessage,
  results: ReadonlyMap<string, ToolMessage>,
): ToolMessage {
  const result = results.get(id);
  if (result) return { ...result, content: visible(result.content, "(no output)") };
  return {
    role: "tool",
    id: "",
    toolCallId: id,
    toolName: name,
    content: "No result provided",
    isError: true,
    at: call.at,
  };
}

/** What of an assistant message can be sent. `called` collects ids: a second call with one of them is the same call again (CASES A11). */
function spoken(content: readonly AssistantBlock[], called: Set<string>): AssistantBlock[] {
  const kept = content.flatMap((block): AssistantBlock[] => {
    if (block.type === "text") return block.text.trim() ? [wellFormed(block)] : [];
    if (block.type === "thinking") return [block]; // signed: not a byte of it may change
    if (called.has(block.id)) return [];
    called.add(block.id);
    const mended = wellFormed(block);
    return [mended === block || block.opaque === undefined ? mended : { ...mended, opaque: block.opaque }];
  });
  // Anthropic refuses a message that ends on thinking, Responses a reasoning item that nothing follows (CASES A18).
  while (kept.at(-1)?.type === "thinking") kept.pop();
  return kept;
}

/** Content without empty parts, and never empty (CASES A22). */
function visible(content: string | UserBlock[], placeholder: string): string | UserBlock[] {
  if (typeof content === "string") return content.trim() ? wellFormed(content) : placeholder;
  const kept = content.filter((block) => block.type === "text" ? block.text.trim() : block.data || block.url);
  return kept.length ? wellFormed(kept) : placeholder;
}

/** A JSON value without lone surrogates, which are U+FFFD in it: strict parsers refuse the whole request for one (CASES A27). */
export function wellFormed<T>(value: T): T {
  return isWellFormed(value) ? value : mended(value);
}

/** Asked first, since it is nearly always so, and a copy of the whole history for each request is dear. */
function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWellFormed);
  if (typeof value !== "object" || value === null) return true;
  for (const key in value) {
    if (!key.isWellFormed() || !isWellFormed((value as Record<string, unknown>)[key])) return false;
  }
  return true;
}

function mended<T>(value: T): T {
  if (typeof value === "string") return value.toWellFormed() as T;
  if (Array.isArray(value)) return value.map(mended) as T;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, held]) => [key.toWellFormed(), mended(held)]),
  ) as T;
}
