/** Chance from a seed. Each part of a simulation has dice of its own, so that what one draws changes nothing for the others. */
import { VirtualTime } from "../virtual_time.ts";

export class Dice {
  readonly #source: VirtualTime;

  constructor(seed: number, purpose: string) {
    let mixed = seed * 7919;
    for (const letter of purpose) mixed = (mixed * 31 + letter.charCodeAt(0)) % 1_000_003;
    this.#source = new VirtualTime(mixed);
  }

  chance(probability: number): boolean {
    return this.#source.random() < probability;
  }

  between(low: number, high: number): number {
    return Math.round(low + this.#source.random() * (high - low));
  }

  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#source.random() * from.length)]!;
  }
}
