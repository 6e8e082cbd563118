/** The crash test over Redis, at all cut points of two scenarios. The others differ in what the loop does, not in what it asks of a store. */
import { scenarios } from "./support/crash.ts";
import { cutEverywhere } from "./support/crash_cuts.ts";
import { upstash } from "./support/upstash.ts";
import { upstashWorlds } from "./support/upstash_world.ts";

const rest = await upstash();

for (const scenario of [scenarios[0]!, scenarios.at(-1)!]) {
  Deno.test({
    name: `Upstash: cut off at any request, a run comes to the same end: ${scenario.name}`,
    ignore: rest === undefined,
    fn: () => cutEverywhere(scenario, upstashWorlds(rest!)),
  });
}
