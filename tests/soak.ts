/**
 * Many runs at once on three processes that are killed, over a queue and a Redis that misbehave: `deno task soak [seed] [runs]`. It prints
 * what broke, and ends with 1 if anything did. Needs redis-server.
 */
// deno-lint-ignore-file no-console
import { redisServer } from "./support/redis_server.ts";
import { soak } from "./support/soak.ts";
import { upstashRest } from "./support/upstash_rest.ts";

if (Deno.args.some((arg) => !/^\d+$/.test(arg)) || Deno.args.length > 2) {
  console.error("Usage: deno task soak [seed] [runs]");
  Deno.exit(2);
}
const [seed = 1, runs = 200] = Deno.args.map(Number);
const server = await redisServer();
if (typeof server === "string") {
  console.error(server);
  Deno.exit(2);
}
const rest = upstashRest(server.port);
const { problems, counts, seconds } = await soak(rest, { seed, runs });
await rest.close();
await server.stop();
const said = Object.entries(counts).map(([what, many]) => `${many} ${what}`).join(", ");
console.log(`seed ${seed}, ${runs} threads in ${seconds.toFixed(1)} s: ${said}`);
for (const problem of problems) console.log(`  ${problem}`);
console.log(problems.length ? `${problems.length} problems at seed ${seed}` : "All was well");
Deno.exit(problems.length ? 1 : 0);
