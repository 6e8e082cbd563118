/** A store that counts what it is asked. */
import type { Store } from "../../src/store.ts";

export interface Counts {
  /** Operations by verb. */
  verbs: Record<string, number>;
  /** UTF-8 bytes of all text in submissions and commits: entries, open calls, progress, mail. */
  bytes: number;
}

export function countedStore(store: Store): { store: Store; counts: Counts } {
  const counts: Counts = { verbs: {}, bytes: 0 };
  const counting = new Proxy(store, {
    get(target, verb: keyof Store) {
      const held = target[verb];
      if (typeof held !== "function") return held;
      return (...given: unknown[]) => {
        counts.verbs[verb] = (counts.verbs[verb] ?? 0) + 1;
        if (verb === "submit") counts.bytes += bytesIn(given[0]);
        if (verb === "commit") counts.bytes += bytesIn(given[1]);
        return (held as (...given: unknown[]) => unknown).apply(target, given);
      };
    },
  });
  return { store: counting, counts };
}

const encoder = new TextEncoder();

function bytesIn(value: unknown): number {
  if (typeof value === "string") return encoder.encode(value).length;
  if (typeof value !== "object" || value === null) return 0;
  return Object.values(value).reduce((sum: number, part) => sum + bytesIn(part), 0);
}
