/**
 * Any language model of the AI SDK: an adapter to its specification, of which only types are imported.
 * https://ai-sdk.dev/providers/community-providers/custom-providers
 */
import type { LanguageModelV4CallOptions as CallOptions } from "@ai-sdk/provider";
import type { AssistantBlock, Message, ToolMessage, Usage, UserBlock } from "../src/message.ts";
import type { Delta, Model, ModelRequest, ReplyBlock } from "../src/model.ts";
import { InputError } from "../src/errors.ts";
import { parsed } from "./answer.ts";
import { argumentsObject, received, wireId, wireName } from "./call.ts";
import { formatName } from "./format.ts";
import { sendable } from "./history.ts";
import { objectSchema } from "./object_schema.ts";
import { conclude, harmless, read, type Reader, type Stop, tokens, usageOf } from "./reader.ts";

export interface AiSdkOptions {
  /** Default: what the model calls itself, "provider/model". A run names it so. */
  name?: string;
  /** The model holds its answers to a JSON Schema. Default: the prompt asks for it. */
  formats?: boolean;
  /** What must not be in an error, even if the vendor says it back. */
  apiKey?: string;
}

/** A language model of version 2, 3 or 4 of the specification, by what is needed of it. */
export interface LanguageModel {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  doStream(options: any): PromiseLike<{ stream: ReadableStream<any> }>;
}

type Prompt = CallOptions["prompt"];
type Assistant = Extract<Prompt[number], { role: "assistant" }>["content"];
type Output = Extract<
  Extract<Prompt[number], { role: "tool" }>["content"][number],
  { type: "tool-result" }
>["output"];

/**
 * The model of an AI SDK provider, `aiSdk(openai("gpt-5.4-mini"))`. The SDK's own retries do not apply; what its provider throws is sorted
 * as every vendor's errors are.
 */
export function aiSdk(model: LanguageModel, options: AiSdkOptions = {}): Model {
  const { specificationVersion: version, provider, modelId } = model;
  if (!["v2", "v3", "v4"].includes(version)) {
    throw new InputError(
      "bad_input",
      `aiSdk: expected a language model of specification v2, v3 or v4, got ${version}`,
    );
  }
  const { name = `${provider}/${modelId}`, formats = false, apiKey = "" } = options;
  const vendor = name.slice(0, name.indexOf("/"));
  return {
    name,
    formats: () => formats,
    reply: async (request, { signal, onDelta, onSign }) => {
      const asked = callOptions(sendable(request, name), version);
      const open = async (abortSignal: AbortSignal) => {
        try {
          return (await model.doStream({ ...asked, abortSignal })).stream;
        } catch (error) {
          throw sorted(error);
        }
      };
      const reader = partsReader(vendor, harmless(onDelta));
      return await read<Part>(open, reader, {
        name,
        apiKey,
        signal,
        onSign,
      });
    },
  };
}

function callOptions(request: ModelRequest, version: string): CallOptions {
  const { system, messages, tools, toolChoice, responseFormat: schema, maxOutputTokens } = request;
  return {
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
    ...(tools.length
      ? {
        tools: tools.map(({ name, description, parameters }) => ({
          type: "function",
          name,
          description,
          inputSchema: objectSchema(parameters),
        })),
        toolChoice: typeof toolChoice === "string"
          ? { type: toolChoice }
          : { type: "tool", toolName: toolChoice.name },
      }
      : {}),
    ...(schema ? { responseFormat: { type: "json", name: formatName, schema } } : {}),
    prompt: [...(system ? [{ role: "system" as const, content: system }] : []), ...prompt(messages, version)],
  };
}

/** Results of one message stand together. */
function prompt(messages: Message[], version: string): Prompt {
  const wire: Prompt = [];
  for (const message of messages) {
    if (message.role === "user") wire.push({ role: "user", content: parts(message.content, version) });
    else if (message.role === "assistant") {
      wire.push({ role: "assistant", content: message.content.map(said) as Assistant });
    } else {
      const last = wire.at(-1), result = resultPart(message, version);
      if (last?.role === "tool") last.content.push(result);
      else wire.push({ role: "tool", content: [result] });
    }
  }
  return wire;
}

function parts(
  content: string | UserBlock[],
  version: string,
): Extract<Prompt[number], { role: "user" }>["content"] {
  if (typeof content === "string") return [{ type: "text", text: content }];
  return content.map((block) => {
    if (block.type === "text") return block;
    const { mediaType, url, data } = block;
    return { type: "file", mediaType, data: fileData(version, url, data) as any };
  });
}

function fileData(version: string, url?: string, data?: string): unknown {
  if (version !== "v4") return url === undefined ? data! : new URL(url);
  return url === undefined ? { type: "data", data } : { type: "url", url: new URL(url) };
}

function said(block: AssistantBlock): Assistant[number] {
  const own = "opaque" in block && block.opaque ? { providerOptions: JSON.parse(block.opaque) } : {};
  if (block.type === "text") return { type: "text", text: block.text };
  if (block.type === "thinking") return { type: "reasoning", text: block.text, ...own };
  return {
    type: "tool-call",
    toolCallId: wireId(block.id),
    toolName: wireName(block.name),
    input: argumentsObject(block),
    ...own,
  };
}

function resultPart(message: ToolMessage, version: string) {
  return {
    type: "tool-result" as const,
    toolCallId: wireId(message.toolCallId),
    toolName: wireName(message.toolName),
    output: output(message, version),
  };
}

