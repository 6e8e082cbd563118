/** Anthropic's Messages API. The wire: https://platform.claude.com/docs/en/api/messages. */
import type Anthropic from "@anthropic-ai/sdk";
import {
  addUsage,
  type AssistantBlock,
  type Message,
  type ToolMessage,
  type Usage,
  type UserBlock,
} from "../src/message.ts";
import type { Delta, Model, ModelRequest, ReplyBlock } from "../src/model.ts";
import { fetchStream } from "./answer.ts";
import { argumentsObject, received, wireId, wireName } from "./call.ts";
import { strict } from "./format.ts";
import { sendable } from "./history.ts";
import { objectSchema } from "./object_schema.ts";
import { conclude, harmless, noTimeout, read, type Reader, type Stop, tokens, usageOf } from "./reader.ts";

export interface AnthropicOptions {
  apiKey: string;
  /** Default: https://api.anthropic.com */
  baseURL?: string;
}

const vendor = "anthropic";

/** The API insists on a limit. Every model takes this one, and an answer or a file in a call's arguments seldom needs more. */
export const maxTokens = 8192;

/** Models that refuse to be held to a schema. */
const unformatted = /^claude-([123]|instant|(opus|sonnet)-4(-0|-2025|$))/;

/** The model `name` ("anthropic/…") over the Messages API. */
export function anthropic(name: string, { apiKey, baseURL }: AnthropicOptions): Model {
  const model = name.slice(name.indexOf("/") + 1);
  return {
    name,
    formats: (schema) => /^claude-/.test(model) && !unformatted.test(model) && strict(schema),
    reply: async (request, { signal, onDelta, onSign }) => {
      const body = messagesBody(model, sendable(request, name));
      const open = (more: Anthropic.ContentBlockParam[]) => async (signal: AbortSignal) => {
        const { BaseAnthropic, Messages } = await import("./anthropic_client.ts");
        const client = new BaseAnthropic({
          apiKey,
          // Given even where they say nothing new: the SDK would read the environment instead.
          authToken: null,
          baseURL: baseURL || "https://api.anthropic.com",
          logLevel: "off",
          maxRetries: 0,
          timeout: noTimeout,
          fetch: fetchStream,
        });
        const messages = more.length
          ? [...body.messages, { role: "assistant" as const, content: more }]
          : body.messages;
        return await new Messages(client).create({ ...body, messages }, { signal });
      };
      // A pause goes on with what was said, unchanged; all of it is one message (CASES B17).
      const said: Anthropic.ContentBlockParam[] = [], content: ReplyBlock[] = [];
      let usage: Usage = { input: 0, output: 0 };
      for (let pauses = 0;; pauses++) {
        const reader = messagesReader(harmless(onDelta));
        const reply = await read(open(said), reader, { name, apiKey, signal, onSign });
        content.push(...reply.content);
        usage = pauses ? addUsage(usage, reply.usage) : reply.usage;
        if (reply.stopDetail !== pause || pauses === mostPauses) return { ...reply, content, usage };
        said.push(...reader.blocks());
      }
    },
  };
}

/** The vendor ran tools of its own for so long that it wants to be asked again. https://platform.claude.com/docs/en/api/handling-stop-reasons */
const pause = "pause_turn";
const mostPauses = 5;

/** A prefix of the request that the vendor's cache keeps, up to here. */
const cached = { cache_control: { type: "ephemeral" as const } };

/**
 * The request on the wire, what grows last. Three of the four marks of its cache are used: after the tools, after the system prompt, and after
 * everything, which the vendor sets itself, so that no message is spelled differently later.
 */
export function messagesBody(model: string, request: ModelRequest): Anthropic.MessageCreateParamsStreaming {
  const { system, messages, tools, responseFormat: schema, maxOutputTokens = maxTokens } = request;
  return {
    model,
    max_tokens: Math.min(maxTokens, maxOutputTokens),
    stream: true,
    ...cached,
    ...(tools.length
      ? {
        tools: tools.map(({ name, description, parameters }, index) => ({
          name,
          description,
          input_schema: objectSchema(parameters) as Anthropic.Tool.InputSchema,
          ...(index === tools.length - 1 ? cached : {}),
        })),
        tool_choice: choice(request),
      }
      : {}),
    ...(system ? { system: [{ type: "text", text: system, ...cached }] } : {}),
    ...(schema ? { output_config: { format: { type: "json_schema", schema } } } : {}),
    messages: merged(messages),
  };
}

