/**
 * A queue like QStash: at least once, in any order. It remembers ids for ten minutes, tries a failed message three times more and then gives
 * it up; deliveries come late, a little early, twice, and once in a while much later again; a connection may break while its function lives on.
 */
import { deduplicationId, type Delivery } from "../../../src/queue.ts";
import { FatalError } from "../../../src/errors.ts";
import { Dice } from "./dice.ts";
import { type Isolate, minute, type World } from "./world.ts";

const memoryMs = 10 * minute;
const backoffMs = [12_000, 148_000, 1_808_000];

export class SimulatedQueue {
  readonly #dice: Dice;
  readonly #ids = new Map<string, number>();
  #messages = 0;
  #warm: Isolate[] = [];
  /** Some queues say which try this is, and some that they have given up. */
  readonly #counts: boolean;
  readonly #tells: boolean;

  constructor(readonly world: World, seed: number, readonly calm = false) {
    this.#dice = new Dice(seed, "queue");
    this.#counts = calm || this.#dice.chance(0.7);
    this.#tells = this.#dice.chance(0.5);
  }

  /** The delivery is durable from here on, unless its id has been seen. */
  accept(delivery: Delivery): void {
    const { world } = this, id = deduplicationId(delivery), now = world.time.now();
    const seen = this.#ids.get(id);
    if (seen !== undefined && now - seen < memoryMs) return world.note(() => `queue: ${id} is a duplicate`);
    this.#ids.set(id, now);
    const message = `q${++this.#messages}`, dice = this.#dice;
    world.note(() => `queue: ${message} is ${id} ${delivery.at ? `for ${delivery.at - now} ms later` : ""}`);
    const early = delivery.at !== undefined && !this.calm && world.fault(0.06) ? dice.between(0, 5_000) : 0;
    const late = !this.calm && dice.chance(0.1) ? dice.between(0, 30_000) : 20;
    const due = Math.max(now, (delivery.at ?? 0) - early) + late;
    this.#deliver(delivery, message, due, 0);
    if (this.calm) return;
    if (world.fault(0.08)) this.#deliver(delivery, message, due + dice.between(0, minute), 0);
    if (world.fault(0.03)) this.#deliver(delivery, message, due + dice.between(0, 50 * minute), 0);
  }

  async #deliver(delivery: Delivery, message: string, at: number, retries: number): Promise<void> {
    const { world } = this, dice = this.#dice;
    await world.time.sleep(at - world.time.now());
    const isolate = this.#process();
    world.note(() => `queue: ${message}, retry ${retries}, to ${isolate.name}`);
    let answered = false;
    const answer = (well: boolean, why: unknown) => {
      if (answered) return;
      answered = true;
      world.note(() => `queue: ${message} ${well ? "is done" : `failed: ${why}`}`);
      if (well) return;
      const backoff = backoffMs[retries];
      if (backoff !== undefined) this.#deliver(delivery, message, world.time.now() + backoff, retries + 1);
      else this.#giveUp(delivery);
    };
    const after = (ms: number, happens: () => void) => void world.time.sleep(ms).then(happens);
    isolate.mourners.push(() => after(dice.between(1, 3_000), () => answer(false, "killed")));
    if (world.fault(0.04)) after(dice.between(0, 20_000), () => answer(false, "the connection broke"));
    if (world.fault(0.04)) after(dice.between(0, 30_000), () => world.kill(isolate, "at any moment"));
    isolate.pawl.deliver(delivery, message, this.#counts ? retries : undefined).then(
      () => answer(true, ""),
      (error) => {
        for (let cause = error; cause instanceof Error; cause = cause.cause as Error) {
          if (isMistake(cause)) world.problem("R0 code", `${cause.stack}`);
        }
        answer(false, error);
      },
    );
  }

  async #giveUp(delivery: Delivery): Promise<void> {
    const { world } = this;
    world.note(() => `queue: gives up ${deduplicationId(delivery)}`);
    for (let tries = 0; this.#tells && tries < 3; tries++) {
      const isolate = this.#process();
      const died = new Promise<false>((resolve) => isolate.mourners.push(() => resolve(false)));
      const told = isolate.pawl.failed(delivery).then(() => true, () => false);
      if (await Promise.race([told, died])) return;
      await world.time.sleep(12_000);
    }
  }

  /** A new process, or one that has worked before and holds transcripts. */
  #process(): Isolate {
    this.#warm = this.#warm.filter((isolate) => !isolate.dead).slice(-3);
    if (this.#warm.length && this.#dice.chance(0.4)) return this.#dice.pick(this.#warm);
    const isolate = this.world.isolate(`worker ${this.world.isolates.length}`);
    this.#warm.push(isolate);
    return isolate;
  }
}

/** What no network does. */
function isMistake(error: Error): boolean {
  return error instanceof FatalError || error instanceof TypeError || error instanceof RangeError ||
    error instanceof ReferenceError;
}
