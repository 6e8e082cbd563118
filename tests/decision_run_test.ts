/** How runs come by the choice or the value that they are to end with: menu, question, limits, mail, crashes (DESIGN §2). */
import assert from "node:assert/strict";
import * as z from "zod";
import { instruction } from "../src/decision.ts";
import { decode } from "../src/entry.ts";
import { textOf } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import type { RunView, Settings } from "../src/run.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { defineTool } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const book = {
  type: "object",
  description: "Books a table.",
  properties: { seats: { type: "integer", minimum: 1 } },
  required: ["seats"],
};
const names = { choices: ["approve", "send back", "approve all"] };
const filled = { choices: { book, wait: { type: "object" } } } satisfies Settings;
const value = { responseFormat: book };

const chose = (name: string, args?: object) => args ? { name, args } : { name };

interface Outcome {
  h: Harness;
  view: RunView;
}

/** A run in slices of one turn. */
async function ran(script: Said[], settings: Settings, tools: unknown[] = []): Promise<Outcome> {
  const h = harness(script, { budget: { turns: 1 }, tools });
  const { run } = await h.start("Well?", settings);
  return { h, view: await h.ended(run) };
}

const lastText = (request: ModelRequest) => textOf(request.messages.at(-1)!.content);
const look = defineTool({ name: "look", description: "", parameters: z.object({}), execute: () => "seen" });

Deno.test("the menu goes with the prompt, the tools may be used before, the choice ends the run", async () => {
  const { h, view } = await ran(
    [calls(["look"]), 'Fine. {"call": "book", "args": {"seats": 2}}'],
    filled,
    [look],
  );
  assert.deepEqual([view.status, view.finishReason, view.choice, view.iterations], [
    "completed",
    "choice",
    chose("book", { seats: 2 }),
    2,
  ]);
  assert.equal(view.text, 'Fine. {"call": "book", "args": {"seats": 2}}');
  for (const { messages, tools } of h.model.requests) {
    assert.equal(textOf(messages[0]!.content), `Well?\n\n${instruction(filled)}`);
    assert.deepEqual(tools.map(({ name }) => name), ["look"]);
  }
  assert.match(instruction(filled), /- book: Books a table\.\n {2}args: .*"minimum":1/);
  assert.equal(textOf((await h.messages(view.id))[0]!.content), "Well?", "the log has what was said");
});

Deno.test("the menu stands after the last block of a prompt in blocks", async () => {
  const h = harness(["approve"]);
  const { run } = await h.start(
    [{ type: "image", mediaType: "image/png", url: "https://example.com/a.png" }],
    names,
  );
  await h.ended(run);
  const [, menu] = h.model.requests[0]!.messages[0]!.content as { type: string; text: string }[];
  assert.deepEqual(menu, { type: "text", text: instruction(names) });
});

Deno.test("a wrong answer is asked for once more, in a turn of the same run", async () => {
  const { h, view } = await ran(['{"call": "book"}', '{"call": "book", "args": {"seats": 4}}'], filled);
  assert.deepEqual([view.choice, view.iterations, view.slices], [chose("book", { seats: 4 }), 2, 2]);
  const again = lastText(h.model.requests[1]!);
  assert.match(again, /^Your answer cannot be used: args\.seats: is required\n\nWhen nothing/);
  assert.ok(again.endsWith(instruction(filled)));
  assert.deepEqual((await h.messages(view.id)).map((m) => m.role), [
    "user",
    "assistant",
    "user",
    "assistant",
  ]);
  const events = (await h.events(view.id)).map(({ event }) => event.type).filter((type) =>
    !/^slice/.test(type)
  );
  const turn = ["turn_start", "message_start", "message_end", "message_start", "message_end", "turn_end"];
  assert.deepEqual(events, ["agent_start", ...turn, ...turn, "agent_end"]);
});

Deno.test("the second wrong answer fails the run: code, kind, path and position", async () => {
  const { h, view } = await ran(["Hm", 'So {"call": "book", "args": {"seats": "4"}}'], filled);
  assert.deepEqual([view.status, view.error], ["failed", {
    code: "decision",
    message: "The model's answer cannot be used: args.seats: expected integer, received string",
    details: { kind: "type_mismatch", path: "args.seats", position: 3 },
  }]);
  assert.equal(h.model.requests.length, 2);
  const other = await ran(["Hm", "{}"], value);
  assert.deepEqual([other.view.error?.code, other.view.error?.details], ["structured_output", {
    kind: "missing_required",
    path: "value.seats",
    position: 0,
  }]);
});

Deno.test("a value ends the run as its output", async () => {
  const { view } = await ran(["Two.", '```json\n{"seats": 2}\n```'], value);
  assert.deepEqual([view.finishReason, view.output, view.text], [
    "stop",
    { seats: 2 },
    '```json\n{"seats": 2}\n```',
  ]);
});

Deno.test("a model that holds to schemas itself is given the schema instead of words, and is checked all the same", async () => {
  const h = harness(['{"seats": 0}', '{"seats": 2}']);
  Object.assign(h.model, { formats: () => true });
  const { run } = await h.start("Well?", value);
  assert.deepEqual((await h.ended(run)).output, { seats: 2 });
  assert.equal(textOf(h.model.requests[0]!.messages[0]!.content), "Well?");
  assert.deepEqual(h.model.requests[0]!.responseFormat, book);
});

