/** What all vendors' streams have in common: how one is read to its end, and what its end means. */
import { type Delta, ModelError, type ModelOptions, type ModelReply, type ReplyBlock } from "../src/model.ts";
import { textOf, type Usage } from "../src/message.ts";
import { failure } from "./failure.ts";

/** For the SDKs: the longest that a timer can wait. When a call takes too long is the loop's to say, by its signal. */
export const noTimeout = 2_147_483_647;

/** Turns a vendor's stream into a message, one event at a time. */
export interface Reader<Event> {
  /** Takes one event; true if it was the last one, even when the connection stays open (CASES B15). */
  take(event: Event): boolean;
  /** The whole message. Throws ModelError if the stream ended before its message did. */
  reply(): ModelReply;
}

/** Reads a stream to its end; whatever goes wrong comes out as ModelError. */
export async function read<Event>(
  open: () => Promise<AsyncIterable<Event>>,
  reader: Reader<Event>,
  caller: { name: string; apiKey: string; signal: AbortSignal },
): Promise<ModelReply> {
  try {
    caller.signal.throwIfAborted();
    for await (const event of await open()) {
      if (reader.take(event)) break;
    }
    // OpenAI's stream ends without a word when it is aborted.
    caller.signal.throwIfAborted();
    return reader.reply();
  } catch (thrown) {
    throw failure(thrown, caller);
  }
}

/** `onDelta`, so that nothing it does can hurt the run (DESIGN rule 10). */
export function harmless(onDelta: ModelOptions["onDelta"]): (delta: Delta) => void {
  return (delta) => {
    try {
      const returned: unknown = onDelta(delta);
      if (returned instanceof Promise) returned.catch(() => {});
    } catch {
      // An observer's failure is the observer's.
    }
  };
}

/** A reason to stop in Pawl's words; absent: the vendor gave none. */
export type Stop = Pick<ModelReply, "stopReason" | "stopDetail"> | undefined;

/** The message of a stream that has ended. Throws if it ended without saying why: half an answer looks like a whole one (CASES B13). */
export function conclude(content: ReplyBlock[], stop: Stop, usage: Usage): ModelReply {
  if (!stop) throw new ModelError("network", "the stream ended before the message did");
  const calls = content.some((block) => block.type === "tool_call");
  if (stop.stopReason === "stop" && calls) stop = { stopReason: "tool_calls" };
  if (stop.stopReason === "tool_calls" && !calls) {
    // The reason alone would make the loop ask again for ever (CASES A24).
    if (!textOf(content).trim()) {
      throw new ModelError("empty", "the model stopped for tool calls but sent none");
    }
    stop = { stopReason: "stop" };
  }
  return { content, ...stop, usage };
}
