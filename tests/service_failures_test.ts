/** Failures of vendors as they are seen from outside: a service of its own, a vendor on a port, and what a client gets of it. */
import assert from "node:assert/strict";
import { type ByteServer, byteServer, type Script } from "./support/byte_server.ts";
import { dialect, event as frame } from "./support/dialect.ts";
import { eventClient } from "./support/event_client.ts";
import { gate } from "./support/scene.ts";
import { startService, until } from "./support/service.ts";
import { strictly, type Wire } from "./support/strict.ts";

const key = "SEKRIT-q1";
const vendors: { wire: Wire; env: (url: string) => Record<string, string> }[] = [
  { wire: "openai", env: (url) => ({ OPENAI_API_KEY: key, OPENAI_BASE_URL: url }) },
  { wire: "openai-chat", env: (url) => ({ OPENAI_API_KEY: key, OPENAI_BASE_URL: url }) },
  { wire: "anthropic", env: (url) => ({ ANTHROPIC_API_KEY: key, ANTHROPIC_BASE_URL: url }) },
  { wire: "gemini", env: (url) => ({ GEMINI_API_KEY: key, GEMINI_BASE_URL: url }) },
];

const json = (status: number, body: string, headers: Record<string, string> = {}): Script => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  chunks: [body],
});

/** When each request came. */
function timed(server: ByteServer, ...scripts: Script[]): number[] {
  const at: number[] = [];
  server.play(...scripts.map((script) => () => {
    at.push(performance.now());
    return script;
  }));
  return at;
}

Deno.test("E02 a client waits as the vendor asked, whatever form that had, and never in a tight loop", async () => {
  await using vendor = byteServer();
  await using service = await startService({ ...vendors[1]!.env(vendor.url), PAWL_MODEL: "openai-chat/m" });
  const chat = dialect("openai-chat"), ok = { chunks: chat.frames({ text: ["ok"] }) };
  const forms: [Record<string, string>, number][] = [
    [{ "retry-after": "1" }, 1000],
    [{ "retry-after-ms": "300" }, 300],
    [{ "retry-after": new Date(Date.now() - 60_000).toUTCString() }, 0],
    [{ "retry-after": "-3" }, 1000],
    [{ "retry-after": "soon" }, 1000],
    [{ "x-ratelimit-reset-requests": "600ms", "x-ratelimit-remaining-requests": "0" }, 600],
  ];
  for (const [headers, least] of forms) {
    const at = timed(vendor, json(429, chat.error("rate_limit_exceeded", "slow down"), headers), ok);
    const run = await service.ended((await service.start({ content: "Go" })).id);
    assert.deepEqual([run.text, run.iterations, at.length], ["ok", 1, 2], JSON.stringify(headers));
    const wait = at[1]! - at[0]!;
    assert.ok(
      wait >= least - 5 && wait < least + 5_000,
      `${JSON.stringify(headers)}: waited ${wait.toFixed(0)} ms`,
    );
  }
  const at = timed(
    vendor,
    json(429, chat.error("rate_limit_exceeded", "slow"), { "retry-after": "99999999" }),
  );
  const run = await service.ended((await service.start({ content: "Go" })).id);
  assert.deepEqual([run.status, run.error.code, at.length], ["failed", "rate_limit", 1]);
});

for (const { wire, env } of vendors) {
  Deno.test(`E04 E05 E06 ${wire}: quota, a wrong request, a wrong key and what is too long fail at once and clearly`, async () => {
    await using vendor = byteServer();
    await using service = await startService({ ...env(vendor.url), PAWL_MODEL: `${wire}/m` });
    const { error } = dialect(wire);
    const failures: [Script, string][] = [
      [json(429, error("insufficient_quota", "resets in 16 days"), { "retry-after": "1382400" }), "quota"],
      [json(400, error("INVALID_ARGUMENT", "no such field")), "bad_request"],
      [json(401, error("invalid_api_key", `invalid token context ${key}`)), "auth"],
      [json(400, error("context_length_exceeded", "too long")), "context_overflow"],
    ];
    for (const [script, code] of failures) {
      // Gemini has no word for a quota that is spent.
      if (wire === "gemini" && code === "quota") continue;
      const before = vendor.requests.length;
      vendor.play(script);
      const { id } = await service.start({ content: "Go" });
      const run = await service.ended(id);
      assert.deepEqual([run.status, run.error.code], ["failed", code]);
      assert.equal(vendor.requests.length - before, 1, code);
      using client = eventClient(`${service.url}/runs/${id}/events`);
      await until(() => client.got.at(-1)?.event === "agent_end");
      assert.equal(client.got.at(-1)!.data.error.code, code);
      assert.doesNotMatch(JSON.stringify([run, client.got]), /SEKRIT/);
    }
    assert.doesNotMatch(service.output, /SEKRIT/);
  });

  Deno.test(`E06 ${wire}: a long thread that is always too long is asked for a bounded number of times, and keeps nothing of it`, async () => {
    await using vendor = byteServer(strictly(wire));
    await using service = await startService({ ...env(vendor.url), PAWL_MODEL: `${wire}/m` });
    const { error, frames } = dialect(wire);
    vendor.play({ chunks: frames({ text: ["Hello ".repeat(500)] }) });
    const { thread, id: first } = await service.start({ content: "Tell me ".repeat(300) });
    await service.ended(first);
    vendor.play(json(400, error("context_length_exceeded", "too long")));
    const { id } = await service.start({ thread, content: "Go on" });
    const run = await service.ended(id);
    assert.deepEqual([run.status, run.error.code], ["failed", "context_overflow"]);
    assert.ok(vendor.requests.length - 1 <= 3, `asked ${vendor.requests.length - 1} times`);
    const said = (await service.request("GET", `/threads/${thread}/messages`)).json.messages;
    assert.deepEqual(said.map(({ role }: { role: string }) => role), ["user", "assistant", "user"]);
  });
}

