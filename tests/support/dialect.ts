/** How each vendor says the same things: the frames of its streams, its errors, and where its requests hold what. */
import { anthropic } from "../../providers/anthropic.ts";
import { openai } from "../../providers/openai.ts";
import { openaiChat } from "../../providers/openai_chat.ts";
import type { Model } from "../../src/model.ts";
import { bedrockDialect } from "./bedrock_dialect.ts";
import { geminiDialect } from "./gemini_dialect.ts";
import type { Wire } from "./strict.ts";

export interface Said {
  text?: string[];
  /** `args` are the pieces in which the arguments come. */
  calls?: { id?: string; name: string; args: string[] }[];
  /** Signed thinking before anything else, in the vendor's own form. */
  thinking?: string;
  /** The vendor's word for the end; absent: what fits the content; null: the stream just ends. */
  stop?: string | null;
}

/** Text, but for wires that are binary. */
export type Frame = string | Uint8Array<ArrayBuffer>;

export interface Dialect {
  wire: Wire;
  model(url: string, apiKey?: string): Model;
  /** Frames that say it. Usage is always 12 in (4 of them cached), 7 out. */
  frames(said: Said): Frame[];
  error(code: string, message: string): string;
  /** What a request says about the choice of tools. */
  choice(body: any): unknown;
  /** What it says for auto, required, none, and the tool "add" by name. */
  choices: Record<"auto" | "required" | "none" | "named", unknown>;
  /** What says "no parallel calls" in a request with tool choice "auto". */
  single(body: any): unknown;
  /** Arguments come whole and as objects: what is no JSON cannot come, and how they were spelled is not kept. */
  objects?: true;
  /** What its usage counts besides. */
  counts: { written?: number; reasoning?: number };
  /** The items of a request that give thinking back; absent: this wire has none. */
  thoughts?(body: any): unknown[];
}

const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
export const event = (value: { type: string; [key: string]: unknown }) =>
  `event: ${value.type}\n${data(value)}`;
export const done = "data: [DONE]\n\n";

/** A frame of Chat Completions with this delta. */
export function chunk(delta: unknown, finish?: string | null, more?: object): string {
  return data({
    id: "c",
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: finish ?? null }],
    ...more,
  });
}

