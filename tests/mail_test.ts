/** Steering and follow-ups: when they are seen, what they skip, and that none is lost (DESIGN §2, §4). */
import assert from "node:assert/strict";
import * as z from "zod";
import { type Message, textOf } from "../src/message.ts";
import { agenticFunction, defineTool } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const anything = z.looseObject({});
const skipText = "Skipped due to queued user message";

/** A tool whose n-th run sends mail to its own run. */
function sends(h: () => Harness, mail: { [nth: number]: [kind: "steering" | "follow_up", text: string][] }) {
  let nth = 0;
  return defineTool({
    name: "work",
    description: "",
    parameters: anything,
    execute: async (_args, { run }) => {
      nth++;
      for (const [kind, text] of mail[nth] ?? []) await h().pawl.send("local", run, kind, text);
      return `result ${nth}`;
    },
  });
}

const shown = (messages: Message[]) =>
  messages.map((m) => m.role === "assistant" ? "assistant" : `${m.role}: ${textOf(m.content)}`);

Deno.test("steering after the first of three calls skips the other two, in the seed's order of events", async () => {
  const h: Harness = harness([calls(["work"], ["work"], ["work"]), "as you wish"], {
    tools: [sends(() => h, { 1: [["steering", "use EUR"]] })],
  });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "as you wish");
  assert.deepEqual(shown(await h.messages(run)), [
    "user: Go",
    "assistant",
    "tool: result 1",
    `tool: ${skipText}`,
    `tool: ${skipText}`,
    "user: use EUR",
    "assistant",
  ]);
  const results = (await h.messages(run)).filter((m) => m.role === "tool");
  assert.deepEqual(results.map((m) => m.isError), [false, true, true]);
  const types = (await h.events(run)).map(({ event }) => event.type);
  const call = ["tool_execution_start", "tool_execution_end", "message_start", "message_end"];
  assert.deepEqual(types, [
    ...[
      "agent_start",
      "slice_start",
      "turn_start",
      "message_start",
      "message_end",
      "message_start",
      "message_end",
    ],
    ...["tool_execution_start", "mail_queued", "tool_execution_end", "message_start", "message_end"],
    ...call,
    ...call,
    ...[
      "turn_end",
      "turn_start",
      "mail_taken",
      "message_start",
      "message_end",
      "message_start",
      "message_end",
    ],
    ...["turn_end", "agent_end"],
  ]);
});

Deno.test('steering "after_batch" lets the batch finish first', async () => {
  const h: Harness = harness([calls(["work"], ["work"]), "ok"], {
    tools: [sends(() => h, { 1: [["steering", "use EUR"]] })],
  });
  const { run } = await h.start("Go", { steering: "after_batch" });
  await h.ended(run);
  assert.deepEqual(shown(await h.messages(run)).slice(2, 5), [
    "tool: result 1",
    "tool: result 2",
    "user: use EUR",
  ]);
});

Deno.test("a call that has run keeps its real result when steering comes (CASES A08)", async () => {
  const h: Harness = harness([calls(["work"], ["work"]), "ok"], {
    tools: [sends(() => h, { 2: [["steering", "stop that"]] })],
  });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.deepEqual(shown(await h.messages(run)).slice(2, 5), [
    "tool: result 1",
    "tool: result 2",
    "user: stop that",
  ]);
});

Deno.test("steering that comes while the last text is made keeps the run going", async () => {
  const h: Harness = harness([async () => {
    await h.pawl.send("local", run, "steering", "one more thing");
    return "first answer";
  }, "second answer"]);
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.text, view.iterations], ["second answer", 2]);
  assert.deepEqual(shown(await h.messages(run)), [
    "user: Go",
    "assistant",
    "user: one more thing",
    "assistant",
  ]);
});

Deno.test("one look takes one steering message, or all of them", async () => {
  for (const mode of ["one_at_a_time", "all"] as const) {
    const h: Harness = harness(
      (request) =>
        request.messages.length === 1 ? calls(["work"]) : `after ${textOf(request.messages.at(-1)!.content)}`,
      { tools: [sends(() => h, { 1: [["steering", "a"], ["steering", "b"]] })] },
    );
    const { run } = await h.start("Go", { steeringMode: mode });
    await h.ended(run);
    assert.deepEqual(
      shown(await h.messages(run)).slice(3),
      mode === "all" ? ["user: a", "user: b", "assistant"] : ["user: a", "assistant", "user: b", "assistant"],
    );
  }
});

