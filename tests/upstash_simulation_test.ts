/** Seeds of the simulation over Redis. `deno task simulate redis` runs more of them. */
import assert from "node:assert/strict";
import { simulate } from "./support/simulation.ts";
import { upstash } from "./support/upstash.ts";
import { upstashWorlds } from "./support/upstash_world.ts";

const seeds = 25;
const rest = await upstash(), ignore = rest === undefined, store = rest && upstashWorlds(rest);

Deno.test({
  name: `Upstash: no rule breaks in ${seeds} worlds where everything goes wrong`,
  ignore,
  async fn() {
    const broken: string[] = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const { problems } = await simulate(seed, { store });
      if (problems.length) broken.push(`seed ${seed}: ${problems.join("; ")}`);
    }
    assert.deepEqual(broken, []);
  },
});

Deno.test({
  name: "Upstash: a seed is a schedule: the same again is the same",
  ignore,
  async fn() {
    const tell = async () => {
      const lines: string[] = [];
      await simulate(7, { store, trace: (line) => void lines.push(line) });
      return lines;
    };
    assert.deepEqual(await tell(), await tell());
  },
});
