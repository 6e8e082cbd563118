/** What a Gemini model streams, and what its end means. */
import type { GenerateContentResponse, Part } from "@google/genai/web";
import type { Text, Thinking, Usage } from "../src/message.ts";
import { type Delta, ModelError, type ReplyBlock } from "../src/model.ts";
import { receivedObject } from "./call.ts";
import { toolName } from "./gemini_name.ts";
import { conclude, type Reader, type Stop, tokens, usageOf } from "./reader.ts";

const vendor = "gemini";

/** Reads the stream. It has no mark for its end: a reason to stop may come with the last chunk, or with every one. */
export function contentReader(onDelta: (delta: Delta) => void): Reader<GenerateContentResponse> {
  const said = new Said(onDelta);
  let finish: string | undefined, blocked: string | undefined;
  // Counts are totals, and each chunk may hold only some of them: the last of each holds (CASES B10).
  const usage: Counts = {};
  return {
    take({ candidates, promptFeedback, usageMetadata }) {
      for (const [key, value] of Object.entries(usageMetadata ?? {})) {
        if (value !== null) Object.assign(usage, { [key]: value });
      }
      blocked = promptFeedback?.blockReason ?? blocked;
      const candidate = candidates?.[0];
      for (const part of candidate?.content?.parts ?? []) said.take(part);
      finish = candidate?.finishReason ?? finish;
      return false;
    },
    said: () => (finish ?? blocked) !== undefined,
    reply: () => conclude(said.content, stopOf(finish, blocked), counted(usage)),
  };
}

/** The parts put together again: text comes in pieces, a call whole. */
class Said {
  readonly content: ReplyBlock[] = [];
  #calls = 0;
  /** The block that unsigned pieces go on with. */
  #open?: Text | Thinking;

  constructor(readonly onDelta: (delta: Delta) => void) {}

  take({ text, thought, thoughtSignature, functionCall }: Part): void {
    const opaque = thoughtSignature ? JSON.stringify({ thoughtSignature }) : undefined;
    if (functionCall) {
      const call = receivedObject(toolName(functionCall.name ?? ""), functionCall.args, opaque);
      const index = this.#calls++;
      this.onDelta({ type: "tool_call", index, name: call.name, text: "" });
      this.onDelta({ type: "tool_call", index, text: call.raw ?? JSON.stringify(call.arguments) });
      this.content.push(call);
      this.#open = undefined;
    } else if (text !== undefined) {
      // Parts of other kinds are of tools that Google runs itself: nothing in them is ours to run (CASES B22).
      if (text) this.onDelta({ type: thought ? "thinking" : "text", text });
      if (thought) this.#think(text, thoughtSignature);
      else this.#say(text, opaque);
    }
  }

  #think(text: string, thoughtSignature: string | undefined): void {
    if (thoughtSignature) {
      const opaque = JSON.stringify({ text, thought: true, thoughtSignature });
      this.content.push({ type: "thinking", text, vendor, opaque });
      this.#open = undefined;
    } else this.#goOn("thinking", text);
  }

  /** A signature stands before the text that it is of; it may come after it, in a piece without text. */
  #say(text: string, opaque: string | undefined): void {
    if (!opaque) return this.#goOn("text", text);
    const signature: Thinking = { type: "thinking", text: "", vendor, opaque };
    if (text) this.content.push(signature, { type: "text", text });
    else if (this.#open?.type === "text") this.content.splice(-1, 0, signature);
    this.#open = undefined;
  }

  #goOn(type: "text" | "thinking", text: string): void {
    if (!text) return;
    if (this.#open?.type !== type) {
      this.#open = type === "text" ? { type, text: "" } : { type, text: "", vendor };
      this.content.push(this.#open);
    }
    this.#open.text += text;
  }
}

/** The vendor held the message back, or cut it off, for what is in it. */
const refusals = new Set(
  ("SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION ESCALATION " +
    "PUP_LIMITED_DISABLED MODEL_ARMOR").split(" "),
);

/** The model failed to say what it meant; asked again, it may succeed. Nothing of such a message is run (CASES B20). */
const failures = new Set(["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"]);

/** https://ai.google.dev/api/generate-content#FinishReason */
function stopOf(finish: string | undefined, blocked: string | undefined): Stop {
  if (blocked) return { stopReason: "refusal", stopDetail: blocked };
  if (finish === undefined) return undefined;
  if (finish === "STOP") return { stopReason: "stop" };
  // Not Gemini's; some servers that speak its wire say it.
  if (finish === "FUNCTION_CALL") return { stopReason: "tool_calls" };
  if (finish === "MAX_TOKENS" || finish === "CONTINUATION") return { stopReason: "length" };
  if (refusals.has(finish)) return { stopReason: "refusal", stopDetail: finish };
  if (failures.has(finish)) throw new ModelError("empty", `the model's message could not be used: ${finish}`);
  if (finish === "MISSING_THOUGHT_SIGNATURE") {
    throw new ModelError("bad_request", "the request lacks a thought signature: MISSING_THOUGHT_SIGNATURE");
  }
  return { stopReason: "other", stopDetail: finish };
}

type Counts = Partial<NonNullable<GenerateContentResponse["usageMetadata"]>>;

/** The vendor's count of the prompt leaves out what its own tools added; that of the answer leaves out the thoughts. */
function counted(usage: Counts): Usage {
  const { cachedContentTokenCount: cached, thoughtsTokenCount: reasoning } = usage;
  return usageOf({
    input: tokens(usage.promptTokenCount) + tokens(usage.toolUsePromptTokenCount),
    output: tokens(usage.candidatesTokenCount) + tokens(reasoning),
    cached,
    reasoning,
  });
}
