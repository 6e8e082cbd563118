import assert from "node:assert/strict";
import { maxBytes, maxDepth } from "../src/http/body.ts";
import { setUp } from "./support/face.ts";

Deno.test("a wrong field is refused with its path, what was expected and what came", async (t) => {
  const { verbs, call } = setUp();
  const cases: [unknown, string][] = [
    [{}, "content: expected string or array"],
    [{ content: 3 }, "content: expected string or array"],
    [{ content: "" }, "content: expected string to have >=1 characters"],
    [{ content: [{ type: "text" }] }, "content[0].text: expected string, received undefined"],
    [{ content: [{ type: "video" }] }, "content[0].type: "],
    [
      { content: [{ type: "image", media_type: "image/png" }] },
      "content[0]: expected exactly one of data and url",
    ],
    [{ content: "x", max_iterations: 1.5 }, "max_iterations: expected int, received number"],
    [{ content: "x", max_iterations: "9" }, "max_iterations: expected number, received string"],
    [{ content: "x", max_iteratoins: 9 }, "max_iteratoins: there is no such field"],
    [{ content: "x", metadata: [] }, "metadata: expected object"],
    [{ content: "x", tools: [{ name: "a", parameters: {} }] }, "tools[0].description: expected string"],
    [{ content: "x", tools: ["no spaces"] }, "tools[0]: expected 1 to 64 of"],
    [
      { content: "x", tool_choice: "forced" },
      'tool_choice: expected "auto" or "required" or "none" or object',
    ],
    [
      { content: "x", tool_choice: { type: "function", name: "a", b: 1 } },
      "tool_choice.b: there is no such field",
    ],
    [{ content: "x", callback_url: "ftp://x" }, "callback_url: expected an http or https URL"],
    [[], "body: expected object, received array"],
    ["null", "body: expected object, received null"],
    ['{"content":"x","__proto__":{"model":"m"}}', "__proto__: there is no such field"],
  ];
  for (const [body, expected] of cases) {
    await t.step(expected, async () => {
      const answer = await call("POST", "/runs", body as object);
      assert.equal(answer.status, 400);
      assert.equal(answer.json.error.code, "bad_input");
      assert.ok(answer.json.error.message.includes(expected), answer.json.error.message);
    });
  }
  assert.deepEqual(verbs.calls, []);
});

Deno.test("max_iterations outside of 1..50 is the loop's to clamp", async () => {
  const { call } = setUp();
  for (const max_iterations of [-3, 0, 1, 50, 51]) {
    assert.equal((await call("POST", "/runs", { content: "x", max_iterations })).status, 202);
  }
});

Deno.test("a body that is no JSON, or not in UTF-8, is 400", async () => {
  const { call } = setUp();
  for (const body of ["{", "content=hi", '{"content":"x"} {}', new Uint8Array([0x22, 0xff, 0x22])]) {
    const answer = await call("POST", "/runs", body);
    assert.deepEqual([answer.status, answer.json.error.code], [400, "bad_input"]);
  }
});

Deno.test("H07 JSON nested deeper than the limit is 400, also where it is a hundred thousand deep", async () => {
  const { call } = setUp();
  const nested = (depth: number) =>
    `{"content":"]]}\\"","metadata":{"a":${"[".repeat(depth - 2)}${"]".repeat(depth - 2)}}}`;
  assert.equal((await call("POST", "/runs", nested(maxDepth))).status, 202);
  for (const depth of [maxDepth + 1, 100_000]) {
    const answer = await call("POST", "/runs", nested(depth));
    assert.equal(answer.status, 400);
    assert.match(answer.json.error.message, /nests deeper than 100/);
  }
  assert.equal((await call("POST", "/runs", "[".repeat(100_000))).status, 400);
});

Deno.test("H07 a body above the limit is 413 wherever a body is read, and is not read further", async (t) => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  for (
    const path of [
      "/runs",
      ...["steering", "follow_ups", "cancel", "tool_results"].map((end) => `/runs/${id}/${end}`),
    ]
  ) {
    await t.step(path, async () => {
      let sent = 0, cancelled = false;
      const endless = new ReadableStream<Uint8Array>({
        pull: (controller) => (sent += 65_536, controller.enqueue(new Uint8Array(65_536).fill(0x20))),
        cancel: () => void (cancelled = true),
      });
      const answer = await call("POST", path, endless, { "content-length": "10" });
      assert.deepEqual([answer.status, answer.json.error.code, cancelled], [413, "too_large", true]);
      assert.ok(sent <= maxBytes + 3 * 65_536, `${sent} bytes were read`);
    });
  }
  assert.deepEqual(verbs.calls, []);
});

Deno.test("H07 without a key nothing of the body is read", async () => {
  const { app } = setUp();
  for (const path of ["/runs", "/runs/x~1/cancel", "/slices", "/slices/failed", "/sweep"]) {
    let pulls = 0;
    const body = new ReadableStream({
      pull: (controller) => (pulls++, controller.enqueue(new Uint8Array(65_536))),
    }, { highWaterMark: 0 });
    const answer = await app.request(path, { method: "POST", body });
    assert.deepEqual([answer.status, pulls], [401, 0]);
    await answer.body?.cancel();
  }
});

