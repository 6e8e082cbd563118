/** The model drivers against their contract, and against a mock that other people wrote. */
import assert from "node:assert/strict";
import { LLMock } from "@copilotkit/aimock";
import { callsOf, type Message } from "../src/message.ts";
import { retryAfterMs } from "../providers/failure.ts";
import { modelFromEnv } from "../providers/mod.ts";
import { InputError } from "../src/errors.ts";
import { asking, modelContract, refusal, replyTo, result, stored, user } from "./contract/model.ts";
import { byteServer } from "./support/byte_server.ts";
import { dialect, dialects } from "./support/dialect.ts";
import { strictProxy } from "./support/strict.ts";

for (const each of dialects) modelContract(each.wire, each);

for (const each of dialects) {
  Deno.test(`${each.wire}: a talk of three turns with a mock vendor`, async () => {
    const mock = new LLMock({ port: 0 });
    await mock.start();
    await using proxy = strictProxy(each.wire, mock.url);
    try {
      const results = (n: number) => (request: any) =>
        request.messages.filter((message: any) => message.role === "tool").length === n;
      const call = (a: number) => ({ name: "add", arguments: JSON.stringify({ a }) });
      mock.on({ predicate: results(0) }, { content: "First one.", toolCalls: [call(1)] });
      mock.on({ predicate: results(1) }, { toolCalls: [call(2), call(3)] });
      mock.on({ predicate: results(3) }, { content: "All added." });

      const model = each.model(each.wire.startsWith("openai") ? `${proxy.url}/v1` : proxy.url);
      const messages: Message[] = [user("add them")];
      const seen: unknown[] = [];
      for (let turn = 1; turn <= 3; turn++) {
        const { signal } = new AbortController();
        const reply = await model.reply(asking(messages), { signal, onDelta() {} });
        const message = stored(model, reply, turn);
        const calls = callsOf(message);
        messages.push(message, ...calls.map((call) => result(call.id, "done")));
        seen.push([reply.stopReason, ...calls.map((call) => call.arguments.a)]);
      }
      assert.deepEqual(seen, [["tool_calls", 1], ["tool_calls", 2, 3], ["stop"]]);
      assert.deepEqual(proxy.faults, []);
    } finally {
      await mock.stop();
    }
  });
}

Deno.test("retry-after: seconds, fractions, dates; rubbish counts as nothing (CASES E02)", () => {
  const now = Date.parse("Wed, 21 Oct 2026 07:28:00 GMT");
  const forms: [Record<string, string>, number | undefined][] = [
    [{ "retry-after": "2" }, 2000],
    [{ "retry-after": "0.5" }, 500],
    [{ "retry-after": "Wed, 21 Oct 2015 07:28:00 GMT" }, 0],
    [{ "retry-after": "Wed, 21 Oct 2026 07:28:02 GMT" }, 2000],
    [{ "retry-after": "-3" }, undefined],
    [{ "retry-after": "soon" }, undefined],
    [{ "retry-after": "99999999" }, 99999999000],
    [{ "retry-after-ms": "300", "retry-after": "9" }, 300],
    [{ "retry-after-ms": "x", "retry-after": "9" }, 9000],
    [{}, undefined],
  ];
  for (const [headers, ms] of forms) assert.equal(retryAfterMs(new Headers(headers), now), ms);
});

Deno.test("openai: an exhausted quota is no rate limit (CASES E04)", async () => {
  for (const each of [dialect("openai"), dialect("openai-chat")]) {
    await using server = byteServer();
    server.play({
      status: 429,
      headers: { "content-type": "application/json", "retry-after": "1382400" },
      chunks: [each.error("insufficient_quota", "resets in 16 days")],
    });
    const { signal } = new AbortController();
    const error = await refusal(each.model(server.url).reply(asking(), { signal, onDelta() {} }));
    assert.deepEqual([error.code, error.retryable, error.retryAfterMs], ["quota", false, undefined]);
  }
});

Deno.test("an overflowing context is told from an error that mentions one (CASES E06)", async () => {
  const answers = [
    ["openai", 400, "context_length_exceeded", "too long", "context_overflow"],
    ["openai-chat", 400, "x", "This model's maximum context length is 8192 tokens", "context_overflow"],
    [
      "anthropic",
      400,
      "invalid_request_error",
      "prompt is too long: 201000 tokens > 200000 maximum",
      "context_overflow",
    ],
    ["anthropic", 413, "request_too_large", "too large", "context_overflow"],
    ["openai", 401, "invalid_api_key", "invalid token context", "auth"],
    ["anthropic", 400, "invalid_request_error", "Your credit balance is too low", "quota"],
    ["openai", 400, "content_policy_violation", "no", "content_policy"],
  ] as const;
  for (const [wire, status, code, message, expected] of answers) {
    const each = dialect(wire);
    const script = {
      status,
      headers: { "content-type": "application/json" },
      chunks: [each.error(code, message)],
    };
    assert.equal((await refusal(replyTo(each, script))).code, expected, message);
  }
});

Deno.test("images go out by data and by address, also those of results", async () => {
  const png = { type: "image", mediaType: "image/png", data: "iVBORw0KGgo=" } as const;
  const far = { type: "image", mediaType: "image/png", url: "https://example.com/a.png" } as const;
  const looked = { type: "tool_call", name: "add", arguments: {} } as const;
  for (const each of dialects) {
    const reply = {
      content: [looked, looked],
      stopReason: "tool_calls",
      usage: { input: 0, output: 0 },
    } as const;
    const messages: Message[] = [
      { role: "user", id: "u", content: [{ type: "text", text: "look" }, png, far], at: 1 },
      stored(each.model(""), { ...reply, content: [...reply.content] }),
      { ...result("run-1-0", ""), content: [png, { type: "text", text: "seen" }] },
      { ...result("run-1-1", "", true), content: [{ type: "text", text: "blurred" }, png] },
    ];
    const { body } = await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, asking(messages));
    const sent = JSON.stringify(body);
    // Claude takes no images in failed results.
    assert.equal(
      sent.split("iVBORw0KGgo=").length - 1,
      /anthropic|bedrock/.test(each.wire) ? 2 : 3,
      each.wire,
    );
    assert.match(sent, /https:\/\/example\.com\/a\.png/);
  }
});

