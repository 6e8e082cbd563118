/** What a run may use: booked before each call, counted after it, over slices, crashes, cancel and nested loops (DESIGN rules 7 and 8). */
import assert from "node:assert/strict";
import { ModelError, type ModelReply, type ModelRequest } from "../src/model.ts";
import type { Settings } from "../src/run.ts";
import { agenticFunction } from "../src/tool.ts";
import { harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";
import { Stage, type StageOptions } from "./support/stage.ts";

const add = { name: "add", description: "Adds", parameters: { type: "object" }, execute: () => "3" } as const;
const usage = { input: 1000, output: 500 };
const again: Partial<ModelReply> = { ...calls(["add", { a: 1 }]), usage };
const done: Partial<ModelReply> = { content: [{ type: "text", text: "done" }], usage };
const price = ({ input, output }: { input: number; output: number }) => (input + 4 * output) / 1e6;

async function played(
  script: Said[] | ((...a: any[]) => Said),
  settings: Settings,
  options: HarnessOptions = {},
) {
  const h = harness(script, { tools: [add], price, ...options });
  const { run } = await h.start("Go", settings);
  const view = await h.ended(run);
  return { h, run, view, requests: h.model.requests };
}

/** What the model was allowed to say, and what it had to read, fits what was left. */
function fits(requests: ModelRequest[], most: number, each = 1500) {
  requests.forEach(({ maxOutputTokens }, n) =>
    assert.ok(n * each + maxOutputTokens! <= most, `request ${n + 1}`)
  );
}

Deno.test("a call that could pass the tokens is not made; those before it cannot pass them either", async () => {
  for (const turns of [1, 5]) {
    const limits = { maxTokensTotal: 6000 };
    const { view, requests } = await played(() => again, { limits }, { budget: { turns } });
    assert.deepEqual([view.status, view.error?.code], ["failed", "max_tokens_total"]);
    assert.match(view.error!.message, /6000 tokens and has used 4500/);
    assert.equal(requests.length, 3, "1,500 a turn; the fourth has at least 1,500 to read");
    fits(requests, 6000);
    assert.deepEqual([view.usage, view.booked], [{ input: 3000, output: 1500 }, undefined]);
  }
});

Deno.test("the first call is measured by its size: what cannot fit is not sent at all", async () => {
  const h = harness([done]);
  const { run } = await h.start("word ".repeat(1000), { limits: { maxTokensTotal: 1000 } });
  assert.equal((await h.ended(run)).error?.code, "max_tokens_total");
  assert.equal(h.model.requests.length, 0);
});

Deno.test("what a tool returned is measured too", async () => {
  const long = { ...add, execute: () => "word ".repeat(2000) };
  const { view, requests } = await played([again, done], { limits: { maxTokensTotal: 5000 } }, {
    tools: [long],
  });
  assert.equal(view.error?.code, "max_tokens_total");
  assert.equal(requests.length, 1);
});

Deno.test("money is limited as tokens are, and what was spent is told", async () => {
  const { view, requests } = await played(() => again, { limits: { maxCostUsd: 0.01 } });
  assert.deepEqual([view.status, view.error?.code], ["failed", "max_cost_usd"]);
  // 0.003 a turn: 1,000 in and 500 out at four times the price. The next costs 0.0015 for its input alone.
  assert.equal(requests.length, 3);
  assert.equal(view.usd, 0.009);
  requests.forEach(({ maxOutputTokens }, n) => assert.ok(0.003 * n + 4 * maxOutputTokens! / 1e6 <= 0.01));
});

Deno.test("a run that stays below its limits notices nothing of them", async () => {
  const { view, requests } = await played([again, done], {
    limits: { maxTokensTotal: 100_000, maxCostUsd: 1 },
  });
  assert.deepEqual([view.status, view.text, view.usd], ["completed", "done", 0.006]);
  assert.deepEqual(requests.map(({ maxOutputTokens }) => maxOutputTokens), [8192, 8192]);
});

Deno.test("a message that was cut because of the limit says so, and its calls do not run", async () => {
  let ran = 0;
  const cut = { ...again, stopReason: "length" as const };
  const tools = [{ ...add, execute: () => ++ran }];
  const { view, h, run } = await played([cut], { limits: { maxTokensTotal: 2000 } }, { tools });
  assert.deepEqual([view.status, view.error?.code, ran], ["failed", "max_tokens_total", 0]);
  assert.deepEqual((await h.messages(run)).map(({ role }) => role), ["user", "assistant", "tool"]);
});

Deno.test("a model without a price, and a limit in money: refused at the start", async () => {
  const h = harness([done]);
  await assert.rejects(h.start("Go", { limits: { maxCostUsd: 1 } }), /max_cost_usd: no price is known/);
});

Deno.test("a limit costs a turn no commit of its own once the run is under way", async () => {
  const commits = async (settings: Settings) => {
    const stage = new Stage(() => again, { tools: [add] });
    const { run } = await stage.start("Go", { ...settings, maxIterations: 6 });
    const before = stage.world.requests;
    await stage.play(run);
    return stage.world.requests - before;
  };
  const without = await commits({}), within = await commits({ limits: { maxTokensTotal: 1_000_000 } });
  assert.equal(within - without, 1, "the first call's size is known only when its prompt is taken");
});

Deno.test("a failed call that may have cost something stays booked; one that was refused does not", async () => {
  for (
    const [code, counts] of [["network", true], ["rate_limit", false], ["timeout", true], [
      "overloaded",
      false,
    ]] as const
  ) {
    const { view } = await played([new ModelError(code, "no"), done], { limits: { maxTokensTotal: 50_000 } });
    assert.deepEqual([view.status, view.usage], ["completed", usage]);
    assert.equal((view.booked?.tokens ?? 0) > 8192, counts, code);
  }
  const broke: Said = (_request, { onDelta }) => {
    onDelta({ type: "text", text: "half" });
    return new ModelError("overloaded", "in mid-stream");
  };
  const { view } = await played([broke, done], { limits: { maxTokensTotal: 50_000 } });
  assert.ok(view.booked!.tokens > 8192, "it had begun to answer");
});

Deno.test("failures cannot spend more than the limit: each try is booked anew", async () => {
  const { view, requests } = await played(() => new ModelError("network", "cut"), {
    limits: { maxTokensTotal: 20_000 },
  });
  assert.deepEqual([view.status, view.error?.code], ["failed", "max_tokens_total"]);
  assert.equal(requests.length, 3, "twice 8,192, and once what is left");
});

/** A run whose process dies in its model call, `times` times. */
async function dying(times: number, settings: Settings, more: StageOptions = {}) {
  let asked = 0;
  const stage: Stage = new Stage(() => ++asked <= times ? () => stage.die() : done, {
    tools: [add],
    ...more,
  });
  const { run } = await stage.start("Go", settings);
  for (let n = 0; n < 2 * times + 2; n++) {
    if (["completed", "failed"].includes((await stage.view(run)).status)) break;
    await stage.deliver(stage.queued.at(-1)!, { message: "one" });
    await stage.time.pass(120_000);
  }
  return { stage, view: await stage.view(run), asked: () => asked };
}

Deno.test("what was booked when the process died counts as used, however often", async () => {
  const { view, asked } = await dying(2, { limits: { maxTokensTotal: 100_000 } });
  assert.deepEqual([view.status, view.usage], ["completed", usage]);
  assert.ok(view.booked!.tokens > 2 * 8192 && view.booked!.tokens < 2 * 8400, `${view.booked!.tokens}`);
  assert.equal(asked(), 3);

  const short = await dying(4, { limits: { maxTokensTotal: 20_000 } });
  assert.deepEqual([short.view.status, short.view.error?.code], ["failed", "max_tokens_total"]);
  assert.equal(short.asked(), 3);
});

Deno.test("whatever becomes of the commits, no more is used than was allowed", async () => {
  const most = 4600;
  for (const fate of ["killed before", "killed after", "lost", "dropped"] as const) {
    for (let n = 1; n <= 8; n++) {
      let used = 0, commits = 0;
      const stage: Stage = new Stage(
        ({ maxOutputTokens }: ModelRequest) => {
          used += 1000 + Math.min(500, maxOutputTokens!);
          return again;
        },
        { tools: [add] },
      );
      const { run } = await stage.start("Go", { limits: { maxTokensTotal: most } });
      stage.meets("commit", fate, () => ++commits === n);
      for (let tries = 0; tries < 12; tries++) {
        if (["completed", "failed"].includes((await stage.view(run)).status)) break;
        const next = stage.queued.at(-1)!;
        await stage.until(next.at ?? 0);
        await stage.deliver(next, { message: "one" });
        await stage.time.pass(120_000);
      }
      const view = await stage.view(run);
      assert.deepEqual([view.status, view.error?.code], ["failed", "max_tokens_total"], `${fate} ${n}`);
      assert.ok(used <= most, `${fate} ${n}: used ${used}`);
    }
  }
});

Deno.test("a cancel leaves booked what was under way", async () => {
  const { time } = harness([]);
  const h = harness([() => time.sleep(600_000).then(() => done)], { time });
  const { run } = await h.start("Go", { limits: { maxTokensTotal: 50_000 } });
  await time.pass(1000);
  await time.until(h.pawl.cancel("local", run));
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.booked!.tokens > 8192], ["cancelled", true]);
});

