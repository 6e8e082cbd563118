/** Seeds of the simulation: whatever goes wrong, no rule breaks (DESIGN §3). `deno task simulate` runs more of them, and tells of one. */
import assert from "node:assert/strict";
import { simulate } from "./support/simulation.ts";

const seeds = 300;

Deno.test(`no rule breaks in ${seeds} worlds where everything goes wrong`, async () => {
  const broken: string[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const { problems } = await simulate(seed);
    if (problems.length) broken.push(`seed ${seed}: ${problems.join("; ")}`);
  }
  assert.deepEqual(broken, []);
});

Deno.test("whoever looks on, gently or not, changes nothing of a log but its times (rule 10)", async () => {
  for (let seed = 1; seed <= 40; seed++) {
    const watched = await simulate(seed, { shownAtOnce: true });
    const alone = await simulate(seed, { watched: false });
    assert.deepEqual(watched.logs, alone.logs, `seed ${seed}`);
  }
});

Deno.test("a seed is a schedule: the same again is the same", async () => {
  const tell = async () => {
    const lines: string[] = [];
    await simulate(7, { trace: (line) => void lines.push(line) });
    return lines;
  };
  assert.deepEqual(await tell(), await tell());
});

Deno.test("no run fails where nothing goes wrong and a slice has time", async () => {
  const budget = { softMs: 600_000, hardMs: 3_600_000, turns: Infinity };
  for (let seed = 1; seed <= 20; seed++) {
    const { problems, logs } = await simulate(seed, { faults: 0, budget });
    assert.deepEqual(problems, [], `seed ${seed}`);
    const failed = logs.flat().filter((entry) => entry.startsWith("end ") && entry.includes('"failed"'));
    assert.deepEqual(failed, [], `seed ${seed}`);
  }
});
