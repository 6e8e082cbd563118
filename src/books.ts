/**
 * What a run has used, and what is booked for the model calls of the present slice (DESIGN rule 7). Pure: each change answers new books, so that
 * a part of a commit that did not apply is forgotten with them. What is booked is in the progress; for whom, only the slice knows: so what a
 * slice leaves behind when it dies stays booked.
 */
import type { Booking, Counts } from "./journal.ts";
import { addUsage } from "./message.ts";
import type { Amount, Progress } from "./run.ts";

export interface Books {
  progress: Progress;
  bookings: ReadonlyMap<string, Booking>;
}

export function counted({ progress, bookings }: Books, count: Counts): Books {
  const { iterations = 0, usage, usd, unaccounted, book, settle, forfeit } = count;
  const left = new Map(bookings);
  let { booked = nothing } = progress;
  for (const frame of [settle, book?.frame]) {
    if (frame === undefined) continue;
    booked = sum(booked, left.get(frame), -1);
    left.delete(frame);
  }
  if (forfeit !== undefined) left.delete(forfeit);
  if (book) {
    booked = sum(booked, book.booking);
    left.set(book.frame, book.booking);
  }
  return {
    bookings: left,
    progress: {
      ...progress,
      iterations: progress.iterations + iterations,
      usage: usage ? addUsage(progress.usage, usage) : progress.usage,
      ...(usd === undefined ? {} : { usd: cents((progress.usd ?? 0) + usd) }),
      ...(unaccounted ? { unaccounted: (progress.unaccounted ?? 0) + unaccounted } : {}),
      booked: booked.tokens > 0 ? booked : undefined,
    },
  };
}

/** A slice that stands still has no call under way: none that is booked was made. */
export function released(books: Books): Books {
  return [...books.bookings.keys()].reduce((left, settle) => counted(left, { settle }), books);
}

export function usedOf({ usage, usd = 0, booked = nothing }: Progress): Amount {
  return sum({ tokens: usage.input + usage.output, usd }, booked);
}

const nothing: Amount = { tokens: 0, usd: 0 };

function sum(a: Amount, b: Amount = nothing, sign = 1): Amount {
  return { tokens: Math.max(0, a.tokens + sign * b.tokens), usd: cents(Math.max(0, a.usd + sign * b.usd)) };
}

/** Without what is only the rounding of sums; far below what a token costs. */
function cents(usd: number): number {
  return Math.round(usd * 1e10) / 1e10;
}
