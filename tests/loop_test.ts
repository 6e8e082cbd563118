/** Turns: how a run goes on, and how it ends (DESIGN §2). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import { ModelError, type ModelRequest } from "../src/model.ts";
import { defineTool } from "../src/tool.ts";
import { harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const add = defineTool({
  name: "add",
  description: "Adds two numbers.",
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: ({ a, b }) => String(a + b),
});
const again = calls(["add", { a: 1, b: 1 }]);

Deno.test("a message without calls ends the run; its text blocks, joined, are the result", async () => {
  const h = harness([{
    content: [
      { type: "text", text: "Hello" },
      { type: "thinking", text: "hm", vendor: "scripted" },
      { type: "text", text: ", world" },
    ],
  }]);
  const { run } = await h.start("Hi");
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.finishReason, view.text], ["completed", "stop", "Hello, world"]);
});

Deno.test("calls run and their results go back until the model answers in text", async () => {
  const h = harness([calls(["add", { a: 1, b: 2 }]), calls(["add", { a: 3, b: 4 }]), "3 and 7"], {
    tools: [add],
  });
  const { run } = await h.start("Add");
  const view = await h.ended(run);
  assert.equal(view.text, "3 and 7");
  assert.equal(view.iterations, 3);
  assert.deepEqual(view.usage, { input: 30, output: 15 });
  assert.deepEqual((await h.messages(run)).map((m) => m.role), [
    "user",
    "assistant",
    "tool",
    "assistant",
    "tool",
    "assistant",
  ]);
});

Deno.test("the events of a run come in the seed's order, agent_end last", async () => {
  const h = harness([calls(["add", { a: 1, b: 2 }]), "3"], { tools: [add] });
  const { run } = await h.start("Add");
  await h.ended(run);
  const types = (await h.events(run)).map(({ event }) => event.type).filter((type) =>
    !type.startsWith("slice")
  );
  assert.deepEqual(types, [
    ...["agent_start", "turn_start", "message_start", "message_end", "message_start", "message_end"],
    ...["tool_execution_start", "tool_execution_end", "message_start", "message_end", "turn_end"],
    ...["turn_start", "message_start", "message_end", "turn_end", "agent_end"],
  ]);
});

Deno.test("a model that always calls is stopped at max_iterations, a normal finish with the last text", async () => {
  const h = harness(() => ({ content: [{ type: "text", text: "working" }, ...again.content!] }), {
    tools: [add],
  });
  const { run } = await h.start("Go", { maxIterations: 3 });
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.finishReason, view.text], ["completed", "max_iterations", "working"]);
  assert.equal(h.model.requests.length, 3);
  const messages = await h.messages(run);
  assert.equal(
    messages.filter((m) => m.role === "tool").length,
    3,
    "the last turn's call has its result too",
  );
});

for (const [asked, made] of [[undefined, 20], [99, 50], [0, 1]] as const) {
  Deno.test(`max_iterations ${asked} allows ${made} turns`, async () => {
    const h = harness(() => again, { tools: [add] });
    const { run } = await h.start("Go", { maxIterations: asked });
    assert.equal((await h.ended(run)).finishReason, "max_iterations");
    assert.equal(h.model.requests.length, made);
  });
}

Deno.test("limits do not start again with a new slice (CASES F10)", async () => {
  const h = harness(() => again, { tools: [add], budget: { turns: 2 } });
  const { run } = await h.start("Go", { maxIterations: 5 });
  const view = await h.ended(run);
  assert.equal(h.model.requests.length, 5);
  assert.equal(view.iterations, 5);
  assert.deepEqual(view.usage, { input: 50, output: 25 });
  assert.ok(view.slices >= 3, `5 turns, 2 a slice, took ${view.slices} slices`);
});

Deno.test("a forced choice holds until one call has run, then the run can end", async () => {
  for (const forced of ["required", { type: "function", name: "add" }] as const) {
    const h = harness([again, "done"], { tools: [add], budget: { turns: 1 } });
    const { run } = await h.start("Go", { toolChoice: forced });
    assert.equal((await h.ended(run)).text, "done");
    assert.deepEqual(h.model.requests.map((r) => r.toolChoice), [forced, "auto"]);
  }
});

Deno.test('a forced choice with scope "every" holds for each turn but the last, which can end in words (CASES D03)', async () => {
  const every = { toolChoice: "required", toolChoiceScope: "every", maxIterations: 3 } as const;
  const obedient = ({ toolChoice }: ModelRequest) => toolChoice === "none" ? "What I have" : again;
  const h = harness(obedient, { tools: [add], budget: { turns: 1 } });
  const { text, finishReason } = await h.ended((await h.start("Go", every)).run);
  assert.deepEqual([text, finishReason], ["What I have", "stop"]);
  assert.deepEqual(h.model.requests.map((r) => r.toolChoice), ["required", "required", "none"]);

  const once = harness(() => again, { tools: [add] });
  await once.ended((await once.start("Go", { ...every, maxIterations: 1 })).run);
  assert.deepEqual(
    once.model.requests.map((r) => r.toolChoice),
    ["required"],
    "a single turn is for the call",
  );
});

Deno.test('"none" holds for every turn, also against a model that calls anyway', async () => {
  const h = harness([again, again, "text"], { tools: [add] });
  const { run } = await h.start("Go", { toolChoice: "none" });
  assert.equal((await h.ended(run)).text, "text");
  assert.deepEqual(h.model.requests.map((r) => r.toolChoice), ["none", "none", "none"]);
  const results = (await h.messages(run)).filter((m) => m.role === "tool");
  assert.equal(results.length, 2);
  for (const result of results) assert.ok(result.isError && textOf(result.content).startsWith("Not run"));
});

Deno.test("parallel_tool_calls false: one call per turn, the others are answered unrun (CASES D06)", async () => {
  let ran = 0;
  const count = { ...add, execute: () => `${++ran}` };
  const h = harness([calls(["add", { a: 1, b: 1 }], ["add", { a: 2, b: 2 }]), "ok"], { tools: [count] });
  const { run } = await h.start("Go", { parallelToolCalls: false });
  await h.ended(run);
  assert.equal(ran, 1);
  const results = (await h.messages(run)).filter((m) => m.role === "tool");
  assert.deepEqual(results.map((m) => m.isError), [false, true]);
  assert.match(textOf(results[1]!.content), /one tool call per turn/);
});

Deno.test("a message cut at the output limit runs none of its calls and says why (CASES B03)", async () => {
  let ran = 0;
  const h = harness([{ ...again, stopReason: "length" }, "ok"], {
    tools: [{ ...add, execute: () => ++ran }],
  });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  assert.equal(ran, 0);
  const result = (await h.messages(run)).find((m) => m.role === "tool")!;
  assert.match(textOf(result.content), /output limit/);
});

Deno.test("a text cut at the output limit ends the run as length", async () => {
  const h = harness([{ content: [{ type: "text", text: "Half of" }], stopReason: "length" }]);
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.finishReason, view.text], ["length", "Half of"]);
});

Deno.test("a refusal ends the run at once; nothing it asked for runs, and the thread stays usable (CASES B19)", async () => {
  let ran = 0;
  const h = harness([{ ...again, stopReason: "refusal" }, "hello"], {
    tools: [{ ...add, execute: () => ++ran }],
  });
  const { run, thread } = await h.start("Go");
  assert.equal((await h.ended(run)).finishReason, "refusal");
  assert.equal(ran, 0);
  assert.equal((await h.messages(run)).filter((m) => m.role === "tool").length, 1);
  const next = await h.start("And now?", {}, { thread });
  assert.equal((await h.ended(next.run)).text, "hello");
});

Deno.test("an unknown stop reason is a failure that names it, not a success (CASES B21)", async () => {
  const h = harness([{
    content: [{ type: "text", text: "x" }],
    stopReason: "other",
    stopDetail: "brand_new_reason",
  }]);
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.error?.code], ["failed", "stop_reason"]);
  assert.match(view.error!.message, /brand_new_reason/);
});

Deno.test("a failing model call is tried again in the same turn, and nothing of it is kept", async () => {
  const h = harness([new ModelError("overloaded", "busy"), new ModelError("network", "cut"), "fine"]);
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.text, view.iterations], ["fine", 1]);
  assert.deepEqual((await h.messages(run)).map((m) => m.role), ["user", "assistant"]);
  assert.equal((await h.events(run)).filter(({ event }) => event.type === "message_retry").length, 2);
});

Deno.test("tries are counted in the log, also over slices; then the run fails with the vendor's words", async () => {
  const h = harness(() => new ModelError("overloaded", "please come later", 40_000), {
    budget: { softMs: 25_000 },
  });
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.error], ["failed", {
    code: "overloaded",
    message: "please come later",
  }]);
  assert.equal(h.model.requests.length, 5);
  assert.ok(view.slices > 1, "a wait longer than the slice has left is a delayed delivery");
});

Deno.test("a wrong key ends the run after one request (code auth)", async () => {
  const h = harness([new ModelError("auth", "Incorrect API key provided")]);
  const { run } = await h.start("Go");
  assert.deepEqual((await h.ended(run)).error, { code: "auth", message: "Incorrect API key provided" });
  assert.equal(h.model.requests.length, 1);
});

Deno.test("empty answers, whatever stop reason they give, are tried a bounded number of times (CASES A24)", async () => {
  const h = harness(() => new ModelError("empty", "The model said nothing"));
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).error?.code, "empty");
  assert.ok(h.model.requests.length <= 5);
});

Deno.test("a failed run leaves its thread usable, and every call answered", async () => {
  const h = harness([again, new ModelError("auth", "no"), "back"], { tools: [add] });
  const { run, thread } = await h.start("Go");
  await h.ended(run);
  const next = await h.start("Again", {}, { thread });
  assert.equal((await h.ended(next.run)).text, "back");
  assert.deepEqual(h.model.requests.at(-1)!.messages.map((m) => m.role), [
    "user",
    "assistant",
    "tool",
    "user",
  ]);
});

Deno.test("a forced call that a person refuses, or that is stopped, forces no longer (CASES D03)", async () => {
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: { type: "object", required: ["amount"] },
    approval: true,
    execute: () => "paid",
  });
  const obedient = (args: { amount?: number }) => (request: ModelRequest) =>
    request.toolChoice === "auto" ? "In words, then" : calls(["pay", args]);
  const settings = { toolChoice: { type: "function", name: "pay" } } as const;
  const refused = harness(obedient({ amount: 1 }), { tools: [pay] });
  const { run } = await refused.start("Go", settings);
  const [waiting] = (await refused.settled(run)).waitingFor!;
  await refused.time.until(refused.pawl.resolve("local", run, waiting!.toolCallId, { approve: false }));
  assert.equal((await refused.ended(run)).text, "In words, then");
  assert.equal(refused.model.requests.length, 2);

  const stopped = harness(obedient({}), { tools: [pay] });
  const view = await stopped.ended((await stopped.start("Go", settings)).run);
  assert.equal(view.text, "In words, then");
  assert.equal(stopped.model.requests.length, 4);
});

Deno.test("a model that answers instead of calling what it must is asked once more, on every wire (CASES D05)", async () => {
  for (const forced of ["required", { type: "function", name: "add" }] as const) {
    const h = harness(["No need", again, "done"], { tools: [add], budget: { turns: 1 } });
    const { run } = await h.start("Go", { toolChoice: forced });
    assert.equal((await h.ended(run)).text, "done");
    assert.deepEqual(h.model.requests.map((r) => r.toolChoice), [forced, forced, "auto"]);
    assert.match(
      textOf(h.model.requests[1]!.messages.at(-1)!.content),
      /call (one of the tools|the tool "add")/,
    );

    const insists = harness(["No need", "No"], { tools: [add] });
    const view = await insists.ended((await insists.start("Go", { toolChoice: forced })).run);
    assert.deepEqual([view.status, view.text], ["completed", "No"]);
    const last = harness(["No need"], { tools: [add] });
    const once = await last.ended((await last.start("Go", { toolChoice: forced, maxIterations: 1 })).run);
    assert.equal(once.text, "No need");
  }
});
