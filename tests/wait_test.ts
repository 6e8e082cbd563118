/** Calls that wait: for time, for an answer, for an approval. The run holds no function meanwhile (DESIGN §3, §4). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { ClientTool } from "../src/run.ts";
import { defineTool } from "../src/tool.ts";
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
