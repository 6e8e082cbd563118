/** Long threads: older messages are summarised, the log keeps them, and nothing of it can go round in circles. */
import assert from "node:assert/strict";
import fc from "fast-check";
import { agenticFunction, defineTool } from "../src/mod.ts";
import { ModelError, type ModelRequest } from "../src/model.ts";
import { harness } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";
import { Stage } from "./support/stage.ts";
import { faultOf } from "./support/strict.ts";
import { sent, wires } from "./support/transcript.ts";

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

Deno.test("a summary that is itself too long is asked for once more, with much less (CASES E06)", async () => {
  for (const helps of [true, false]) {
    const asked: number[] = [];
    const scene = harness((request: ModelRequest, n: number): Said => {
      if (asksForSummary(request)) {
        asked.push(textsOf(request)[0]!.length);
        return asked.length < 2 || !helps ? overflow() : "Short.";
      }
      return n <= 4 ? calls(["big"]) : n === 5 ? overflow() : "done";
    }, { tools: [big] });
    const { run } = await scene.start("Go");
    const { text, error } = await scene.ended(run);
    assert.deepEqual([text, error?.code], helps ? ["done", undefined] : [undefined, "context_overflow"]);
    assert.equal(asked.length, 2);
    assert.ok(asked[0]! > 2 * asked[1]!);
  }
});

Deno.test("however often other failures came before, what is too long is still summarised", async () => {
  let failed = 0;
  const scene = harness((request: ModelRequest, n: number): Said => {
    if (asksForSummary(request)) return "Short.";
    if (n <= 4) return calls(["big"]);
    if (failed++ < 4) return new ModelError("overloaded", "busy");
    return failed === 5 ? overflow() : "done";
  }, { tools: [big] });
  const { run } = await scene.start("Go");
  assert.equal((await scene.ended(run)).text, "done");
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

Deno.test("wherever a thread is cut, what is left of it is taken by every vendor (CASES A26)", async () => {
  const turn = fc.record({
    calls: fc.integer({ min: 0, max: 3 }),
    text: fc.constantFrom("", "so", long),
    much: fc.boolean(),
  });
  const property = fc.asyncProperty(fc.array(turn, { minLength: 2, maxLength: 8 }), async (turns) => {
    let n = 0, summaries = 0;
    const small = { ...big, name: "small", execute: () => "1" };
    const scene = harness((request: ModelRequest): Said => {
      sendable(request);
      for (const wire of wires) {
        const { system, messages, tools, toolChoice } = request;
        assert.equal(faultOf(wire, sent(wire, messages, { system, tools, toolChoice })), undefined, wire);
      }
      if (asksForSummary(request)) return `Summary ${++summaries}`;
      const said = turns[n++];
      if (!said) return "done";
      // Without calls the run ends, and the next begins on what it left.
      const asked = calls(
        ...Array.from({ length: said.calls }, (_, i) => [i % 2 ? "small" : "big"] as [string]),
      );
      return {
        content: [...(said.text ? [{ type: "text" as const, text: said.text }] : []), ...asked.content!],
        usage: { input: said.much ? 9_000 : 10, output: 5 },
      };
    }, { tools: [big, small], compactTokens: 5_000 });
    while (n < turns.length) {
      const { run } = await scene.start("And now?", {}, { thread: "t" });
      const { status, error } = await scene.ended(run);
      assert.equal(status, "completed", `${error?.message}`);
    }
  });
  await fc.assert(property, { numRuns: 60 });
});
