/** Those who look on: they leave and come again, are slow, or throw. */
import { InputError } from "../../../src/errors.ts";
import type { Placed } from "../../../src/event.ts";
import { Dice } from "./dice.ts";
import { hour, minute, tenant, type World } from "./world.ts";

export class Watcher {
  readonly events: Placed[] = [];
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
        const after = this.events.at(-1)?.id;
        for await (const placed of isolate.pawl.events(tenant, this.run, { after, signal: gone.signal })) {
          this.events.push(placed);
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
    const { events } = this;
    const twice = events.find(({ id }, i) => events.findIndex((other) => other.id === id) < i);
    if (twice) return `${spell(twice)} came twice`;
    const told = events.findLastIndex(({ event }) => event.type === "resync");
    const from = told < 0 ? undefined : events[told]!.id, to = events.findLast(lasting)?.id;
    const expected = all.filter(({ id }) =>
      to !== undefined && !later(id, to) && (from === undefined || later(id, from))
    ).filter(lasting);
    const seen = events.slice(told + 1).filter(lasting);
    const differs = expected.findIndex((placed, i) => JSON.stringify(placed) !== JSON.stringify(seen[i]));
    if (differs >= 0 || seen.length !== expected.length) {
      const at = differs < 0 ? expected.length : differs;
      return `expected ${spell(expected[at])} but saw ${spell(seen[at])}, ${
        told < 0 ? "from the start" : `after resync ${from}`
      }`;
    }
    if (told >= 0) return undefined;
    const starts = new Map<string, number>();
    for (const { event } of events) {
      if (event.type === "message_start") {
        starts.set(event.message.id, (starts.get(event.message.id) ?? 0) + 1);
      }
      if (event.type === "message_end" && starts.get(event.message.id) !== 1) {
        return `message ${event.message.id} began ${starts.get(event.message.id) ?? 0} times`;
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
