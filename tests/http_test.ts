import assert from "node:assert/strict";
import { InputError, RetryableError } from "../src/errors.ts";
import { setUp } from "./support/face.ts";

Deno.test("POST /runs hands every field to the verb in its own words, and what is the caller's unchanged", async () => {
  const { verbs, call } = setUp();
  const mine = JSON.parse(
    String.raw`{"snake_case":{"camelCase":[1,{"__proto__":{"a":1}}],"1":[]},"":"\u0000\ud800"}`,
  );
  const answer = await call("POST", "/runs", {
    content: [{ type: "text", text: "hi" }, { type: "image", media_type: "image/png", data: "AAAA" }],
    thread: "t:1",
    model: "demo/rules",
    system: "s",
    tools: ["weather", { name: "ask", description: "d", parameters: mine }],
    toolset: "x",
    tools_source: "cron",
    tools_allow: ["weather"],
    tools_deny: [],
    tool_choice: { type: "function", name: "weather" },
    tool_choice_scope: "every",
    parallel_tool_calls: false,
    max_iterations: 400,
    choices: { a_b: mine },
    steering: "after_batch",
    steering_mode: "all",
    follow_up_mode: "one_at_a_time",
    if_busy: "interrupt",
    callback_url: "https://example.com/done",
    metadata: mine,
    limits: { max_tokens_total: 5 },
    source: "webhook",
  });
  assert.deepEqual([answer.status, answer.headers.get("location")], [202, "/runs/t:1~r0"]);
  assert.deepEqual(answer.json, { id: "t:1~r0", thread: "t:1", status: "queued", message_id: "m1" });
  assert.deepEqual(verbs.calls, [{
    verb: "start",
    tenant: "a",
    args: [
      [{ type: "text", text: "hi" }, { type: "image", mediaType: "image/png", data: "AAAA" }],
      {
        model: "demo/rules",
        system: "s",
        tools: ["weather", { name: "ask", description: "d", parameters: mine }],
        toolset: "x",
        toolsSource: "cron",
        toolsAllow: ["weather"],
        toolsDeny: [],
        toolChoice: { type: "function", name: "weather" },
        toolChoiceScope: "every",
        parallelToolCalls: false,
        maxIterations: 400,
        choices: { a_b: mine },
        steering: "after_batch",
        steeringMode: "all",
        followUpMode: "one_at_a_time",
        callbackUrl: "https://example.com/done",
        metadata: mine,
        limits: { maxTokensTotal: 5 },
      },
      { thread: "t:1", ifBusy: "interrupt", source: "webhook" },
    ],
  }]);
  const run = await call("GET", "/runs/t:1~r0");
  assert.equal(JSON.stringify(run.json.metadata), JSON.stringify(mine));
});

Deno.test("what was not given is not handed on as undefined", async () => {
  const { verbs, call } = setUp();
  await call("POST", "/runs", { content: "hi" });
  const [content, settings, options] = verbs.calls[0]!.args;
  assert.deepEqual([content, Object.keys(settings as object), Object.keys(options as object)], [
    "hi",
    [],
    [],
  ]);
});

Deno.test("GET /runs/{id} shows the whole run in snake case, and waits when it is told to", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a", {
    status: "waiting",
    finishReason: "stop",
    text: "t",
    choice: { name: "a", args: { a_b: [] } },
    output: { a_b: null },
    error: { code: "auth", message: "m" },
    waitingFor: [{ toolCallId: "c1", name: "pay", for: "approval", until: 9, reason: "why" }],
    successor: "s",
  });
  const { json } = await call("GET", `/runs/${id}?wait=20`);
  assert.deepEqual(json, {
    id,
    thread: "t0",
    status: "waiting",
    finish_reason: "stop",
    text: "t",
    choice: { name: "a", args: { a_b: [] } },
    output: { a_b: null },
    error: { code: "auth", message: "m" },
    iterations: 0,
    slices: 0,
    usage: { input: 0, output: 0 },
    waiting_for: [{ tool_call_id: "c1", name: "pay", for: "approval", until: 9, reason: "why" }],
    successor: "s",
    created_at: 1,
    updated_at: 2,
    metadata: {},
  });
  assert.deepEqual(verbs.calls, [{ verb: "settled", tenant: "a", args: [id, 20_000] }]);
  for (const query of ["wait=61", "wait=-1", "wait=x", "wait=1.5", "wiat=3"]) {
    assert.equal((await call("GET", `/runs/${id}?${query}`)).status, 400, query);
  }
});

