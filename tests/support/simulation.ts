/**
 * The real slices, loop and store in a world where everything that may go wrong does, drawn from a seed. What must never break is judged
 * when all is over. The parts are in `simulation/`.
 */
import type { Budget } from "../../src/budget.ts";
import type { Settings } from "../../src/run.ts";
import { isActive, threadKey } from "../../src/run.ts";
import type { Store } from "../../src/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import type { Placed } from "../../src/event.ts";
import { Dice } from "./simulation/dice.ts";
import { logOf } from "./simulation/facts.ts";
import { type Request, simulatedModels } from "./simulation/model.ts";
import { People } from "./simulation/people.ts";
import { SimulatedQueue } from "./simulation/queue.ts";
import { judgeThread, judgeWork } from "./simulation/rules.ts";
import { ask, Books, simulatedTools, toolNames } from "./simulation/tools.ts";
import { later, Watcher } from "./simulation/watchers.ts";
import type { VirtualTime } from "./virtual_time.ts";
import { hour, minute, tenant, World } from "./simulation/world.ts";

export interface SimulationOptions {
  /** Told what happens, line by line. */
  trace?(line: string): void;
  /** Whether anybody looks on. Default true. */
  watched?: boolean;
  /** What is shown to those who look on takes no time; else the commit of a message waits a moment for it. */
  shownAtOnce?: boolean;
  /** How many faults there are. Default 14. */
  faults?: number;
  /** What a slice may spend; drawn if absent. */
  budget?: Partial<Budget>;
  /** Makes another store than SQLite's. */
  store?(time: VirtualTime, ttlMs: number): Store;
}

export interface Simulation {
  problems: string[];
  /** The logs of all threads. */
  logs: string[][];
  requests: number;
  runs: number;
  steps: number;
}

/** A client tool waits half as long for its answer. The store keeps threads longer, so that all are there to be judged. */
const ttlMs = 24 * hour;
const keptMs = 60 * 24 * hour;
const patienceMs = 30 * 24 * hour;

export async function simulate(seed: number, options: SimulationOptions = {}): Promise<Simulation> {
  const books = new Books(), requests: Request[] = [], watchers: Watcher[] = [];
  const dice = new Dice(seed, "the world"), audience = dice.pick([0, 0, 1, 2, 3]);
  const world = new World({
    seed,
    faults: options.faults ?? 14,
    ttlMs,
    shownAtOnce: options.shownAtOnce,
    budget: options.budget ?? {
      softMs: dice.between(3_000, 30_000),
      hardMs: dice.pick([40_000, 120_000, 600_000]),
      turns: dice.pick([1, 2, 4, Infinity]),
    },
    store: (time) => options.store?.(time, keptMs) ?? sqliteStore(":memory:", { clock: time, ttlMs: keptMs }),
    tools: (world, isolate) => simulatedTools(world, isolate, books, seed),
    models: (world, isolate) => simulatedModels(world, isolate, books, requests, seed),
    publish: (_world, delivery) => queue.accept(delivery),
    trace: options.trace,
  });
  const queue = new SimulatedQueue(world, seed);
  const people = new People(world, books, new Dice(seed, "people"), ({ run }) => {
    if (options.watched === false || watchers.length >= audience) return;
    const watcher = new Watcher(world, run, seed, String(watchers.length));
    watchers.push(watcher);
    watcher.look();
  });

  const settings: Settings = {
    tools: [...toolNames, ask],
    maxIterations: dice.between(3, 8),
    steering: dice.pick(["now", "now", "after_batch"]),
    steeringMode: dice.pick(["one_at_a_time", "all"]),
    followUpMode: dice.pick(["one_at_a_time", "all"]),
    toolChoice: dice.pick(["auto", "auto", "auto", "required"]),
    ...(dice.chance(0.1) ? { parallelToolCalls: false } : {}),
    // So many that no run comes near: what it books is under test here, not its end.
    ...(dice.chance(0.5) ? { limits: { maxTokensTotal: 10_000_000 } } : {}),
  };
  const threads = dice.chance(0.2) ? ["t", "u"] : ["t"];
  for (const thread of threads) {
    people.live(thread, settings);
    if (options.watched !== false && dice.chance(0.3)) {
      world.store.watch(threadKey(tenant, thread), () => {
        throw new Error("This listener throws");
      }, { live: dice.chance(0.5) });
    }
  }

  let steps = await untilQuiet(world, people, threads);
  // Cancelled and failed runs leave their mail to the next prompt.
  world.calm = true;
  for (const thread of threads) {
    for (let rounds = 0; rounds < 4; rounds++) {
      const { steering = 0, followUps = 0 } = (await people.peek(thread))?.mail ?? {};
      if (!steering && !followUps) break;
      people.at(0, () => people.start(thread, settings));
      steps += await untilQuiet(world, people, threads);
    }
  }

  const evidence = { world, people, books, requests, maxIterations: settings.maxIterations! };
  for (const thread of threads) await judgeThread(thread, evidence);
  await judgeWork(threads, evidence);
  await judgeWatchers(world, watchers, dice);
  const logs = await Promise.all(threads.map((thread) => logOf(world.store, threadKey(tenant, thread))));
  await world.store.close();
  const runs = logs.flat().filter((entry) => entry.startsWith("start ")).length;
  return { problems: world.problems, logs, requests: world.requests, runs, steps };
}

