/** Answers of models and tools that are empty, impossible or made up; end to end (CASES A). */
import assert from "node:assert/strict";
import { calls } from "./support/model_server.ts";
import { scene } from "./support/scene.ts";

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`A22 what is empty or blank is never sent as text, and a silent tool's result can be seen (${wire})`, async () => {
    await using it = await scene(wire, [
      calls(["echo", { kind: "empty" }]),
      { text: [""], ...calls(["echo", { kind: "blank" }]) },
      { text: [" ", "\n"] },
      { text: [] },
      "ok",
    ]);
    const { id, thread } = await it.service.start({ content: "Go" });
    assert.equal((await it.service.ended(id)).status, "completed");
    const blank = await it.service.start({ content: "And?", thread });
    assert.equal((await it.service.ended(blank.id)).status, "completed");
    const last = await it.service.start({ content: "Still?", thread });
    assert.equal((await it.service.ended(last.id)).text, "ok");
    // The vendor refuses empty text wherever it stands.
    assert.equal(it.model.requests.length, 5);
    assert.deepEqual(it.model.requests[4]!.results.map(({ text }) => text), ["(no output)", "(no output)"]);
    // Anthropic's neighbouring user messages are one.
    const asked = it.model.requests[4]!.turns.filter(({ role }) => role === "user").map(({ text }) => text);
    assert.equal(asked.join(""), "GoAnd?Still?");
  });
}

Deno.test("A24 a model that stops for tool calls and sends none is asked a few times, then the run fails and says so", async () => {
  await using it = await scene("openai-chat", [{ text: [""], stop: "tool_calls" }]);
  const { id, thread } = await it.service.start({ content: "Go" });
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.error.code], ["failed", "empty"]);
  assert.match(run.error.message, /tool calls but sent none/);
  assert.ok(it.model.requests.length <= 5, `${it.model.requests.length} requests`);
  const messages = await it.service.messages(id);
  assert.deepEqual(messages.map(({ role }) => role), ["user"]);
  assert.equal((await it.service.request("GET", `/threads/${thread}/messages`)).json.messages.length, 1);
});

Deno.test("A24 a text that ends as if calls followed is an answer", async () => {
  await using it = await scene("openai-chat", [{ text: ["Done"], stop: "tool_calls" }]);
  const { id } = await it.service.start({ content: "Go" });
  assert.deepEqual(
    [(await it.service.ended(id)).text, it.model.requests.length],
    ["Done", 1],
  );
});

const odd = [
  "undefined",
  "null",
  "bigint",
  "cycle",
  "function",
  "symbol",
  "nan",
  "map",
  "half",
  "nul",
  "long",
  "throws",
];

for (const wire of ["openai-chat", "anthropic"] as const) {
  Deno.test(`A28 whatever a tool returns becomes a result that is stored, sent and read again (${wire})`, async () => {
    await using it = await scene(wire, [
      calls(...odd.map((kind): [string, object] => ["echo", { kind }])),
      "ok",
    ]);
    const { id, thread } = await it.service.start({ content: "Go" });
    assert.equal((await it.service.ended(id)).text, "ok");
    const results = it.model.requests[1]!.results;
    assert.equal(results.length, odd.length);
    for (const [n, { text }] of results.entries()) assert.ok(text.trim(), `${odd[n]} is empty`);
    const said = Object.fromEntries(odd.map((kind, n) => [kind, results[n]!]));
    assert.deepEqual([said.bigint!.text, said.nan!.text, said.map!.text], ['{"n":"12"}', "NaN", "[[1,2]]"]);
    for (const kind of ["cycle", "function", "symbol", "throws"]) assert.ok(said[kind]!.isError, kind);
    assert.ok(said.half!.text.startsWith("x") && said.half!.text.endsWith("y"));

    const before = (await it.service.request("GET", `/runs/${id}/messages?limit=200`)).text;
    await it.service.kill9();
    await it.service.restart();
    assert.equal((await it.service.request("GET", `/runs/${id}/messages?limit=200`)).text, before);
    await it.service.ended((await it.service.start({ content: "more", thread })).id);
    assert.deepEqual(it.model.requests[2]!.results, results);
  });
}

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`A29 a tool that does not exist is a result that names those that do; others still run (${wire})`, async () => {
    const invented: [string, object][] = [
      ["get_wether", {}],
      [
        "multi_tool_use.parallel",
        { tool_uses: [{ recipient_name: "functions.look" }] },
      ],
      ["", {}],
      ["look", {}],
    ];
    await using it = await scene(wire, [calls(...invented), "ok"]);
    const { id } = await it.service.start({ content: "Go", tools: ["look", "calculate"] });
    assert.equal((await it.service.ended(id)).text, "ok");
    const results = it.model.requests[1]!.results;
    assert.equal(results.length, 4);
    for (const { text, isError } of results.slice(0, 3)) {
      assert.ok(isError);
      assert.match(text, /look, calculate/);
    }
    assert.equal(results[3]!.text, "look done");
    const shown = (await it.service.messages(id))[1].content;
    assert.deepEqual(shown.map(({ name }: { name: string }) => name), invented.map(([name]) => name));
  });
}

Deno.test("A29 a model that repeats the same mistake for ever is bounded by its run's limit", async () => {
  await using it = await scene("openai", [calls(["get_wether", {}])]);
  const { id } = await it.service.start({ content: "Go", max_iterations: 4 });
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.finish_reason, it.model.requests.length], [
    "completed",
    "max_iterations",
    4,
  ]);
  assert.match(it.model.requests[3]!.last, /failed 2 times in a row/);
});
