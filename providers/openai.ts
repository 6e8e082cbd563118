/** OpenAI's Responses API, without anything kept on OpenAI's side. The wire: https://platform.openai.com/docs/api-reference/responses. */
import type OpenAI from "openai";
import type { AssistantBlock, Message, Usage, UserBlock } from "../src/message.ts";
import type { Delta, Model, ModelRequest, ReplyBlock } from "../src/model.ts";
import { argumentsText, received, wireId, wireName } from "./call.ts";
import { formatName, strict } from "./format.ts";
import { objectSchema } from "./object_schema.ts";
import { conclude, type Reader, type Stop, tokens, usageOf } from "./reader.ts";
import { type OpenAIOptions, overWire } from "./openai_client.ts";
import { imageUrl, marked } from "./openai_chat.ts";

type Body = OpenAI.Responses.ResponseCreateParamsStreaming;
type Item = OpenAI.Responses.ResponseInputItem;

const vendor = "openai";

/** The model `name` ("openai/…") over the Responses API. */
export function openai(name: string, options: OpenAIOptions): Model {
  return overWire(name, options, {
    path: "/responses",
    body: responsesBody,
    reader: responsesReader,
  });
}

/** The request on the wire. */
export function responsesBody(model: string, request: ModelRequest): Body {
  const { system, messages, tools, toolChoice, parallelToolCalls, responseFormat: schema, maxOutputTokens } =
    request;
  return {
    model,
    ...(system ? { instructions: system } : {}),
    stream: true,
    store: false,
    ...(maxOutputTokens === undefined ? {} : { max_output_tokens: maxOutputTokens }),
    // Models that do not reason refuse to be asked for it ("Encrypted content is not supported with this model").
    ...(/^(gpt-[34]|chatgpt-4)/.test(model) ? {} : { include: ["reasoning.encrypted_content" as const] }),
    ...(tools.length
      ? {
        // Left out, `strict` would become true here, and refuse schemas with optional properties (CASES C04).
        tools: tools.map(({ name, description, parameters }) => ({
          type: "function",
          name,
          description,
          parameters: objectSchema(parameters),
          strict: false,
        })),
        tool_choice: toolChoice,
        ...(parallelToolCalls === undefined ? {} : { parallel_tool_calls: parallelToolCalls }),
      }
      : {}),
    ...(schema
      ? { text: { format: { type: "json_schema", name: formatName, schema, strict: strict(schema) } } }
      : {}),
    // What grows comes last.
    input: messages.flatMap(items),
  };
}

function items(message: Message): Item[] {
  if (message.role === "assistant") return message.content.map(item);
  if (message.role === "user") return [{ role: "user", content: parts(message.content) }];
  return [{ type: "function_call_output", call_id: wireId(message.toolCallId), output: output(message) }];
}

/** One item a block, in their order: a reasoning item must stand right before what it led to (CASES A18). */
function item(block: AssistantBlock): Item {
  if (block.type === "thinking") return JSON.parse(block.opaque!);
  if (block.type === "text") return { role: "assistant", content: block.text };
  return {
    type: "function_call",
    ...(block.opaque ? JSON.parse(block.opaque) : {}),
    call_id: wireId(block.id),
    name: wireName(block.name),
    arguments: argumentsText(block),
  };
}

function output(
  { content, isError }: Extract<Message, { role: "tool" }>,
): string | ReturnType<typeof part>[] {
  if (typeof content === "string") return marked(content, isError);
  if (content.every((block) => block.type === "text")) {
    return marked(content.map((block) => block.text).join("\n"), isError);
  }
  return [...(isError ? [part({ type: "text", text: "Error:" })] : []), ...content.map(part)];
}

function parts(content: string | UserBlock[]): string | ReturnType<typeof part>[] {
  return typeof content === "string" ? content : content.map(part);
}

function part(block: UserBlock): OpenAI.Responses.ResponseInputText | OpenAI.Responses.ResponseInputImage {
  if (block.type === "text") return { type: "input_text", text: block.text };
  return { type: "input_image", image_url: imageUrl(block), detail: "auto" };
}

