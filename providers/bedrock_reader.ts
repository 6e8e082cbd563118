/** What a model of Bedrock's streams, and what its end means. */
import type { Usage } from "../src/message.ts";
import { type Delta, ModelError, type ReplyBlock } from "../src/model.ts";
import { received } from "./call.ts";
import { conclude, type Reader, type Stop, tokens, usageOf } from "./reader.ts";

const vendor = "bedrock";

/** One of its members. https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStreamOutput.html */
export interface ConverseEvent {
  contentBlockStart?: { contentBlockIndex?: number; start?: { toolUse?: { name?: string; type?: string } } };
  contentBlockDelta?: { contentBlockIndex?: number; delta?: BlockDelta };
  contentBlockStop?: { contentBlockIndex?: number };
  messageStop?: { stopReason?: string };
  metadata?: { usage?: Counts };
}

interface BlockDelta {
  text?: string;
  toolUse?: { input?: string };
  /** `redactedContent` is base64. */
  reasoningContent?: { text?: string; signature?: string; redactedContent?: string };
}

interface Counts {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadInputTokens?: number;
  cacheWriteInputTokens?: number;
}

/** A block while it is streamed. */
type Open =
  | { type: "text"; text: string }
  | { type: "reasoning"; text: string; signature: string }
  | { type: "redacted"; data: string }
  | { type: "toolUse"; name: string; text: string; index: number }
  | { type: "other" };

/** Reads the stream. */
export function converseReader(onDelta: (delta: Delta) => void): Reader<ConverseEvent> {
  const blocks: Open[] = [], open = new Map<number | undefined, Open>();
  let calls = 0, stop: string | undefined, counted = false;
  const usage: Counts = {};
  /** The open block there. Only calls are announced; any other begins with its first piece. */
  const at = <Type extends Open["type"]>(index: number | undefined, fresh: Open & { type: Type }) => {
    const found = open.get(index);
    if (found?.type === fresh.type) return found as typeof fresh;
    blocks.push(fresh);
    open.set(index, fresh);
    return fresh;
  };
  const take = (index: number | undefined, { text, toolUse, reasoningContent }: BlockDelta) => {
    if (text !== undefined) {
      at(index, { type: "text", text: "" }).text += text;
      if (text) onDelta({ type: "text", text });
    }
    const call = open.get(index);
    if (toolUse?.input !== undefined && call?.type === "toolUse") {
      call.text += toolUse.input;
      onDelta({ type: "tool_call", index: call.index, text: toolUse.input });
    }
    const { text: thought, signature, redactedContent: data } = reasoningContent ?? {};
    if (data !== undefined) {
      const redacted = at(index, { type: "redacted", data: "" });
      redacted.data = redacted.data ? btoa(atob(redacted.data) + atob(data)) : data;
    } else if (thought !== undefined || signature !== undefined) {
      const reasoning = at(index, { type: "reasoning", text: "", signature: "" });
      reasoning.text += thought ?? "";
      reasoning.signature += signature ?? "";
      if (thought) onDelta({ type: "thinking", text: thought });
    }
  };
  return {
    take({ contentBlockStart, contentBlockDelta, contentBlockStop, messageStop, metadata }) {
      if (contentBlockStart) {
        const { contentBlockIndex: index, start } = contentBlockStart,
          { name = "", type } = start?.toolUse ?? {};
        open.delete(index);
        // What Bedrock runs itself is not ours to run (CASES B22).
        if (type === "server_tool_use") at(index, { type: "other" });
        else if (start?.toolUse) {
          at(index, { type: "toolUse", name, text: "", index: calls });
          onDelta({ type: "tool_call", index: calls++, name, text: "" });
        }
      }
      if (contentBlockDelta) take(contentBlockDelta.contentBlockIndex, contentBlockDelta.delta ?? {});
      if (contentBlockStop) open.delete(contentBlockStop.contentBlockIndex);
      stop = messageStop?.stopReason ?? stop;
      if (metadata) {
        Object.assign(usage, metadata.usage);
        counted = true;
      }
      // The usage comes last.
      return counted && stop !== undefined;
    },
    said: () => stop !== undefined,
    reply: () => conclude(blocks.flatMap(whole), stopOf(stop), used(usage)),
  };
}

function whole(block: Open): ReplyBlock[] {
  switch (block.type) {
    case "text":
      return block.text ? [{ type: "text", text: block.text }] : [];
    case "reasoning": {
      const { text, signature } = block;
      // Unsigned, it would be refused with every later request (CASES A15): it is kept to be read alone.
      const opaque = { reasoningContent: { reasoningText: { text, signature } } };
      return text || signature
        ? [{ type: "thinking", text, vendor, ...(signature ? { opaque: JSON.stringify(opaque) } : {}) }]
        : [];
    }
    case "redacted": {
      const opaque = { reasoningContent: { redactedContent: block.data } };
      return [{ type: "thinking", text: "", vendor, opaque: JSON.stringify(opaque) }];
    }
    case "toolUse":
      return [received(block.name, block.text)];
    case "other":
      return [];
  }
}

function stopOf(reason: string | undefined): Stop {
  switch (reason) {
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
    case "guardrail_intervened":
    case "content_filtered":
    case "refusal":
      return { stopReason: "refusal", stopDetail: reason };
    // The model failed to say what it meant; asked again, it may succeed. Nothing of such a message is run (CASES B20).
    case "malformed_model_output":
    case "malformed_tool_use":
      throw new ModelError("empty", `the model's message could not be used: ${reason}`);
    default:
      return { stopReason: "other", stopDetail: reason };
  }
}

/** The vendor's `inputTokens` leave out what its cache read or wrote. */
function used(usage: Counts): Usage {
  const { cacheReadInputTokens: cached, cacheWriteInputTokens: written } = usage;
  return usageOf({
    input: tokens(usage.inputTokens) + tokens(cached) + tokens(written),
    output: tokens(usage.outputTokens),
    cached,
    written,
  });
}
