/** What every model driver promises (`src/model.ts`), whatever its vendor's wire looks like. */
import assert from "node:assert/strict";
import type { AssistantMessage, Message, ToolCall, ToolMessage } from "../../src/message.ts";
import { type Delta, type Model, ModelError, type ModelReply, type ModelRequest } from "../../src/model.ts";
import { byteServer, type Script } from "../support/byte_server.ts";
import type { Dialect } from "../support/dialect.ts";
import { strictly } from "../support/strict.ts";

export const add = {
  name: "add",
  description: "Adds",
  parameters: { type: "object", properties: { a: { type: "number" } }, additionalProperties: true },
};

export function user(content: string): Message {
  return { role: "user", id: "m-user", content, at: 1 };
}

export function asking(messages: Message[] = [user("hi")], more: Partial<ModelRequest> = {}): ModelRequest {
  return { messages, tools: [add], toolChoice: "auto", ...more };
}

/** The reply as the loop stores it. */
export function stored(model: Model, reply: ModelReply, turn = 1): AssistantMessage {
  let index = 0;
  const content = reply.content.map((block) =>
    block.type === "tool_call" ? { ...block, id: `run-${turn}-${index++}` } : block
  );
  return { role: "assistant", id: `m-${turn}`, model: model.name, at: 1, ...reply, content };
}

export function result(toolCallId: string, content: string, isError = false): ToolMessage {
  return { role: "tool", id: `r-${toolCallId}`, toolCallId, toolName: "add", content, isError, at: 1 };
}

export function callsIn(reply: ModelReply): Omit<ToolCall, "id">[] {
  return reply.content.filter((block) => block.type === "tool_call");
}

/** Names and arguments of the calls in a reply. */
export function called(reply: ModelReply): unknown[] {
  return callsIn(reply).map((call) => [call.name, call.arguments]);
}

export async function refusal(promise: Promise<unknown>): Promise<ModelError> {
  const error = await promise.then(() => assert.fail("expected a ModelError"), (error) => error);
  assert(error instanceof ModelError, String(error));
  return error;
}

/** Serves the scripts behind the vendor's own checks and asks for one reply. */
export async function replyTo(
  dialect: Dialect,
  script: Script,
  request: ModelRequest = asking(),
): Promise<{ reply: ModelReply; deltas: Delta[]; body: any }> {
  await using server = byteServer(strictly(dialect.wire));
  server.play(script);
  const deltas: Delta[] = [];
  const reply = await dialect.model(server.url).reply(request, {
    signal: new AbortController().signal,
    onDelta: (delta) => deltas.push(delta),
  });
  return { reply, deltas, body: server.requests[0]!.body };
}

const quiet = () => ({ signal: new AbortController().signal, onDelta: () => {} });
const usage = { input: 12, output: 7, cached: 4 };