Deno.test("messages come in snake case, with arguments as they are and without what is only for a vendor", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  const args = { camelCase: { snake_case: [] } };
  verbs.transcript = [
    {
      role: "user",
      id: "u",
      content: [{ type: "image", mediaType: "image/png", url: "https://x/" }],
      source: "cron",
      at: 1,
    },
    {
      role: "assistant",
      id: "m",
      content: [
        { type: "thinking", text: "hm", vendor: "anthropic", opaque: "secret" },
        { type: "tool_call", id: "c", name: "n", arguments: args, opaque: "secret" },
      ],
      stopReason: "tool_calls",
      model: "demo/rules",
      usage: { input: 1, output: 2 },
      at: 2,
    },
    { role: "tool", id: "r", toolCallId: "c", toolName: "n", content: "ok", isError: false, at: 3 },
  ];
  const expected = {
    messages: [
      {
        role: "user",
        id: "u",
        content: [{ type: "image", media_type: "image/png", url: "https://x/" }],
        source: "cron",
        at: 1,
      },
      {
        role: "assistant",
        id: "m",
        content: [
          { type: "thinking", text: "hm", vendor: "anthropic" },
          { type: "tool_call", id: "c", name: "n", arguments: args },
        ],
        stop_reason: "tool_calls",
        model: "demo/rules",
        usage: { input: 1, output: 2 },
        at: 2,
      },
      { role: "tool", id: "r", tool_call_id: "c", tool_name: "n", content: "ok", is_error: false, at: 3 },
    ],
  };
  assert.deepEqual(
    (await call("GET", `/runs/${id}/messages?after=5&limit=7&frame=3.0/facts`)).json,
    expected,
  );
  assert.deepEqual((await call("GET", "/threads/t0/messages")).json, expected);
  assert.deepEqual(verbs.calls.map(({ args }) => args), [
    [{ run: id }, { after: "5", limit: 7, frame: "3.0/facts" }],
    [{ thread: "t0" }, {}],
  ]);
});

Deno.test("GET /runs pages; its parameters are checked", async () => {
  const { verbs, call } = setUp();
  verbs.given("a");
  verbs.given("b");
  const { json } = await call("GET", "/runs?status=queued&limit=5&after=n1");
  assert.deepEqual([json.runs.length, json.next], [1, "n2"]);
  assert.deepEqual(verbs.calls[0]!.args, [{ status: "queued", limit: 5, after: "n1" }]);
  for (const query of ["status=done", "limit=0", "limit=101"]) {
    assert.equal((await call("GET", `/runs?${query}`)).status, 400, query);
  }
});

Deno.test("steering and follow-ups are accepted for the run that will see them", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  for (const [path, kind] of [["steering", "steering"], ["follow_ups", "follow_up"]]) {
    const answer = await call("POST", `/runs/${id}/${path}`, { content: "stop" });
    assert.equal(answer.status, 202);
    assert.deepEqual(answer.json, { run: id, thread: "t0", status: "queued", message_id: "m9" });
    assert.deepEqual(verbs.calls.at(-1)!.args, [id, kind, "stop", undefined]);
  }
});

Deno.test("F11 cancel is 202, again 202, and 409 for a run that ended otherwise; it needs no body", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  for (const body of [undefined, "{}"]) {
    const answer = await call("POST", `/runs/${id}/cancel`, body);
    assert.deepEqual([answer.status, answer.json.status], [202, "cancelled"]);
  }
  const ended = verbs.given("a", { status: "completed" });
  assert.equal((await call("POST", `/runs/${ended.id}/cancel`)).status, 409);
});

Deno.test("tool results are 202, a repeat 200, a closed call 409, one that never was 404", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  const answer = async (body: object) => (await call("POST", `/runs/${id}/tool_results`, body)).status;
  assert.equal(await answer({ tool_call_id: "c", content: "x", is_error: true }), 202);
  assert.deepEqual(verbs.calls.at(-1)!.args, [id, "c", { content: "x", isError: true }, undefined]);
  assert.equal(await answer({ tool_call_id: "c", approve: false, reason: "no" }), 202);
  assert.deepEqual(verbs.calls.at(-1)!.args, [id, "c", { approve: false, reason: "no" }, undefined]);
  assert.equal(await answer({ tool_call_id: "again", content: "x" }), 200);
  assert.equal(await answer({ tool_call_id: "closed", content: "x" }), 409);
  assert.equal(await answer({ tool_call_id: "never", content: "x" }), 404);
  assert.equal(await answer({ tool_call_id: "c", content: "x", approve: true }), 400);
  assert.equal(await answer({ tool_call_id: "c" }), 400);
});

