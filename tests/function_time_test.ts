/** The time of an agentic function: it counts from its first beginning, and what its body opened ends with it. */
import assert from "node:assert/strict";
import * as z from "zod";
import { decode, type Entry, frameOf } from "../src/entry.ts";
import { textOf, type ToolMessage } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { threadKey } from "../src/run.ts";
import { type AgenticContext, agenticFunction, defineTool, type Tool } from "../src/tool.ts";
import { type Harness, harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said, scriptedModel } from "./support/scripted_model.ts";
import { logOf } from "./support/simulation/facts.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const second = 1_000, hour = 3_600_000;
const anything = z.looseObject({});

/** A function "report" with this body, and a model that says to each prompt what `says` says, after 4 s. */
function scene(
  body: (context: AgenticContext) => unknown,
  says: (prompt: string, request: ModelRequest) => Said | Promise<Said>,
  { timeoutMs = 10 * second, ...options }: HarnessOptions & { timeoutMs?: number } = {},
) {
  const time = new VirtualTime();
  const report = agenticFunction({
    name: "report",
    description: "",
    parameters: anything,
    timeoutMs,
    execute: (_args, context) => body(context),
  });
  const model = scriptedModel(async (request) => {
    const prompt = textOf(request.messages[0]!.content);
    await time.sleep(4 * second);
    if (prompt !== "Go") return says(prompt, request);
    return request.messages.at(-1)!.role === "tool" ? "ok" : calls(["report"]);
  });
  return harness(model, { time, ...options, tools: [report, ...options.tools ?? []] });
}

async function log(h: Harness, run: string): Promise<Entry[]> {
  return (await logOf(h.store, threadKey("local", run.split("~")[0]!))).map(decode);
}

/** Every call has one result, and nothing is written inside a call once it has its own. */
async function consistent(h: Harness, run: string): Promise<void> {
  const asked = new Set<string>(), done = new Set<string>();
  for (const entry of await log(h, run)) {
    for (let path = entry.path; path.includes("/"); path = frameOf(path)) {
      const call = path.slice(0, path.lastIndexOf("/"));
      assert.ok(!done.has(call), `${entry.kind} ${entry.path} after the result of ${call}`);
    }
    if (entry.kind === "assistant") {
      const frame = entry.path === "." ? "" : `${entry.path}/`;
      const n = entry.body.content.filter((block) => block.type === "tool_call").length;
      for (let i = 0; i < n; i++) asked.add(`${frame}${entry.n}.${i}`);
    }
    if (entry.kind === "result") {
      assert.ok(!done.has(entry.path), `two results of ${entry.path}`);
      done.add(entry.path);
    }
  }
  assert.deepEqual([...done].sort(), [...asked].sort(), "every call has a result");
}

/** The function's result, and when it came after its beginning. */
async function outcome(h: Harness, run: string): Promise<{ text: string; isError: boolean; after: number }> {
  const view = await h.ended(run);
  assert.deepEqual([view.status, view.text], ["completed", "ok"]);
  await consistent(h, run);
  const [result] = (await h.messages(run)).filter((m): m is ToolMessage => m.role === "tool");
  const begun = (await log(h, run)).find(({ kind, path }) => kind === "call" && path === "1.0")!;
  const { at } = begun.body as { at: number };
  return { text: textOf(result!.content), isError: result!.isError, after: result!.at - at };
}

const timedOut = /Tool "report" timed out after 10 s/;

Deno.test("the time of a function counts over all its slices", async () => {
  const h = scene(
    async ({ exec }) => {
      for (let i = 0;; i++) await exec(`question ${i}`);
    },
    () => "answer",
    { budget: { turns: 1 } },
  );
  const { run } = await h.start("Go");
  const { text, isError, after } = await outcome(h, run);
  assert.match(text, timedOut);
  assert.ok(isError && after >= 10 * second && after < 11 * second, `after ${after} ms`);
  assert.equal(h.failures.length, 0);
});

Deno.test("a function that is done in time, over however many slices, has its result", async () => {
  const h = scene(async ({ exec }) => `${await exec("a")} ${await exec("b")}`, () => "said", {
    budget: { turns: 1 },
  });
  assert.deepEqual((await outcome(h, (await h.start("Go")).run)).text, "said said");
});

