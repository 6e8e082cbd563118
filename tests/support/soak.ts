/** A soak: many runs at once on several processes that are killed, over a queue and a store that misbehave, and whether all was well. */
import { systemClock } from "../../src/clock.ts";
import { Person } from "./soak/people.ts";
import { plansOf } from "./soak/plan.ts";
import { verdict } from "./soak/verdict.ts";
import { world } from "./soak/world.ts";
import type { UpstashRest } from "./upstash_rest.ts";

export interface SoakOptions {
  seed: number;
  runs: number;
  /** Between two kills. */
  killMs?: [low: number, high: number];
  /** When all must be over. */
  patienceMs?: number;
}

export interface Soaked {
  problems: string[];
  /** Runs by how they ended, what went wrong, and what was done, all counted. */
  counts: Record<string, number>;
  seconds: number;
}

/** What the seed draws is what runs do and what goes wrong; in which order processes get to it is theirs. */
export async function soak(rest: UpstashRest, options: SoakOptions): Promise<Soaked> {
  const { seed, runs, killMs = [500, 2_500], patienceMs = 600_000 } = options;
  const began = performance.now(), deadline = Date.now() + patienceMs;
  await rest.redis.flushall();
  const plans = plansOf(seed, runs), problems: string[] = [];
  await using it = await world(rest, { seed, plans, killMs });
  const people = plans.map((plan) => new Person(it.url, plan, seed, deadline));
  const all = async (body: (person: Person) => Promise<void>) => {
    const ended = await Promise.allSettled(people.map(body));
    for (const one of ended) if (one.status === "rejected") problems.push(String(one.reason));
  };
  await all((person) => person.live());
  await it.calm();
  await all((person) => person.collect());
  // What still comes finds nothing to do.
  await systemClock.sleep(100);
  await it.qstash.idle();
  problems.push(...await verdict(it, people));

  const counts: Record<string, number> = {};
  const count = (what: string, many = 1) => counts[what] = (counts[what] ?? 0) + many;
  for (const { promised } of people) {
    for (const [run, view] of promised.runs) {
      count(view?.status ?? "unknown");
      count("turns", view?.iterations ?? 0);
      count("slices", view?.slices ?? 0);
      if (!view) problems.push(`${run} was never seen`);
    }
    count("accepted messages", promised.mail.length);
    count("accepted answers", promised.answers.size);
  }
  count("effects", it.effects.effects.length);
  count("QStash messages", it.qstash.messages.length);
  count("given up by QStash", it.qstash.inside.dead.length);
  for (const [fault, times] of Object.entries(it.faults)) count(fault, times);
  if (problems.length) problems.push(...complaints(it.output()));
  return { problems, counts, seconds: (performance.now() - began) / 1000 };
}

/** What the processes said besides that they listen, each once. */
function complaints(output: string): string[] {
  const lines = new Set(
    output.split("\n").filter((line) => /\b\w*Error\b/.test(line)).map((line) => line.trim()),
  );
  return [...lines].slice(0, 20).map((line) => `a process said: ${line}`);
}