export const dialects: Dialect[] = [
  {
    wire: "openai-chat",
    counts: { reasoning: 2 },
    model: (url, apiKey = "key-1") => openaiChat("openai-chat/m", { apiKey, baseURL: url }),
    frames({ text = [], calls = [], stop = calls.length ? "tool_calls" : "stop" }) {
      return [
        ...text.map((content) => chunk({ content })),
        ...calls.flatMap(({ id, name, args }, index) => [
          chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] }),
          ...args.map((piece) => chunk({ tool_calls: [{ index, function: { arguments: piece } }] })),
        ]),
        ...(stop === null ? [] : [
          chunk({}, stop),
          data({
            choices: [],
            usage: {
              prompt_tokens: 12,
              completion_tokens: 7,
              prompt_tokens_details: { cached_tokens: 4 },
              completion_tokens_details: { reasoning_tokens: 2 },
            },
          }),
          done,
        ]),
      ];
    },
    error: (code, message) => JSON.stringify({ error: { code, type: code, message } }),
    choice: (body) => body.tool_choice,
    choices: {
      auto: "auto",
      required: "required",
      none: "none",
      named: { type: "function", function: { name: "add" } },
    },
    single: (body) => body.parallel_tool_calls === false,
  },
  {
    wire: "openai",
    counts: { reasoning: 2 },
    model: (url, apiKey = "key-1") => openai("openai/m", { apiKey, baseURL: url }),
    frames({ text = [], calls = [], thinking, stop = "completed" }) {
      const items = [
        ...(thinking ? [{ item: reasoning(thinking), pieces: [] }] : []),
        ...(text.length ? [{ item: message(text.join("")), pieces: text }] : []),
        ...calls.map(({ id, name, args }, n) => ({
          item: {
            type: "function_call",
            id: `fc_${n}`,
            call_id: id,
            name,
            arguments: args.join(""),
            status: "completed",
          },
          pieces: args,
        })),
      ];
      const frames = items.flatMap(({ item, pieces }, output_index) => [
        event({
          type: "response.output_item.added",
          output_index,
          item: { ...item, arguments: "", content: [] },
        }),
        ...pieces.map((delta) =>
          event({
            type: item.type === "message"
              ? "response.output_text.delta"
              : "response.function_call_arguments.delta",
            output_index,
            delta,
          })
        ),
        event({ type: "response.output_item.done", output_index, item }),
      ]);
      if (stop === null) return frames;
      const failed = stop !== "completed";
      const response = {
        status: failed ? "incomplete" : "completed",
        incomplete_details: failed ? { reason: stop } : null,
        output: items.map(({ item }) => item),
        usage: {
          input_tokens: 12,
          output_tokens: 7,
          input_tokens_details: { cached_tokens: 4 },
          output_tokens_details: { reasoning_tokens: 2 },
        },
      };
      return [...frames, event({ type: failed ? "response.incomplete" : "response.completed", response })];
    },
    error: (code, message) => JSON.stringify({ error: { code, type: code, message } }),
    choice: (body) => body.tool_choice,
    choices: { auto: "auto", required: "required", none: "none", named: { type: "function", name: "add" } },
    single: (body) => body.parallel_tool_calls === false,
    thoughts: (body) => body.input.filter((item: any) => item.type === "reasoning"),
  },
  {
    wire: "anthropic",
    counts: { written: 3, reasoning: 2 },
    model: (url, apiKey = "key-1") => anthropic("anthropic/m", { apiKey, baseURL: url }),
    frames({ text = [], calls = [], thinking, stop = calls.length ? "tool_use" : "end_turn" }) {
      const blocks = [
        ...(thinking
          ? [{
            start: { type: "thinking", thinking: "", signature: "" },
            deltas: [
              { type: "thinking_delta", thinking: "hm" },
              { type: "signature_delta", signature: thinking },
            ],
          }]
          : []),
        ...(text.length
          ? [{
            start: { type: "text", text: "" },
            deltas: text.map((text) => ({ type: "text_delta", text })),
          }]
          : []),
        ...calls.map(({ id, name, args }) => ({
          start: { type: "tool_use", id, name, input: {} },
          deltas: args.map((partial_json) => ({ type: "input_json_delta", partial_json })),
        })),
      ];
      const usage = {
        input_tokens: 5,
        cache_read_input_tokens: 4,
        cache_creation_input_tokens: 3,
        output_tokens: 1,
      };
      return [
        event({ type: "message_start", message: { usage } }),
        event({ type: "ping" }),
        ...blocks.flatMap(({ start, deltas }, index) => [
          event({ type: "content_block_start", index, content_block: start }),
          ...deltas.map((delta) => event({ type: "content_block_delta", index, delta })),
          event({ type: "content_block_stop", index }),
        ]),
        ...(stop === null ? [] : [
          event({
            type: "message_delta",
            delta: { stop_reason: stop },
            usage: { output_tokens: 7, output_tokens_details: { thinking_tokens: 2 } },
          }),
          event({ type: "message_stop" }),
        ]),
      ];
    },
    error: (type, message) => JSON.stringify({ type: "error", error: { type, message } }),
    choice: (body) => body.tool_choice,
    choices: {
      auto: { type: "auto" },
      required: { type: "any" },
      none: { type: "none" },
      named: { type: "tool", name: "add" },
    },
    single: (body) => body.tool_choice.disable_parallel_tool_use === true,
    thoughts: (body) =>
      body.messages.flatMap((message: any) => message.content).filter((block: any) =>
        block.type === "thinking"
      ),
  },
  geminiDialect,
  bedrockDialect,
];

export function dialect(wire: Wire): Dialect {
  return dialects.find((dialect) => dialect.wire === wire)!;
}

function reasoning(encrypted_content: string) {
  return {
    type: "reasoning",
    id: "rs_0",
    summary: [{ type: "summary_text", text: "hm" }],
    encrypted_content,
  };
}

function message(text: string) {
  return {
    type: "message",
    id: "msg_0",
    role: "assistant",
    content: [{ type: "output_text", text, annotations: [] }],
  };
}
