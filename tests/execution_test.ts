/** What a call may take, tell and leave behind: its time, its length, its progress, its cache and its last word. */
import assert from "node:assert/strict";
import * as z from "zod";
import { type Message, textOf, type ToolMessage, type UserBlock } from "../src/message.ts";
import { Registry } from "../src/registry.ts";
import type { Settings } from "../src/run.ts";
import { agenticFunction, type Tool, ToolOutput } from "../src/tool.ts";
import { type Harness, harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";

const anything = z.looseObject({});
const toolOf = (more: Partial<Tool>): Tool => ({
  name: "t",
  description: "",
  parameters: anything,
  execute: () => "done",
  ...more,
});

async function results(h: Harness, run: string): Promise<ToolMessage[]> {
  return (await h.messages(run)).filter((message) => message.role === "tool");
}

/** Runs to the end, and answers how it ended and what the model was told of its calls. */
async function told(script: Said[], options: HarnessOptions, settings: Settings = {}) {
  const h = harness(script, options), { run } = await h.start("Go", settings);
  const view = await h.ended(run), found = await results(h, run);
  return { h, run, view, found, texts: found.map(({ content }) => textOf(content)) };
}

// Time

Deno.test("a model may ask for a tool's time within bounds; what is no number gives the default", async () => {
  const asked: [unknown, seconds: number][] = [
    [2_000, 2],
    [999_999, 60],
    [Infinity, 60],
    [0, 1],
    [-5, 1],
    [-Infinity, 1],
    [NaN, 5],
    [undefined, 5],
    ["7000", 5],
    [null, 5],
    [{}, 5],
    ["throw", 5],
  ];
  const hang = toolOf({
    timeoutMs: {
      from: ({ i }) => {
        const wanted = asked[i]![0];
        if (wanted === "throw") throw new Error("no idea");
        return wanted as number;
      },
      defaultMs: 5_000,
      minMs: 1_000,
      maxMs: 60_000,
    },
    execute: () => new Promise(() => {}),
  });
  const batch = calls(...asked.map((_, i) => ["t", { i }] as ["t", { i: number }]));
  const { texts, view } = await told([batch, "ok"], { tools: [hang], budget: { softMs: 1e6, hardMs: 1e6 } });
  assert.equal(view.text, "ok");
  for (const [i, text] of texts.entries()) {
    assert.match(text, new RegExp(`timed out after ${asked[i]![1]} s`), `asked for ${asked[i]![0]}`);
  }
});

Deno.test("without bounds below a model may ask for a moment, but not for none", async () => {
  const hang = toolOf({
    timeoutMs: { from: () => -1, defaultMs: 5_000, maxMs: 60_000 },
    execute: () => new Promise(() => {}),
  });
  const { texts } = await told([calls(["t"]), "ok"], { tools: [hang] });
  assert.match(texts[0]!, /timed out after 0\.001 s/);
});

Deno.test("bounds that mean nothing are refused at registration, with tool and field", () => {
  const asked = { from: () => 1, defaultMs: 1, maxMs: 1 };
  const bad: [Partial<Tool>, RegExp][] = [
    [{ timeoutMs: NaN }, /Tool "t": timeoutMs: expected a number from 1 on, got NaN/],
    [{ timeoutMs: 0 }, /timeoutMs/],
    [{ timeoutMs: Infinity }, /timeoutMs/],
    [{ timeoutMs: "5" as any }, /timeoutMs/],
    [{ timeoutMs: { ...asked, maxMs: Infinity } }, /timeoutMs\.maxMs/],
    [{ timeoutMs: { ...asked, defaultMs: undefined as any } }, /timeoutMs\.defaultMs/],
    [{ timeoutMs: { ...asked, minMs: 2 } }, /minMs/],
    [{ timeoutMs: { ...asked, from: 7 as any } }, /timeoutMs\.from/],
    [{ maxResultLength: 0 }, /maxResultLength: expected 1 to 100000, got 0/],
    [{ maxResultLength: 100_001 }, /maxResultLength/],
    [{ cache: { ttlMs: -1 } }, /cache\.ttlMs/],
    [{ cache: {} as any }, /cache\.ttlMs/],
  ];
  for (const [more, message] of bad) {
    assert.throws(() => new Registry([toolOf(more)]), { name: "InputError", message });
  }
  new Registry([toolOf({ timeoutMs: asked, maxResultLength: 1, cache: { ttlMs: 1 } })]);
});

// Length

const points = (content: string | UserBlock[]) => Array.from(textOf(content)).length;

Deno.test("a result is cut to its tool's length by code points, with head, tail and a note (CASES A27)", async () => {
  const cases: [max: number | undefined, given: string, expected: string][] = [
    // 99 letters and one character of two UTF-16 units are 100 code points.
    [100, "a".repeat(99) + "\u{1F600}", "a".repeat(99) + "\u{1F600}"],
    [
      10,
      "\u{1F600}".repeat(12),
      `${"\u{1F600}".repeat(7)}\n[… 2 characters left out …]\n${"\u{1F600}".repeat(3)}`,
    ],
    [1, "abc", "\n[… 2 characters left out …]\nc"],
    [undefined, "a".repeat(30_000), "a".repeat(30_000)],
  ];
  for (const [maxResultLength, given, expected] of cases) {
    const { texts } = await told([calls(["t"]), "ok"], {
      tools: [toolOf({ maxResultLength, execute: () => given })],
    });
    assert.equal(texts[0], expected);
  }
});

Deno.test("whatever form a result has, its text is cut as one, and images stay", async () => {
  const image: UserBlock = { type: "image", mediaType: "image/png", data: "A".repeat(5_000) };
  const text = (text: string): UserBlock => ({ type: "text", text });
  const given: [unknown, Message["content"]][] = [
    [new ToolOutput("x".repeat(20)), "xxxxxxx\n[… 10 characters left out …]\nxxx"],
    [new ToolOutput([text("abc"), image, text("de")]), [text("abc"), image, text("de")]],
    [new ToolOutput([text("abcdefghijklmn"), image]), [
      text("abcdefg\n[… 4 characters left out …]\nlmn"),
      image,
    ]],
    [
      new ToolOutput([text("abcde"), image, text("fghij"), text("klm"), image, text("no")]),
      [text("abcde"), image, text("fg\n[… 5 characters left out …]\n"), text("m"), image, text("no")],
    ],
    [
      new ToolOutput([text("a".repeat(7)), text("b".repeat(7)), text("c".repeat(3))]),
      [text("a".repeat(7)), text("\n[… 7 characters left out …]\n"), text("ccc")],
    ],
    [{ list: "y".repeat(50) }, '{"list"\n[… 51 characters left out …]\ny"}'],
  ];
  for (const [value, expected] of given) {
    const { found } = await told([calls(["t"]), "ok"], {
      tools: [toolOf({ maxResultLength: 10, execute: () => value })],
    });
    assert.deepEqual(found[0]!.content, expected);
  }
});

Deno.test("an error's text is cut too, and so is what a client answers; a picture that no store takes is named", async () => {
  const { texts } = await told([calls(["t"]), "ok"], {
    tools: [toolOf({
      execute: () => {
        throw new Error("e".repeat(40_000));
      },
    })],
  });
  assert.ok(points(texts[0]!) < 30_100 && /10000 characters left out/.test(texts[0]!));

  const h = harness([calls(["ask"]), "ok"]);
  const { run } = await h.start("Go", { tools: [{ name: "ask", description: "", parameters: {} }] });
  const { waitingFor } = await h.settled(run);
  const answer = { content: "a".repeat(100_000) };
  await h.time.until(h.pawl.resolve("local", run, waitingFor![0]!.toolCallId, answer));
  await h.ended(run);
  assert.match(textOf((await results(h, run))[0]!.content), /70000 characters left out/);

  const huge: UserBlock = { type: "image", mediaType: "image/png", data: "A".repeat(5_000_000) };
  const { found } = await told([calls(["t"]), "ok"], {
    tools: [toolOf({ execute: () => new ToolOutput([huge]) })],
  });
  assert.match(textOf(found[0]!.content), /image of 5000000 characters left out/);
});

// Progress

Deno.test("a watcher hears of a bounded number of updates, each of bounded length, all before the result", async () => {
  const work = toolOf({
    execute: async (_args, { onUpdate }) => {
      onUpdate("x".repeat(100_000));
      for (let i = 0; i < 50_000; i++) onUpdate(`update ${i}`);
      await h.time.sleep(2_000);
      onUpdate("more");
      return "done";
    },
  });
  const quick = toolOf({ name: "quick", execute: (_args, { onUpdate }) => onUpdate("at the last moment") });
  const h: Harness = harness([calls(["t"], ["quick"]), "ok"], { tools: [work, quick] });
  const { run } = await h.start("Go");
  const heard: string[] = [];
  const watching = (async () => {
    for await (const { event } of h.pawl.events("local", run, { signal: new AbortController().signal })) {
      if (event.type === "tool_execution_update") heard.push(event.text);
      if (event.type === "tool_execution_end") heard.push("END");
    }
  })();
  await h.time.until(watching);
  const ends = heard.flatMap((text, i) => text === "END" ? [i] : []);
  assert.equal(ends[0], 1_000);
  assert.ok(heard[0]!.length < 1_100 && /99000 characters left out/.test(heard[0]!));
  assert.deepEqual(heard.slice(ends[0]! + 1), ["at the last moment", "END"]);
});

// Cache

Deno.test("a tool that opts in answers the same call from its log, whatever the order of keys", async () => {
  let ran = 0;
  const look = toolOf({ cache: true, execute: ({ q }) => `${q}: ${++ran}` });
  const plain = toolOf({ name: "plain", execute: () => ++ran });
  const script = [
    calls(["t", { q: "a", deep: { x: 1, y: [1, 2] } }], ["t", { deep: { y: [1, 2], x: 1 }, q: "a" }]),
    calls(["t", { q: "a", deep: { x: 1, y: [2, 1] } }], ["plain"], ["plain"]),
    "ok",
  ];
  const { texts, h, run } = await told(script, { tools: [look, plain], budget: { turns: 1 } });
  assert.deepEqual(texts, ["a: 1", "a: 1", "a: 2", "3", "4"]);
  const events = (await h.events(run)).map(({ event }) => event.type);
  assert.equal(events.filter((type) => type === "tool_execution_start").length, 5, "watchers see each call");
});

Deno.test("a cache lasts as long as it says, over runs of the thread and over processes, and for no other thread", async () => {
  let ran = 0;
  const look = toolOf({ cache: { ttlMs: 60_000 }, execute: () => `${++ran}` });
  const first = harness([calls(["t", { q: 1 }]), "ok"], { tools: [look] });
  const begin = async (h: Harness, thread: string, tenant = "local") => {
    const { run } = await h.time.until(h.pawl.start(tenant, "Go", {}, { thread }));
    await h.time.until(h.pawl.settled(tenant, run, 3_600_000));
    const { messages } = await h.pawl.messages(tenant, { run }, { limit: Infinity });
    return messages.flatMap((m) => m.role === "tool" ? [textOf(m.content)] : []);
  };
  const next = () =>
    harness([calls(["t", { q: 1 }]), "ok"], { tools: [look], store: first.store, time: first.time });
  assert.deepEqual(await begin(first, "a"), ["1"]);
  assert.deepEqual(await begin(next(), "a"), ["1"], "another process");
  assert.deepEqual(await begin(next(), "b"), ["2"], "another thread");
  assert.deepEqual(await begin(next(), "a", "other"), ["3"], "the same name of another tenant");
  await first.time.pass(61_000);
  assert.deepEqual(await begin(next(), "a"), ["4"], "its time is over");
  assert.deepEqual(await begin(next(), "a"), ["4"], "and has begun anew");
  await first.time.until(first.pawl.delete("local", "a"));
  assert.deepEqual(await begin(next(), "a"), ["5"], "the thread made again is another one");
});

Deno.test("errors are not kept, nor what was never run, nor what a tool says no longer", async () => {
  let ran = 0;
  const fail = toolOf({
    cache: true,
    execute: () => {
      if (++ran === 1) throw new Error("not now");
      return new ToolOutput(`said ${ran}`, ran === 2);
    },
  });
  const { texts } = await told([calls(["t"], ["t"], ["t"], ["t"]), "ok"], { tools: [fail] });
  assert.deepEqual(texts, ["not now", "said 2", "said 3", "said 3"]);
});

Deno.test("a result from the cache lets a forced choice go, and says that the tool did not run", async () => {
  let ran = 0;
  const look = toolOf({ cache: true, execute: () => ++ran });
  const h = harness([calls(["t"]), "first", calls(["t"]), "second"], { tools: [look] });
  const settings: Settings = { toolChoice: "required" };
  for (const text of ["first", "second"]) {
    const { run } = await h.start("Go", settings, { thread: "a" });
    assert.equal((await h.ended(run)).text, text);
  }
  assert.equal(ran, 1);
  assert.deepEqual(h.model.requests.map(({ toolChoice }) => toolChoice), [
    "required",
    "auto",
    "required",
    "auto",
  ]);
  const read = await h.store.read("local~a", { from: 0 });
  const kept = read!.entries.filter((entry) => entry.startsWith("result ")).map((entry) =>
    JSON.parse(entry.slice(entry.indexOf("\n")))
  );
  assert.deepEqual(kept.map(({ ran, reused }) => [ran, reused]), [[true, undefined], [undefined, true]]);
});

Deno.test("a hook is asked before a cached answer is given, which is found by the arguments that it gives", async () => {
  let ran = 0;
  const look = toolOf({ cache: true, execute: ({ q }) => `${q} ${++ran}` });
  const { texts } = await told(
    [calls(["t", { q: "a" }], ["t", { q: "A" }], ["t", { q: "a", secret: true }]), "ok"],
    {
      tools: [look],
      beforeToolCall: ({ arguments: { q, secret } }) =>
        secret ? { block: true, reason: "secret" } : { arguments: { q: String(q).toLowerCase() } },
    },
  );
  assert.deepEqual(texts, ["a 1", "a 1", "Not run: blocked: secret"]);
});

// The last word

const finish = (name = "finish", say = true) =>
  toolOf({ name, execute: () => new ToolOutput("handed over", { terminate: say }) });

Deno.test("a batch whose results all say so ends the run as terminated, with the text of its message", async () => {
  const said: Said = {
    content: [
      { type: "text", text: "Handing over." },
      { type: "tool_call", name: "finish", arguments: {} },
      { type: "tool_call", name: "finish", arguments: { again: 1 } },
    ],
  };
  const { view, h, run, texts } = await told([calls(["plain"]), said], {
    tools: [finish(), toolOf({ name: "plain" })],
  });
  assert.deepEqual([view.status, view.finishReason, view.text, view.iterations], [
    "completed",
    "terminated",
    "Handing over.",
    2,
  ]);
  assert.deepEqual(texts, ["done", "handed over", "handed over"]);
  assert.equal((h.model as any).left(), 0);
  const events = (await h.events(run)).map(({ event }) => event);
  assert.deepEqual(events.slice(-2).map(({ type }) => type), ["turn_end", "agent_end"]);
  assert.deepEqual((events.at(-1) as any).finishReason, "terminated");
  assert.equal((events.at(-2) as any).toolResults.length, 2);
});

Deno.test("one result that does not say so keeps the loop going: a plain one, an error, a call that was not run", async () => {
  const bad = toolOf({
    name: "bad",
    execute: () => {
      throw new Error("no");
    },
  });
  for (const other of ["plain", "bad", "unknown", "no"]) {
    for (const batch of [calls(["finish"], [other]), calls([other], ["finish"])]) {
      const { view } = await told([batch, "went on"], {
        tools: [finish(), finish("no", false), bad, toolOf({ name: "plain" })],
      });
      assert.deepEqual([view.finishReason, view.text], ["stop", "went on"], other);
    }
  }
});

Deno.test("mail that waits goes before the end", async () => {
  for (const kind of ["steering", "follow_up"] as const) {
    let sent = false;
    const late = toolOf({
      name: "finish",
      execute: async () => {
        if (!sent) await h.pawl.send("local", run, kind, "one more thing");
        sent = true;
        return new ToolOutput("handed over", { terminate: true });
      },
    });
    const h: Harness = harness([calls(["finish"]), calls(["finish"])], { tools: [late] });
    const { run } = await h.start("Go");
    const view = await h.ended(run);
    assert.deepEqual([view.finishReason, view.iterations, view.successor], ["terminated", 2, undefined]);
    const roles = (await h.messages(run)).map(({ role }) => role);
    assert.deepEqual(roles, ["user", "assistant", "tool", "user", "assistant", "tool"], kind);
  }
});

Deno.test("in a nested loop it ends that loop", async () => {
  const report = agenticFunction({
    name: "report",
    description: "",
    parameters: anything,
    execute: async (_args, { exec }) => `inside: ${await exec("finish it")}`,
  });
  const h = harness((request) => {
    const prompt = textOf(request.messages[0]!.content), last = request.messages.at(-1)!;
    if (prompt === "Go") return last.role === "tool" ? textOf(last.content) : calls(["report"]);
    return { content: [{ type: "text", text: "so be it" }, ...calls(["finish"]).content!] };
  }, { tools: [report, finish()], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.deepEqual([view.finishReason, view.text], ["stop", "inside: so be it"]);
});

Deno.test("a hook may end the loop, and keep it from ending", async () => {
  const say = async (terminate: boolean, tool: Tool) =>
    (await told([calls(["finish"]), "went on"], { tools: [tool], afterToolCall: () => ({ terminate }) }))
      .view.finishReason;
  assert.equal(await say(true, finish("finish", false)), "terminated");
  assert.equal(await say(false, finish()), "stop");
});

Deno.test("a run that is to end with a choice and is ended by a tool ends as terminated, without one", async () => {
  const { view } = await told([calls(["finish"])], { tools: [finish()] }, { choices: ["yes", "no"] });
  assert.deepEqual([view.status, view.finishReason, view.choice], ["completed", "terminated", undefined]);
});

Deno.test("the last word survives: cut off before or after any commit, the run ends as terminated and no tool runs twice", async () => {
  const play = async (cut?: { n: number; before: boolean }) => {
    let ran = 0;
    const last = toolOf({
      name: "finish",
      replay: "safe",
      execute: () => (ran++, new ToolOutput("bye", { terminate: true })),
    });
    const h = harness(() => calls(["finish"], ["finish", { n: 2 }]), { tools: [last] });
    const { commit, renew } = h.store;
    let n = 0;
    h.store.commit = async (lease, what) => {
      const mine = n++ === cut?.n;
      if (mine && cut.before) return await new Promise(() => {});
      const answer = await commit.call(h.store, lease, what);
      return mine ? await new Promise(() => {}) : answer;
    };
    const { run } = await h.start("Go");
    if (cut) {
      await h.time.pass(1_000);
      const dead = h.time.now();
      h.store.renew = (lease, ms) =>
        h.time.now() < dead + 60_000 ? new Promise(() => {}) : renew.call(h.store, lease, ms);
      h.deliver({ ...h.published.at(-1)!, at: dead + 61_000 }, `m${h.published.length}`);
    }
    const view = await h.ended(run);
    assert.deepEqual([view.status, view.finishReason, view.iterations], ["completed", "terminated", 1]);
    assert.deepEqual((await results(h, run)).map((m) => textOf(m.content)), ["bye", "bye"]);
    if (!cut) assert.equal(ran, 2);
    return n;
  };
  const commits = await play();
  for (let n = 0; n < commits; n++) for (const before of [true, false]) await play({ n, before });
});
