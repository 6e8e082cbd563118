/** Google's Gemini API. The wire: https://ai.google.dev/api/generate-content. */
import type {
  Content,
  FunctionCallingConfig,
  FunctionDeclaration,
  GenerateContentParameters,
  Part,
} from "@google/genai/web";
import { InputError } from "../src/errors.ts";
import type { AssistantBlock, Image, Message, ToolMessage, UserBlock } from "../src/message.ts";
import type { Model, ModelRequest, ToolSpec } from "../src/model.ts";
import type { ToolChoice } from "../src/run.ts";
import { argumentsObject, wireId } from "./call.ts";
import { contentReader } from "./gemini_reader.ts";
import { geminiSchema } from "./gemini_schema.ts";
import { functionName } from "./gemini_name.ts";
import { sendable } from "./history.ts";
import { harmless, read } from "./reader.ts";

export interface GeminiOptions {
  apiKey: string;
  /** With or without the version at its end. Default: https://generativelanguage.googleapis.com */
  baseURL?: string;
}

/** Models before Gemini 3: they want no signatures, show no images of results, and take no answer's form beside functions. */
const older = /^(models\/)?(gemini-[12]\b|gemma|learnlm)/;

/**
 * Stands for the signature of a call that has none, since another model made it. Newer models refuse a step whose first call is unsigned;
 * this is the vendor's own word for such a call: https://ai.google.dev/gemini-api/docs/thought-signatures
 */
const unsigned = { thoughtSignature: "skip_thought_signature_validator" };

/** The model `name` ("gemini/…") over the Gemini API. Throws InputError for a name that would lead elsewhere. */
export function gemini(name: string, options: GeminiOptions): Model {
  const model = name.slice(name.indexOf("/") + 1);
  if (!/^(?!.*\.\.)[\w./-]+$/.test(model)) {
    throw new InputError(
      "bad_input",
      `Gemini has no model ${JSON.stringify(model)}: its names look like gemini-3.8-flash`,
    );
  }
  return {
    name,
    formats: (_schema, tools) => !tools.length || !older.test(model),
    reply: async (request, { signal, onDelta, onSign }) => {
      const body = geminiRequest(model, sendable(request, name));
      const open = async (signal: AbortSignal) => {
        const { models } = await import("./gemini_client.ts");
        return await models(options).generateContentStream({
          ...body,
          // Asking again, whatever for, is the loop's to decide.
          config: { ...body.config, abortSignal: signal, automaticContinuation: false },
        });
      };
      const caller = { name, apiKey: options.apiKey, signal, onSign };
      return await read(open, contentReader(harmless(onDelta)), caller);
    },
  };
}

/** The request on the wire; what is in `config` stands beside `contents` there. No word there says "one call at a time": the loop sees to it. */
export function geminiRequest(model: string, request: ModelRequest): GenerateContentParameters {
  const { system, messages, tools, toolChoice, responseFormat, maxOutputTokens } = request;
  return {
    model,
    contents: contents(messages, older.test(model)),
    config: {
      ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
      ...(system ? { systemInstruction: { parts: [{ text: system }] } } : {}),
      ...(tools.length
        ? {
          tools: [{ functionDeclarations: tools.map(declaration) }],
          toolConfig: { functionCallingConfig: choice(toolChoice) },
        }
        : {}),
      ...(responseFormat
        ? { responseMimeType: "application/json", responseJsonSchema: geminiSchema(responseFormat) }
        : {}),
    },
  };
}

/** Not under `parameters`: that field knows a smaller dialect, and refuses the whole request for a word it does not know (CASES C05). */
function declaration({ name, description, parameters }: ToolSpec): FunctionDeclaration {
  return { name: functionName(name), description, parametersJsonSchema: geminiSchema(parameters) };
}

function choice(choice: ToolChoice): FunctionCallingConfig {
  const mode = choice === "auto" ? "AUTO" : choice === "none" ? "NONE" : "ANY";
  return {
    mode: mode as FunctionCallingConfig["mode"],
    ...(typeof choice === "object" ? { allowedFunctionNames: [functionName(choice.name)] } : {}),
  };
}

/**
 * Neighbours of one role are one content: all results of a step, in the order of its calls, then what the user said meanwhile (CASES A20, A21).
 */
function contents(messages: Message[], olderModel: boolean): Content[] {
  const wire: { role: "user" | "model"; parts: Part[] }[] = [];
  const names = new Map<string, string>();
  const add = (role: "user" | "model", parts: Part[]) => {
    const last = wire.at(-1);
    if (last?.role === role) last.parts.push(...parts);
    else if (parts.length) wire.push({ role, parts });
  };
  // Results of older models hold text alone, so their images follow as the user's, once the batch of results is whole.
  let shown: Image[] = [];
  const show = () => {
    if (shown.length) add("user", [{ text: "Images of the results:" }, ...shown.map(part)]);
    shown = [];
  };
  for (const message of messages) {
    if (message.role === "tool") {
      const images = typeof message.content === "string" ? [] : message.content.filter(isImage);
      add("user", [response(message, names, olderModel ? [] : images)]);
      if (olderModel) shown.push(...images);
      continue;
    }
    show();
    if (message.role === "user") add("user", parts(message.content));
    else {
      for (const block of message.content) {
        if (block.type === "tool_call") names.set(block.id, functionName(block.name));
      }
      add("model", said(message.content, olderModel));
    }
  }
  show();
  return wire;
}

/** Its parts as they came: a signature on the very part that it came with (CASES A17). */
function said(content: AssistantBlock[], olderModel: boolean): Part[] {
  let signature: Part = {}, called = false;
  return content.flatMap((block): Part[] => {
    if (block.type === "thinking") {
      const own: Part = JSON.parse(block.opaque!);
      if (own.thought) return [own];
      signature = own;
      return [];
    }
    if (block.type === "text") {
      const signed = { text: block.text, ...signature };
      signature = {};
      return [signed];
    }
    const functionCall = {
      id: wireId(block.id),
      name: functionName(block.name),
      args: argumentsObject(block),
    };
    const own: Part = block.opaque ? JSON.parse(block.opaque) : called || olderModel ? {} : unsigned;
    called = true;
    return [{ functionCall, ...own }];
  });
}

function response(
  { toolCallId, toolName, content, isError }: ToolMessage,
  names: ReadonlyMap<string, string>,
  images: Image[],
): Part {
  const texts = typeof content === "string"
    ? [content]
    : content.map((block) => block.type === "text" ? block.text : "(an image)");
  return {
    functionResponse: {
      id: wireId(toolCallId),
      name: names.get(toolCallId) ?? functionName(toolName),
      // As text, also where it is JSON: Gemini would look for what a "$ref" in it refers to.
      response: { [isError ? "error" : "output"]: texts.join("\n") },
      ...(images.length ? { parts: images.map(part) } : {}),
    },
  };
}

function isImage(block: UserBlock): block is Image {
  return block.type === "image";
}

function parts(content: string | UserBlock[]): Part[] {
  return typeof content === "string" ? [{ text: content }] : content.map(part);
}

function part(block: UserBlock): Part {
  if (block.type === "text") return { text: block.text };
  const { mediaType: mimeType, data, url } = block;
  return url ? { fileData: { fileUri: url, mimeType } } : { inlineData: { data, mimeType } };
}
