/** Cancel is final at once, whatever runs, and leaves a transcript that can be sent (DESIGN rule 8). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import { defineTool } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const anything = z.looseObject({});

Deno.test("a tool that ignores its signal cannot keep a run from being cancelled (CASES A05)", async () => {
  let settle: (text: string) => void = () => {};
  const forever = defineTool({
    name: "forever",
    description: "",
    parameters: anything,
    execute: () => new Promise((resolve) => settle = resolve),
  });
  const h = harness([calls(["forever"]), "after"], { tools: [forever] });
  const { run, thread } = await h.start("Go");
  await h.time.pass(1_000);
  const at = h.time.now();
  assert.equal((await h.pawl.cancel("local", run)).status, "cancelled");
  assert.equal(h.time.now(), at, "it is cancelled when the call returns");
  const before = await h.messages(run);
  settle("done after all");
  await h.time.pass(10_000);
  assert.deepEqual(await h.messages(run), before, "what comes late changes nothing");
  assert.equal(before.at(-1)!.role, "tool");
  assert.match(textOf(before.at(-1)!.content), /outcome|unknown/i);
  const next = await h.start("carry on", {}, { thread });
  assert.equal((await h.ended(next.run)).text, "after");
  assert.deepEqual(h.model.requests.at(-1)!.messages.map((m) => m.role), [
    "user",
    "assistant",
    "tool",
    "user",
  ]);
});

Deno.test("its slice stops within 5 s, and aborts what it had begun, also when another process cancelled", async () => {
  let aborted = 0;
  const forever = defineTool({
    name: "forever",
    description: "",
    parameters: anything,
    execute: (_args, { signal }) => {
      signal.addEventListener("abort", () => aborted = h.time.now());
      return new Promise(() => {});
    },
  });
  const h = harness([calls(["forever"])], { tools: [forever] });
  const { run } = await h.start("Go");
  await h.time.pass(1_000);
  const at = h.time.now();
  await h.store.cancel(`local~${run.split("~")[0]}`, run, `{"status":"cancelled","at":0}`);
  await h.time.pass(10_000);
  assert.ok(aborted > 0 && aborted - at <= 5_000, `aborted after ${aborted - at} ms`);
  assert.equal(h.model.requests.length, 1);
});

Deno.test("of a batch that is cancelled half way every call is answered: the real result, and the others as not run (CASES A02)", async () => {
  let nth = 0;
  const work = defineTool({
    name: "work",
    description: "",
    parameters: anything,
    execute: () => ++nth === 1 ? "first done" : new Promise(() => {}),
  });
  const h = harness([calls(["work"], ["work"], ["work"]), "ok"], { tools: [work] });
  const { run, thread } = await h.start("Go");
  await h.time.pass(1_000);
  await h.pawl.cancel("local", run);
  const results = (await h.messages(run)).filter((m) => m.role === "tool");
  assert.deepEqual(results.map((m) => [m.isError, textOf(m.content).split(".")[0]]), [
    [false, "first done"],
    [true, "Cancelled"],
    [true, "Cancelled"],
  ]);
  assert.match(textOf(results[1]!.content), /unknown/);
  assert.match(textOf(results[2]!.content), /not run/);
  const next = await h.start("go on", {}, { thread });
  assert.equal((await h.ended(next.run)).status, "completed");
});

Deno.test("an aborted tool's error is no success (CASES A04)", async () => {
  const polite = defineTool({
    name: "polite",
    description: "",
    parameters: anything,
    execute: (_args, { signal }) =>
      new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")))
      ),
  });
  const h = harness([calls(["polite"]), "did it work?"], { tools: [polite] });
  const { run } = await h.start("Go");
  await h.time.pass(1_000);
  await h.pawl.cancel("local", run);
  await h.time.pass(10_000);
  const [result] = (await h.messages(run)).filter((m) => m.role === "tool");
  assert.ok(result!.isError);
  assert.match(textOf(result!.content), /unknown/);
});

Deno.test("a cancelled run stays cancelled: while queued, at its delivery, at its last write (CASES F11)", async () => {
  const whens: ((h: Harness, run: string) => Promise<unknown>)[] = [
    (h, run) => h.pawl.cancel("local", run),
    async (h, run) => {
      h.deliver(h.published[0]!);
      await h.time.pass(50);
      return h.pawl.cancel("local", run);
    },
    async (h, run) => {
      const { commit } = h.store;
      h.store.commit = async (lease, it) => {
        if (it.quiet?.leave || it.change.leave) await h.pawl.cancel("local", run);
        return await commit.call(h.store, lease, it);
      };
      h.deliver(h.published[0]!);
      await h.time.pass(1_000);
    },
  ];
  for (const [i, when] of whens.entries()) {
    const h: Harness = harness([async () => {
      await h.time.sleep(100);
      return "text";
    }]);
    h.loseDeliveries();
    const { run } = await h.start("Go");
    await when(h, run);
    const requests = h.model.requests.length;
    for (const delivery of h.published) h.deliver({ ...delivery, at: h.time.now() + 5_000 });
    await h.time.pass(60_000);
    assert.equal((await h.pawl.run("local", run)).status, "cancelled", `case ${i}`);
    assert.ok(
      h.model.requests.length <= requests + (i === 1 ? 1 : 0),
      `case ${i}: no model request after the cancel`,
    );
    const ends = (await h.events(run)).filter(({ event }) => event.type === "agent_end");
    assert.equal(ends.length, 1, `case ${i}`);
  }
});

Deno.test("cancelling again answers the same; a run that ended otherwise is a conflict", async () => {
  const h = harness(["text", "text"]);
  const { run, thread } = await h.start("Go");
  await h.ended(run);
  await assert.rejects(h.pawl.cancel("local", run), { code: "conflict" });
  h.loseDeliveries();
  const next = await h.start("Again", {}, { thread });
  assert.equal((await h.pawl.cancel("local", next.run)).status, "cancelled");
  assert.equal((await h.pawl.cancel("local", next.run)).status, "cancelled");
  await assert.rejects(h.pawl.cancel("local", `${thread}~nobody`), { code: "not_found" });
});

Deno.test("a call whose outcome is unknown hands its key on to the call that repeats it, in a later run too (H5)", async () => {
  const keys: string[] = [];
  const refund = defineTool({
    name: "refund",
    description: "",
    parameters: z.object({ order: z.string() }),
    execute: (_args, { idempotencyKey }) => {
      keys.push(idempotencyKey);
      return keys.length === 1 ? new Promise(() => {}) : "refunded";
    },
  });
  const h = harness(
    [
      calls(["refund", { order: "7" }]),
      calls(["refund", { order: "7" }]),
      calls(["refund", { order: "7" }]),
      "ok",
    ],
    { tools: [refund] },
  );
  const { run, thread } = await h.start("Refund order 7");
  await h.time.pass(1_000);
  await h.pawl.cancel("local", run);
  const next = await h.start("Please refund it", {}, { thread });
  await h.ended(next.run);
  assert.equal(keys[1], keys[0], "the same effect");
  assert.notEqual(keys[2], keys[0], "asked for again after it was known to be done");
});

Deno.test("mail that waits at a cancel is kept for the next prompt, and taken before it", async () => {
  const h = harness([() => new Promise<never>(() => {}), "ok"]);
  const { run, thread } = await h.start("Go");
  await h.time.pass(10);
  await h.pawl.send("local", run, "steering", "use EUR");
  await h.pawl.cancel("local", run);
  const next = await h.start("Again", {}, { thread });
  await h.ended(next.run);
  assert.deepEqual(h.model.requests.at(-1)!.messages.map((m) => textOf(m.content)), [
    "Go",
    "use EUR",
    "Again",
  ]);
});

Deno.test("deleting a thread ends its run and leaves nothing", async () => {
  const h = harness([() => new Promise<never>(() => {})]);
  const { run, thread } = await h.start("Go");
  await h.time.pass(10);
  await h.pawl.delete("local", thread);
  await assert.rejects(h.pawl.run("local", run), { code: "not_found" });
  await h.time.pass(120_000);
  assert.deepEqual(h.failures, []);
  await assert.rejects(h.pawl.delete("local", thread), { code: "not_found" });
});