/** Lets time pass, with a sweep every 15 minutes, until nothing is left to happen. */
async function untilQuiet(world: World, people: People, threads: string[]): Promise<number> {
  let quiet = 0;
  const sweeping = (async () => {
    while (quiet < 3 && world.age < patienceMs) {
      await world.time.sleep(15 * minute);
      await Promise.race([
        world.isolate("sweeper").pawl.sweep().catch(() => {}),
        world.time.sleep(minute),
      ]);
      const states = await Promise.all(threads.map((thread) => people.peek(thread)));
      const still = states.every((state) => !state?.run || !isActive(state.run.status));
      quiet = still && !people.busy ? quiet + 1 : 0;
    }
  })();
  let steps = 0;
  while (await world.time.step()) if (++steps > 60_000) throw new Error("It does not end");
  await sweeping;
  return steps;
}

/** Everybody who looks on sees the same story; who comes again in the middle sees the rest of it. */
async function judgeWatchers(world: World, watchers: Watcher[], dice: Dice): Promise<void> {
  for (const watcher of watchers) {
    const all = await events(world, watcher.run);
    if (!all) continue;
    const bad = (what: string) => world.problem("R10 events", `${what} (${watcher.run})`);
    if (JSON.stringify(await events(world, watcher.run)) !== JSON.stringify(all)) bad("told differently");
    if (all.at(-1)?.event.type !== "agent_end") bad(`the last is ${all.at(-1)?.event.type}`);
    const fault = watcher.fault(all);
    if (fault) bad(`watcher ${watcher.name}: ${fault}`);
    if (!all.length) continue;
    const { id } = dice.pick(all), rest = await events(world, watcher.run, id);
    const expected = all.filter((placed) => later(placed.id, id));
    if (JSON.stringify(rest) !== JSON.stringify(expected)) bad(`after ${id} it goes on otherwise`);
  }
}

/** All events of a run that is over; undefined if it is gone. */
async function events(world: World, run: string, after?: string): Promise<Placed[] | undefined> {
  const isolate = world.isolate("reader", true), gone = new AbortController();
  if (!(await world.store.read(threadKey(tenant, run.split("~")[0]!), { run }))?.run) return undefined;
  const seen: Placed[] = [];
  const reading = (async () => {
    const events = isolate.pawl.events(tenant, run, { after, signal: gone.signal });
    for await (const placed of events) seen.push(placed);
  })();
  await world.time.until(reading);
  return seen;
}
