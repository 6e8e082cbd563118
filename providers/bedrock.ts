/** Amazon Bedrock's Converse API. The wire: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html. */
import { InputError } from "../src/errors.ts";
import type { AssistantBlock, Image, Message, ToolMessage, UserBlock } from "../src/message.ts";
import type { Model, ModelRequest, ToolSpec } from "../src/model.ts";
import type { ToolChoice } from "../src/run.ts";
import { converseReader } from "./bedrock_reader.ts";
import { argumentsObject, wireId, wireName } from "./call.ts";
import { formatName, strict } from "./format.ts";
import { sendable } from "./history.ts";
import { objectSchema } from "./object_schema.ts";
import { marked } from "./openai_chat.ts";
import { harmless, read } from "./reader.ts";

export interface BedrockOptions {
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  /** Of credentials that last only for some time. */
  sessionToken?: string;
  /** Default: the region's own, https://bedrock-runtime.<region>.amazonaws.com */
  baseURL?: string;
}

/** What a model can do that others refuse. The ARN of a profile need not name its model: such a one is asked for nothing special. */
interface Traits {
  /** Keeps prompts up to the marks of `cachePoint`; "tools" too: also after the tools. */
  caches?: "all" | "messages";
  /** Knows that a result is one of a failure; others read it in the result's text. */
  status?: boolean;
  /** Can be held to a schema. */
  formats?: boolean;
}

/**
 * https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html,
 * https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
 */
function traitsOf(model: string): Traits {
  if (/\bamazon\.nova-/.test(model)) return { caches: "messages", status: true };
  if (!/\banthropic\.claude-/.test(model)) return {};
  const older = /claude-(v?[12]|instant|3-(haiku|sonnet|opus)|3-5-sonnet)/.test(model);
  const formats = /claude-(haiku|sonnet|opus)-(4-[5-9]\b|[5-9]\b|\d\d)/.test(model);
  return { ...(older ? {} : { caches: "all" }), status: true, formats };
}

/** The model `name` ("bedrock/…": a model's id, or the id or ARN of a profile). Throws InputError for a name or region that would lead elsewhere. */
export function bedrock(name: string, options: BedrockOptions): Model {
  const model = name.slice(name.indexOf("/") + 1), { region, secretAccessKey, sessionToken } = options;
  if (!/^[A-Za-z0-9][\w.:/-]*$/.test(model)) {
    const given = JSON.stringify(model);
    throw new InputError(
      "bad_input",
      `Bedrock has no model ${given}: ids look like amazon.nova-lite-v1:0, or are an ARN`,
    );
  }
  if (!/^[a-z0-9-]+$/.test(region)) {
    throw new InputError(
      "bad_input",
      `AWS has no region ${JSON.stringify(region)}: its names look like us-east-1`,
    );
  }
  return {
    name,
    formats: (schema) => traitsOf(model).formats === true && strict(schema),
    reply: async (request, { signal, onDelta, onSign }) => {
      const body = JSON.stringify(converseBody(model, sendable(request, name)));
      const open = async (signal: AbortSignal) => {
        const { converse } = await import("./bedrock_client.ts");
        return await converse(model, body, options, signal);
      };
      const apiKey = [secretAccessKey, sessionToken ?? ""];
      return await read(open, converseReader(harmless(onDelta)), { name, apiKey, signal, onSign });
    },
  };
}

/** A part of the body, spelled as it travels. */
type Part = Record<string, unknown>;

/** Up to here the vendor keeps the prompt. */
const cachePoint: Part = { cachePoint: { type: "default" } };

/**
 * The request's body, what grows last; the model is named by its address. All four marks that the vendor's cache allows are set: after the
 * system prompt, after the tools, and after the last two messages of the user, the first of which the request before ended with.
 */
export function converseBody(model: string, request: ModelRequest): Part {
  const { system, messages, responseFormat, maxOutputTokens } = request, traits = traitsOf(model);
  const wire = merged(messages, traits);
  const toolConfig = tools(request, traits);
  const point = traits.caches ? [cachePoint] : [];
  const asked = wire.filter(({ role }) => role === "user").slice(-2);
  for (const { content } of asked) content.push(...point);
  return {
    ...(maxOutputTokens === undefined ? {} : { inferenceConfig: { maxTokens: maxOutputTokens } }),
    ...(toolConfig ? { toolConfig } : {}),
    ...(system ? { system: [{ text: system }, ...point] } : {}),
    ...(responseFormat ? { outputConfig: { textFormat: format(responseFormat) } } : {}),
    messages: wire,
  };
}