function output({ content, isError }: ToolMessage, version: string): Output {
  if (typeof content === "string") return { type: isError ? "error-text" : "text", value: content };
  const value = content.map((block) => {
    if (block.type === "text") return block;
    const { mediaType, url, data } = block;
    if (version === "v4") return { type: "file", mediaType, data: fileData(version, url, data) };
    // Version 2 has no word for an image elsewhere.
    if (version === "v2") {
      return url ? { type: "text", text: `(image: ${url})` } : { type: "media", data, mediaType };
    }
    return url ? { type: "image-url", url } : { type: "image-data", data, mediaType };
  });
  const marked = isError ? [{ type: "text", text: "Error:" }, ...value] : value;
  return { type: "content", value: marked } as Output;
}

/** A part of the stream, as far as it is read. */
interface Part {
  type: string;
  id?: string;
  delta?: string;
  providerMetadata?: object;
  toolName?: string;
  toolCallId?: string;
  input?: unknown;
  providerExecuted?: boolean;
  finishReason?: string | { unified?: string; raw?: string };
  usage?: object;
  error?: unknown;
}

type Open = { type: "text" | "thinking"; text: string; metadata?: object };

/** Reads the stream: pieces for observers, and what is whole of them. */
function partsReader(vendor: string, onDelta: (delta: Delta) => void): Reader<Part> {
  const blocks: (Open | ReplyBlock)[] = [], open = new Map<string, Open>(), calls: string[] = [];
  let stop: Stop, usage: Usage = { input: 0, output: 0 };
  const block = (part: Part, type: Open["type"]): Open => {
    const key = `${type} ${part.id}`, known = open.get(key), at = known ?? { type, text: "" };
    if (!known) {
      open.set(key, at);
      blocks.push(at);
    }
    if (part.providerMetadata) at.metadata = { ...at.metadata, ...part.providerMetadata };
    return at;
  };
  const take = (part: Part, type: Open["type"]) => {
    const at = block(part, type);
    if (!part.delta) return;
    at.text += part.delta;
    onDelta({ type, text: part.delta });
  };
  return {
    take(part) {
      switch (part.type) {
        case "text-start":
        case "text-delta":
        case "text-end":
          take(part, "text");
          break;
        case "reasoning-start":
        case "reasoning-delta":
        case "reasoning-end":
          take(part, "thinking");
          break;
        case "tool-input-start":
          if (part.providerExecuted) break;
          calls.push(part.id!);
          onDelta({ type: "tool_call", index: calls.length - 1, name: part.toolName, text: "" });
          break;
        case "tool-input-delta":
          if (!calls.includes(part.id!)) break;
          onDelta({ type: "tool_call", index: calls.indexOf(part.id!), text: part.delta ?? "" });
          break;
        case "tool-call":
          // What the provider runs itself is nothing of ours to run (CASES B22).
          if (!part.providerExecuted) blocks.push(call(part));
          break;
        case "error":
          throw sorted(part.error);
        case "finish":
          stop = stopOf(part.finishReason);
          usage = counted(part.usage ?? {});
          return true;
      }
      return false;
    },
    reply: () => conclude(blocks.flatMap((block) => whole(block, vendor)), stop, usage),
  };
}

function call({ toolName = "", input, providerMetadata }: Part): ReplyBlock {
  const text = typeof input === "string" ? input : JSON.stringify(input ?? {});
  return received(toolName, text, providerMetadata && JSON.stringify(providerMetadata));
}

function whole(block: Open | ReplyBlock, vendor: string): ReplyBlock[] {
  if (block.type === "tool_call") return [block];
  const { metadata } = block as Open;
  if (block.type === "text") return block.text ? [{ type: "text", text: block.text }] : [];
  const opaque = JSON.stringify(metadata ?? {});
  return block.text || metadata ? [{ type: "thinking", text: block.text, vendor, opaque }] : [];
}

function stopOf(finish: Part["finishReason"]): Stop {
  const unified = typeof finish === "object" ? finish.unified : finish;
  const raw = typeof finish === "object" ? finish.raw : undefined;
  switch (unified) {
    case "stop":
    case "length":
      return { stopReason: unified };
    case "tool-calls":
      return { stopReason: "tool_calls" };
    case "content-filter":
      return { stopReason: "refusal", stopDetail: raw ?? unified };
    default:
      // Without a reason the stream broke off: providers finish it all the same.
      return raw === undefined && (unified === "other" || unified === "unknown")
        ? undefined
        : { stopReason: "other", stopDetail: raw ?? unified ?? "none given" };
  }
}

function counted(usage: object): Usage {
  const { inputTokens: input, outputTokens: output, reasoningTokens, cachedInputTokens } = usage as Record<
    string,
    number | { total?: number; cacheRead?: number; cacheWrite?: number; reasoning?: number } | undefined
  >;
  const ins = typeof input === "object" ? input : { total: input, cacheRead: cachedInputTokens as number };
  const outs = typeof output === "object" ? output : { total: output, reasoning: reasoningTokens as number };
  return usageOf({
    input: tokens(ins.total),
    output: tokens(outs.total),
    cached: ins.cacheRead,
    written: "cacheWrite" in ins ? ins.cacheWrite : undefined,
    reasoning: outs.reasoning,
  });
}

/** The SDK's `APICallError`, known by its shape, as all other SDKs' errors are spelled. */
function sorted(thrown: unknown): unknown {
  const { statusCode, responseHeaders, responseBody, data, message } = (thrown ?? {}) as {
    statusCode?: number;
    responseHeaders?: Record<string, string>;
    responseBody?: string;
    data?: unknown;
    message?: string;
  };
  if (statusCode === undefined) {
    return thrown instanceof Error
      ? thrown
      : Object.assign(new Error("the stream told of an error"), { error: thrown });
  }
  return Object.assign(new Error(message), {
    status: statusCode,
    headers: new Headers(responseHeaders),
    error: data ?? parsed(responseBody ?? ""),
  });
}