Deno.test("DELETE /threads/{id} is 204 without a body", async () => {
  const { verbs, call } = setUp();
  const answer = await call("DELETE", "/threads/t1");
  assert.deepEqual([answer.status, answer.text], [204, ""]);
  assert.deepEqual(verbs.calls, [{ verb: "delete", tenant: "a", args: ["t1"] }]);
});

Deno.test("GET /tools shows the menu with JSON Schema, whichever way a tool gave its parameters", async () => {
  const { verbs, call } = setUp();
  const { json } = await call("GET", "/tools?toolset=x&source=cron");
  assert.deepEqual(verbs.calls[0]!.args, [{ toolset: "x", toolsSource: "cron" }]);
  assert.deepEqual(json.tools.map((tool: { name: string; replay: string }) => [tool.name, tool.replay]), [
    ["weather", "never"],
    ["plain", "safe"],
  ]);
  assert.deepEqual(json.tools[0].parameters.properties, { city: { type: "string" } });
  assert.deepEqual(json.tools.map((tool: { deferred?: boolean }) => tool.deferred), [undefined, true]);
  assert.deepEqual(json.removed, [{ name: "gone", layer: "availability", reason: "not set: KEY" }]);
});

Deno.test("failures have one shape; what is not the caller's fault shows nothing of the inside", async () => {
  const { verbs, call, reported } = setUp();
  const start = async (failure: unknown) => {
    verbs.failure = failure;
    const { status, json, headers } = await call("POST", "/runs", { content: "x" });
    return [status, json.error, headers.get("retry-after")];
  };
  const details = { given: "m" };
  assert.deepEqual(await start(new InputError("conflict", "Busy", details)), [409, {
    code: "conflict",
    message: "Busy",
    details,
  }, null]);
  assert.deepEqual((await start(new InputError("too_many", "Full")))[0], 429);
  assert.deepEqual(await start(new InputError("unavailable", "Later")), [503, {
    code: "unavailable",
    message: "Later",
  }, "1"]);
  assert.equal(reported.length, 0);

  const retryable = await start(new RetryableError("redis://secret", 2500));
  assert.deepEqual([retryable[0], retryable[2]], [503, "3"]);
  for (const thrown of [new Error("secret"), "secret", null]) {
    const [status, error] = await start(thrown);
    assert.deepEqual([status, (error as { code: string }).code], [500, "internal"]);
    assert.ok(!JSON.stringify(error).includes("secret"));
  }
  assert.equal(reported.length, 4);
});

Deno.test("a path that is not there is 404, a method that it does not take 405, in the shape of all failures", async () => {
  const { call } = setUp();
  const absent = await call("GET", "/nope");
  assert.deepEqual([absent.status, absent.json.error.code], [404, "not_found"]);
  for (
    const [method, path, allow] of [
      ["PUT", "/runs", "POST, GET"],
      ["GET", "/threads/t1", "DELETE"],
      ["DELETE", "/runs/x", "GET"],
      ["GET", "/runs/x/cancel", "POST"],
      ["POST", "/healthz", "GET"],
      ["GET", "/slices", "POST"],
    ] as const
  ) {
    const answer = await call(method, path);
    assert.deepEqual([answer.status, answer.json.error.code, answer.headers.get("allow")], [
      405,
      "method_not_allowed",
      allow,
    ]);
  }
});

Deno.test("deliveries are 401 unless something verifies them", async () => {
  const { call } = setUp();
  const seen: string[] = [];
  const verified = setUp({
    deliveries: (request) => (seen.push(new URL(request.url).pathname), Promise.resolve(new Response("ok"))),
  });
  for (const path of ["/slices", "/slices/failed", "/sweep"]) {
    assert.equal((await call("POST", path, "{}")).status, 401);
    assert.equal((await verified.call("POST", path, "{}")).text, "ok");
  }
  assert.deepEqual(seen, ["/slices", "/slices/failed", "/sweep"]);
});

Deno.test("the front page, the description and the health check need no key", async () => {
  const { app } = setUp();
  const page = await app.request("/");
  assert.match(await page.text(), /href="\/openapi.json"/);
  assert.deepEqual(await (await app.request("/healthz")).json(), { ok: true });
  assert.equal((await (await app.request("/openapi.json")).json()).openapi, "3.1.0");
});
