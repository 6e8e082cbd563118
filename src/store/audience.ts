/** Who watches threads from inside this process, and the partials shown to them. Nothing here outlives the process. */
import type { Live } from "../store.ts";

export class Audience {
  readonly #listeners = new Map<string, Set<{ wake(): void; live: boolean }>>();
  /** By incarnation: a thread made again has no partial. */
  readonly #partials = new Map<string, Live>();

  watch(thread: string, wake: () => void, live: boolean): () => void {
    const listener = { wake, live };
    const listeners = this.#listeners.get(thread) ?? new Set();
    this.#listeners.set(thread, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(thread) === listeners) this.#listeners.delete(thread);
    };
  }

  watches(thread: string): boolean {
    return [...this.#listeners.get(thread) ?? []].some(({ live }) => live);
  }

  /** Listeners cannot hurt (DESIGN rule 10): one that throws stops neither the verb that woke it nor the others. */
  wake(thread: string): void {
    for (const listener of [...this.#listeners.get(thread) ?? []]) {
      try {
        listener.wake();
      } catch {
        // It will read again when it next looks.
      }
    }
  }

  /** Adds to the partial. Positions go on counting while the log has the same length, so no position names two items. */
  add(incarnation: string, length: number, items: string[], reset: boolean): void {
    if (reset) this.void(incarnation);
    const old = this.#partials.get(incarnation);
    if (old && old.items.length > 0) old.items.push(...items);
    else {
      const skip = old?.base === length ? old.skip : 0;
      this.#partials.set(incarnation, { base: length, skip, items: [...items] });
    }
  }

  /** What was shown is not going to be finished; its positions stay used. */
  void(incarnation: string): void {
    const old = this.#partials.get(incarnation);
    if (old) {
      this.#partials.set(incarnation, { base: old.base, skip: old.skip + old.items.length, items: [] });
    }
  }

  /** The log has grown past the partial. */
  drop(incarnation: string): void {
    this.#partials.delete(incarnation);
  }

  partial(incarnation: string): Live | undefined {
    const live = this.#partials.get(incarnation);
    return live && live.items.length > 0 ? { ...live, items: [...live.items] } : undefined;
  }
}
