/** Calls that wait: for time, for an answer, for an approval. The run holds no function meanwhile (DESIGN §3, §4). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { ClientTool } from "../src/run.ts";
import { agenticFunction, defineTool, type Tool, ToolPending } from "../src/tool.ts";
import type { ModelRequest } from "../src/model.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const hour = 3_600_000;
const anything = z.looseObject({});
const ask: ClientTool = {
  name: "ask",
  description: "Asks the user.",
  parameters: { type: "object", properties: {} },
};
const wait = defineTool({
  name: "wait",
  description: "",
  parameters: z.object({ ms: z.number() }),
  replay: "safe",
  wait: ({ ms }, now) => ({ for: "time", until: now + ms }),
  execute: ({ ms }) => `waited ${ms}`,
});
const approved = (execute: () => unknown) =>
  defineTool({
    name: "pay",
    description: "",
    parameters: anything,
    wait: (_args, now) => ({ for: "approval", until: now + hour, reason: "it costs money" }),
    execute,
  });

async function results(h: Harness, run: string): Promise<[isError: boolean, text: string][]> {
  return (await h.messages(run)).flatMap((m) =>
    m.role === "tool" ? [[m.isError, textOf(m.content)] as [boolean, string]] : []
  );
}

Deno.test("a wait hands the run over and goes on when its time has come", async () => {
  const h = harness([calls(["wait", { ms: 5 * hour }]), "done"], { tools: [wait] });
  const { run } = await h.start("Go");
  const waiting = await h.settled(run);
  assert.equal(waiting.status, "waiting");
  assert.deepEqual(waiting.waitingFor!.map(({ name, for: what }) => [name, what]), [["wait", "time"]]);
  const from = h.time.now();
  assert.equal((await h.ended(run)).text, "done");
  const took = h.time.now() - from;
  assert.ok(took >= 5 * hour && took < 5 * hour + 60_000, `took ${took} ms`);
  assert.deepEqual(await results(h, run), [[false, `waited ${5 * hour}`]]);
  assert.equal(h.model.requests.length, 2);
});

Deno.test("a client tool's call waits until the client answers; a repeat changes nothing, strangers are told apart", async () => {
  const h = harness([calls(["ask", { q: "colour?" }]), "red it is"]);
  const { run } = await h.start("Go", { tools: [ask] });
  const { status, waitingFor } = await h.settled(run);
  assert.equal(status, "waiting");
  const id = waitingFor![0]!.toolCallId;
  await assert.rejects(h.pawl.resolve("local", run, "nobody", { content: "x" }), { code: "not_found" });
  await assert.rejects(h.pawl.resolve("local", run, id, { approve: true }), { code: "bad_input" });
  assert.equal((await h.pawl.resolve("local", run, id, { content: "red" })).repeat, false);
  assert.equal((await h.pawl.resolve("local", run, id, { content: "blue" })).repeat, true);
  assert.equal((await h.ended(run)).text, "red it is");
  assert.equal(
    (await h.pawl.resolve("local", run, id, { content: "red" })).repeat,
    true,
    "also once it is done",
  );
  assert.deepEqual(await results(h, run), [[false, "red"]]);
});

Deno.test("neighbouring calls that wait are open together, and each is answered on its own", async () => {
  const h = harness([calls(["ask", { n: 1 }], ["wait", { ms: hour }], ["ask", { n: 2 }]), "ok"], {
    tools: [wait],
  });
  const { run } = await h.start("Go", { tools: [ask, "wait"] });
  const { waitingFor } = await h.settled(run);
  assert.equal(waitingFor!.length, 3);
  const ids = waitingFor!.filter(({ name }) => name === "ask").map(({ toolCallId }) => toolCallId);
  await h.pawl.resolve("local", run, ids[1]!, { content: "second" });
  await h.time.pass(1_000);
  assert.equal((await h.pawl.run("local", run)).status, "waiting");
  await h.pawl.resolve("local", run, ids[0]!, { content: "first" });
  assert.equal((await h.ended(run)).text, "ok");
  assert.deepEqual(await results(h, run), [[false, "first"], [false, `waited ${hour}`], [false, "second"]]);
});

Deno.test("an approved call runs once; one that is refused or expires does not run", async () => {
  for (const how of ["approved", "refused", "expired"] as const) {
    let ran = 0;
    const h = harness([calls(["pay"]), "ok"], { tools: [approved(() => `paid ${++ran}`)] });
    const { run } = await h.start("Go");
    const { waitingFor } = await h.settled(run);
    assert.equal(waitingFor![0]!.reason, "it costs money");
    if (how !== "expired") {
      const approve = how === "approved";
      await h.pawl.resolve("local", run, waitingFor![0]!.toolCallId, { approve, reason: "too dear" });
      await h.pawl.resolve("local", run, waitingFor![0]!.toolCallId, { approve: true });
    }
    assert.equal((await h.ended(run)).text, "ok");
    assert.equal(ran, how === "approved" ? 1 : 0);
    const [[isError, text]] = await results(h, run) as [[boolean, string]];
    assert.equal(isError, how !== "approved");
    assert.match(text, { approved: /paid 1/, refused: /not approved: too dear/, expired: /expired/ }[how]);
  }
});

Deno.test("an answer that came before steering is kept; one that comes after the skip is refused", async () => {
  for (const first of ["answer", "steering"] as const) {
    const h = harness([calls(["ask"]), "ok"]);
    const { run } = await h.start("Go", { tools: [ask] });
    const id = (await h.settled(run)).waitingFor![0]!.toolCallId;
    if (first === "answer") await h.pawl.resolve("local", run, id, { content: "red" });
    await h.pawl.send("local", run, "steering", "never mind");
    await h.ended(run);
    if (first === "steering") {
      await assert.rejects(h.pawl.resolve("local", run, id, { content: "red" }), { code: "conflict" });
    }
    const expected = first === "answer" ? [false, "red"] : [true, "Skipped due to queued user message"];
    assert.deepEqual(await results(h, run), [expected]);
  }
});

Deno.test("an answer accepted in the very moment of the skip is not lost", async () => {
  const h = harness([calls(["ask"]), "ok"]);
  const { run } = await h.start("Go", { tools: [ask] });
  const id = (await h.settled(run)).waitingFor![0]!.toolCallId;
  const { commit } = h.store;
  h.store.commit = async (lease, it) => {
    if (it.quiet?.append?.some((entry) => entry.includes("Skipped"))) {
      h.store.commit = commit;
      await h.pawl.resolve("local", run, id, { content: "red" });
    }
    return await commit.call(h.store, lease, it);
  };
  await h.pawl.send("local", run, "steering", "never mind");
  await h.ended(run);
  assert.deepEqual(await results(h, run), [[false, "red"]]);
});

Deno.test("a client that never answers does not keep the run for ever: the wait ends at half the thread's life", async () => {
  const h = harness([calls(["ask"]), "nobody there"], { ttlMs: 10 * hour });
  const { run } = await h.start("Go", { tools: [ask] });
  const from = h.time.now();
  assert.equal((await h.ended(run)).text, "nobody there");
  assert.ok(h.time.now() - from <= 5 * hour + 60_000);
  assert.match((await results(h, run))[0]![1], /expired/);
});

Deno.test("a tool whose wait throws is an error result", async () => {
  const odd = defineTool({
    name: "odd",
    description: "",
    parameters: anything,
    wait: () => {
      throw new Error("no such day");
    },
    execute: () => "never",
  });
  const h = harness([calls(["odd"]), "ok"], { tools: [odd] });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  assert.deepEqual(await results(h, run), [[true, "no such day"]]);
});

Deno.test("what is no wait is an error that says what is expected; a moment too late for any calendar is none", async () => {
  const odd: [unknown, RegExp][] = [
    [5, /for of a wait: expected "time", "answer" or "approval", got undefined/],
    [{ for: "never" }, /for of a wait.*got never/],
    [{ for: "time", until: new Date(0) }, /until of a wait: expected Unix ms/],
    [{ for: "time", until: NaN }, /until of a wait.*got NaN/],
    [{ for: "time", until: "5" }, /until of a wait/],
    [{ for: "answer", reason: 5 }, /reason of a wait: expected text/],
    [Promise.resolve({ for: "time" }), /Do not make the function async/],
    [{ for: "time", until: Infinity }, /^ran$/],
    [{ for: "time", until: -1 }, /^ran$/],
  ];
  for (const [given, text] of odd) {
    const tool = defineTool({
      name: "odd",
      description: "",
      parameters: anything,
      wait: () => given as never,
      execute: () => "ran",
    });
    const h = harness([calls(["odd"]), "ok"], { tools: [tool] });
    const { run } = await h.start("Go");
    assert.equal((await h.ended(run)).text, "ok");
    assert.match((await results(h, run))[0]![1], text);
  }
  assert.throws(() => new ToolPending({ until: new Date() as never }), /until of a wait/);
});

Deno.test("calls that waited together do not run together, unless their tools are parallel", async () => {
  for (const parallel of [false, true]) {
    let running = 0, most = 0;
    const tool: Tool = defineTool({
      name: "pay",
      description: "",
      parameters: anything,
      parallel,
      approval: true,
      execute: async ({ n }) => {
        most = Math.max(most, ++running);
        await h.time.sleep(1_000);
        running--;
        return `paid ${n}`;
      },
    });
    const h: Harness = harness([calls(["pay", { n: 1 }], ["pay", { n: 2 }], ["pay", { n: 3 }]), "ok"], {
      tools: [tool],
    });
    const { run } = await h.start("Go");
    const { waitingFor } = await h.settled(run);
    h.loseDeliveries();
    for (const { toolCallId } of waitingFor!.toReversed()) {
      await h.pawl.resolve("local", run, toolCallId, { approve: true });
    }
    h.deliver(h.published.at(-1)!);
    assert.equal((await h.ended(run)).text, "ok");
    assert.equal(most, parallel ? 3 : 1);
    assert.deepEqual((await results(h, run)).map(([, text]) => text), ["paid 1", "paid 2", "paid 3"]);
  }
});

Deno.test("a function that was approved goes on while a call beside it still waits", async () => {
  const outer = agenticFunction({
    name: "outer",
    description: "",
    parameters: z.object({}),
    approval: true,
    execute: (_args, { exec }) => exec("inner", { tools: ["pay"] }),
  });
  const pay = approved(() => "paid");
  const h = harness((request: ModelRequest) => {
    const inside = textOf(request.messages[0]!.content) === "inner";
    if (request.messages.at(-1)!.role === "tool") return inside ? "inner done" : "ok";
    return inside ? calls(["pay"]) : calls(["ask"], ["outer"]);
  }, { tools: [outer, pay] });
  const { run } = await h.start("Go", { tools: [ask, "outer", "pay"] });
  const answer = async (name: string, answer: Parameters<typeof h.pawl.resolve>[3]) => {
    const { toolCallId } = (await h.settled(run)).waitingFor!.find((call) => call.name === name)!;
    await h.time.until(h.pawl.resolve("local", run, toolCallId, answer));
    await h.time.pass(10_000);
  };
  await answer("outer", { approve: true });
  await answer("pay", { approve: true });
  assert.deepEqual((await h.settled(run)).waitingFor!.map(({ name }) => name), ["ask"]);
  await answer("ask", { content: "red" });
  assert.equal((await h.ended(run)).text, "ok");
  assert.deepEqual(await results(h, run), [[false, "red"], [false, "inner done"]]);
});

Deno.test("a follow-up lets a call wait on, and comes after it", async () => {
  const h = harness([calls(["ask"]), "red it is", "and then"]);
  const { run } = await h.start("Go", { tools: [ask] });
  const { slices, waitingFor } = await h.settled(run);
  await h.time.until(h.pawl.send("local", run, "follow_up", "Then?"));
  await h.time.pass(hour);
  const still = await h.pawl.run("local", run);
  assert.deepEqual([still.status, still.slices], ["waiting", slices]);
  await h.pawl.resolve("local", run, waitingFor![0]!.toolCallId, { content: "red" });
  assert.equal((await h.ended(run)).text, "and then");
});

Deno.test("however long reasons and arguments are, a run's state stays small, and its event tells all", async () => {
  const reason = "why ".repeat(20_000), much = "what ".repeat(2_000);
  const tool = defineTool({
    name: "pay",
    description: "",
    parameters: anything,
    approval: () => reason,
    execute: () => "paid",
  });
  const h = harness([calls(["pay", { much }], ["pay", { little: 1 }])], { tools: [tool] });
  const { run } = await h.start("Go");
  const { waitingFor } = await h.settled(run);
  assert.ok(JSON.stringify(waitingFor).length < 3_000);
  assert.match(waitingFor![0]!.reason!, /^why why/);
  await h.pawl.cancel("local", run);
  const told = (await h.events(run)).flatMap(({ event }) => event.type === "run_waiting" ? [event] : []);
  const { waitingFor: all } = told[0]! as unknown as { waitingFor: typeof waitingFor };
  assert.deepEqual(all!.map((call) => [call.reason, call.arguments]), [[reason, { much }], [reason, {
    little: 1,
  }]]);
});
