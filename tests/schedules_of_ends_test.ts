/** Schedules about what ends, is gone, or was never quite there (relatives H10 to H22). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { InputError } from "../src/errors.ts";
import { threadKey } from "../src/run.ts";
import { defineTool, type Tool, type ToolContext } from "../src/tool.ts";
import { calls } from "./support/scripted_model.ts";
import { hour, minute, tenant } from "./support/simulation/world.ts";
import { Stage } from "./support/stage.ts";

const anything = z.looseObject({});
const day = 24 * hour;

const tool = (
  name: string,
  execute: (args: unknown, context: ToolContext) => unknown,
  more: Partial<Tool> = {},
) => defineTool({ name, description: "", parameters: anything, ...more, execute }) as Tool;

const waits = (ms: number) =>
  tool("wait", () => "waited", { replay: "safe", wait: (_args, now) => ({ for: "time", until: now + ms }) });

Deno.test("H10: what a deleted thread's slice still writes does not come into the thread that is made anew", async () => {
  const stage: Stage = new Stage([calls(["slow"]), "new"], {
    tools: [tool("slow", async () => {
      const pawl = stage.door.pawl;
      await pawl.delete(tenant, "t");
      // The lease's token of the new thread will be the same number as that of the old one.
      again = await pawl.start(tenant, "New", {}, { thread: "t" });
      const other = stage.world.isolate("other");
      await other.pawl.deliver(stage.queued.at(-1)!, "other");
      return "from the old thread";
    })],
  });
  let again: { run: string } | undefined;
  await stage.start("Old");
  assert.equal(await stage.deliver(), "done");
  assert.deepEqual(await stage.transcript(), ["user: New", "assistant: new"]);
  assert.equal((await stage.view(again!.run)).status, "completed");
});

Deno.test("H10: a commit after the delete makes nothing", async () => {
  const stage: Stage = new Stage([calls(["slow"])], {
    tools: [tool("slow", () => stage.door.pawl.delete(tenant, "t").then(() => "late"))],
  });
  const { run } = await stage.start("Old");
  assert.equal(await stage.deliver(), "done");
  await stage.time.pass(minute);
  assert.equal(await stage.world.store.read(threadKey(tenant, "t"), {}), undefined);
  await assert.rejects(stage.view(run), (error: InputError) => error.code === "not_found");
});

Deno.test("H10: an isolate that holds the old thread's transcript does not mix it into the new one", async () => {
  const stage = new Stage(["one", "two", "three"]);
  const on = stage.world.isolate("warm");
  await stage.start("First");
  await stage.deliver(undefined, { on });
  await stage.start("Second");
  await stage.deliver(undefined, { on });
  await stage.ask((pawl) => pawl.delete(tenant, "t"));
  await stage.start("Anew");
  await stage.deliver(undefined, { on });
  assert.deepEqual(stage.model.requests[2]!.messages.map(({ content }) => textOf(content)), ["Anew"]);
});

Deno.test("H11: a wait longer than a thread's life keeps the thread", async () => {
  const stage = new Stage([calls(["wait"]), "awake"], { tools: [waits(30 * day)], ttlMs: 7 * day });
  const { run } = await stage.start("Go");
  await stage.deliver();
  assert.equal((await stage.view(run)).status, "waiting");
  await stage.play(run);
  assert.ok(stage.world.age >= 30 * day);
  assert.equal((await stage.view(run)).text, "awake");
});

Deno.test("H11: a call that nobody answers expires while the run can still tell the model", async () => {
  const stage = new Stage([calls(["ask"]), "nobody"], { ttlMs: 7 * day });
  const { run } = await stage.start("Go", {
    tools: [{ name: "ask", description: "", parameters: { type: "object" } }],
  });
  await stage.deliver();
  assert.ok((await stage.view(run)).waitingFor![0]!.until < stage.time.now() + 7 * day);
  await stage.play(run);
  const [, , result, answer] = await stage.transcript();
  assert.match(result!, /expired/);
  assert.equal(answer, "assistant: nobody");
});

Deno.test("H12: a call that a commit permitted before the cancel is aborted, and leaves no trace", async () => {
  let signal: AbortSignal | undefined, began = 0;
  const stage: Stage = new Stage([calls(["slow"], ["slow"])], {
    tools: [tool("slow", async (_args, context) => {
      began++;
      signal = context.signal;
      await stage.time.sleep(20_000);
      return "done after all";
    })],
  });
  const { run } = await stage.start("Go");
  const { commit } = stage.world.store;
  let cancelledAt = 0;
  stage.world.store.commit = async (lease, change) => {
    const answer = await commit(lease, change);
    if (!cancelledAt && change.change.append?.some((entry) => entry.startsWith("call "))) {
      // Between the commit's effect and its answer.
      await stage.world.store.cancel(threadKey(tenant, "t"), run, '{"status":"cancelled","at":0}');
      cancelledAt = stage.time.now();
    }
    return answer;
  };
  const delivered = stage.deliver();
  await stage.time.pass(5_500);
  assert.deepEqual([began, signal?.aborted], [1, true]);
  assert.equal(await delivered, "done");
  const log = await stage.log();
  assert.deepEqual([log.filter(({ kind }) => kind === "result").length, log.at(-1)!.kind], [2, "end"]);
  const [, , first, second] = await stage.transcript();
  assert.match(first!, /had begun: what it did is unknown/);
  assert.match(second!, /not run/);
  assert.equal((await stage.view(run)).status, "cancelled");
});

Deno.test("H12: cancel ends a run that nobody holds, and a second cancel answers the same", async () => {
  const stage = new Stage([calls(["wait"], ["wait"])], { tools: [waits(hour)] });
  const { run } = await stage.start("Go");
  await stage.deliver();
  const later = stage.queued.at(-1)!;
  for (let times = 0; times < 2; times++) {
    assert.equal((await stage.ask((pawl) => pawl.cancel(tenant, run))).status, "cancelled");
  }
  assert.deepEqual((await stage.transcript()).map((line) => line.split(":")[0]), [
    "user",
    "assistant",
    "tool",
    "tool",
  ]);
  await stage.until(later.at!);
  assert.equal(await stage.deliver(later), "done");
  assert.equal(stage.model.requests.length, 1);
});

Deno.test("H12: mail that a cancelled run leaves comes before the next prompt", async () => {
  const stage = new Stage(["both"]);
  const { run } = await stage.start("One");
  await stage.ask((pawl) => pawl.send(tenant, run, "follow_up", "Two"));
  await stage.ask((pawl) => pawl.cancel(tenant, run));
  const next = await stage.start("Three");
  await stage.deliver();
  assert.deepEqual(await stage.transcript(), ["user: One", "user: Two", "user: Three", "assistant: both"]);
  assert.notEqual(next.run, run);
});

Deno.test("H12: interrupt ends one run and starts the next in one operation", async () => {
  const stage: Stage = new Stage([
    () => stage.time.sleep(20_000).then(() => "too late"),
    "second",
  ]);
  const { run } = await stage.start("One");
  const delivered = stage.deliver();
  await stage.time.pass(1_000);
  const submits: string[] = [], { submit } = stage.world.store;
  stage.world.store.submit = (submission) => {
    submits.push(submission.run);
    return submit(submission);
  };
  const next = await stage.start("Two", {}, { ifBusy: "interrupt" });
  assert.equal(submits.length, 1);
  assert.equal((await stage.view(run)).status, "cancelled");
  await delivered;
  await stage.deliver();
  assert.equal((await stage.view(next.run)).text, "second");
  assert.deepEqual(await stage.transcript(), ["user: One", "user: Two", "assistant: second"]);
});

Deno.test("H13: a start that cannot be published was never there", async () => {
  const stage = new Stage(["hello"]);
  const key = { name: "k", hash: "h" };
  stage.meets("publish", "dropped");
  await assert.rejects(stage.start("Go", {}, { key }), (error: InputError) => error.status === 503);
  assert.equal(await stage.world.store.read(threadKey(tenant, "t"), {}), undefined);
  const { run } = await stage.start("Go", {}, { key });
  await stage.deliver();
  assert.deepEqual(await stage.transcript(), ["user: Go", "assistant: hello"]);
  assert.equal((await stage.view(run)).status, "completed");
});

Deno.test("H13: a start that could neither be published nor withdrawn is found by the repeat of its key", async () => {
  const stage = new Stage(["hello"]);
  const key = { name: "k", hash: "h" };
  stage.meets("publish", "dropped");
  stage.meets("withdraw", "dropped");
  await assert.rejects(stage.start("Go", {}, { key }), (error: InputError) => error.status === 503);
  // Nobody repeats it for a while: the sweep runs it.
  await stage.time.pass(20 * minute);
  assert.equal(await stage.ask((pawl) => pawl.sweep()), 1);
  await stage.deliver();
  const { run, status } = await stage.start("Go", {}, { key });
  assert.equal(status, "completed");
  assert.deepEqual(await stage.transcript(), ["user: Go", "assistant: hello"]);
  assert.equal((await stage.view(run)).text, "hello");
});

Deno.test("H13: a delivery for what is gone or over is done", async () => {
  const stage = new Stage(["hello"]);
  const { run } = await stage.start("Go");
  const delivery = stage.queued[0]!;
  await stage.deliver(delivery);
  assert.equal(await stage.deliver(delivery), "done");
  assert.equal((await stage.view(run)).slices, 1);
  await stage.ask((pawl) => pawl.delete(tenant, "t"));
  assert.equal(await stage.deliver(delivery), "done");
  assert.equal(stage.queued.length, 1);
});

Deno.test("H22.1: a call that steering skips was never begun, although its start rode on the result before it", async () => {
  let ran = 0;
  const stage: Stage = new Stage([calls(["first"], ["second"]), "steered"], {
    tools: [
      tool("first", async () => {
        await stage.door.pawl.send(tenant, run, "steering", "Stop");
        return "one";
      }),
      tool("second", () => void ran++),
    ],
  });
  const { run } = await stage.start("Go");
  await stage.deliver();
  assert.deepEqual(await stage.transcript(), [
    "user: Go",
    "assistant: first() second()",
    "tool: one",
    "tool: Skipped due to queued user message",
    "user: Stop",
    "assistant: steered",
  ]);
  assert.deepEqual([ran, (await stage.log()).filter(({ kind }) => kind === "call").length], [0, 1]);
});
