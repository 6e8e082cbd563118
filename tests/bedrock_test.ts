/** What is Bedrock's own: signed requests, its rules for what a history holds, and binary frames. */
import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { bedrock } from "../providers/bedrock.ts";
import { sendable } from "../providers/history.ts";
import { modelFromEnv } from "../providers/mod.ts";
import { InputError } from "../src/errors.ts";
import type { Message } from "../src/message.ts";
import type { ModelReply, ModelRequest } from "../src/model.ts";
import { add, asking, called, callsIn, refusal, replyTo, result, stored, user } from "./contract/model.ts";
import { credentials, delta, ended, event, frame, start, stop } from "./support/bedrock_dialect.ts";
import { byteServer, type Recorded } from "./support/byte_server.ts";
import { dialect, type Frame } from "./support/dialect.ts";
import { faultOf } from "./support/strict.ts";
import { assistant, bodies, call, sent, text } from "./support/transcript.ts";

const each = dialect("bedrock");
const quiet = () => ({ signal: new AbortController().signal, onDelta() {} });
const claude = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3";

async function replied(...chunks: Frame[]): Promise<ModelReply> {
  return (await replyTo(each, { chunks })).reply;
}

/** The body for this model, which its vendor takes. */
function bodyOf(model: string, messages: Message[], more: Partial<ModelRequest> = {}): any {
  const body = bodies.bedrock(model, sendable(asking(messages, more), `bedrock/${model}`));
  const sent = JSON.parse(JSON.stringify(body));
  assert.equal(faultOf("bedrock", sent), undefined);
  return sent;
}

/** The signature by the letter of AWS's description, of the request as it arrived. */
function signatureOf({ method, path, headers, text }: Recorded, secret: string): string {
  const sha = (text: string) => createHash("sha256").update(text).digest("hex");
  const hmac = (key: string | Uint8Array, text: string) => createHmac("sha256", key).update(text).digest();
  const [, scope, signed] = /Credential=[^/]+\/(\S+), SignedHeaders=(\S+), Signature=/.exec(
    headers.get("authorization")!,
  )!;
  const twice = path.split("/").map(encodeURIComponent).join("/");
  const lines = signed!.split(";").map((name) => `${name}:${headers.get(name)}\n`).join("");
  const canonical = [method, twice, "", lines, signed, sha(text)].join("\n");
  const toSign = ["AWS4-HMAC-SHA256", headers.get("x-amz-date"), scope, sha(canonical)].join("\n");
  const key = scope!.split("/").reduce<string | Uint8Array>(hmac, `AWS4${secret}`);
  return hmac(key, toSign).toString("hex");
}

Deno.test("bedrock: each request is signed as AWS describes it, whatever the model's id holds", async () => {
  await using server = byteServer();
  server.play({ chunks: each.frames({ text: ["ok"] }) });
  for (const base of ["", "/", "/gateway"]) {
    for (const id of ["m", claude, profile]) {
      const options = { ...credentials("s3cr/et+"), baseURL: server.url + base };
      await bedrock(`bedrock/${id}`, options).reply(asking([user("é🎉")]), quiet());
      const request = server.requests.at(-1)!;
      assert.equal(
        request.path,
        `${base.replace(/\/$/, "")}/model/${encodeURIComponent(id)}/converse-stream`,
      );
      const authorization = request.headers.get("authorization")!;
      assert.match(authorization, /\/us-east-1\/bedrock\/aws4_request, SignedHeaders=\S*host;\S*x-amz-date/);
      assert.ok(authorization.endsWith(`Signature=${signatureOf(request, "s3cr/et+")}`), request.path);
      assert.match(authorization, /x-amz-security-token/);
      assert.doesNotMatch(request.text + authorization + request.path, /s3cr/);
    }
  }
  assert.notEqual(signatureOf(server.requests[0]!, "other"), signatureOf(server.requests[0]!, "s3cr/et+"));
});

Deno.test("bedrock: a model's or region's name leads to no other place", () => {
  const options = credentials("k");
  for (const id of ["..", "../x", "a?b", "a#b", "a b", "a\ud800", "/a", "a%2F"]) {
    assert.throws(() => bedrock(`bedrock/${id}`, options), (error) => error instanceof InputError, id);
  }
  for (const region of ["evil.example/", "us-east-1.evil.example", "a@b", "US"]) {
    assert.throws(() => bedrock("bedrock/m", { ...options, region }), /us-east-1/);
  }
  for (const id of [claude, profile, "amazon.nova-lite-v1:0"]) bedrock(`bedrock/${id}`, options);
});

