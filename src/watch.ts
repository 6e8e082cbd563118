/**
 * A run's events for one listener: the log, projected, then what comes. It reads, and nothing that happens here touches the run (DESIGN
 * rule 10).
 *
 * W1. Each event once and in order: after the id the listener names, or after one `resync` if that id cannot be honoured.
 * W2. A message that was seen in pieces is not begun a second time by its entry; if its pieces begin again, the first are void.
 * W3. Entries and pieces are two streams: an id names a place in one, and is honoured only if it also tells the place in the other.
 */
import { type Clock, orAfter } from "./clock.ts";
import { decode } from "./entry.ts";
import { type Event, liveFrom, type Placed, Projector } from "./event.ts";
import type { Piece } from "./journal.ts";
import type { Live, RunRecord, Store } from "./store.ts";

/** How often to look although nobody said that there is something new. */
const pollMs = 15_000;
/** A stream closes after so long, with the run going on: the listener comes again with the last id. */
const longestMs = 300_000;

export interface WatchOptions {
  store: Store;
  clock: Clock;
  thread: string;
  record: RunRecord;
  after?: string;
  signal: AbortSignal;
  /** The state that a `resync` carries. */
  state(): Promise<Omit<Extract<Event, { type: "resync" }>, "type">>;
}

export async function* watch(it: WatchOptions): AsyncGenerator<Placed> {
  const { store, clock, thread, record } = it;
  const run = record.id, projector = new Projector(run), until = clock.now() + longestMs;
  let next = record.first, seenPieces = -1, looked = false;
  const begun = new Set<string>();
  let after = position(it.after, record.first);
  let news = Promise.withResolvers<void>();
  const stop = store.watch(thread, () => news.resolve(), { live: true });
  try {
    while (!it.signal.aborted && clock.now() < until) {
      const reading = await store.read(thread, { run, from: next });
      if (!reading?.run) return;
      const { live, length } = reading;
      if (!looked && !honoured(after, live, length)) after = nowhere;
      looked = true;
      for (const text of reading.entries) {
        const entry = decode(text);
        for (const placed of projector.project(entry, next)) {
          const { event } = placed;
          const again = event.type === "message_start" && begun.delete(event.message.id);
          if (!again && later(placed.id, inLog(after))) yield placed;
        }
        if (entry.kind === "assistant" || entry.kind === "retry") begun.delete(entry.id);
        next++;
        if (projector.ended) break;
      }
      if (!projector.ended && next < length) continue;
      // What comes after this run's end is another run's: so is an id from there.
      if (projector.ended && after.offset >= next) after = nowhere;
      if (after === nowhere) {
        after = { offset: next - 1, k: liveFrom - 1 };
        yield {
          id: `${after.offset}.${after.k}`,
          run,
          frame: ".",
          event: { type: "resync", ...await it.state() },
        };
      }
      if (projector.ended) return;
      if (live && live.base <= length) {
        for (const [index, item] of live.items.entries()) {
          const k = liveFrom + live.skip + index, id = `${live.base}.${k}`;
          const place = live.base * 1e6 + k;
          if (place <= seenPieces) continue;
          seenPieces = place;
          const piece = JSON.parse(item) as Piece & { run: string; frame: string };
          if (piece.run !== run || ("message" in piece && projector.has(piece.message))) continue;
          const event = eventOf(piece, begun);
          if (event && later(id, after)) yield { id, run, frame: piece.frame, event };
        }
      }
      await orAfter(clock, Math.min(pollMs, until - clock.now()), news.promise, it.signal);
      news = Promise.withResolvers<void>();
    }
  } finally {
    stop();
  }
}

type Position = { offset: number; k: number };

/** An id that cannot be honoured: nothing comes after it until the listener has been told the state. */
const nowhere: Position = { offset: Infinity, k: 0 };

function position(id: string | undefined, first: number): Position {
  if (id === undefined || id === "") return { offset: -1, k: 0 };
  const match = /^(\d{1,12})\.(\d{1,9})$/.exec(id);
  if (!match || Number(match[1]) < first - 1) return nowhere;
  return { offset: Number(match[1]), k: Number(match[2]) };
}

function later(id: string, after: Position): boolean {
  const [offset, k] = id.split(".").map(Number) as [number, number];
  return offset > after.offset || (offset === after.offset && k > after.k);
}

/**
 * W3. Whether what comes after this position can still be told. After an entry: if the partial is younger, so that none of it was seen.
 * After a piece: if it is still there, and no entry came since the partial began, which may have been seen or not.
 */
function honoured({ offset, k }: Position, live: Live | undefined, length: number): boolean {
  if (k < liveFrom) return offset < length && !(live && live.base <= offset);
  const piece = k - liveFrom;
  return live !== undefined && live.base === offset && live.base === length && isWhole(live) &&
    piece >= live.skip && piece < live.skip + live.items.length;
}

/** Whether a partial tells where all its messages begin; if the log grew meanwhile, their beginnings are gone. */
function isWhole({ items }: Live): boolean {
  const begun = new Set<string>();
  return items.every((item) => {
    const piece = JSON.parse(item) as Piece;
    if ("begins" in piece) begun.add(piece.message);
    return !("delta" in piece) || begun.has(piece.message);
  });
}

/** A listener that saw a piece has seen all entries before it, and none from there on. */
function inLog(after: Position): Position {
  return after.k < liveFrom ? after : { offset: after.offset - 1, k: Infinity };
}

function eventOf(piece: Piece, begun: Set<string>): Event | undefined {
  if ("toolCallId" in piece) {
    return { type: "tool_execution_update", toolCallId: piece.toolCallId, text: piece.text };
  }
  if ("ends" in piece) return undefined;
  // The beginning was not seen: then the entry tells all of it.
  if ("delta" in piece && !begun.has(piece.message)) return undefined;
  if ("delta" in piece) return { type: "message_update", messageId: piece.message, delta: piece.delta };
  if (begun.has(piece.message)) {
    return {
      type: "message_retry",
      messageId: piece.message,
      code: "interrupted",
      message: "The message is made again: what came of it is void",
    };
  }
  begun.add(piece.message);
  return { type: "message_start", message: { role: "assistant", id: piece.message } };
}
