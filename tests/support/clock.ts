/** Time that stands still until a test moves it. */
import type { Clock } from "../../src/clock.ts";

export interface ManualClock extends Clock {
  /** Moves time on. Sleeps that end meanwhile end in order, each at its own time, and what they set going runs before the next one ends. */
  advance(ms: number): Promise<void>;
  /** How many sleep. */
  readonly sleepers: number;
}

interface Sleeper {
  at: number;
  wake: () => void;
}

/** Ids count up: two clocks give the same ones in the same order. */
export function manualClock(start = Date.UTC(2026, 0, 1)): ManualClock {
  let now = start;
  let ids = 0;
  const sleepers = new Set<Sleeper>();
  const next = (until: number) => {
    const due = [...sleepers].filter((sleeper) => sleeper.at <= until);
    // The first of those that end at the same time is the one that began first: sort is stable.
    return due.sort((a, b) => a.at - b.at)[0];
  };
  return {
    now: () => now,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const wake = () => {
          sleepers.delete(sleeper);
          signal?.removeEventListener("abort", wake);
          resolve();
        };
        const sleeper = { at: now + Math.max(0, ms), wake };
        sleepers.add(sleeper);
        signal?.addEventListener("abort", wake);
      }),
    id: (length = 12) => (++ids).toString(36).padStart(length, "0").slice(-length),
    async advance(ms) {
      const end = now + ms;
      await settle();
      for (let sleeper = next(end); sleeper; sleeper = next(end)) {
        now = Math.max(now, sleeper.at);
        sleeper.wake();
        await settle();
      }
      now = end;
    },
    get sleepers() {
      return sleepers.size;
    },
  };
}

/** Resolves when everything that is ready to run has run. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}