Deno.test("bedrock: half a set of keys is named, and keys alone choose no model", () => {
  const half = { AWS_REGION: "us-east-1", AWS_ACCESS_KEY_ID: "a" };
  const whole = { ...half, AWS_SECRET_ACCESS_KEY: "s" };
  assert.throws(
    () => modelFromEnv(half).get("bedrock/m"),
    (error) => error instanceof InputError && /: set AWS_SECRET_ACCESS_KEY$/.test(error.message),
  );
  assert.throws(
    () => modelFromEnv({ ...whole, BEDROCK_BASE_URL: "localhost:1" }).get("bedrock/m"),
    /BEDROCK_BASE_URL: expected/,
  );
  assert.equal(modelFromEnv(whole).get(`bedrock/${claude}`).name, `bedrock/${claude}`);
  assert.equal(modelFromEnv(whole).default, "demo/rules");
});

const talk = [user("go"), assistant([text("So"), call("a"), call("b")]), result("b", "2"), result("a", "1")];

Deno.test("bedrock: calls in the history need a toolConfig, also where no tool is offered (CASES A25)", () => {
  for (const more of [{ tools: [] }, { toolChoice: "none" }, { tools: [], toolChoice: "none" }] as const) {
    const { toolConfig } = bodyOf("m", talk, { ...more, tools: more.toolChoice ? [add] : [] });
    assert.deepEqual(toolConfig.tools.map(({ toolSpec }: any) => toolSpec.name), ["no_tool"]);
    assert.equal(toolConfig.toolChoice, undefined);
    assert.equal(bodyOf("m", [user("go")], more as object).toolConfig, undefined);
  }
  const offered = bodyOf("m", talk).toolConfig;
  assert.deepEqual([offered.tools[0].toolSpec.name, offered.toolChoice], ["add", { auto: {} }]);
});

Deno.test("bedrock: all results of a batch are one message, in the order of its calls (CASES A20, A21)", () => {
  const { messages } = bodyOf("m", [...talk, user("and?")]);
  assert.deepEqual(messages.map(({ role }: any) => role), ["user", "assistant", "user"]);
  assert.deepEqual(messages[2].content, [
    { toolResult: { toolUseId: "a", content: [{ text: "1" }] } },
    { toolResult: { toolUseId: "b", content: [{ text: "2" }] } },
    { text: "and?" },
  ]);
});

Deno.test("bedrock: ids that AWS would refuse are mapped, the same one for call and result (CASES A13)", () => {
  const id = "run:1/é".padEnd(90, "x");
  const { messages } = bodyOf("m", [user("go"), assistant([call(id)]), result(id, "1")]);
  const { toolUseId } = messages[1].content[0].toolUse;
  assert.match(toolUseId, /^[a-zA-Z0-9_-]{1,64}$/);
  assert.equal(messages[2].content[0].toolResult.toolUseId, toolUseId);
});

Deno.test("bedrock: a failed result says so by its status, or by its text to models that know none", () => {
  const failed = [user("go"), assistant([call("a")]), result("a", "boom", true)];
  const last = (model: string) => bodyOf(model, failed).messages[2].content[0].toolResult;
  for (const model of [claude, "us.amazon.nova-pro-v1:0"]) {
    assert.deepEqual([last(model).status, last(model).content], ["error", [{ text: "boom" }]]);
  }
  for (const model of ["meta.llama4-scout-17b-instruct-v1:0", profile]) {
    assert.deepEqual([last(model).status, last(model).content], [undefined, [{ text: "Error: boom" }]]);
  }
});

Deno.test("bedrock: a tool without a description has none, since an empty one is refused", () => {
  const { toolConfig } = bodyOf("m", [user("go")], { tools: [{ ...add, description: " " }] });
  assert.ok(!("description" in toolConfig.tools[0].toolSpec));
});

