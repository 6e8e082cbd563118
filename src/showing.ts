/**
 * What those who watch a run see before it is in the log. Observers cannot hurt (rule 10): it is sent aside, in batches, and what cannot be
 * sent is dropped.
 */
import { type Clock, orAfter } from "./clock.ts";
import type { Journal, Piece } from "./journal.ts";

export interface Audience {
  clock: Clock;
  run: string;
  /** Somebody watches, and it may be paid for. */
  wanted(): boolean;
  /** The slice is over. */
  finished: AbortSignal;
  /** `begins`: what was sent before belongs to messages that are over. */
  send(items: string[], begins: boolean): Promise<void>;
}

/** Pieces are sent in batches. */
const batchMs = 300;

export function showing({ clock, run, wanted, finished, send }: Audience): Pick<Journal, "show" | "shown"> {
  const streaming = new Set<string>();
  let pieces: string[] = [], reset = false, sending: Promise<void> | undefined;
  let hurry = new AbortController();
  // One batch is on its way at a time, so that pieces stay in order.
  const sendAll = async () => {
    while (pieces.length && !finished.aborted) {
      await clock.sleep(batchMs, AbortSignal.any([hurry.signal, finished]));
      const items = pieces, begins = reset;
      pieces = [];
      reset = false;
      if (!finished.aborted) await send(items, begins);
    }
  };
  return {
    show(frame: string, piece: Piece) {
      if ("ends" in piece) return void streaming.delete(piece.message);
      if (finished.aborted || !wanted()) return;
      if ("begins" in piece) {
        reset ||= streaming.size === 0;
        streaming.add(piece.message);
      }
      pieces.push(JSON.stringify({ run, frame, ...piece }));
      sending ??= sendAll().catch(() => {}).finally(() => sending = undefined);
    },
    async shown() {
      if (!sending) return;
      hurry.abort();
      // A whole message waits for this: a store that does not answer may not keep it from being committed.
      await orAfter(clock, batchMs, sending, finished);
      hurry = new AbortController();
    },
  };
}
