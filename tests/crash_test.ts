/**
 * A run that is cut off before or after any of its requests to store and queue comes to the same end (DESIGN §3). The function dies, or it
 * lives on and the request or its answer is lost, or nothing works for some seconds.
 */
import { scenarios } from "./support/crash.ts";
import { cutEverywhere } from "./support/crash_cuts.ts";

for (const scenario of scenarios) {
  Deno.test(
    `cut off at any request, a run comes to the same end: ${scenario.name}`,
    () => cutEverywhere(scenario),
  );
}
