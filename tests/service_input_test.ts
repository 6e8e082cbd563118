/** Input that is wrong, strange or another tenant's is refused, names what is wrong, and leaves nothing behind (CASES H05, H07, H08). */
import assert from "node:assert/strict";
import { calls } from "./support/model_server.ts";
import { scene } from "./support/scene.ts";
import { startService, until } from "./support/service.ts";

const ids = [
  "../../x",
  "..%2f..%2fx",
  "a*",
  "a?b",
  "[a]",
  "a b",
  "a/b",
  "a~b",
  "a\\b",
  "a\nb",
  "a\u0000b",
  "%2e%2e",
  "\u0430\u0431", // Cyrillic, looks like "ab"
  "e\u0301",
  "\u{1F600}",
  "\ud800",
  "x".repeat(129),
  "x".repeat(10_000),
];

Deno.test("H08 ids of threads that are paths, patterns or no plain text are refused, and nothing is stored", async () => {
  await using service = await startService();
  for (const thread of ["", ...ids]) {
    const { status, json } = await service.request("POST", "/runs", { content: "Go", thread });
    assert.deepEqual([status, json.error.code], [400, "bad_input"], JSON.stringify(thread));
    assert.match(json.error.message, /^thread: /);
  }
  for (const id of ids) {
    const named = encodeURIComponent(id.toWellFormed());
    for (const [method, path] of [["GET", `/threads/${named}/messages`], ["DELETE", `/threads/${named}`]]) {
      const { status, text } = await service.request(method!, path!);
      assert.ok(status === 400 || status === 404, `${method} ${path}: ${status} ${text}`);
    }
    for (const run of [named, `${named}~abc`, `a~${named}`]) {
      assert.equal((await service.request("GET", `/runs/${run}`)).status, 404, run);
      assert.equal((await service.request("POST", `/runs/${run}/cancel`)).status, 404, run);
    }
  }
  assert.deepEqual((await service.request("GET", "/runs")).json, { runs: [] });
});

Deno.test("H08 ids that look like each other or like parts of the store are threads of their own", async () => {
  await using it = await scene("openai-chat", ({ turns }) => turns.map(({ text }) => text).join());
  const threads = [
    "a",
    "A",
    "a:queue",
    "a:log",
    "a:",
    ":a",
    "a.b",
    "..",
    ".",
    "-",
    "a-b",
    "a_b",
    "local",
    "__proto__",
    "constructor",
    "x".repeat(128),
  ];
  const runs: string[] = [];
  for (const thread of threads) runs.push((await it.service.start({ content: `in ${thread}`, thread })).id);
  assert.equal(new Set(runs).size, threads.length);
  for (const [n, run] of runs.entries()) assert.equal((await it.service.ended(run)).text, `in ${threads[n]}`);
  for (const thread of ["a:queue", "a"]) {
    assert.equal((await it.service.request("DELETE", `/threads/${thread}`)).status, 204);
  }
  const left = (await it.service.request("GET", "/runs?limit=100")).json.runs;
  assert.equal(left.length, threads.length - 2);
});

const wrong: [field: string, body: unknown][] = [
  ["content", {}],
  ["content", { content: "" }],
  ["content", { content: 7 }],
  ["content", { content: [] }],
  ["content[0].text", { content: [{ type: "text" }] }],
  ["content[0]", { content: [{ type: "image", media_type: "image/png" }] }],
  // Once in the transcript, a vendor would refuse these with every request.
  ["content[0].data", { content: [{ type: "image", media_type: "image/png", data: "no base64!" }] }],
  ["content[0].data", { content: [{ type: "image", media_type: "image/png", data: "" }] }],
  ["content[0].media_type", { content: [{ type: "image", media_type: "image/bmp", data: "AAAA" }] }],
  ["content[0].type", { content: [{ type: "video" }] }],
  ["promt", { content: "Go", promt: "x" }],
  ["model", { content: "Go", model: "acme/m" }],
  ["model", { content: "Go", model: 1 }],
  ["tools[0]", { content: "Go", tools: ["nothing"] }],
  ["tools[0].parameters", { content: "Go", tools: [{ name: "x", description: "" }] }],
  ["tools[0]", { content: "Go", tools: [{ name: "x", description: "", parameters: { type: "string" } }] }],
  ["tools[0].name", {
    content: "Go",
    tools: [{ name: "a b", description: "", parameters: { type: "object" } }],
  }],
  ["tools[1]", {
    content: "Go",
    tools: ["look", { name: "look", description: "", parameters: { type: "object" } }],
  }],
  ["toolset", { content: "Go", toolset: "most" }],
  ["tool_choice", { content: "Go", tool_choice: "always" }],
  ["tool_choice", { content: "Go", tool_choice: { type: "function", name: "nothing" } }],
  ["tool_choice", { content: "Go", tools: [], tool_choice: "required" }],
  ["max_iterations", { content: "Go", max_iterations: "5" }],
  ["max_iterations", { content: "Go", max_iterations: 1.5 }],
  ["if_busy", { content: "Go", if_busy: "wait" }],
  ["metadata", { content: "Go", metadata: [] }],
  ["limits.usd", { content: "Go", limits: { usd: 1 } }],
  ["callback_url", { content: "Go", callback_url: "file:///etc/hosts" }],
  ["source", { content: "Go", source: "a b" }],
  ["parallel_tool_calls", { content: "Go", parallel_tool_calls: "no" }],
  ["body", []],
  ["body", "null"],
  ["body", '"text"'],
  ["body", '{"content":'],
  ["body", "[".repeat(100_000)],
];