Deno.test("a hand-over and a wait give back what was booked and not used", async () => {
  for (const turns of [1, 2]) {
    const { view } = await played([again, again, again, done], { limits: { maxTokensTotal: 40_000 } }, {
      budget: { turns },
    });
    assert.deepEqual([view.status, view.booked], ["completed", undefined]);
  }
  const wait = [new ModelError("rate_limit", "slow", 120_000), done];
  const { view } = await played(wait, { limits: { maxTokensTotal: 10_000 } });
  assert.deepEqual([view.status, view.booked], ["completed", undefined]);
});

/** Opens loops side by side, or one after another. */
function fanOut(width: number, together: boolean) {
  return agenticFunction({
    name: "fan",
    description: "",
    parameters: { type: "object" },
    execute: async (_args, { exec }) => {
      const one = (n: number) =>
        exec(`part ${n} `.padEnd(2200, "of a long text "), { key: `part-${n}`, tools: [] });
      if (together) return (await Promise.all(Array.from({ length: width }, (_, n) => one(n)))).join();
      for (let n = 0; n < width; n++) await one(n);
      return "all";
    },
  });
}

Deno.test("nested loops share the run's limits, one after another and side by side", async () => {
  for (const together of [false, true]) {
    const fan = { ...calls(["fan"]), usage };
    const says = ({ tools }: ModelRequest): Partial<ModelReply> => tools.length ? fan : done;
    const { view, requests } = await played(says, { limits: { maxTokensTotal: 6500 } }, {
      tools: [fanOut(6, together)],
    });
    assert.deepEqual([view.status, view.error?.code], ["failed", "max_tokens_total"], `${together}`);
    assert.ok(view.usage.input + view.usage.output <= 6500);
    assert.ok(requests.length <= 5, `asked ${requests.length} times`);
  }
});

