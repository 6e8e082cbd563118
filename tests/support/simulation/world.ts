/**
 * The simulated world: one store that never fails, and processes ("isolates") that reach it over a network that does. Everything happens in
 * virtual time and is drawn from a seed, so a seed is a schedule.
 *
 * An isolate that is killed never runs on: what it waits for never comes. What it had put on the wire may still arrive.
 */
import type { Budget } from "../../../src/budget.ts";
import type { Clock } from "../../../src/clock.ts";
import type { Models } from "../../../src/model.ts";
import type { Delivery, Queue } from "../../../src/queue.ts";
import { Registry } from "../../../src/registry.ts";
import { createRuntime } from "../../../src/runtime.ts";
import type { Store } from "../../../src/store.ts";
import { VirtualTime } from "../virtual_time.ts";
import { Dice } from "./dice.ts";
import { type Facts, witness } from "./facts.ts";

export const tenant = "local";
export const minute = 60_000;
export const hour = 60 * minute;

/** What becomes of one request over the network. `outage`: this one and all others fail for a while. */
export type Fate = "well" | "killed before" | "killed after" | "dropped" | "lost" | "late" | "outage";

export interface Isolate {
  name: string;
  dead: boolean;
  /** Called when it dies. */
  mourners: (() => void)[];
  pawl: ReturnType<typeof createRuntime>;
  /** When it tried in vain to prolong a lease: so long it could not know of a cancel. */
  renewalsFailed: number[];
  /** It only looks on: what befalls it is drawn aside. */
  observer: boolean;
  /** Counts those that do not. */
  number: number;
}

export interface WorldOptions {
  seed: number;
  store(time: VirtualTime): Store;
  /** How many faults there will be. */
  faults: number;
  budget?: Partial<Budget>;
  ttlMs?: number;
  compactTokens?: number;
  trace?(line: string): void;
  /** What is shown to those who look on takes no time. */
  shownAtOnce?: boolean;
  tools(world: World, isolate: Isolate): unknown[];
  models(world: World, isolate: Isolate): Models;
  publish(world: World, delivery: Delivery): void;
  /** Decides instead of the dice; `n` counts the requests. */
  fate?(n: number, what: string, args: unknown[]): Fate;
  /** An isolate has died just now. */
  killed?(isolate: Isolate): void;
}

export class World {
  readonly time: VirtualTime;
  /** As it is: what is done here is done. */
  readonly store: Store;
  readonly facts: Facts;
  readonly problems: string[] = [];
  readonly isolates: Isolate[] = [];
  readonly dice: Dice;
  readonly #asideDice: Dice;
  readonly #startedAt: number;
  faults: number;
  /** Nothing goes wrong any more. */
  calm = false;
  requests = 0;
  #outageUntil = 0;
  #workers = 0;

  constructor(readonly options: WorldOptions) {
    this.time = new VirtualTime(options.seed);
    this.#startedAt = this.time.now();
    this.dice = new Dice(options.seed, "network");
    this.#asideDice = new Dice(options.seed, "aside");
    this.faults = options.faults;
    const observed = witness(options.store(this.time), this.time);
    this.store = observed.store;
    this.facts = observed.facts;
  }

  /** Since the world began, in ms. */
  get age(): number {
    return this.time.now() - this.#startedAt;
  }

  note(line: () => string): void {
    this.options.trace?.(`${(this.age / 1000).toFixed(3).padStart(12)}  ${line()}`);
  }

  problem(rule: string, what: string): void {
    this.note(() => `PROBLEM ${rule}: ${what}`);
    this.problems.push(`${rule}: ${what}`);
  }

  /** Whether a fault of this likelihood happens now; there are only so many. */
  fault(probability: number): boolean {
    if (this.calm || this.faults <= 0 || !this.dice.chance(probability)) return false;
    this.faults--;
    return true;
  }

  /** A new process: its own code, its own memory. */
  isolate(name: string, observer = false): Isolate {
    const number = observer ? 0 : ++this.#workers;
    const made = { name, dead: false, mourners: [], renewalsFailed: [], observer, number };
    const isolate = made as Omit<Isolate, "pawl"> as Isolate;
    const { budget, ttlMs, compactTokens, tools, models } = this.options;
    isolate.pawl = createRuntime({
      store: this.#storeFor(isolate),
      queue: this.#queueFor(isolate),
      models: models(this, isolate),
      registry: new Registry(tools(this, isolate)),
      clock: this.clockOf(isolate),
      budget,
      ttlMs,
      compactTokens,
    });
    this.isolates.push(isolate);
    return isolate;
  }

