/** Long threads: older messages are summarised, the log keeps them, and nothing of it can go round in circles. */
import assert from "node:assert/strict";
import { agenticFunction, defineTool } from "../src/mod.ts";
import { ModelError, type ModelRequest } from "../src/model.ts";
import { harness } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";
import { Stage } from "./support/stage.ts";

const anything = { type: "object" } as const;
const long = "word ".repeat(400);
const overflow = () => new ModelError("context_overflow", "the prompt is too long");
const asksForSummary = ({ system }: ModelRequest) => system?.includes("shorten") ?? false;
const textsOf = ({ messages }: ModelRequest) => messages.map(({ content }) => JSON.stringify(content));
const big = defineTool({ name: "big", description: "", parameters: anything, execute: () => long });

/** Every call in a request has its result right after its message. */
function sendable({ messages }: ModelRequest): void {
  const open: string[] = [];
  for (const message of messages) {
    if (message.role === "tool") assert.equal(message.toolCallId, open.shift());
    else assert.deepEqual(open, []);
    if (message.role === "assistant") {
      open.push(...message.content.flatMap((block) => block.type === "tool_call" ? [block.id] : []));
    }
  }
  assert.deepEqual(open, []);
}

Deno.test("a context that the vendor refuses as too long is summarised, and the run goes on (CASES E06)", async () => {
  let refused = false;
  const scene = harness((request: ModelRequest, n: number): Said => {
    sendable(request);
    if (asksForSummary(request)) return "They called big a few times.";
    if (n <= 4) return calls(["big"]);
    if (!refused) return refused = true, overflow();
    return "done";
  }, { tools: [big] });
  const { run } = await scene.start("Call big, then say done");
  const view = await scene.ended(run);
  assert.deepEqual([view.status, view.text], ["completed", "done"]);
  const [summing, last] = scene.model.requests.slice(-2) as [ModelRequest, ModelRequest];
  assert.match(textsOf(summing)[0]!, /Call big, then say done/);
  assert.equal(summing.tools.length, 0);
  assert.match(textsOf(last)[0]!, /Summary of what was said before.*They called big/);
  assert.ok(last.messages.length < 9);
  const messages = await scene.messages(run);
  assert.equal(messages.filter(({ role }) => role === "tool").length, 4, "all stays readable");
  assert.equal(messages[0]!.content, "Call big, then say done");
});

Deno.test("a thread that has grown beyond the threshold is summarised once, and later runs go on from there", async () => {
  const usage = (request: ModelRequest) => ({ input: textsOf(request).join("").length, output: 1 });
  const scene = harness((request: ModelRequest): Said => {
    sendable(request);
    if (asksForSummary(request)) {
      return { content: [{ type: "text", text: "Short." }], usage: { input: 7, output: 3 } };
    }
    return { content: [{ type: "text", text: long }], usage: usage(request) };
  }, { compactTokens: 6_000 });
  const summaries = () => scene.model.requests.filter(asksForSummary).length;
  for (let n = 1; n <= 4; n++) {
    const { run } = await scene.start(`Question ${n}`, {}, { thread: "t" });
    const { status, usage } = await scene.ended(run);
    assert.equal(status, "completed");
    if (n === 4) assert.ok(usage.output === 1, "this run has summarised nothing");
  }
  assert.equal(summaries(), 0);
  const { run } = await scene.start("Question 5", {}, { thread: "t" });
  assert.equal((await scene.ended(run)).usage.output, 4, "the summary is paid for too");
  assert.equal(summaries(), 1);
  const last = textsOf(scene.model.requests.at(-1)!);
  assert.match(last[0]!, /Short\./);
  assert.match(last.at(-1)!, /Question 5/);
  const next = await scene.start("Question 6", {}, { thread: "t" });
  await scene.ended(next.run);
  assert.equal(summaries(), 1, "what was used before the summary counts no more");
  assert.match(textsOf(scene.model.requests.at(-1)!)[0]!, /Short\./);
});

Deno.test("what is too long even after a summary ends the run, and nothing goes round in circles", async () => {
  const scene = harness((request: ModelRequest, n: number): Said => {
    if (asksForSummary(request)) return "Short.";
    return n <= 3 ? calls(["big"]) : overflow();
  }, { tools: [big] });
  const { run } = await scene.start("Go");
  const { status, error } = await scene.ended(run);
  assert.deepEqual([status, error?.code], ["failed", "context_overflow"]);
  assert.equal(scene.model.requests.filter(asksForSummary).length, 1);
});