/** Reads the stream. What counts are the finished items; the deltas before them are for observers alone. */
export function responsesReader(
  onDelta: (delta: Delta) => void,
): Reader<OpenAI.Responses.ResponseStreamEvent> {
  const done: OpenAI.Responses.ResponseOutputItem[] = [];
  const calls: number[] = [];
  let ended: OpenAI.Responses.Response | undefined;
  // Some servers give no index, or one to all items (CASES B04).
  const placeOf = ({ output_index: index, item }: OpenAI.Responses.ResponseOutputItemDoneEvent) =>
    index == null || (done[index] && !(item.id && done[index].id === item.id)) ? done.length : index;
  const ordinal = (outputIndex: number) => {
    if (!calls.includes(outputIndex)) calls.push(outputIndex);
    return calls.indexOf(outputIndex);
  };
  return {
    take(event) {
      switch (event.type) {
        case "response.output_text.delta":
        case "response.refusal.delta":
          onDelta({ type: "text", text: event.delta });
          break;
        case "response.reasoning_summary_text.delta":
        case "response.reasoning_text.delta":
          onDelta({ type: "thinking", text: event.delta });
          break;
        case "response.function_call_arguments.delta":
          onDelta({ type: "tool_call", index: ordinal(event.output_index), text: event.delta });
          break;
        case "response.output_item.added":
          if (event.item.type === "function_call") {
            onDelta({
              type: "tool_call",
              index: ordinal(event.output_index),
              name: event.item.name,
              text: "",
            });
          }
          break;
        case "response.output_item.done":
          // The item added earlier may lack the end of its encrypted content.
          done[placeOf(event)] = event.item;
          break;
        case "response.completed":
        case "response.incomplete":
          ended = event.response;
          return true;
        case "response.failed":
          throw failed(event.response.error);
        case "error":
          throw failed(event);
      }
      return false;
    },
    reply() {
      const streamed = Object.values(done), listed = ended?.output ?? [];
      const output = listed.length > streamed.length ? listed : streamed;
      const refused = output.some((item) =>
        item.type === "message" && item.content.some((part) => part.type === "refusal")
      );
      return conclude(output.flatMap(block), stopOf(ended, refused), counted(ended?.usage));
    },
  };
}

/** An error that came inside the stream, in the shape that the SDK gives to all others. */
function failed(error: { code: string | null; message: string } | null): Error {
  return Object.assign(new Error(error?.message ?? "the response failed"), {
    error: error ?? { code: "server_error" },
  });
}

/** Items of other kinds are of tools that OpenAI runs itself: nothing in them is ours to run (CASES B22). */
function block(item: OpenAI.Responses.ResponseOutputItem): ReplyBlock[] {
  if (item.type === "reasoning") {
    const text = [...item.summary ?? [], ...item.content ?? []].map((part) => part.text).join("\n\n");
    // Without its encrypted content an item is only a name of something that OpenAI did not store.
    const opaque = item.encrypted_content ? { opaque: JSON.stringify(item) } : {};
    return opaque.opaque || text ? [{ type: "thinking", text, vendor, ...opaque }] : [];
  }
  if (item.type === "function_call") {
    return [received(item.name, item.arguments ?? "", item.id ? JSON.stringify({ id: item.id }) : undefined)];
  }
  if (item.type !== "message") return [];
  const text = item.content.map((part) => part.type === "output_text" ? part.text : part.refusal).join("");
  return text ? [{ type: "text", text }] : [];
}

function stopOf(response: OpenAI.Responses.Response | undefined, refused: boolean): Stop {
  if (!response) return undefined;
  const reason = response.incomplete_details?.reason;
  if (refused || reason === "content_filter") {
    return { stopReason: "refusal", stopDetail: reason ?? "refusal" };
  }
  if (reason === "max_output_tokens") return { stopReason: "length" };
  if (response.status === "completed" && !reason) return { stopReason: "stop" };
  return { stopReason: "other", stopDetail: reason ?? response.status ?? "unknown" };
}

function counted(usage: OpenAI.Responses.ResponseUsage | undefined): Usage {
  return usageOf({
    input: tokens(usage?.input_tokens),
    output: tokens(usage?.output_tokens),
    cached: usage?.input_tokens_details?.cached_tokens,
    reasoning: usage?.output_tokens_details?.reasoning_tokens,
  });
}
