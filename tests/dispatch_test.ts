/** Tool calls: what runs, in which order, and what the model is told (DESIGN §2). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf, type ToolMessage } from "../src/message.ts";
import { agenticFunction, defineTool, ToolOutput } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const anything = z.looseObject({});

async function results(h: Harness, run: string): Promise<ToolMessage[]> {
  return (await h.messages(run)).filter((message) => message.role === "tool");
}

Deno.test("calls of one message run one after another, in source order", async () => {
  const log: string[] = [];
  const slow = defineTool({
    name: "slow",
    description: "",
    parameters: z.object({ n: z.number() }),
    execute: async ({ n }) => {
      log.push(`${n} begins`);
      await h.time.sleep(100 - n * 10);
      log.push(`${n} ends`);
    },
  });
  const h = harness([calls(["slow", { n: 1 }], ["slow", { n: 2 }], ["slow", { n: 3 }]), "ok"], {
    tools: [slow],
  });
  await h.ended((await h.start("Go")).run);
  assert.deepEqual(log, ["1 begins", "1 ends", "2 begins", "2 ends", "3 begins", "3 ends"]);
});

Deno.test("neighbouring calls of parallel tools overlap; their results stay in source order", async () => {
  let running = 0, most = 0;
  const look = defineTool({
    name: "look",
    description: "",
    parameters: z.object({ ms: z.number() }),
    parallel: true,
    execute: async ({ ms }) => {
      most = Math.max(most, ++running);
      await h.time.sleep(ms);
      running--;
      return `after ${ms}`;
    },
  });
  const asked = [300, 10, 100].map((ms) => ["look", { ms }] as ["look", { ms: number }]);
  const h = harness([calls(...asked), "ok"], { tools: [look] });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.equal(most, 3);
  assert.deepEqual((await results(h, run)).map((m) => m.content), ["after 300", "after 10", "after 100"]);
  const ends = (await h.events(run)).flatMap(({ event }) =>
    event.type === "tool_execution_end" ? [event.result] : []
  );
  assert.deepEqual(ends, ["after 10", "after 100", "after 300"], "each is recorded when it is there");
});

Deno.test("an unknown tool is an error result that names the valid ones; the others run (CASES A29)", async () => {
  const h = harness([
    calls(["get_wether"], ["weather"], ["multi_tool_use.parallel", { tool_uses: [] }], [""]),
    "ok",
  ], {
    tools: [{
      ...defineTool({ name: "weather", description: "", parameters: anything, execute: () => "sunny" }),
    }],
  });
  const { run } = await h.start("Go");
  await h.ended(run);
  const found = await results(h, run);
  assert.deepEqual(found.map((m) => m.isError), [true, false, true, true]);
  assert.match(textOf(found[0]!.content), /no tool "get_wether".*weather/);
});

Deno.test("no name finds what every object has", async () => {
  const h = harness([calls(["toString"], ["constructor"], ["__proto__"]), "ok"]);
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.deepEqual((await results(h, run)).map((m) => m.isError), [true, true, true]);
});

Deno.test("invalid arguments never reach the tool; the result names path and problem", async () => {
  let ran = 0;
  const add = defineTool({
    name: "add",
    description: "",
    parameters: z.object({ a: z.number(), b: z.object({ c: z.number() }) }),
    execute: () => ++ran,
  });
  const h = harness([calls(["add", { a: 1, b: { c: "x" } }]), "ok"], { tools: [add] });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.equal(ran, 0);
  assert.match(textOf((await results(h, run))[0]!.content), /add[^]*b\.c/);
});

Deno.test("arguments that are no JSON object are an error result; an empty text is {} (CASES B02, B06)", async () => {
  let ran = 0;
  const save = defineTool({ name: "save", description: "", parameters: anything, execute: () => ++ran });
  const broken = {
    type: "tool_call" as const,
    name: "save",
    arguments: {},
    raw: '{"a"',
    invalid: "it is not JSON",
  };
  const h = harness([{ content: [broken] }, "ok"], { tools: [save] });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.equal(ran, 0);
  assert.match(textOf((await results(h, run))[0]!.content), /not JSON/);
});

Deno.test("what a tool throws is its result; the run goes on", async () => {
  const thrown: [unknown, RegExp][] = [
    [new Error("disk full"), /disk full/],
    [new Error(""), /Error/],
    ["just text", /just text/],
    [undefined, /./],
  ];
  for (const [error, expected] of thrown) {
    const bad = defineTool({
      name: "bad",
      description: "",
      parameters: anything,
      execute: () => {
        throw error;
      },
    });
    const h = harness([calls(["bad"]), "ok"], { tools: [bad] });
    const { run } = await h.start("Go");
    assert.equal((await h.ended(run)).text, "ok");
    const [result] = await results(h, run);
    assert.ok(result!.isError);
    assert.match(textOf(result!.content), expected);
  }
});

Deno.test("a tool that takes too long is an error result, and its signal aborts", async () => {
  let aborted = false;
  const hang = defineTool({
    name: "hang",
    description: "",
    parameters: anything,
    timeoutMs: 5_000,
    execute: (_args, { signal }) => {
      signal.addEventListener("abort", () => aborted = true);
      return new Promise(() => {});
    },
  });
  const h = harness([calls(["hang"]), "ok"], { tools: [hang] });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  assert.match(textOf((await results(h, run))[0]!.content), /timed out after 5 s/);
  assert.ok(aborted);
});

Deno.test("whatever a tool returns becomes a result that can be stored and read again (CASES A28)", async () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  const returned: [unknown, boolean, RegExp][] = [
    [{ n: 12n }, false, /"12"/],
    [cycle, true, /./],
    [undefined, false, /no output/],
    [() => 1, true, /function/],
    [Symbol("s"), true, /symbol/],
    [NaN, false, /NaN/],
    [12n, false, /12/],
    [null, false, /null/],
    [new Map([[1, 2]]), false, /\[\[1,2\]\]/],
    ["", false, /^$/],
    [new ToolOutput("said so", true), true, /said so/],
  ];
  const give = defineTool({
    name: "give",
    description: "",
    parameters: z.object({ i: z.number() }),
    execute: ({ i }) => returned[i]![0],
  });
  const asked = returned.map((_, i) => ["give", { i }] as ["give", { i: number }]);
  const h = harness([calls(...asked), "ok"], { tools: [give], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  for (const [i, result] of (await results(h, run)).entries()) {
    assert.equal(result.isError, returned[i]![1], `result ${i}`);
    assert.match(textOf(result.content), returned[i]![2], `result ${i}`);
  }
});

Deno.test("a very long result keeps head and tail, counted in code points, and says what was left out (CASES A27)", async () => {
  const long = "a" + "\u{1F600}".repeat(40_000) + "z";
  const tell = defineTool({ name: "tell", description: "", parameters: anything, execute: () => long });
  const h = harness([calls(["tell"]), "ok"], { tools: [tell] });
  const { run } = await h.start("Go");
  await h.ended(run);
  const text = textOf((await results(h, run))[0]!.content);
  assert.ok(
    text.startsWith("a\u{1F600}") && text.endsWith("\u{1F600}z") && /10002 characters left out/.test(text),
  );
  assert.ok(text.isWellFormed());
});

Deno.test("a call repeated with the same arguments and the same error is stopped the third time", async () => {
  let ran = 0;
  const bad = defineTool({
    name: "bad",
    description: "",
    parameters: z.looseObject({ x: z.number() }),
    execute: ({ x }) => {
      ran++;
      if (x === 1) throw new Error("no such thing");
      return "fine";
    },
  });
  const h = harness([
    calls(["bad", { x: 1, y: 2 }]),
    calls(["bad", { x: 2 }]),
    calls(["bad", { y: 2, x: 1 }]),
    calls(["bad", { x: 1, y: 2 }]),
    calls(["bad", { x: 1, y: 2 }]),
    "I give up",
  ], { tools: [bad] });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "I give up");
  assert.equal(ran, 3);
  const texts = (await results(h, run)).map((m) => textOf(m.content));
  assert.deepEqual([texts[0], texts[2]], ["no such thing", "no such thing"]);
  for (const stopped of texts.slice(3)) assert.match(stopped, /failed 2 times in a row/);
});

Deno.test("two calls of one message get ids of their own, whatever the vendor gave (CASES A10, A12)", async () => {
  const seen: string[] = [];
  const get = defineTool({
    name: "get",
    description: "",
    parameters: anything,
    execute: (_args, { toolCallId, idempotencyKey }) => void seen.push(toolCallId, idempotencyKey),
  });
  const h = harness([calls(["get", { u: 1 }], ["get", { u: 2 }]), "ok"], { tools: [get] });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.equal(new Set(seen).size, 4);
  assert.deepEqual((await results(h, run)).map((m) => m.toolCallId), [seen[0], seen[2]]);
});

Deno.test("progress is shown to watchers while the tool runs, and not after it has settled", async () => {
  let late: (text: string) => void = () => {};
  const work = defineTool({
    name: "work",
    description: "",
    parameters: anything,
    execute: async (_args, { onUpdate }) => {
      late = onUpdate;
      onUpdate("half");
      await h.time.sleep(2_000);
      return "done";
    },
  });
  const h = harness([calls(["work"]), () => (late("too late"), "ok")], { tools: [work] });
  const { run } = await h.start("Go");
  const updates: string[] = [];
  const watching = (async () => {
    for await (const { event } of h.pawl.events("local", run, { signal: new AbortController().signal })) {
      if (event.type === "tool_execution_update") updates.push(event.text);
    }
  })();
  await h.time.until(watching);
  assert.deepEqual(updates, ["half"]);
});

Deno.test("an agentic function's loops run inside its call, with its own transcript", async () => {
  const report = agenticFunction({
    name: "report",
    description: "",
    parameters: z.object({ topic: z.string() }),
    execute: async ({ topic }, { exec, step }) => {
      const [a, b] = await Promise.all([
        exec(`facts on ${topic}`, { key: "facts" }),
        exec(`rumours on ${topic}`, { key: "rumours" }),
      ]);
      const id = await step("save", () => ({ id: 7 }));
      return `${a} / ${b} / ${id.id}`;
    },
  });
  const h = harness((request) => {
    const last = request.messages.at(-1)!;
    if (last.role === "tool") return `report: ${textOf(last.content)}`;
    return textOf(last.content) === "Go"
      ? calls(["report", { topic: "Oslo" }])
      : `on ${textOf(last.content)}`;
  }, { tools: [report], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "report: on facts on Oslo / on rumours on Oslo / 7");
  assert.deepEqual((await h.messages(run)).map((m) => m.role), ["user", "assistant", "tool", "assistant"]);
  const frames = new Set((await h.events(run)).map(({ frame }) => frame));
  assert.deepEqual([...frames].sort(), [".", "1.0/facts", "1.0/rumours"]);
});

Deno.test("two nested loops open at once under one key are an error that names the function and the key (H6)", async () => {
  const twice = agenticFunction({
    name: "twice",
    description: "",
    parameters: z.object({}),
    execute: (_args, { exec }) => Promise.all([exec("a"), exec("b")]),
  });
  const h = harness((r) => r.messages.at(-1)!.role === "tool" ? "ok" : calls(["twice"]), { tools: [twice] });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.match(textOf((await results(h, run))[0]!.content), /same time under the key "exec".*"twice"/);
});

Deno.test("a body that asks for something else than last time gets both fingerprints", async () => {
  let times = 0;
  const fickle = agenticFunction({
    name: "fickle",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec }) => await exec(`question ${++times}`) + await exec("one more"),
  });
  const h = harness((r) => {
    const last = r.messages.at(-1)!;
    return last.role === "tool" ? "ok" : textOf(last.content) === "Go" ? calls(["fickle"]) : "answer";
  }, { tools: [fickle], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.match(textOf((await results(h, run))[0]!.content), /question 2[^]*question 1/);
});

Deno.test("an agentic function that keeps calling itself is stopped at depth 5 of its name, calls at depth 10 in all", async () => {
  const recursive = (names: string[]) =>
    names.map((name) =>
      agenticFunction({
        name,
        description: "",
        parameters: z.object({}),
        execute: async (_args, { exec }) => await exec(`inside ${name}`),
      })
    );
  for (const [names, deepest] of [[["a"], 5], [["a", "b", "c"], 10]] as const) {
    const depths: number[] = [];
    const h = harness((request) => {
      const last = request.messages.at(-1)!;
      if (last.role === "tool") return textOf(last.content);
      depths.push(1);
      return calls([names[(depths.length - 1) % names.length]!]);
    }, { tools: recursive([...names]) });
    const { run } = await h.start("Go");
    const view = await h.ended(run);
    assert.match(view.text!, /would be nested/);
    assert.equal(depths.length, deepest + 1, "the last one asked for was not run");
  }
});

Deno.test("branches whose loops change places from slice to slice keep their own results, and have each effect once", async () => {
  const paid: string[] = [];
  let bodies = 0;
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string() }),
    execute: async ({ to }) => {
      paid.push(to);
      await h.time.sleep(2_000);
      return `paid ${to}`;
    },
  });
  const both = agenticFunction({
    name: "both",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec, step }) => {
      const late = ++bodies % 2;
      const branch = async (name: string, n: number) => {
        await h.time.sleep(n === late ? 3_000 : 10);
        const noted = await step(`note ${name}`, () => `${name}${bodies}`);
        await h.time.sleep(n === late ? 10 : 3_000);
        return `${noted.slice(0, 3)}: ${await exec(`pay ${name}`, { key: name, tools: ["pay"] })}`;
      };
      return (await Promise.all([branch("ann", 0), branch("bob", 1)])).join(", ");
    },
  });
  const h: Harness = harness((request) => {
    const last = request.messages.at(-1)!, text = textOf(last.content);
    if (last.role === "tool") return text;
    return text === "Go" ? calls(["both"]) : calls(["pay", { to: text.slice(4) }]);
  }, { tools: [pay, both], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ann: paid ann, bob: paid bob");
  assert.ok(bodies > 3, "it was run again from its start");
  assert.deepEqual(paid.sort(), ["ann", "bob"]);
  for (const name of ["ann", "bob"]) {
    const inner = await h.messages(run, `1.0/${name}`);
    assert.deepEqual(inner.map(({ content }) => textOf(content)), [
      `pay ${name}`,
      "",
      `paid ${name}`,
      `paid ${name}`,
    ]);
  }
});
