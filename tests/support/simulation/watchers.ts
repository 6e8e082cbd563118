/** Those who look on: they leave and come again, are slow, or throw. */
import { InputError } from "../../../src/errors.ts";
import type { Placed } from "../../../src/event.ts";
import { Dice } from "./dice.ts";
import { hour, minute, tenant, type World } from "./world.ts";

export class Watcher {
  readonly events: Placed[] = [];
  /** The same, by connection. */
  readonly sittings: Placed[][] = [];
  readonly #dice: Dice;

  constructor(readonly world: World, readonly run: string, seed: number, readonly name: string) {
    this.#dice = new Dice(seed, `watcher ${name} ${run}`);
  }

  /** Looks on until the run ends or it loses interest; after each break it goes on from the last event it saw. */
  async look(): Promise<void> {
    const { world } = this, dice = this.#dice, tired = world.time.now() + hour;
    while (world.time.now() < tired && this.events.at(-1)?.event.type !== "agent_end") {
      const isolate = world.isolate(`watcher ${this.name}`, true), gone = new AbortController();
      world.time.sleep(dice.between(1_000, 6 * minute), gone.signal).then(() => gone.abort());
      try {
        const after = this.events.at(-1)?.id, sitting: Placed[] = [];
        this.sittings.push(sitting);
        for await (const placed of isolate.pawl.events(tenant, this.run, { after, signal: gone.signal })) {
          this.events.push(placed);
          sitting.push(placed);
          if (dice.chance(0.03)) break;
          if (dice.chance(0.05)) await world.time.sleep(dice.between(0, 30_000));
        }
      } catch (error) {
        if (error instanceof InputError && error.code === "not_found") return;
        if (error instanceof TypeError) world.problem("R10 observer", `${error.stack}`);
      }
      gone.abort();
      await world.time.sleep(dice.between(0, 20_000));
    }
  }

  /** What is wrong with what it saw, given all events that the log tells of. */
  fault(all: Placed[]): string | undefined {
    // After a resync everything is told anew.
    const told = this.events.findLastIndex(({ event }) => event.type === "resync");
    const from = this.events[told]?.id, events = this.events.slice(told + 1);
    const twice = events.find(({ id }, i) => events.findIndex((other) => other.id === id) < i);
    if (twice) return `${spell(twice)} came twice`;

    const seen = events.filter(lasting), to = seen.at(-1)?.id;
    const expected = all.filter((placed) =>
      lasting(placed) && to !== undefined && !later(placed.id, to) &&
      (from === undefined || later(placed.id, from))
    );
    const differs = expected.findIndex((placed, i) => JSON.stringify(placed) !== JSON.stringify(seen[i]));
    if (differs < 0 && seen.length === expected.length) return this.#faultOfPieces();
    const at = differs < 0 ? expected.length : differs;
    return `expected ${spell(expected[at])} but saw ${spell(seen[at])} after ${from ?? "the start"}`;
  }

  /** In one sitting a message begins once, and its pieces come after its beginning. */
  #faultOfPieces(): string | undefined {
    for (const events of this.sittings) {
      const begun = new Map<string, string>();
      for (const { event, frame } of events) {
        if (event.type === "message_retry") begun.forEach((at, id) => at === frame && begun.delete(id));
        if (event.type !== "message_start" || event.message.role !== "assistant") continue;
        if (begun.has(event.message.id)) return `message ${event.message.id} began twice`;
        begun.set(event.message.id, frame);
      }
    }
  }
}

/** Part of the log's story; where a message begins depends on whether its pieces were seen. */
function lasting({ id, event }: Placed): boolean {
  if (Number(id.split(".")[1]) >= 1000 || event.type === "resync") return false;
  return event.type !== "message_start" || event.message.role !== "assistant";
}

export function later(id: string, than: string): boolean {
  const [a, k] = id.split(".").map(Number), [b, l] = than.split(".").map(Number);
  return a! > b! || (a === b && k! > l!);
}

function spell(placed: Placed | undefined): string {
  return placed ? `${placed.id} ${placed.event.type}` : "nothing";
}