Deno.test("bedrock: images travel as bytes or lie in S3; of others the model is told", () => {
  const image = (mediaType: string, more: object) => ({ type: "image" as const, mediaType, ...more });
  const blocks = [
    image("image/jpg", { data: "iVBORw0KGgo=" }),
    image("image/webp", { url: "s3://bucket/a.webp" }),
    image("image/png", { url: "https://example.com/a.png" }),
    image("image/tiff", { data: "AAAA" }),
  ];
  const { messages } = bodyOf("m", [{ role: "user", id: "u", content: blocks, at: 1 }]);
  assert.deepEqual(messages[0].content, [
    { image: { format: "jpeg", source: { bytes: "iVBORw0KGgo=" } } },
    { image: { format: "webp", source: { s3Location: { uri: "s3://bucket/a.webp" } } } },
    { text: "(an image at https://example.com/a.png)" },
    { text: "(an image of type image/tiff)" },
  ]);
});

Deno.test("bedrock: the cache's marks stand after system, tools and the user's last two messages", () => {
  const marks = (model: string) => {
    const body = bodyOf(model, [...talk, assistant([call("c")]), result("c", "3")], { system: "Be brief" });
    const marked = (list: any[]) => list.some(({ cachePoint }) => cachePoint?.type === "default");
    const messages = body.messages.map(({ content }: any) => Boolean(content.at(-1).cachePoint));
    return [marked(body.system), marked(body.toolConfig.tools), messages];
  };
  assert.deepEqual(marks(claude), [true, true, [false, false, true, false, true]]);
  assert.deepEqual(marks("us.amazon.nova-lite-v1:0"), [true, false, [false, false, true, false, true]]);
  const none = [false, false, [false, false, false, false, false]];
  for (
    const model of ["anthropic.claude-3-haiku-20240307-v1:0", "mistral.mistral-large-2402-v1:0", profile]
  ) {
    assert.deepEqual(marks(model), none, model);
  }
});

Deno.test("bedrock: but for the marks, a request begins with the very bytes of the one before", () => {
  const unmarked = (history: Message[]) =>
    JSON.stringify(bodyOf(claude, history)).replaceAll(',{"cachePoint":{"type":"default"}}', "");
  const before = unmarked(talk), after = unmarked([...talk, assistant([call("c")]), result("c", "3")]);
  assert.ok(after.startsWith(before.slice(0, -2)), after);
});

Deno.test("bedrock: who holds a model to a schema: Claude's newer models, to a closed one", () => {
  const closed = { type: "object", properties: {}, required: [], additionalProperties: false };
  const formats = (model: string, schema: any) =>
    bedrock(`bedrock/${model}`, credentials("k")).formats!(schema, []);
  for (const model of [claude, "anthropic.claude-opus-5-v1:0", "global.anthropic.claude-haiku-4-5-v1:0"]) {
    assert.deepEqual([formats(model, closed), formats(model, { type: "object" })], [true, false], model);
  }
  for (const model of ["anthropic.claude-sonnet-4-20250514-v1:0", "amazon.nova-lite-v1:0", profile]) {
    assert.equal(formats(model, closed), false, model);
  }
});

Deno.test("bedrock: reasoning goes back byte for byte, in its place; unsigned it is only kept to read (CASES A15)", async () => {
  const message = stored(
    each.model(""),
    await replied(
      delta(0, { reasoningContent: { text: "h" } }),
      delta(0, { reasoningContent: { text: "m" } }),
      delta(0, { reasoningContent: { signature: "c2" } }),
      delta(0, { reasoningContent: { signature: "ln+/=" } }),
      stop(0),
      delta(1, { reasoningContent: { redactedContent: "q80=" } }),
      delta(1, { reasoningContent: { redactedContent: "7w==" } }),
      stop(1),
      delta(2, { reasoningContent: { text: "unsigned" } }),
      stop(2),
      start(3, { toolUseId: "t", name: "add" }),
      stop(3),
      ...ended("tool_use"),
    ),
  );
  assert.deepEqual(message.content.map(({ type }) => type), [
    "thinking",
    "thinking",
    "thinking",
    "tool_call",
  ]);
  const { messages } = sent("bedrock", [user("go"), message, result("run-1-0", "1")]);
  assert.deepEqual(messages[1].content.slice(0, -1), [
    { reasoningContent: { reasoningText: { text: "hm", signature: "c2ln+/=" } } },
    { reasoningContent: { redactedContent: "q83v" } },
  ]);
});

