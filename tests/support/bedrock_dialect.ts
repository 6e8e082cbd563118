/** How Bedrock says it: in binary frames. */
import { EventStreamCodec } from "@smithy/core/event-streams";
import { bedrock } from "../../providers/bedrock.ts";
import type { Dialect } from "./dialect.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const codec = new EventStreamCodec(
  (value) => typeof value === "string" ? value : new TextDecoder().decode(value),
  bytes,
);

/** A frame with these headers. */
export function frame(headers: Record<string, string>, body: string): Uint8Array<ArrayBuffer> {
  const marked = Object.entries(headers).map(([name, value]) => [`:${name}`, { type: "string", value }]);
  return codec.encode({ headers: Object.fromEntries(marked), body: bytes(body) }) as Uint8Array<ArrayBuffer>;
}

export function event(type: string, value: object): Uint8Array<ArrayBuffer> {
  const headers = { "event-type": type, "content-type": "application/json", "message-type": "event" };
  return frame(headers, JSON.stringify({ ...value, p: "abcdefgh" }));
}

export function exception(type: string, value: object): Uint8Array<ArrayBuffer> {
  return frame({ "exception-type": type, "message-type": "exception" }, JSON.stringify(value));
}

export const start = (contentBlockIndex: number, toolUse: object) =>
  event("contentBlockStart", { contentBlockIndex, start: { toolUse } });
export const delta = (contentBlockIndex: number, delta: object) =>
  event("contentBlockDelta", { contentBlockIndex, delta });
export const stop = (contentBlockIndex: number) => event("contentBlockStop", { contentBlockIndex });

/** The reason to stop, and the usage. */
export function ended(stopReason: string, usage: object = {}): Uint8Array<ArrayBuffer>[] {
  return [event("messageStop", { stopReason }), event("metadata", { usage, metrics: { latencyMs: 5 } })];
}

/** Words of other vendors for errors, in AWS's. */
const types: Record<string, string> = {
  authentication_error: "AccessDeniedException",
  insufficient_quota: "ServiceQuotaExceededException",
  rate_limit_exceeded: "ThrottlingException",
  invalid_request_error: "ValidationException",
};

/** Credentials in which only the secrets are `secret`. */
export function credentials(secret: string) {
  return {
    region: "us-east-1",
    accessKeyId: "AKIDEXAMPLE",
    secretAccessKey: secret,
    sessionToken: `${secret}`,
  };
}

export const bedrockDialect: Dialect = {
  wire: "bedrock",
  counts: { written: 3 },
  model: (url, apiKey = "key-1") => bedrock("bedrock/m", { ...credentials(apiKey), baseURL: url }),
  frames({ text = [], calls = [], thinking, stop: reason = calls.length ? "tool_use" : "end_turn" }) {
    const blocks = [
      ...(thinking
        ? [{
          deltas: [
            { reasoningContent: { text: "hm" } },
            { reasoningContent: { signature: thinking } },
          ],
        }]
        : []),
      ...(text.length ? [{ deltas: text.map((text) => ({ text })) }] : []),
      ...calls.map(({ id, name, args }) => ({
        call: { toolUseId: id, name },
        deltas: args.map((input) => ({ toolUse: { input } })),
      })),
    ];
    const usage = { inputTokens: 5, outputTokens: 7, cacheReadInputTokens: 4, cacheWriteInputTokens: 3 };
    return [
      event("messageStart", { role: "assistant" }),
      ...blocks.flatMap((block, index) => [
        ...("call" in block ? [start(index, block.call)] : []),
        ...block.deltas.map((piece) => delta(index, piece)),
        stop(index),
      ]),
      ...(reason === null ? [] : ended(reason, usage)),
    ];
  },
  error: (code, message) => JSON.stringify({ __type: types[code] ?? code, message }),
  // Absent: no tool is offered.
  choice: (body) => body.toolConfig?.toolChoice,
  choices: { auto: { auto: {} }, required: { any: {} }, none: undefined, named: { tool: { name: "add" } } },
  // It has no word for it: the loop sees to it.
  single: (body) => !/parallel/i.test(JSON.stringify(body)),
  thoughts: (body) =>
    body.messages.flatMap((message: any) => message.content).filter((block: any) => block.reasoningContent),
};