Deno.test("a listener ends with the right text after an attempt that broke in the middle, also if it comes back in between", async () => {
  const { frames, error } = dialect("openai-chat");
  const all = frames({ text: ["right ", "text"] });
  await using vendor = byteServer();
  await using service = await startService({ ...vendors[1]!.env(vendor.url), PAWL_MODEL: "openai-chat/m" });
  for (const leaves of [false, true]) {
    const torn = gate(), second = gate(), before = vendor.requests.length;
    const wrong = frames({ text: ["wrong ", "words "] }).slice(0, -3);
    vendor.play(
      // That somebody watches is learned when the lease is prolonged, while this is waited for.
      json(429, error("rate_limit_exceeded", "slow"), { "retry-after": "5" }),
      { chunks: [...wrong, torn.promise], then: "cut" },
      { chunks: [...all.slice(0, 2), second.promise, ...all.slice(2)] },
    );
    const { id } = await service.start({ content: "Go" });
    const url = `${service.url}/runs/${id}/events`;
    using early = eventClient(url);
    await until(() => early.got.some(({ event }) => event === "message_update"));
    if (leaves) early.close();
    torn.resolve();
    await until(() => vendor.requests.length === before + 3);
    using late = leaves ? eventClient(url, { lastEventId: early.got.at(-1)!.id }) : early;
    await until(() => late.got.findLast(({ event }) => event === "resync" || event === "message_retry"));
    second.resolve();
    await until(() => late.got.at(-1)?.event === "agent_end");
    assert.equal((await service.ended(id)).text, "right text");

    const shown = new Map<string, string>();
    for (const { event, data } of [...(leaves ? early.got : []), ...late.got]) {
      if (event === "message_start" && data.message.role === "assistant") shown.set(data.message.id, "");
      if (event === "message_update" && data.delta.text) {
        assert.ok(shown.has(data.message_id), "an update belongs to a message that has begun");
        shown.set(data.message_id, shown.get(data.message_id)! + data.delta.text);
      }
      if (event === "message_retry") shown.set(data.message_id, "");
      if (event === "resync") shown.clear();
      if (event === "message_end" && data.message.role === "assistant") {
        const text = data.message.content.map((block: { text?: string }) => block.text ?? "").join("");
        const pieces = shown.get(data.message.id);
        assert.ok(!pieces || pieces === text, `${pieces}`);
        shown.set(data.message.id, text);
      }
    }
    assert.deepEqual([...shown.values()], ["right text"]);
  }
});

Deno.test("B22 what the vendor searched itself is nothing to run: one request, and the run is done", async () => {
  await using vendor = byteServer();
  await using service = await startService({ ...vendors[0]!.env(vendor.url), PAWL_MODEL: "openai/m" });
  const search = {
    type: "web_search_call",
    id: "ws_1",
    status: "completed",
    action: { type: "search", query: "x" },
  };
  const said = {
    type: "message",
    id: "msg_0",
    role: "assistant",
    content: [{ type: "output_text", text: "Found it", annotations: [] }],
  };
  const usage = { input_tokens: 1, output_tokens: 1 };
  vendor.play({
    chunks: [
      frame({ type: "response.output_item.done", output_index: 0, item: search }),
      frame({ type: "response.output_item.done", output_index: 1, item: said }),
      frame({ type: "response.completed", response: { status: "completed", output: [search, said], usage } }),
    ],
  });
  const run = await service.ended((await service.start({ content: "Go" })).id);
  assert.deepEqual([run.status, run.text, run.iterations, vendor.requests.length], [
    "completed",
    "Found it",
    1,
    1,
  ]);
});