Deno.test("loops side by side wait for what others have booked and may not need", async () => {
  let turn = 0;
  const says = ({ tools }: ModelRequest): Said =>
    tools.length ? turn++ ? done : { ...calls(["fan"]), usage } : () => time.sleep(1000).then(() => done);
  const { time } = harness([]);
  const { view } = await played(says, { limits: { maxTokensTotal: 20_000 } }, {
    time,
    tools: [fanOut(5, true)],
  });
  assert.deepEqual([view.status, view.text], ["completed", "done"]);
});

Deno.test("a summary is booked and counted like any call", async () => {
  const says = ({ messages }: ModelRequest): Said =>
    /Summarise/.test(JSON.stringify(messages))
      ? { content: [{ type: "text", text: "in short" }], usage: { input: 300, output: 20 } }
      : again;
  const { view, requests } = await played(says, { limits: { maxTokensTotal: 30_000 }, maxIterations: 8 }, {
    compactTokens: 1400,
  });
  const summaries = requests.filter(({ messages }) => /Summarise/.test(JSON.stringify(messages)));
  assert.ok(summaries.length > 0 && summaries.every(({ maxOutputTokens }) => maxOutputTokens === 8192));
  const turns = requests.length - summaries.length;
  assert.deepEqual(view.usage, {
    input: 1000 * turns + 300 * summaries.length,
    output: 500 * turns + 20 * summaries.length,
  });
});