Deno.test("follow-ups wait for the end of the inner loop, come after steering, and share the run's agent_end", async () => {
  for (const mode of ["one_at_a_time", "all"] as const) {
    const h: Harness = harness((_request, n) => n === 1 ? calls(["work"], ["work"]) : "text", {
      tools: [
        sends(() => h, { 1: [["follow_up", "later a"], ["follow_up", "later b"]], 2: [["steering", "now"]] }),
      ],
    });
    const { run } = await h.start("Go", { followUpMode: mode });
    await h.ended(run);
    assert.deepEqual(shown(await h.messages(run)).slice(2), [
      ...["tool: result 1", "tool: result 2", "user: now", "assistant"],
      ...(mode === "all"
        ? ["user: later a", "user: later b", "assistant"]
        : ["user: later a", "assistant", "user: later b", "assistant"]),
    ]);
    const ends = (await h.events(run)).filter(({ event }) =>
      event.type === "agent_end" || event.type === "agent_start"
    );
    assert.equal(ends.length, 2);
  }
});

Deno.test("mail at the limit of turns opens a successor with the same settings (CASES F08)", async () => {
  const h: Harness = harness(
    (request) =>
      request.messages.at(-1)!.role === "user" && request.messages.length > 1 ? "seen" : calls(["work"]),
    {
      tools: [sends(() => h, { 1: [["steering", "use EUR"]] })],
    },
  );
  const { run } = await h.start("Go", { maxIterations: 1, metadata: { who: "me" } });
  const first = await h.ended(run);
  assert.equal(first.finishReason, "max_iterations");
  const second = await h.ended(first.successor!);
  assert.deepEqual([second.text, second.metadata], ["seen", { who: "me" }]);
  assert.deepEqual(shown(await h.messages(second.id)), ["user: use EUR", "assistant"]);
});

Deno.test("mail for a run that has ended starts a new one with its settings", async () => {
  const h = harness(["one", "two"]);
  const { run } = await h.start("Go", { metadata: { who: "me" } });
  await h.ended(run);
  const accepted = await h.time.until(h.pawl.send("local", run, "follow_up", "And?"));
  assert.notEqual(accepted.run, run);
  const view = await h.ended(accepted.run);
  assert.deepEqual([view.text, view.metadata], ["two", { who: "me" }]);
});

Deno.test("steering wakes a run that waits, and skips the call that waited; a follow-up does not", async () => {
  const wait = defineTool({
    name: "wait",
    description: "",
    parameters: anything,
    replay: "safe",
    wait: (_args, now) => ({ for: "time", until: now + 3_600_000 }),
    execute: () => "waited",
  });
  const h = harness([calls(["wait"]), "hurried", "then this"], { tools: [wait] });
  const { run } = await h.start("Go");
  assert.equal((await h.settled(run)).status, "waiting");
  const before = h.time.now();
  await h.pawl.send("local", run, "follow_up", "afterwards");
  await h.time.pass(60_000);
  assert.equal((await h.pawl.run("local", run)).status, "waiting");
  await h.pawl.send("local", run, "steering", "hurry");
  const view = await h.ended(run);
  assert.ok(h.time.now() - before < 3_600_000);
  assert.equal(view.text, "then this");
  assert.deepEqual(shown(await h.messages(run)).slice(2), [
    `tool: ${skipText}`,
    "user: hurry",
    "assistant",
    "user: afterwards",
    "assistant",
  ]);
});

Deno.test("steering while a nested loop is open is taken by the innermost; the calls around it go on", async () => {
  const work = defineTool({
    name: "work",
    description: "",
    parameters: anything,
    execute: async (_args, { run }) => {
      await h.pawl.send("local", run, "steering", "use EUR");
      return "worked";
    },
  });
  const agent = agenticFunction({
    name: "agent",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec }) => `agent: ${await exec("inner task")}`,
  });
  const h: Harness = harness((request) => {
    const first = textOf(request.messages[0]!.content), last = request.messages.at(-1)!;
    if (first === "inner task") {
      return last.role === "user" && textOf(last.content) === "use EUR"
        ? "in EUR"
        : calls(["work"], ["work"]);
    }
    return last.role === "tool" ? "done" : calls(["agent"], ["agent"]);
  }, { tools: [work, agent] });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "done");
  assert.deepEqual(shown(await h.messages(run, "1.0/exec")), [
    ...["user: inner task", "assistant", "tool: worked", `tool: ${skipText}`, "user: use EUR", "assistant"],
  ]);
  assert.equal(textOf((await h.messages(run))[2]!.content), "agent: in EUR");
});