Deno.test("what a function's body opened ends with its time: model calls, tools that ignore their signal, steps", async () => {
  let aborted = 0, late: (value: unknown) => void = () => {};
  const hang = defineTool({
    name: "hang",
    description: "",
    parameters: anything,
    execute: (_args, { signal }) => {
      signal.addEventListener("abort", () => aborted++);
      return new Promise((resolve) => late = resolve);
    },
  });
  const h = scene(
    ({ exec, step }) =>
      Promise.all([
        exec("call hang", { key: "tool" }),
        exec("think for long", { key: "model" }),
        step("never", () => new Promise(() => {})),
      ]),
    async (prompt) => {
      if (prompt === "call hang") return calls(["hang"], ["hang"]);
      await h.time.sleep(hour);
      return "too late";
    },
    { tools: [hang] },
  );
  const { run } = await h.start("Go");
  const ended = h.ended(run);
  const { text, after } = await outcome(h, run);
  assert.match(text, timedOut);
  assert.ok(after < 11 * second);
  assert.equal(aborted, 1, "the one that had begun");
  const inner = (await log(h, run)).filter(({ kind, path }) => kind === "result" && path !== "1.0");
  const texts = inner.map(({ body }) => textOf((body as { content: string }).content));
  assert.match(texts[0]!, /"report" ended before this call.*It had begun: what it did is unknown/);
  assert.match(texts[1]!, /"report" ended before this call.*It was not run/);
  const { length } = await log(h, run);
  late("late");
  await h.time.pass(2 * hour);
  assert.equal((await log(h, run)).length, length, "what comes later changes nothing");
  await ended;
});

Deno.test("a function whose inner call waits is over at its time: nobody's answer is waited for, and a late one is refused", async () => {
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: anything,
    wait: (_args, now) => ({ for: "approval", until: now + hour }),
    execute: () => "paid",
  });
  const h = scene(({ exec }) => exec("pay"), () => calls(["pay"]), { tools: [pay] });
  const { run } = await h.start("Go");
  const view = await h.settled(run);
  assert.equal(view.status, "waiting");
  const { text, after } = await outcome(h, run);
  assert.match(text, timedOut);
  assert.ok(after >= 10 * second && after < 12 * second, `after ${after} ms`);
  const { toolCallId } = view.waitingFor![0]!;
  await assert.rejects(h.time.until(h.pawl.resolve("local", run, toolCallId, { approve: true })), {
    code: "conflict",
  });
});

Deno.test("an inner call that is answered in time goes on", async () => {
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: anything,
    wait: (_args, now) => ({ for: "approval", until: now + hour }),
    execute: () => "paid",
  });
  const h = scene(
    ({ exec }) => exec("pay"),
    (_, { messages }) => messages.at(-1)!.role === "tool" ? textOf(messages.at(-1)!.content) : calls(["pay"]),
    { tools: [pay], timeoutMs: 2 * hour },
  );
  const { run } = await h.start("Go");
  const { waitingFor } = await h.settled(run);
  await h.time.pass(hour / 2);
  await h.time.until(h.pawl.resolve("local", run, waitingFor![0]!.toolCallId, { approve: true }));
  assert.equal((await outcome(h, run)).text, "paid");
});

Deno.test("a function whose time ended while no process was alive is over in the next, and its body does not run again", async () => {
  let bodies = 0;
  const h = scene(({ exec }) => (bodies++, exec("think")), async () => {
    await h.time.sleep(hour);
    return "never";
  });
  h.loseDeliveries();
  const { run } = await h.start("Go"), { renew } = h.store;
  h.store.renew = () => new Promise(() => {});
  h.deliver(h.published[0]!, "the message");
  await h.time.pass(8 * second);
  h.store.renew = renew;
  // It comes again when the holder of the lease has died; the first goes on in vain.
  const again = { ...h.published[0]!, at: h.time.now() + 60 * second };
  h.store.commit = ((commit) => async (lease, what) => {
    if (h.time.now() < again.at) await new Promise(() => {});
    return await commit.call(h.store, lease, what);
  })(h.store.commit);
  h.deliver(again, "the message");
  h.loseDeliveries(false);
  const { text } = await outcome(h, run);
  assert.match(text, timedOut);
  assert.equal(bodies, 1);
});