Deno.test("the limit of turns without an answer is a failure, never a silent end", async () => {
  for (const [asked, code] of [[names, "decision"], [value, "structured_output"]] as const) {
    const busy = await ran([calls(["look"]), calls(["look"])], { ...asked, maxIterations: 2 }, [look]);
    assert.deepEqual([busy.view.status, busy.view.error?.code], ["failed", code]);
    assert.match(busy.view.error!.message, /no answer in its 2 turns/);
    const events = (await busy.h.events(busy.view.id)).map(({ event }) => event.type);
    assert.equal(
      events.filter((type) => type === "tool_execution_end").length,
      2,
      "one result for each call",
    );
    assert.deepEqual(events.slice(-2), ["turn_end", "agent_end"]);
    const talking = await ran(["Hm"], { ...asked, maxIterations: 1 });
    assert.deepEqual(
      [talking.view.status, talking.view.error?.code],
      ["failed", code],
      "no turn to ask again",
    );
  }
});

Deno.test("a refusal ends as such; what was cut off is asked for again", async () => {
  const refused = await ran([{ content: [{ type: "text", text: "approve" }], stopReason: "refusal" }], names);
  assert.deepEqual([refused.view.finishReason, refused.view.choice], ["refusal", undefined]);
  const cut = await ran([
    { content: [{ type: "text", text: "approve" }], stopReason: "length" },
    "approve all",
  ], names);
  assert.deepEqual([cut.view.finishReason, cut.view.choice], ["choice", chose("approve all")]);
  assert.match(lastText(cut.h.model.requests[1]!), /limit of output/);
});

Deno.test("mail goes before a decision and before the question whether it is one", async () => {
  for (
    const [first, kind] of [["approve", "steering"], ["Hm", "steering"], ["approve", "follow_up"]] as const
  ) {
    const h: Harness = harness([async () => {
      await h.pawl.send("local", run, kind, "One more thing");
      return first;
    }, "send back"]);
    const { run } = await h.start("Well?", names);
    const view = await h.ended(run);
    assert.deepEqual(view.choice, chose("send back"));
    assert.equal(lastText(h.model.requests[1]!), "One more thing");
    assert.equal(h.model.requests.length, 2);
  }
});

Deno.test("mail at the limit does not cost the choice; its successor is asked the same", async () => {
  const h: Harness = harness([async () => {
    await h.pawl.send("local", run, "follow_up", "And now?");
    return "approve";
  }, "send back"]);
  const { run } = await h.start("Well?", { ...names, maxIterations: 1 });
  const view = await h.ended(run);
  assert.deepEqual([view.finishReason, view.choice], ["choice", chose("approve")]);
  assert.deepEqual((await h.ended(view.successor!)).choice, chose("send back"));
  assert.equal(lastText(h.model.requests[1]!), `And now?\n\n${instruction(names)}`);
});

Deno.test("what no model could be asked for is refused, and so is a prompt with other choices than the run's", async () => {
  const h = harness([]);
  const refused: [Settings, RegExp][] = [
    [{ choices: [] }, /^choices: expected one at least/],
    [{ choices: {} }, /^choices: expected one at least/],
    [{ choices: ["a", "a"] }, /twice/],
    [{ choices: ["a", " "] }, /in one line, got " "/],
    [{ choices: { "a\nb": {} } }, /in one line/],
    [{ choices: { pick: { type: "string" } } }, /^choices\.pick: /],
    [{ responseFormat: { type: "array" } }, /^response_format: /],
    [{ ...names, ...value }, /^response_format: .*choice or with a value/],
  ];
  for (const [settings, message] of refused) {
    await assert.rejects(h.start("Go", settings), { code: "bad_input", message }, JSON.stringify(settings));
  }
  h.loseDeliveries();
  await h.start("Go", names, { thread: "t" });
  await assert.rejects(h.start("Go", filled, { thread: "t" }), { code: "conflict", message: /^choices: / });
  await assert.rejects(h.start("Go", value, { thread: "t" }), {
    code: "conflict",
    message: /^response_format: /,
  });
  await h.start("Go on", names, { thread: "t" });
});

/** A store for which the process dies at its n-th claim or commit, before or after that is written. */
function dyingStore(time: VirtualTime, n: number, when: "before" | "after") {
  let count = 0, dead = false;
  const fate = async <T>(body: () => Promise<T>): Promise<T> => {
    const fatal = ++count === n;
    dead ||= fatal && when === "before";
    const answer = dead ? undefined : await body();
    dead ||= fatal;
    if (dead) throw new Error("The process is gone");
    return answer!;
  };
  const store = sqliteStore(":memory:", { clock: time });
  const { claim, commit } = store;
  store.claim = (...args) => {
    dead = false;
    return fate(() => claim.apply(store, args));
  };
  store.commit = (...args) => fate(() => commit.apply(store, args));
  return { store, met: () => count >= n };
}

Deno.test("cut off before or after any claim or commit, it is asked once more, once", async () => {
  for (const when of ["before", "after"] as const) {
    for (let n = 1, more = true; more; n++) {
      const time = new VirtualTime(), { store, met } = dyingStore(time, n, when);
      const says = (request: ModelRequest) => /cannot be used/.test(lastText(request)) ? "approve" : "Hm";
      const h = harness(says, { budget: { turns: 1 }, time, store });
      const { run } = await h.start("Well?", names);
      const view = await h.ended(run), label = `${when} ${n}`;
      assert.deepEqual([view.choice, view.iterations], [chose("approve"), 2], label);
      const { entries } = (await store.read(`local~${view.thread}`, { from: 0 }))!;
      const kinds = entries.map((entry) => decode(entry).kind);
      for (const kind of ["reask", "end"]) assert.equal(kinds.filter((k) => k === kind).length, 1, label);
      more = met();
      assert.ok(more || n > 4, "it has died at some");
    }
  }
});