Deno.test("what is wrong with a prompt is told with the field's name, and nothing is stored", async () => {
  await using service = await startService();
  for (const [field, body] of wrong) {
    const { status, json, text } = await service.request("POST", "/runs", body);
    const what = JSON.stringify(body).slice(0, 200);
    assert.deepEqual([status, json?.error?.code], [400, "bad_input"], `${what}: ${text}`);
    assert.ok(json.error.message.includes(field), `${what}: ${json.error.message}`);
  }
  const large = await service.request("POST", "/runs", { content: "x".repeat(1_100_000) });
  assert.deepEqual([large.status, large.json.error.code], [413, "too_large"]);
  for (const key of ["", "a b", "x".repeat(256)]) {
    const { status, json } = await service.request("POST", "/runs", { content: "Go" }, {
      "idempotency-key": key,
    });
    assert.equal(status, 400);
    assert.match(json.error.message, /Idempotency-Key/);
  }
  for (const query of ["limit=0", "limit=x", "status=open", "page=2"]) {
    const { status, json } = await service.request("GET", `/runs?${query}`);
    assert.equal(status, 400, query);
    assert.ok(json.error.message.includes(query.split("=")[0]!), json.error.message);
  }
  assert.deepEqual((await service.request("GET", "/runs")).json, { runs: [] });
  assert.doesNotMatch(service.output, /error|at file:/i);
});

Deno.test("what is wrong with a message to a run is told with the field's name, and the run does not hear it", async () => {
  await using it = await scene("anthropic", [calls(["work"]), "ok"]);
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  const bad: [string, string, unknown][] = [
    ["steering", "content", {}],
    ["steering", "content", { content: "" }],
    ["steering", "contents", { content: "x", contents: "y" }],
    ["follow_ups", "content", { content: null }],
    ["tool_results", "tool_call_id", { content: "x" }],
    ["tool_results", "content", { tool_call_id: "x", content: 1 }],
    ["tool_results", "approve", { tool_call_id: "x", approve: "yes" }],
    ["cancel", "reason", { reason: "x" }],
  ];
  for (const [route, field, body] of bad) {
    const { status, json } = await it.service.request("POST", `/runs/${id}/${route}`, body);
    assert.equal(status, 400, JSON.stringify(body));
    assert.ok(json.error.message.includes(field), json.error.message);
  }
  hold.release();
  assert.equal((await it.service.ended(id)).text, "ok");
  assert.deepEqual(it.model.requests[1]!.turns.map(({ role }) => role), ["user", "assistant", "tool"]);
});

Deno.test("H05 a tenant sees nothing of another's runs by any route, and changes nothing", async () => {
  await using it = await scene("openai", ({ last }) => last === "Go" ? calls(["ask"]) : last, {
    PAWL_API_KEYS: "ann:key-a,bob:key-b",
  });
  const ask = { name: "ask", description: "", parameters: { type: "object" } };
  const [ann, bob] = ["key-a", "key-b"].map((key) => ({ authorization: `Bearer ${key}` }));
  const { id, thread } = await it.service.start({ content: "Go", thread: "t", tools: [ask] }, ann);
  const run = await until(async () => {
    const { json } = await it.service.request("GET", `/runs/${id}`, undefined, ann);
    return json.status === "waiting" && json;
  });
  const [{ tool_call_id }] = run.waiting_for;
  const tries: [string, string, unknown?][] = [
    ["GET", `/runs/${id}`],
    ["GET", `/runs/${id}?wait=5`],
    ["GET", `/runs/${id}/messages`],
    ["GET", `/runs/${id}/events`],
    ["GET", `/runs/${id}/events?after=0.0`],
    ["POST", `/runs/${id}/steering`, { content: "x" }],
    ["POST", `/runs/${id}/follow_ups`, { content: "x" }],
    ["POST", `/runs/${id}/cancel`, {}],
    ["POST", `/runs/${id}/tool_results`, { tool_call_id, content: "x" }],
    ["GET", `/threads/${thread}/messages`],
    ["DELETE", `/threads/${thread}`],
    ["GET", `/threads/ann~${thread}/messages`],
    ["GET", `/runs/ann~${id}`],
  ];
  for (const [method, path, body] of tries) {
    const { status, text } = await it.service.request(method, path, body, bob);
    assert.ok(
      status === 404 || (path.includes("/threads/ann~") && status === 400),
      `${method} ${path}: ${status}`,
    );
    assert.ok(!text.includes("Go"), path);
    const stranger = await it.service.request(method, path, body, { authorization: "Bearer key-c" });
    assert.equal(stranger.status, 401);
    assert.equal((await it.service.request(method, path, body)).status, 401);
  }
  assert.deepEqual((await it.service.request("GET", "/runs", undefined, bob)).json.runs, []);

  // The same id is another thread to him, and the same key another request.
  const key = { "idempotency-key": "k" };
  const his = await it.service.start({ content: "mine", thread: "t" }, { ...bob, ...key });
  const hers = await it.service.start({ content: "hers", thread: "u" }, { ...ann, ...key });
  for (const [{ id }, headers, text] of [[his, bob, "mine"], [hers, ann, "hers"]] as const) {
    await until(async () => {
      const { json } = await it.service.request("GET", `/runs/${id}?wait=1`, undefined, headers);
      return json.text === text;
    });
  }
  assert.equal((await it.service.request("GET", `/runs/${id}`, undefined, ann)).json.status, "waiting");
});