Deno.test("openai: reasoning is only asked of models that reason", async () => {
  await using server = byteServer();
  const each = dialect("openai");
  server.play({ chunks: each.frames({ text: ["ok"] }) });
  const { openai } = await import("../providers/openai.ts");
  for (const name of ["gpt-4.1", "gpt-5.4-mini"]) {
    const { signal } = new AbortController();
    await openai(`openai/${name}`, { apiKey: "k", baseURL: server.url }).reply(asking(), {
      signal,
      onDelta() {},
    });
  }
  assert.deepEqual(server.requests.map(({ body }) => [body.model, body.include, body.store]), [
    ["gpt-4.1", undefined, false],
    ["gpt-5.4-mini", ["reasoning.encrypted_content"], false],
  ]);
});

Deno.test("a failed result is marked in each vendor's way", async () => {
  for (const each of dialects) {
    const call = { type: "tool_call", name: "add", arguments: {} } as const;
    const reply = { content: [call], stopReason: "tool_calls", usage: { input: 0, output: 0 } } as const;
    const history = [
      user("hi"),
      stored(each.model(""), { ...reply, content: [call] }),
      result("run-1-0", "boom", true),
    ];
    const { body } = await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, asking(history));
    const sent = (body.messages ?? body.input ?? body.contents).at(-1);
    if (each.wire === "anthropic") assert.equal(sent.content[0].is_error, true);
    else if (each.wire === "gemini") {
      assert.deepEqual(sent.parts[0].functionResponse.response, { error: "boom" });
    } else if (each.wire === "bedrock") {
      // Only some models know a word for it.
      assert.deepEqual(sent.content[0].toolResult.content, [{ text: "Error: boom" }]);
    } else assert.equal(sent.content ?? sent.output, "Error: boom");
  }
});

Deno.test("the environment names the model: PAWL_MODEL, else the first vendor with a key, else the demonstration", () => {
  const key = { OPENAI_API_KEY: "k" }, other = { ANTHROPIC_API_KEY: "k" }, third = { GEMINI_API_KEY: "k" };
  assert.match(modelFromEnv({ ...key, ...other }).default, /^openai\/./);
  assert.match(modelFromEnv({ ...other, ...third }).default, /^anthropic\/./);
  assert.match(modelFromEnv(third).default, /^gemini\/./);
  assert.equal(modelFromEnv({ OPENAI_API_KEY: "" }).default, "demo/rules");
  assert.equal(modelFromEnv({ ...key, PAWL_MODEL: "anthropic/x" }).default, "anthropic/x");
  const models = modelFromEnv({ ...key, ...other, ...third });
  for (
    const name of ["openai/a", "openai-chat/a/b", "anthropic/a", "gemini/a", "demo/rules", models.default]
  ) {
    assert.equal(models.get(name).name, name);
  }
});

Deno.test("a model without key, or of no vendor, is refused with what to set", () => {
  const refused = [
    ["openai/a", /set OPENAI_API_KEY/],
    ["openai-chat/a", /set OPENAI_API_KEY/],
    ["anthropic/a", /set ANTHROPIC_API_KEY/],
    ["gemini/a", /set GEMINI_API_KEY/],
    ["bedrock/a", /set AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY$/],
    ["openai/", /openai\/…/],
    ["gpt-5", /openai\/…, anthropic\/…/],
    ["constructor/x", /PAWL_MODEL/],
    ["", /PAWL_MODEL/],
  ] as const;
  for (const [name, message] of refused) {
    assert.throws(() => modelFromEnv({}).get(name), (error) => {
      assert(error instanceof InputError && error.code === "bad_input");
      assert.match(error.message, message);
      return true;
    });
  }
});

Deno.test("base addresses come from the environment, and the key goes to them alone", async () => {
  await using server = byteServer();
  const models = modelFromEnv({
    OPENAI_API_KEY: "k-o",
    OPENAI_BASE_URL: `${server.url}/v1`,
    ANTHROPIC_API_KEY: "k-a",
    ANTHROPIC_BASE_URL: server.url,
    GEMINI_API_KEY: "k-g",
    GEMINI_BASE_URL: `${server.url}/`,
    AWS_REGION: "eu-west-1",
    AWS_ACCESS_KEY_ID: "AKIDEXAMPLE",
    AWS_SECRET_ACCESS_KEY: "k-b",
    BEDROCK_BASE_URL: server.url,
  });
  for (const each of dialects) {
    server.play({ chunks: each.frames({ text: ["ok"] }) });
    const { signal } = new AbortController();
    await models.get(`${each.wire}/m`).reply(asking(), { signal, onDelta() {} });
  }
  assert.deepEqual(
    server.requests.map((
      { path, headers },
    ) => [
      path,
      (headers.get("authorization") ?? headers.get("x-goog-api-key"))?.replace(/\/\d{8}|,.*/g, ""),
    ]),
    [
      ["/v1/chat/completions", "Bearer k-o"],
      ["/v1/responses", "Bearer k-o"],
      ["/v1/messages", "Bearer k-a"],
      ["/v1beta/models/m:streamGenerateContent", "k-g"],
      [
        "/model/m/converse-stream",
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/eu-west-1/bedrock/aws4_request",
      ],
    ],
  );
});
