/**
 * A run's events as server-sent events. Pulled, never pushed: what a slow reader has not fetched is not read from the store either. When
 * the client goes, all that this stream holds is let go; the run does not notice (CASES F22).
 */
import { type Clock, orAfter } from "../clock.ts";
import { FatalError } from "../errors.ts";
import type { Placed } from "../event.ts";
import { eventOut } from "./wire.ts";

/** How long the line may be silent before a comment shows that both ends are alive. */
export const pingMs = 15_000;

/**
 * One event as one frame. JSON text holds no line break and no NUL; id and name are checked, for a line break in them would let their
 * author write frames of his own (CASES B23).
 */
export function frameOf(placed: Placed): string {
  const { id, event } = placed;
  if (!/^[\x21-\x7e]+$/.test(id) || !/^[a-z_]+$/.test(event.type)) {
    throw new FatalError(
      "event",
      `Write an event: expected a plain id and name, got ${JSON.stringify([id, event.type])}`,
    );
  }
  return `id: ${id}\nevent: ${event.type}\ndata: ${JSON.stringify(eventOut(placed))}\n\n`;
}

export interface StreamOptions {
  clock: Clock;
  /** Nothing more will happen. If `events` has nothing either, the answer is 204, which tells an EventSource not to come again. */
  over: boolean;
  /** Hears what made the stream close early; the client resumes by id and is not told. */
  onError(error: unknown): void;
}

/** Answers with the events of `open`, which is called when the client begins to read; its signal aborts when the client is gone. */
export async function eventStream(
  open: (signal: AbortSignal) => AsyncIterable<Placed>,
  { clock, over, onError }: StreamOptions,
): Promise<Response> {
  const gone = new AbortController();
  let events: AsyncIterator<Placed> | undefined;
  let next: Promise<IteratorResult<Placed>> | undefined;
  const read = () => next ??= (events ??= open(gone.signal)[Symbol.asyncIterator]()).next();
  const release = () => {
    gone.abort();
    // Not awaited: an iterator that ignores the signal must not keep the connection.
    events?.return?.()?.catch(() => {});
  };

  if (over && (await read().catch((error) => (release(), Promise.reject(error)))).done) {
    release();
    return new Response(null, { status: 204 });
  }

  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const end = () => {
        if (gone.signal.aborted) return;
        release();
        controller.close();
      };
      try {
        // Undefined: silence long enough for a ping, or the client has left.
        const got = await orAfter(clock, pingMs, read(), gone.signal);
        if (gone.signal.aborted || got?.done) return end();
        if (got) next = undefined;
        controller.enqueue(encoder.encode(got ? frameOf(got.value) : ": ping\n\n"));
      } catch (error) {
        if (!gone.signal.aborted) onError(error);
        end();
      }
    },
    cancel: release,
  }, { highWaterMark: 0 });

  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    },
  });
}
