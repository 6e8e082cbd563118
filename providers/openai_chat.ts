/**
 * OpenAI Chat Completions, and the many servers that speak it more or less. The wire: https://platform.openai.com/docs/api-reference/chat.
 * What such servers get wrong is taken as it is meant (CASES B04, B08-B10, B18).
 */
import type OpenAI from "openai";
import {
  type AssistantMessage,
  type Image,
  type Message,
  type StopReason,
  textOf,
  type Usage,
  type UserBlock,
} from "../src/message.ts";
import { type Delta, type Model, ModelError, type ModelRequest, type ReplyBlock } from "../src/model.ts";
import { argumentsText, received, shortId, wireId, wireName } from "./call.ts";
import { type Capabilities, openais } from "./capabilities.ts";
import { formatName, strict } from "./format.ts";
import { objectSchema } from "./object_schema.ts";
import { conclude, type Reader, type Stop, tokens, usageOf } from "./reader.ts";
import { type OpenAIOptions, overWire } from "./openai_client.ts";

type Body = OpenAI.Chat.ChatCompletionCreateParamsStreaming;

/** The model `name` ("openai-chat/…") over Chat Completions. */
export function openaiChat(name: string, options: OpenAIOptions): Model {
  return overWire(name, options, {
    path: "/chat/completions",
    body: chatBody,
    reader: chatReader,
  });
}

/** The request on the wire. */
export function chatBody(model: string, request: ModelRequest, can: Capabilities = openais): Body {
  const { system, messages, tools, toolChoice, parallelToolCalls, responseFormat: schema, maxOutputTokens } =
    request;
  // Where a choice cannot be forced, what was named stands alone.
  const forced = toolChoice !== "auto" && toolChoice !== "none" && !can.forcedChoice;
  const named = typeof toolChoice === "object" ? toolChoice.name : undefined;
  const choice = forced ? "auto" : toolChoice;
  const offered = forced && named ? tools.filter(({ name }) => name === named) : tools;
  return {
    model,
    stream: true,
    ...(can.streamOptions ? { stream_options: { include_usage: true } } : {}),
    // OpenAI's newer models refuse the old name, other servers do not know the new one.
    ...(maxOutputTokens === undefined
      ? {}
      : /^(gpt|chatgpt|o\d)/.test(model)
      ? { max_completion_tokens: maxOutputTokens }
      : { max_tokens: maxOutputTokens }),
    ...(tools.length
      ? {
        tools: offered.map(({ name, description, parameters }) => ({
          type: "function",
          function: { name, description, parameters: objectSchema(parameters) },
        })),
        tool_choice: typeof choice === "string"
          ? choice
          : { type: "function", function: { name: choice.name } },
        ...(parallelToolCalls === undefined || !can.parallelFlag
          ? {}
          : { parallel_tool_calls: parallelToolCalls }),
      }
      : {}),
    ...(schema
      ? {
        response_format: {
          type: "json_schema",
          json_schema: { name: formatName, schema, strict: strict(schema) },
        },
      }
      : {}),
    // What grows comes last.
    messages: [
      ...(system ? [{ role: "system" as const, content: system }] : []),
      ...chatMessages(messages, can),
    ],
  };
}

function chatMessages(messages: Message[], { echoesReasoning, ids }: Capabilities): Body["messages"] {
  const idOf = ids === "nine" ? shortId : wireId;
  const wire: Body["messages"] = [];
  // Results hold text alone here, so their images follow as the user's, once the batch of results is whole.
  let shown: Image[] = [];
  const show = () => {
    if (shown.length) {
      wire.push({
        role: "user",
        content: parts([{ type: "text", text: "Images of the results:" }, ...shown]),
      });
    }
    shown = [];
  };
  for (const message of messages) {
    if (message.role !== "tool") show();
    if (message.role === "user") wire.push({ role: "user", content: parts(message.content) });
    if (message.role === "assistant") {
      const text = message.content.flatMap((block) => block.type === "text" ? [block.text] : []).join("");
      const calls = message.content.filter((block) => block.type === "tool_call");
      wire.push({
        role: "assistant",
        content: text || null,
        ...(echoesReasoning ? { reasoning_content: thoughtsOf(message) } : {}),
        ...(calls.length
          ? {
            tool_calls: calls.map((call) => ({
              id: idOf(call.id),
              type: "function",
              function: { name: wireName(call.name), arguments: argumentsText(call) },
            })),
          }
          : {}),
      });
    }
    if (message.role === "tool") {
      const blocks = typeof message.content === "string"
        ? [{ type: "text" as const, text: message.content }]
        : message.content;
      const texts = blocks.map((block) => block.type === "text" ? block.text : "(image, see below)");
      wire.push({
        role: "tool",
        tool_call_id: idOf(message.toolCallId),
        content: marked(texts.join("\n"), message.isError),
      });
      shown.push(...blocks.filter((block) => block.type === "image"));
    }
  }
  show();
  return wire;
}

function thoughtsOf({ content }: AssistantMessage): string {
  return content.map((block) => block.type === "thinking" ? block.text : "").join("");
}

/** OpenAI's wires have no flag for failed results, so the text says it. */
export function marked(text: string, isError: boolean): string {
  return isError && !text.startsWith("Error: ") ? `Error: ${text}` : text;
}