Deno.test("a checkpoint that ends on the model's answer is finished without another model call (CASES A23)", async () => {
  const h = harness(["done"]);
  h.loseDeliveries();
  const { run } = await h.start("Go");
  const [first] = h.published;
  // The answer is committed, but the slice dies before it can write the end: another comes when its lease is over.
  const { commit, renew } = h.store;
  h.store.commit = async (lease, it) => {
    const answer = await commit.call(h.store, lease, { ...it, quiet: undefined });
    return it.quiet ? await new Promise<never>(() => {}) : answer;
  };
  h.store.renew = () => new Promise(() => {});
  h.deliver(first!, "one");
  await h.time.pass(5_000);
  Object.assign(h.store, { commit, renew });
  h.deliver({ ...first!, at: h.time.now() + 120_000 }, "two");
  assert.equal((await h.ended(run)).text, "done");
  assert.equal(h.model.requests.length, 1);
});

Deno.test("interrupt cancels the active run and starts, in one operation", async () => {
  const h: Harness = harness([calls(["work"]), "new answer"], {
    tools: [
      defineTool({
        name: "work",
        description: "",
        parameters: anything,
        execute: () => new Promise(() => {}),
      }),
    ],
  });
  const { run, thread } = await h.start("Go");
  await h.time.pass(500);
  const next = await h.start("No, this", {}, { thread, ifBusy: "interrupt" });
  assert.notEqual(next.run, run);
  assert.equal((await h.ended(next.run)).text, "new answer");
  assert.equal((await h.pawl.run("local", run)).status, "cancelled");
  assert.deepEqual(shown(h.model.requests.at(-1)!.messages).map((m) => m.slice(0, 15)), [
    ...["user: Go", "assistant", "tool: Cancelled", "user: No, this"],
  ]);
});

Deno.test("if_busy reject refuses, and steer with other settings than the active run's does too", async () => {
  const h = harness([() => new Promise<never>(() => {})]);
  const { run, thread } = await h.start("Go", { tools: [] });
  await h.time.pass(10);
  await assert.rejects(h.pawl.start("local", "x", {}, { thread, ifBusy: "reject" }), { code: "conflict" });
  await assert.rejects(h.pawl.start("local", "x", { maxIterations: 3 }, { thread }), /max_iterations/);
  const joined = await h.pawl.start("local", "x", { tools: [] }, { thread });
  assert.equal(joined.run, run);
});

Deno.test("the same key answers the same ids; another body under it is a conflict; without a thread too", async () => {
  const h = harness(["one"]);
  const key = { name: "k1", hash: "a" };
  const first = await h.start("Go", {}, { key });
  const again = await h.start("Go", {}, { key });
  assert.deepEqual([again.run, again.messageId], [first.run, first.messageId]);
  await h.ended(first.run);
  const late = await h.start("Go", {}, { key });
  assert.deepEqual([late.run, late.status], [first.run, "completed"]);
  assert.equal(h.model.requests.length, 1);
  await assert.rejects(h.pawl.start("local", "Other", {}, { key: { name: "k1", hash: "b" } }), {
    code: "conflict",
  });
});

Deno.test("a prompt whose delivery cannot be published is withdrawn, and the caller is told so (H13)", async () => {
  const h = harness(["never"]);
  h.queue.publish = () => Promise.reject(new Error("the queue is down"));
  const thread = "t1";
  await assert.rejects(h.pawl.start("local", "Go", {}, { thread }), { code: "unavailable" });
  await assert.rejects(h.pawl.messages("local", { thread }), { code: "not_found" });
  await h.time.pass(3_600_000);
  await h.pawl.sweep().catch(() => {});
  assert.equal(h.model.requests.length, 0);
});
