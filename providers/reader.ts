/** What all vendors' streams have in common: how one is read to its end, and what its end means. */
import { type Delta, ModelError, type ModelOptions, type ModelReply, type ReplyBlock } from "../src/model.ts";
import { textOf, type Usage } from "../src/message.ts";
import { orAfter, systemClock } from "../src/clock.ts";
import { type Caller, failure } from "./failure.ts";

/** For the SDKs: the longest that a timer can wait. When a call takes too long is the loop's to say, by its signal. */
export const noTimeout = 2_147_483_647;

/** Turns a vendor's stream into a message, one event at a time. */
export interface Reader<Event> {
  /** Takes one event; true if it was the last one, even when the connection stays open (CASES B15). */
  take(event: Event): boolean;
  /** Whether the message is whole: what may still come is what it cost, or a mark that it has ended. */
  said?(): boolean;
  /** The whole message. Throws ModelError if the stream ended before its message did. */
  reply(): ModelReply;
}

/** How long a stream that has said all may stay open in silence: some servers never end it (CASES B15). */
const lingerMs = 3_000;

/** Reads a stream to its end; whatever goes wrong comes out as ModelError. `open` is given a signal that also closes the connection. */
export async function read<Event>(
  open: (signal: AbortSignal) => Promise<AsyncIterable<Event>>,
  reader: Reader<Event>,
  caller: Caller & { signal: AbortSignal; onSign?: ModelOptions["onSign"] },
): Promise<ModelReply> {
  const over = new AbortController();
  try {
    caller.signal.throwIfAborted();
    const stream = await open(AbortSignal.any([caller.signal, over.signal]));
    const events = stream[Symbol.asyncIterator]();
    caller.onSign?.();
    for (;;) {
      const next = reader.said?.()
        ? await orAfter(systemClock, lingerMs, events.next())
        : await events.next();
      caller.onSign?.();
      if (next?.done !== false || reader.take(next.value)) break;
    }
    // An SDK's stream may end without a word when it is aborted.
    caller.signal.throwIfAborted();
    return reader.reply();
  } catch (thrown) {
    throw failure(thrown, caller);
  } finally {
    over.abort();
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

/** A count of tokens. Some servers send text, a fraction or a negative: added up, these would make the run's usage no number any more. */
export function tokens(counted: unknown): number {
  const count = Math.round(Number(counted ?? 0));
  return Number.isSafeInteger(count) && count > 0 ? count : 0;
}

/** The usage of a message, of what its vendor counted; what it did not count is absent. */
export function usageOf(
  { input, output, ...more }: { input: number; output: number } & { [part in Part]?: unknown },
): Usage {
  const counted = Object.entries(more).filter(([, count]) => count != null);
  return { input, output, ...Object.fromEntries(counted.map(([part, count]) => [part, tokens(count)])) };
}

type Part = Exclude<keyof Usage, "input" | "output">;

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