Deno.test("a prompt that alone is too long ends the run at once", async () => {
  const scene = harness([overflow()]);
  const { run } = await scene.start(long);
  assert.equal((await scene.ended(run)).error?.code, "context_overflow");
  assert.equal(scene.model.requests.length, 1);
});

Deno.test("a summary that is itself too long is asked for again with less", async () => {
  const asked: number[] = [];
  const scene = harness((request: ModelRequest, n: number): Said => {
    if (asksForSummary(request)) {
      asked.push(textsOf(request)[0]!.length);
      return asked.length < 3 ? overflow() : "Short.";
    }
    return n <= 4 ? calls(["big"]) : n === 5 ? overflow() : "done";
  }, { tools: [big] });
  const { run } = await scene.start("Go");
  assert.equal((await scene.ended(run)).text, "done");
  assert.equal(asked.length, 3);
  assert.ok(asked[0]! > asked[1]! && asked[1]! > asked[2]!);
});

Deno.test("without a summary the run goes on as it is, where the vendor has not refused it, and says so", async () => {
  const scene = harness((request: ModelRequest): Said => {
    if (asksForSummary(request)) return new ModelError("content_policy", "not that");
    return { content: [{ type: "text", text: long }], usage: { input: 9_000, output: 1 } };
  }, { compactTokens: 6_000 });
  await scene.ended((await scene.start("One", {}, { thread: "t" })).run);
  const { run } = await scene.start("Two", {}, { thread: "t" });
  assert.equal((await scene.ended(run)).status, "completed");
  assert.equal(scene.model.requests.filter(asksForSummary).length, 1);
  const warnings = (await scene.events(run)).filter(({ event }) => event.type === "warning");
  assert.match(JSON.stringify(warnings), /could not be made shorter: not that/);
});

Deno.test("what a run is to end with is still said when its prompt was summarised away", async () => {
  const scene = harness((request: ModelRequest, n: number): Said => {
    if (asksForSummary(request)) return "Short.";
    if (n <= 4) return calls(["big"]);
    if (n === 5) return overflow();
    assert.match(textsOf(request)[0]!, /Short\..*yes/);
    return "yes";
  }, { tools: [big] });
  const { run } = await scene.start("Go", { choices: ["yes", "no"] });
  assert.deepEqual((await scene.ended(run)).choice, { name: "yes" });
});

Deno.test("a nested loop is summarised by itself: the one around it keeps its context", async () => {
  const nest = agenticFunction({
    name: "nest",
    description: "",
    parameters: anything,
    execute: (_args, { exec }) => exec("Inside", { tools: ["big"] }),
  });
  let inside = 0, refused = false;
  const scene = harness((request: ModelRequest): Said => {
    sendable(request);
    if (asksForSummary(request)) return "Short.";
    const texts = textsOf(request);
    if (texts[0]!.includes("Outside")) return request.messages.length === 1 ? calls(["nest"]) : "done";
    if (inside++ < 4) return calls(["big"]);
    if (!refused) return refused = true, overflow();
    assert.match(texts[0]!, /Short\./);
    return "from inside";
  }, { tools: [big, nest] });
  const { run } = await scene.start("Outside");
  const view = await scene.ended(run);
  assert.deepEqual([view.status, view.text], ["completed", "done"]);
  assert.ok(refused);
});

Deno.test("a summary survives a crash: made again before its commit, and kept after it", async () => {
  for (const fate of ["killed before", "killed after"] as const) {
    let summaries = 0, refused = false;
    const stage = new Stage(
      Array.from({ length: 20 }, () => (request: ModelRequest): Said => {
        if (asksForSummary(request)) return `Summary ${++summaries}.`;
        const tools = request.messages.filter(({ role }) => role === "tool").length;
        if (!refused && tools < 3) return calls(["big"]);
        if (!refused) return refused = true, overflow();
        return "done";
      }),
      { tools: [big] },
    );
    stage.commitMeets(fate, "Summary 1.");
    const { run } = await stage.start("Go");
    assert.equal(await stage.deliver(), "died");
    await stage.deliver(undefined, { message: "q1" });
    const view = await stage.view(run);
    assert.deepEqual([view.status, view.text], ["completed", "done"]);
    assert.equal(summaries, fate === "killed before" ? 2 : 1);
    assert.ok(stage.met);
  }
});