  kill(isolate: Isolate, why: string): void {
    if (isolate.dead) return;
    this.note(() => `${isolate.name} is killed ${why}`);
    isolate.dead = true;
    this.options.killed?.(isolate);
    for (const mourn of isolate.mourners) mourn();
  }

  clockOf(isolate: Isolate): Clock {
    return {
      now: () => this.time.now(),
      id: (length) => this.time.id(length),
      sleep: (ms, signal) => unlessDead(isolate, this.time.sleep(ms, signal)),
    };
  }

  /** A request: it takes time, and may be cut off on either side of its effect. */
  call<T>(from: Isolate, what: string, args: unknown[], effect: () => Promise<T>): Promise<T> {
    if (from.dead) return forever();
    if (what === "stream" && this.options.shownAtOnce) return unlessDead(from, effect());
    const aside = from.observer || what === "stream";
    const fate = aside ? this.#fateAside() : this.#fateOf(what, args);
    const dice = aside ? this.#asideDice : this.dice;
    return unlessDead(from, this.#travel(from, what, effect, fate, dice));
  }

  async #travel<T>(
    from: Isolate,
    what: string,
    effect: () => Promise<T>,
    fate: Fate,
    dice: Dice,
  ): Promise<T> {
    const arrivesAnyway = dice.chance(0.5), there = dice.between(1, 40), back = dice.between(1, 40);
    const timeout = async () => {
      if (what === "renew") from.renewalsFailed.push(this.time.now());
      await this.time.sleep(500);
      throw new Error(`The network failed (${what}, ${fate})`);
    };
    await this.time.sleep(there);
    if (fate !== "well") this.note(() => `${from.name} ${what}: ${fate}`);
    if (fate === "killed before") this.kill(from, `before ${what}`);
    if (fate === "killed before" || (from.dead && !arrivesAnyway)) return await forever();
    if (fate === "dropped" || fate === "outage") return await timeout();
    if (fate === "late") {
      const delay = dice.between(1_000, 40_000);
      this.time.sleep(delay).then(() => this.#apply(from, `${what} (late)`, effect)).catch(() => {});
      return await timeout();
    }
    const answer = await this.#apply(from, what, effect).then(
      (value) => () => value,
      (error) => () => {
        throw error;
      },
    );
    if (fate === "killed after") this.kill(from, `after ${what}`);
    if (fate === "lost") return await timeout();
    await this.time.sleep(back);
    return answer();
  }

  async #apply<T>(from: Isolate, what: string, effect: () => Promise<T>): Promise<T> {
    const answer = await effect();
    if (what !== "renew" && what !== "read") {
      this.note(() => `${from.name} ${what}: ${brief(answer)}`);
    }
    return answer;
  }

  #fateOf(what: string, args: unknown[]): Fate {
    const n = ++this.requests;
    const decided = this.options.fate?.(n, what, args);
    if (decided === "outage") this.#outageUntil = this.time.now() + 3_000;
    if (this.time.now() < this.#outageUntil) return "outage";
    if (decided) return decided;
    if (this.fault(0.012)) return "killed before";
    if (this.fault(0.018)) return "killed after";
    if (this.fault(0.015)) return "dropped";
    if (this.fault(0.02)) return "lost";
    return this.fault(0.004) ? "late" : "well";
  }

  /** Observers and what is shown to them fail as well, but they take no fault from the others. */
  #fateAside(): Fate {
    if (this.calm || this.options.faults <= 0 || !this.#asideDice.chance(0.03)) return "well";
    return this.#asideDice.pick(["dropped", "lost"]);
  }

  #storeFor(isolate: Isolate): Store {
    const inner = this.store;
    return new Proxy(inner, {
      get: (_, verb: keyof Store) => {
        if (verb === "name") return inner.name;
        if (verb === "watch") {
          return (thread: string, wake: () => void, options: Parameters<Store["watch"]>[2]) =>
            inner.watch(thread, () => isolate.dead || wake(), options);
        }
        const body = inner[verb] as (...args: unknown[]) => Promise<unknown>;
        return (...args: unknown[]) => this.call(isolate, verb, args, () => body(...args));
      },
    });
  }

  #queueFor(isolate: Isolate): Queue {
    return {
      name: "simulated",
      publish: (delivery) =>
        this.call(
          isolate,
          "publish",
          [delivery],
          () => Promise.resolve(this.options.publish(this, structuredClone(delivery))),
        ),
    };
  }
}

export function forever(): Promise<never> {
  return new Promise(() => {});
}

/** Settles like `promise`, but never after the isolate's death. */
export function unlessDead<T>(isolate: Isolate, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    promise.then((value) => isolate.dead || resolve(value), (error) => isolate.dead || reject(error));
  });
}

function brief(answer: unknown): string {
  return (JSON.stringify(answer) ?? "").slice(0, 300);
}