Deno.test("nested functions end with the outermost one's time, whatever their own", async () => {
  const inner = agenticFunction({
    name: "inner",
    description: "",
    parameters: anything,
    timeoutMs: hour,
    execute: (_args, { exec }) => exec("call the tool"),
  });
  const slow: Tool = {
    name: "slow",
    description: "",
    parameters: anything,
    execute: () => h.time.sleep(hour),
  };
  const h = scene(
    ({ exec }) => exec("call inner"),
    (prompt) => prompt === "call inner" ? calls(["inner"]) : calls(["slow"]),
    { tools: [inner, slow], timeoutMs: 15 * second },
  );
  const { text, after } = await outcome(h, (await h.start("Go")).run);
  assert.match(text, /timed out after 15 s/);
  assert.ok(after < 16 * second);
});

Deno.test("a function whose own time ends inside another is that one's result to deal with", async () => {
  const inner = agenticFunction({
    name: "inner",
    description: "",
    parameters: anything,
    timeoutMs: 5 * second,
    execute: (_args, { exec }) => exec("call the tool"),
  });
  const slow: Tool = {
    name: "slow",
    description: "",
    parameters: anything,
    execute: () => h.time.sleep(hour),
  };
  const h = scene(
    ({ exec }) => exec("call inner"),
    (prompt, { messages }) => {
      if (prompt !== "call inner") return calls(["slow"]);
      return messages.at(-1)!.role === "tool" ? textOf(messages.at(-1)!.content) : calls(["inner"]);
    },
    { tools: [inner, slow], timeoutMs: hour },
  );
  const { text, isError } = await outcome(h, (await h.start("Go")).run);
  assert.deepEqual([isError, /Tool "inner" timed out after 5 s/.test(text)], [false, true]);
});

Deno.test("a body that returns while something inside still runs ends it", async () => {
  const slow: Tool = {
    name: "slow",
    description: "",
    parameters: anything,
    execute: () => h.time.sleep(20 * second),
  };
  const h = scene(
    ({ exec }) => Promise.race([exec("quick", { key: "a" }), exec("call slow", { key: "b" })]),
    async (prompt) => {
      if (prompt === "call slow") return calls(["slow"], ["slow"]);
      await h.time.sleep(2 * second);
      return "first";
    },
    { tools: [slow], timeoutMs: hour },
  );
  const { run } = await h.start("Go");
  assert.equal((await outcome(h, run)).text, "first");
  await h.time.pass(hour);
  await consistent(h, run);
});

Deno.test("a step that never ends does not keep its slice from ending", async () => {
  let steps = 0;
  const h = scene(
    ({ step }) => step("odd", () => ++steps === 1 ? new Promise<string>(() => {}) : "second try"),
    () => "",
    {
      timeoutMs: hour,
      budget: { softMs: 20 * second, hardMs: 60 * second },
    },
  );
  const { text, after } = await outcome(h, (await h.start("Go")).run);
  assert.equal(text, "second try");
  assert.ok(after < 70 * second);
});

Deno.test("cut off before or after any commit, a function that ends by its time has one result, and so has all in it", async () => {
  const pay = defineTool({ name: "pay", description: "", parameters: anything, execute: () => "paid" });
  const run = async (cut?: { n: number; before: boolean }) => {
    const h = scene(
      ({ exec }) => Promise.all([exec("wait", { key: "w" }), exec("pay", { key: "p" })]),
      async (prompt) => {
        if (prompt === "wait") await h.time.sleep(hour);
        return calls(["pay"]);
      },
      { tools: [pay] },
    );
    const { commit } = h.store;
    let n = 0;
    h.store.commit = async (lease, what) => {
      const mine = n++ === cut?.n;
      // The process dies: what it does from here on never comes.
      if (mine && cut.before) return await new Promise(() => {});
      const answer = await commit.call(h.store, lease, what);
      return mine ? await new Promise(() => {}) : answer;
    };
    const { run } = await h.start("Go");
    if (cut) {
      await h.time.pass(5 * second);
      while (n <= cut.n) await h.time.pass(second);
      // The dead holder's lease is not prolonged.
      const { renew } = h.store, dead = h.time.now();
      h.store.renew = (lease, ms) =>
        h.time.now() < dead + 60 * second ? new Promise(() => {}) : renew.call(h.store, lease, ms);
      h.deliver({ ...h.published.at(-1)!, at: h.time.now() + 61 * second }, `m${h.published.length}`);
    }
    const { text } = await outcome(h, run);
    assert.match(text, timedOut);
    return n;
  };
  const commits = await run();
  for (let n = 0; n < commits; n++) {
    for (const before of [true, false]) await run({ n, before });
  }
});
