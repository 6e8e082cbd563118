/** A small soak: the whole thing is `deno task soak`. */
import assert from "node:assert/strict";
import { soak } from "./support/soak.ts";
import { upstash } from "./support/upstash.ts";

const rest = await upstash();

Deno.test({
  name:
    "30 threads on three processes that are killed, over a queue and a Redis that misbehave, all end well",
  ignore: rest === undefined,
  async fn() {
    const { problems, counts } = await soak(rest!, { seed: 2, runs: 30, patienceMs: 120_000 });
    assert.deepEqual(problems, []);
    // Something did go wrong, or nothing was tested.
    assert.ok(counts.kills! > 0 && counts["doubled deliveries"]! > 0, JSON.stringify(counts));
  },
});
