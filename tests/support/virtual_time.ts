/**
 * A clock whose time passes only when nothing else can happen: the next sleep is over at once. Random ids come from a seed. Work outside the
 * process takes real time, in which nothing happens here that seems idle: `during` says that it is under way.
 */
import type { Clock } from "../../src/clock.ts";

export class VirtualTime implements Clock {
  #now: number;
  #order = 0;
  #state: number;
  #sleeps: { at: number; order: number; background: boolean; wake(): void }[] = [];
  readonly #underWay = new Set<Promise<void>>();

  constructor(seed = 1, start = 1_800_000_000_000) {
    this.#now = start;
    this.#state = (seed * 2654435761 + 12345) >>> 0;
  }

  now(): number {
    return this.#now;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return this.#sleep(ms, signal, false);
  }

  /** The same time, with chance of its own, for what goes on for ever: time does not pass for its sleeps alone. */
  background(seed = 1): Clock {
    const chance = new VirtualTime(seed);
    return {
      now: () => this.#now,
      sleep: (ms, signal) => this.#sleep(ms, signal, true),
      id: (length) => chance.id(length),
    };
  }

  /** No time passes until `work` has settled. */
  during<T>(work: Promise<T>): Promise<T> {
    const done: Promise<void> = work.then(() => {}, () => {}).then(() => void this.#underWay.delete(done));
    this.#underWay.add(done);
    return work;
  }

  #sleep(ms: number, signal: AbortSignal | undefined, background: boolean): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const at = this.#now + Math.max(0, ms);
      const sleep = { at, order: this.#order++, background, wake: resolve };
      this.#sleeps.push(sleep);
      signal?.addEventListener("abort", () => {
        const index = this.#sleeps.indexOf(sleep);
        if (index >= 0) this.#sleeps.splice(index, 1);
        resolve();
      }, { once: true });
    });
  }

  /** 0 ≤ x < 1, the same for the same seed. */
  random(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  id(length = 12): string {
    return Array.from({ length }, () => Math.floor(this.random() * 36).toString(36)).join("");
  }

  /** Sleeps that are not over yet. */
  get pending(): number {
    return this.#sleeps.length;
  }

  /** Lets the next sleep be over; false if there is none. */
  async step(limit = Infinity): Promise<boolean> {
    await this.#idle();
    return this.#pass(limit);
  }

  #pass(limit: number): boolean {
    let next = 0;
    if (this.#sleeps.every((sleep) => sleep.background)) return false;
    for (let i = 1; i < this.#sleeps.length; i++) {
      const a = this.#sleeps[i]!, b = this.#sleeps[next]!;
      if (a.at < b.at || (a.at === b.at && a.order < b.order)) next = i;
    }
    if (this.#sleeps[next]!.at > limit) return false;
    const [sleep] = this.#sleeps.splice(next, 1);
    this.#now = Math.max(this.#now, sleep!.at);
    sleep!.wake();
    return true;
  }

  /** Lets time pass until `promise` settles. */
  async until<T>(promise: Promise<T>, maxSteps = 100_000): Promise<T> {
    let settled = false;
    promise.then(() => settled = true, () => settled = true);
    for (let steps = 0, idles = 0;; steps++) {
      await this.#idle();
      if (settled) break;
      // Some work of the platform, such as a digest, is done beside the event loop and takes a few rounds.
      if (this.#pass(Infinity)) idles = 0;
      else if (idles++ < 1000) continue;
      else throw new Error("Nothing is left to happen, but the promise has not settled");
      if (steps > maxSteps) throw new Error(`The promise has not settled after ${maxSteps} steps`);
    }
    return await promise;
  }

  /** Lets `ms` pass. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    while (await this.step(end));
    await this.#idle();
    this.#now = Math.max(this.#now, end);
  }

  /** Whatever can happen without time has. */
  async #idle(): Promise<void> {
    do {
      await Promise.all(this.#underWay);
      await idle();
    } while (this.#underWay.size);
  }
}

/** A whole round of the event loop: every promise that can settle has. */
async function idle(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}