Deno.test("H07 two hundred megabytes in chunks over a socket are cut off", async () => {
  const { app } = setUp();
  await using server = Deno.serve({ port: 0, onListen: () => {} }, (request) => app.fetch(request));
  let sent = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (sent >= 200e6) return controller.close();
      sent += 65_536;
      controller.enqueue(new Uint8Array(65_536));
    },
  });
  const status = await fetch(`http://127.0.0.1:${server.addr.port}/runs`, {
    method: "POST",
    body,
    headers: { authorization: "Bearer key-a" },
  }).then(async (answer) => (await answer.body?.cancel(), answer.status), () => "cut off");
  assert.ok(status === 413 || status === "cut off", String(status));
  assert.ok(sent < 50e6, `${sent} bytes were taken`);
});

Deno.test("an Idempotency-Key goes to the verb with a hash of method, path and the body's bytes", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  const send = async (path: string, body: string) => {
    await call("POST", path, body, { "idempotency-key": "k-1" });
    const last = verbs.calls.at(-1)!.args.at(-1) as { key?: { name: string; hash: string } };
    return (last.key ?? last) as { name: string; hash: string };
  };
  const first = await send("/runs", '{"content":"x"}');
  assert.equal(first.name, "k-1");
  assert.match(first.hash, /^[0-9a-f]{64}$/);
  assert.deepEqual(await send("/runs", '{"content":"x"}'), first);
  const others = [
    await send("/runs", '{"content": "x"}'),
    await send(`/runs/${id}/steering`, '{"content":"x"}'),
    await send(`/runs/${id}/follow_ups`, '{"content":"x"}'),
    await send(`/runs/${id}/tool_results`, '{"tool_call_id":"c","content":"x"}'),
  ];
  assert.equal(new Set([first, ...others].map((key) => key.hash)).size, 5);
});

Deno.test("an Idempotency-Key that is empty, too long or not plain is 400", async () => {
  const { verbs, call } = setUp();
  for (const key of ["", "a b", "x".repeat(256), "ä"]) {
    const answer = await call("POST", "/runs", { content: "x" }, { "idempotency-key": key });
    assert.deepEqual([answer.status, /^Idempotency-Key: /.test(answer.json.error.message)], [400, true]);
  }
  assert.equal(
    (await call("POST", "/runs", { content: "x" }, { "idempotency-key": "x".repeat(255) })).status,
    202,
  );
  assert.equal(verbs.calls.length, 1);
});

Deno.test("H08 ids of threads outside of the alphabet are 400 and reach no verb", async () => {
  const { verbs, call } = setUp();
  const bad = [
    "../../x",
    "a*",
    "",
    "x".repeat(10_240),
    "%2e%2e",
    "а",
    "a\u0000",
    "a~b",
    "a\n",
    "{a}",
    "a/b",
    "x".repeat(129),
  ];
  for (const thread of bad) {
    assert.equal((await call("POST", "/runs", { content: "x", thread })).status, 400, thread);
    if (thread === "") continue;
    const path = `/threads/${encodeURIComponent(thread)}`;
    assert.equal((await call("DELETE", path)).status, 400, thread);
    assert.equal((await call("GET", `${path}/messages`)).status, 400, thread);
  }
  assert.deepEqual(verbs.calls, []);
  // Allowed, and handed on as it is: how it becomes a key is the store's matter.
  assert.equal((await call("POST", "/runs", { content: "x", thread: "a:queue" })).status, 202);
});

Deno.test("H05 another tenant's run is 404 on every route, the same as one that is not there", async () => {
  const { verbs, call } = setUp();
  const { id } = verbs.given("a");
  const asB = { authorization: "Bearer key-b" };
  const attempts = (id: string): [string, string, object?][] => [
    ["GET", `/runs/${id}`],
    ["GET", `/runs/${id}?wait=1`],
    ["GET", `/runs/${id}/messages`],
    ["GET", `/runs/${id}/events`],
    ["POST", `/runs/${id}/steering`, { content: "x" }],
    ["POST", `/runs/${id}/follow_ups`, { content: "x" }],
    ["POST", `/runs/${id}/cancel`, {}],
    ["POST", `/runs/${id}/tool_results`, { tool_call_id: "c", approve: true }],
  ];
  const absent = attempts("t0~nope");
  for (const [index, [method, path, body]] of attempts(id).entries()) {
    const theirs = await call(method, path, body, { ...asB, "last-event-id": "0.0" });
    const none = await call(absent[index]![0], absent[index]![1], body, asB);
    assert.deepEqual([theirs.status, theirs.json], [404, none.json], path);
  }
  assert.deepEqual([verbs.calls, verbs.watching], [[], 0]);
  // A run named beside the path is not heard at all.
  assert.equal((await call("GET", `/runs?run_id=${id}`, undefined, asB)).status, 400);
});