export function imageUrl(image: Image): string {
  return image.url ?? `data:${image.mediaType};base64,${image.data}`;
}

function parts(content: string | UserBlock[]): string | OpenAI.Chat.ChatCompletionContentPart[] {
  if (typeof content === "string") return content;
  return content.map((block) =>
    block.type === "text" ? block : { type: "image_url", image_url: { url: imageUrl(block) } }
  );
}

/** A chunk as servers really send it: nothing in it can be relied on. */
interface Chunk {
  choices?: {
    delta?: {
      /** Mistral's reasoning models send parts. */
      content?: string | { type: string; text?: string }[] | null;
      refusal?: string | null;
      reasoning_content?: string | null;
      reasoning?: string | null;
      tool_calls?: CallDelta[] | null;
    } | null;
    finish_reason?: string | null;
  }[] | null;
  usage?: OpenAI.CompletionUsage | null;
}

interface CallDelta {
  index?: number | null;
  id?: string | null;
  function?: { name?: string | null; arguments?: string | object | null } | null;
}

/** Reads the stream; `[DONE]` and the end of the body are the SDK's to see. */
export function chatReader(onDelta: (delta: Delta) => void): Reader<unknown> {
  let text = "", thought = "", refused = false;
  let finish: string | undefined;
  // Usage on every chunk is a running total, not a part of one (CASES B10).
  let usage: Chunk["usage"];
  const calls = new CallSlots();
  return {
    take(event) {
      const { choices, usage: counted } = (event ?? {}) as Chunk;
      usage = counted ?? usage;
      const choice = choices?.[0];
      finish = choice?.finish_reason || finish;
      const delta = choice?.delta;
      const thinking = delta?.reasoning_content ?? delta?.reasoning;
      if (thinking) {
        thought += thinking;
        onDelta({ type: "thinking", text: thinking });
      }
      const said = textOf(delta?.content ?? "") + (delta?.refusal ?? "");
      refused ||= !!delta?.refusal;
      if (said) {
        text += said;
        onDelta({ type: "text", text: said });
      }
      for (const part of delta?.tool_calls ?? []) onDelta(calls.take(part));
      return false;
    },
    said: () => finish !== undefined,
    reply() {
      const content: ReplyBlock[] = [
        ...(thought ? [{ type: "thinking" as const, text: thought, vendor: "openai-chat" }] : []),
        ...(text ? [{ type: "text" as const, text }] : []),
        ...calls.whole(),
      ];
      return conclude(content, stopOf(finish, refused), counted(usage));
    },
  };
}

/** Which call a delta belongs to. Its id tells, else its index, else that it goes on where the last one stopped (CASES A10, A12, B04). */
class CallSlots {
  #slots: { id: string; index?: number; name: string; text: string }[] = [];

  take(delta: CallDelta): Delta {
    const id = delta.id ?? "", index = delta.index ?? undefined, name = delta.function?.name ?? "";
    const sent = delta.function?.arguments ?? "";
    const text = typeof sent === "string" ? sent : JSON.stringify(sent);
    let slot = this.#slots.findLast((slot) =>
      (!id || !slot.id || slot.id === id) &&
      (index === undefined || slot.index === undefined || slot.index === index)
    );
    // Another name, or the same with more after whole arguments, begins another call, whatever id and index say.
    if (slot?.name && name && (slot.name !== name || (text.trim() && isWhole(slot.text)))) slot = undefined;
    if (!slot) this.#slots.push(slot = { id, index, name: "", text: "" });
    slot.id ||= id;
    slot.name ||= name;
    slot.text += text;
    return { type: "tool_call", index: this.#slots.indexOf(slot), ...(name ? { name } : {}), text };
  }

  whole(): ReplyBlock[] {
    return this.#slots.filter((slot) => slot.name || slot.text.trim()).map((slot) =>
      received(slot.name, slot.text)
    );
  }
}

function isWhole(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Compatible servers pass on the words of the model that they serve. */
const reasons: [StopReason, string[]][] = [
  ["stop", ["stop", "end_turn", "eos", "eos_token", "stop_sequence", "complete", "completed"]],
  ["tool_calls", ["tool_calls", "tool_call", "tool_use", "function_call"]],
  ["length", ["length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"]],
  ["refusal", ["content_filter", "refusal", "safety", "recitation"]],
];

function stopOf(finish: string | undefined, refused: boolean): Stop {
  if (finish === undefined) return undefined;
  if (finish === "error") throw new ModelError("server", "the server ended its answer with an error");
  if (refused) return { stopReason: "refusal", stopDetail: "refusal" };
  const known = reasons.find(([, said]) => said.includes(finish.toLowerCase()))?.[0];
  return known === undefined || known === "refusal"
    ? { stopReason: known ?? "other", stopDetail: finish }
    : { stopReason: known };
}

function counted(usage: Chunk["usage"]): Usage {
  return usageOf({
    input: tokens(usage?.prompt_tokens),
    output: tokens(usage?.completion_tokens),
    cached: usage?.prompt_tokens_details?.cached_tokens,
    reasoning: usage?.completion_tokens_details?.reasoning_tokens,
  });
}