Deno.test("bedrock: blocks that share an index, and tools that Bedrock runs itself (CASES B22)", async () => {
  const reply = await replied(
    start(0, { toolUseId: "a", name: "add" }),
    delta(0, { toolUse: { input: '{"a":' } }),
    delta(0, { toolUse: { input: "1}" } }),
    start(0, { toolUseId: "b", name: "add" }),
    stop(0),
    start(1, { toolUseId: "s", name: "nova_grounding", type: "server_tool_use" }),
    delta(1, { toolUse: { input: '{"q":1}' } }),
    stop(1),
    delta(2, { text: "So" }),
    ...ended("tool_use"),
  );
  assert.deepEqual(called(reply), [["add", { a: 1 }], ["add", {}]]);
  assert.deepEqual(callsIn(reply).map(({ raw, invalid }) => [raw, invalid]), [
    [undefined, undefined],
    [undefined, undefined],
  ]);
  assert.deepEqual(reply.content.at(-1), { type: "text", text: "So" });
});

Deno.test("bedrock: its reasons to stop (CASES B17, B19, B20, B21)", async () => {
  const reasons = [
    ["end_turn", "stop", undefined],
    ["stop_sequence", "stop", undefined],
    ["max_tokens", "length", undefined],
    ["model_context_window_exceeded", "length", undefined],
    ["guardrail_intervened", "refusal", "guardrail_intervened"],
    ["content_filtered", "refusal", "content_filtered"],
    ["brand_new", "other", "brand_new"],
  ] as const;
  for (const [reason, stopReason, stopDetail] of reasons) {
    const reply = await replied(delta(0, { text: "Hm" }), ...ended(reason));
    assert.deepEqual([reply.stopReason, reply.stopDetail], [stopReason, stopDetail]);
  }
  for (const reason of ["malformed_model_output", "malformed_tool_use"]) {
    const error = await refusal(replied(start(0, { name: "add" }), stop(0), ...ended(reason)));
    assert.deepEqual([error.code, error.retryable], ["empty", true]);
    assert.match(error.message, new RegExp(reason));
  }
});

Deno.test("bedrock: what its cache read and wrote is input too", async () => {
  const usage = { inputTokens: 1, outputTokens: 2, cacheReadInputTokens: 30, cacheWriteInputTokens: 400 };
  const reply = await replied(delta(0, { text: "a" }), ...ended("end_turn", usage));
  assert.deepEqual(reply.usage, { input: 431, output: 2, cached: 30, written: 400 });
});

Deno.test("bedrock: a damaged frame is a failure, wherever a byte has flipped; half a frame as well", async () => {
  const whole = event("contentBlockDelta", { contentBlockIndex: 0, delta: { text: "Hello there" } });
  // The first byte is not here: with it the stream would be no stream of frames at all.
  for (let at = 1; at < whole.length; at += 3) {
    const damaged = whole.slice();
    damaged[at]! ^= 1;
    const error = await refusal(replied(damaged, ...ended("end_turn")));
    assert.equal(error.code, "network", `byte ${at}: ${error.message}`);
  }
  const [reason, counts] = ended("end_turn");
  for (const chunks of [[whole.slice(0, 3)], [whole.slice(0, -1)], [whole, reason!.slice(0, -2)]]) {
    assert.equal((await refusal(replied(...chunks))).code, "network");
  }
  // Two in one chunk, cut anywhere.
  const all = await new Blob([whole, reason!, counts!]).bytes();
  for (let at = 1; at < all.length; at += 7) {
    const reply = await replied(all.slice(0, at), all.slice(at));
    assert.deepEqual(reply.content, [{ type: "text", text: "Hello there" }]);
  }
});

Deno.test("bedrock: what it does not know in a stream is passed over", async () => {
  const reply = await replied(
    frame({ "event-type": "initial-response", "message-type": "event" }, ""),
    delta(0, { citation: { title: "x" } }),
    delta(0, { text: "Hi" }),
    event("brandNew", { a: 1 }),
    ...ended("end_turn"),
  );
  assert.deepEqual(reply.content, [{ type: "text", text: "Hi" }]);
});