function choice({ toolChoice, parallelToolCalls }: ModelRequest): Anthropic.ToolChoice {
  if (toolChoice === "none") return { type: "none" };
  const single = parallelToolCalls === false ? { disable_parallel_tool_use: true } : {};
  if (toolChoice === "auto") return { type: "auto", ...single };
  if (toolChoice === "required") return { type: "any", ...single };
  return { type: "tool", name: toolChoice.name, ...single };
}

/** Neighbours of one role are one message: all results of a batch, then what the user said meanwhile (CASES A07, A20). */
function merged(messages: Message[]): Anthropic.MessageParam[] {
  const wire: { role: "user" | "assistant"; content: Anthropic.ContentBlockParam[] }[] = [];
  for (const message of messages) {
    const role = message.role === "assistant" ? "assistant" : "user";
    const content = message.role === "assistant"
      ? message.content.map(said)
      : message.role === "tool"
      ? [result(message)]
      : parts(message.content);
    const last = wire.at(-1);
    if (last?.role === role) last.content.push(...content);
    else wire.push({ role, content });
  }
  return wire;
}

function said(block: AssistantBlock): Anthropic.ContentBlockParam {
  if (block.type === "thinking") return JSON.parse(block.opaque!);
  if (block.type === "text") return { type: "text", text: block.text };
  return {
    type: "tool_use",
    id: wireId(block.id),
    name: wireName(block.name),
    input: argumentsObject(block),
  };
}

function result({ toolCallId, content, isError }: ToolMessage): Anthropic.ToolResultBlockParam {
  const blocks = parts(content).map((block) =>
    // The API takes nothing but text in a failed result.
    isError && block.type === "image" ? { type: "text" as const, text: "(an image)" } : block
  );
  return {
    type: "tool_result",
    tool_use_id: wireId(toolCallId),
    content: blocks,
    ...(isError ? { is_error: true } : {}),
  };
}

function parts(content: string | UserBlock[]): (Anthropic.TextBlockParam | Anthropic.ImageBlockParam)[] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.map((block) => {
    if (block.type === "text") return { type: "text", text: block.text };
    if (block.url) return { type: "image", source: { type: "url", url: block.url } };
    const media_type = block.mediaType as Anthropic.Base64ImageSource["media_type"];
    return { type: "image", source: { type: "base64", media_type, data: block.data! } };
  });
}

/** A block while it is streamed. */
type Open =
  | { type: "text"; text: string }
  | { type: "thinking"; thinking: string; signature: string }
  | { type: "redacted_thinking"; data: string }
  | { type: "tool_use"; id: string; name: string; text: string; index: number; input: unknown }
  /** Of tools that the vendor runs itself. */
  | { type: "other"; text: string; block: object };