function format(schema: object): Part {
  const jsonSchema = { name: formatName, schema: JSON.stringify(schema) };
  return { type: "json_schema", structure: { jsonSchema } };
}

/**
 * The wire has no word for "none": no tool is offered then, and the loop denies what is called nevertheless. But calls in the history are
 * refused where no tool is (CASES A25), so there one stands that does nothing.
 */
function tools({ tools, toolChoice, messages }: ModelRequest, { caches }: Traits): Part | undefined {
  if (tools.length && toolChoice !== "none") {
    const point = caches === "all" ? [cachePoint] : [];
    return { tools: [...tools.map(toolSpec), ...point], toolChoice: choice(toolChoice) };
  }
  return messages.some(({ role }) => role === "tool") ? { tools: [toolSpec(nothing)] } : undefined;
}

const nothing: ToolSpec = {
  name: "no_tool",
  description: "Does nothing. No tool can be called any more: answer in text.",
  parameters: { type: "object", properties: {} },
};

function toolSpec({ name, description, parameters }: ToolSpec): Part {
  // An empty description is refused.
  const told = description.trim() ? { description } : {};
  return { toolSpec: { name, ...told, inputSchema: { json: objectSchema(parameters) } } };
}

function choice(choice: Exclude<ToolChoice, "none">): Part {
  if (choice === "auto") return { auto: {} };
  return choice === "required" ? { any: {} } : { tool: { name: choice.name } };
}

/** Neighbours of one role are one message: all results of a batch, then what the user said meanwhile (CASES A07, A20). */
function merged(messages: Message[], traits: Traits): { role: "user" | "assistant"; content: Part[] }[] {
  const wire: { role: "user" | "assistant"; content: Part[] }[] = [];
  for (const message of messages) {
    const role = message.role === "assistant" ? "assistant" : "user";
    const content = message.role === "assistant"
      ? message.content.map(said)
      : message.role === "tool"
      ? [result(message, traits)]
      : parts(message.content);
    const last = wire.at(-1);
    if (last?.role === role) last.content.push(...content);
    else wire.push({ role, content });
  }
  return wire;
}

function said(block: AssistantBlock): Part {
  if (block.type === "thinking") return JSON.parse(block.opaque!);
  if (block.type === "text") return { text: block.text };
  return {
    toolUse: { toolUseId: wireId(block.id), name: wireName(block.name), input: argumentsObject(block) },
  };
}

function result({ toolCallId, content, isError }: ToolMessage, { status }: Traits): Part {
  const blocks = parts(content), toolUseId = wireId(toolCallId);
  if (!isError) return { toolResult: { toolUseId, content: blocks } };
  // Claude takes nothing but text in a failed result.
  const texts = blocks.map(({ text = "(an image)" }) => `${text}`);
  return {
    toolResult: status
      ? { toolUseId, content: texts.map((text) => ({ text })), status: "error" }
      : { toolUseId, content: [{ text: marked(texts.join("\n"), true) }] },
  };
}

function parts(content: string | UserBlock[]): Part[] {
  if (typeof content === "string") return [{ text: content }];
  return content.map((block) => block.type === "text" ? { text: block.text } : image(block));
}

/** Images travel as bytes, or lie in S3; the wire knows four forms of them. Of any other the model is told that it was there. */
function image({ mediaType, data, url }: Image): Part {
  const format = /^image\/(png|jpe?g|gif|webp)$/i.exec(mediaType)?.[1]?.toLowerCase().replace("jpg", "jpeg");
  if (format && data) return { image: { format, source: { bytes: data } } };
  if (format && url?.startsWith("s3://")) return { image: { format, source: { s3Location: { uri: url } } } };
  return { text: url ? `(an image at ${url})` : `(an image of type ${mediaType})` };
}