export function modelContract(vendor: string, dialect: Dialect): void {
  const { frames } = dialect;
  const test = (name: string, run: () => Promise<void>) => Deno.test(`${vendor}: ${name}`, run);

  test("text comes whole and in deltas, with its usage", async () => {
    const { reply, deltas } = await replyTo(dialect, { chunks: frames({ text: ["Hel", "lo"] }) });
    assert.deepEqual(reply, {
      content: [{ type: "text", text: "Hello" }],
      stopReason: "stop",
      usage: { ...usage, ...dialect.counts },
    });
    assert.deepEqual(deltas, [{ type: "text", text: "Hel" }, { type: "text", text: "lo" }]);
  });

  test("one call with text before it", async () => {
    const said = { text: ["So:"], calls: [{ id: "v1", name: "add", args: ['{"a":', "1}"] }] };
    const { reply, deltas } = await replyTo(dialect, { chunks: frames(said) });
    assert.equal(reply.stopReason, "tool_calls");
    const [text, call, ...rest] = reply.content;
    assert.deepEqual(text, { type: "text", text: "So:" });
    assert(call?.type === "tool_call" && rest.length === 0);
    assert.deepEqual([call.name, call.arguments, call.raw, call.invalid], [
      "add",
      { a: 1 },
      undefined,
      undefined,
    ]);
    const seen = deltas.filter((delta) => delta.type === "tool_call");
    assert.deepEqual(seen.map(({ index }) => index), seen.map(() => 0));
    assert.deepEqual([seen[0]!.name, seen[0]!.text], ["add", ""]);
    assert.equal(seen.map(({ text }) => text).join(""), '{"a":1}');
  });

  test("parallel calls keep their order, also with missing or repeated ids (CASES A10, A12)", async () => {
    for (const ids of [["x", "y"], ["same", "same"], [undefined, undefined]]) {
      const calls = ids.map((id, n) => ({ id, name: "add", args: [`{"a":${n}}`] }));
      const { reply } = await replyTo(dialect, { chunks: frames({ calls }) });
      assert.deepEqual(reply.content.map((block) => block.type === "tool_call" && block.arguments), [
        { a: 0 },
        { a: 1 },
      ]);
    }
  });

  test("calls and results go back under Pawl's own ids", async () => {
    await using server = byteServer(strictly(dialect.wire));
    const model = dialect.model(server.url);
    server.play({
      chunks: frames({ calls: ["same", "same"].map((id) => ({ id, name: "add", args: ["{}"] })) }),
    });
    const message = stored(model, await model.reply(asking(), quiet()));
    server.play({ chunks: frames({ text: ["ok"] }) });
    const results = [result("run-1-0", "first"), result("run-1-1", "second", true)];
    await model.reply(asking([user("hi"), message, ...results]), quiet());
    const sent = JSON.stringify(server.requests[1]!.body);
    assert.match(sent, /run-1-0.*run-1-1.*run-1-0.*first.*run-1-1.*second/);
    assert.doesNotMatch(sent, /"same"/);
  });

  test("tool choice, each way (DESIGN 2)", async () => {
    const ways = [["auto", "auto"], ["required", "required"], ["none", "none"], ["named", {
      type: "function",
      name: "add",
    }]] as const;
    for (const [way, toolChoice] of ways) {
      const { body } = await replyTo(
        dialect,
        { chunks: frames({ text: ["ok"] }) },
        asking(undefined, { toolChoice }),
      );
      assert.deepEqual(dialect.choice(body), dialect.choices[way]);
    }
  });

  test("turning off parallel calls takes the vendor's form (CASES D06)", async () => {
    const answer = { chunks: frames({ text: ["ok"] }) };
    const { body } = await replyTo(dialect, answer, asking(undefined, { parallelToolCalls: false }));
    assert.equal(dialect.single(body), true);
    // "none" leaves nothing to be parallel; the vendors still have to take the pair.
    await replyTo(dialect, answer, asking(undefined, { parallelToolCalls: false, toolChoice: "none" }));
  });

  test("without tools nothing about tools is sent (CASES D04)", async () => {
    const request = asking(undefined, { tools: [], toolChoice: "required", parallelToolCalls: false });
    const { body } = await replyTo(dialect, { chunks: frames({ text: ["ok"] }) }, request);
    assert.doesNotMatch(Object.keys(body).join(" "), /tool/i);
  });

  test("abort ends the call at once and closes the connection", async () => {
    await using server = byteServer();
    server.play({ chunks: frames({ text: ["Hel"], stop: null }), then: "open" });
    const cancel = new AbortController();
    const began = Promise.withResolvers<void>();
    const reply = dialect.model(server.url).reply(asking(), {
      signal: cancel.signal,
      onDelta: () => began.resolve(),
    });
    await began.promise;
    const from = performance.now();
    cancel.abort();
    const error = await refusal(reply);
    assert.deepEqual([error.code, error.retryable], ["aborted", false]);
    await server.requests[0]!.left;
    assert(performance.now() - from < 1000);
  });

  test("aborted by its observer in the middle, it is no answer even if all of it has come", async () => {
    await using server = byteServer();
    server.play({ chunks: [await new Blob(frames({ text: ["Hel", "lo"] })).bytes()] });
    const cancel = new AbortController();
    const options = { signal: cancel.signal, onDelta: () => cancel.abort() };
    assert.equal((await refusal(dialect.model(server.url).reply(asking(), options))).code, "aborted");
  });

  test("aborted before it begins, it asks nobody", async () => {
    await using server = byteServer();
    const signal = AbortSignal.abort();
    assert.equal(
      (await refusal(dialect.model(server.url).reply(asking(), { signal, onDelta() {} }))).code,
      "aborted",
    );
    assert.equal(server.requests.length, 0);
  });

  test("a torn connection is a failure, also after whole text", async () => {
    for (const said of [{ text: ["Half"] }, { calls: [{ id: "a", name: "add", args: ["{}"] }] }]) {
      const script: Script = { chunks: frames({ ...said, stop: null }), then: "cut" };
      const error = await refusal(replyTo(dialect, script));
      assert.deepEqual([error.code, error.retryable], ["network", true]);
    }
  });

  test("a server that is not there is a network failure", async () => {
    const server = byteServer();
    await server[Symbol.asyncDispose]();
    assert.equal((await refusal(dialect.model(server.url).reply(asking(), quiet()))).code, "network");
  });

  test("errors are sorted by their status, tried once, and name the vendor's message (CASES E05)", async () => {
    const statuses = [
      [401, "auth"],
      [403, "auth"],
      [429, "rate_limit"],
      [529, "overloaded"],
      [503, "overloaded"],
      [
        500,
        "server",
      ],
      [408, "server"],
      [409, "server"],
      [404, "bad_request"],
      [400, "bad_request"],
    ] as const;
    for (const [status, code] of statuses) {
      await using server = byteServer();
      const headers = { "content-type": "application/json", "retry-after": "1.5" };
      server.play({ status, headers, chunks: [dialect.error("some_error", "the vendor says no")] });
      const error = await refusal(dialect.model(server.url).reply(asking(), quiet()));
      assert.equal(error.code, code);
      assert.match(error.message, /the vendor says no/);
      assert.equal(error.retryAfterMs, 1500);
      assert.equal(server.requests.length, 1);
    }
  });

  test("the key is in no error, also when the vendor echoes it (CASES H06)", async () => {
    await using server = byteServer();
    const key = "SEKRIT/q1";
    for (const status of [500, 401]) {
      server.play({
        status,
        headers: { "content-type": "application/json" },
        chunks: [dialect.error("some_error", `no ${key} at /v1?key=${encodeURIComponent(key)}`)],
      });
      const error = await refusal(dialect.model(server.url, key).reply(asking(), quiet()));
      assert.match(error.message, /no \*\*\* at .*key=\*\*\*/);
      assert.doesNotMatch(Deno.inspect(error) + JSON.stringify(error), /SEKRIT/);
    }
    for (const { path, text } of server.requests) assert.doesNotMatch(path + text, /SEKRIT/);
  });

  test("an observer that throws changes nothing (DESIGN rule 10)", async () => {
    await using server = byteServer();
    server.play({ chunks: frames({ text: ["Hel", "lo"], calls: [{ id: "a", name: "add", args: ["{}"] }] }) });
    for (const onDelta of [() => assert.fail("no"), () => Promise.reject(new Error("no"))]) {
      const { signal } = new AbortController();
      const reply = await dialect.model(server.url).reply(asking(), { signal, onDelta });
      assert.equal(reply.content.length, 2);
    }
  });

  const { thoughts } = dialect;
  if (!thoughts) return;
  test("signed thinking goes back as it came, before its call, and to nobody else (CASES A15, A16, A18)", async () => {
    await using server = byteServer(strictly(dialect.wire));
    const model = dialect.model(server.url);
    server.play({ chunks: frames({ thinking: "c2ln+/=", calls: [{ id: "a", name: "add", args: ["{}"] }] }) });
    const message = stored(model, await model.reply(asking(), quiet()));
    assert.equal(message.content[0]?.type === "thinking" && message.content[0].text, "hm");
    const history = [user("hi"), message, result("run-1-0", "1")];
    server.play({ chunks: frames({ text: ["ok"] }) });
    await model.reply(asking(history), quiet());
    const sent = thoughts(server.requests[1]!.body);
    assert.equal(sent.length, 1);
    assert.match(JSON.stringify(sent[0]), /"c2ln\+\/="/);
    await model.reply(asking([history[0]!, { ...message, model: "other/m" }, history[2]!]), quiet());
    assert.deepEqual(thoughts(server.requests[2]!.body), []);
    assert.doesNotMatch(server.requests[2]!.text, /rs_0|fc_0|c2ln/);
  });
}