/** Reads the stream. */
export function messagesReader(
  onDelta: (delta: Delta) => void,
): Reader<Anthropic.RawMessageStreamEvent> & { blocks(): Anthropic.ContentBlockParam[] } {
  const blocks: Open[] = [];
  // Where the last block of each index stands: some servers give one index to all (CASES B04).
  const at = new Map<number | undefined, Open>();
  let calls = 0;
  let stop: Stop;
  // Counts are totals and may come again, each time only some of them: the last of each holds.
  const usage: Partial<Anthropic.MessageDeltaUsage> = {};
  const count = (counted: object | undefined) => {
    for (const [key, value] of Object.entries(counted ?? {})) {
      if (value !== null) Object.assign(usage, { [key]: value });
    }
  };
  const start = (block: Anthropic.ContentBlock): Open => {
    switch (block.type) {
      case "text":
        if (block.text) onDelta({ type: "text", text: block.text });
        return { type: "text", text: block.text ?? "" };
      case "thinking":
        return { type: "thinking", thinking: block.thinking ?? "", signature: block.signature ?? "" };
      case "redacted_thinking":
        return { type: "redacted_thinking", data: block.data };
      case "tool_use":
        onDelta({ type: "tool_call", index: calls, name: block.name, text: "" });
        return {
          ...{ type: "tool_use", id: block.id, name: block.name },
          ...{ text: "", index: calls++, input: block.input },
        };
      default:
        return { type: "other", text: "", block };
    }
  };
  return {
    take(event) {
      switch (event.type) {
        case "message_start":
          count(event.message.usage);
          break;
        case "content_block_start":
          blocks.push(start(event.content_block));
          at.set(event.index, blocks.at(-1)!);
          break;
        case "content_block_delta": {
          const block = at.get(event.index) ?? blocks.at(-1), delta = event.delta;
          if (block?.type === "text" && delta.type === "text_delta") {
            block.text += delta.text;
            onDelta({ type: "text", text: delta.text });
          } else if (block?.type === "tool_use" && delta.type === "input_json_delta") {
            block.text += delta.partial_json;
            onDelta({ type: "tool_call", index: block.index, text: delta.partial_json });
          } else if (block?.type === "other" && delta.type === "input_json_delta") {
            block.text += delta.partial_json;
          } else if (block?.type === "thinking" && delta.type === "thinking_delta") {
            block.thinking += delta.thinking;
            onDelta({ type: "thinking", text: delta.thinking });
          } else if (block?.type === "thinking" && delta.type === "signature_delta") {
            block.signature += delta.signature;
          }
          break;
        }
        case "message_delta":
          stop = stopOf(event.delta) ?? stop;
          count(event.usage);
          break;
        case "message_stop":
          return true;
      }
      return false;
    },
    // A stop reason without message_stop is accepted: all blocks are whole by then (CASES B13).
    said: () => stop !== undefined,
    blocks: () => blocks.map(again),
    reply: () => conclude(blocks.flatMap(whole), stop, counted(usage)),
  };
}

/** A block as it goes back in the same turn. */
function again(block: Open): Anthropic.ContentBlockParam {
  if (block.type === "tool_use") {
    const { id, name, text, input } = block;
    return { type: "tool_use", id, name, input: text ? JSON.parse(text) : input };
  }
  if (block.type !== "other") return block;
  const input = block.text ? { input: JSON.parse(block.text) } : {};
  return { ...block.block, ...input } as Anthropic.ContentBlockParam;
}

function whole(block: Open): ReplyBlock[] {
  switch (block.type) {
    case "text":
      return block.text ? [{ type: "text", text: block.text }] : [];
    case "thinking":
      // Unsigned, it would be refused with every later request (CASES A15).
      return block.signature
        ? [{ type: "thinking", text: block.thinking, vendor, opaque: JSON.stringify(block) }]
        : [];
    case "redacted_thinking":
      return [{ type: "thinking", text: "", vendor, opaque: JSON.stringify(block) }];
    case "tool_use":
      // Compatible servers may give the whole input at once instead of deltas.
      return [received(block.name, block.text || JSON.stringify(block.input ?? {}))];
    case "other":
      return [];
  }
}

function stopOf({ stop_reason: reason, stop_details: details }: Anthropic.RawMessageDeltaEvent.Delta): Stop {
  switch (reason) {
    case null:
    case undefined:
      return undefined;
    case "end_turn":
    case "stop_sequence":
      return { stopReason: "stop" };
    case "tool_use":
      return { stopReason: "tool_calls" };
    case "max_tokens":
    case "model_context_window_exceeded":
      return { stopReason: "length" };
    case "refusal":
      return { stopReason: "refusal", stopDetail: details?.explanation ?? details?.category ?? "refusal" };
    default:
      return { stopReason: "other", stopDetail: reason };
  }
}

/** The vendor's `input_tokens` leave out what its cache read or wrote. */
function counted(usage: Partial<Anthropic.MessageDeltaUsage>): Usage {
  const cached = usage.cache_read_input_tokens, written = usage.cache_creation_input_tokens;
  return usageOf({
    input: tokens(usage.input_tokens) + tokens(cached) + tokens(written),
    output: tokens(usage.output_tokens),
    cached,
    written,
    reasoning: usage.output_tokens_details?.thinking_tokens,
  });
}
