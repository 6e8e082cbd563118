/**
 * Runs seeds of the simulation: `deno task simulate [redis] [from] [count] [--trace]`. A seed that breaks a rule is printed with its
 * schedule; the same seed is the same schedule again. With `redis` the store is one in a private redis-server.
 */
// deno-lint-ignore-file no-console
import { redisServer } from "./support/redis_server.ts";
import { simulate, type SimulationOptions } from "./support/simulation.ts";
import { upstashRest } from "./support/upstash_rest.ts";
import { upstashWorlds } from "./support/upstash_world.ts";

const numbers = Deno.args.filter((arg) => /^\d+$/.test(arg)).map(Number);
const [from = 1, count = 200] = numbers, trace = Deno.args.includes("--trace");
const unknown = Deno.args.find((arg) => !/^\d+$/.test(arg) && !["--trace", "redis"].includes(arg));
if (unknown !== undefined) {
  console.error(`Unknown argument "${unknown}". Usage: deno task simulate [redis] [from] [count] [--trace]`);
  Deno.exit(2);
}

const options: SimulationOptions = {};
if (Deno.args.includes("redis")) {
  const server = await redisServer();
  if (typeof server === "string") {
    console.error(server);
    Deno.exit(2);
  }
  options.store = upstashWorlds(upstashRest(server.port));
}

const failed: number[] = [], began = performance.now();
let runs = 0, steps = 0;
for (let seed = from; seed < from + count; seed++) {
  const result = await simulate(seed, { ...options, ...(trace && { trace: console.log }) })
    .catch((error) => error as Error);
  if (!(result instanceof Error)) {
    runs += result.runs;
    steps += result.steps;
    if (!result.problems.length) continue;
  }
  failed.push(seed);
  console.log(`seed ${seed}`);
  for (const problem of result instanceof Error ? [result.stack] : result.problems) {
    console.log(`  ${problem}`);
  }
  if (trace || failed.length > 1) continue;
  const lines: string[] = [];
  await simulate(seed, { ...options, trace: (line) => void lines.push(line) }).catch(() => {});
  console.log(lines.join("\n"));
}
const seconds = ((performance.now() - began) / 1000).toFixed(1);
console.log(
  `${count} seeds, ${runs} runs, ${steps} steps in ${seconds} s: ${failed.length} broke a rule ${
    failed.join(" ")
  }`,
);
Deno.exit(failed.length ? 1 : 0);
