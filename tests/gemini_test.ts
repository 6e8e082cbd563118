/** Gemini's own ways: signatures, results in order, its reasons to stop, and a run over it. */
import assert from "node:assert/strict";
import type { Content } from "@google/genai/web";
import * as z from "zod";
import { gemini, geminiRequest } from "../providers/gemini.ts";
import { sendable } from "../providers/history.ts";
import { modelFromEnv } from "../providers/mod.ts";
import { InputError } from "../src/errors.ts";
import type { Message, ToolCall } from "../src/message.ts";
import { createPawl, defineTool } from "../src/mod.ts";
import type { ModelReply, ModelRequest } from "../src/model.ts";
import { add, asking, called, refusal, replyTo, result, stored, user } from "./contract/model.ts";
import { byteServer } from "./support/byte_server.ts";
import { dialect } from "./support/dialect.ts";
import { partsChunk } from "./support/gemini_dialect.ts";
import { calls, modelServer } from "./support/model_server.ts";
import { assistant, call, sent, text } from "./support/transcript.ts";

const each = dialect("gemini"), model = each.model("");
const quiet = () => ({ signal: new AbortController().signal, onDelta() {} });
const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
const ended = (finishReason = "STOP") => event({ candidates: [{ finishReason }] });

const geminiContents = (model: string, request: ModelRequest) =>
  geminiRequest(model, request).contents as Required<Content>[];

const replied = async (...chunks: string[]) => (await replyTo(each, { chunks })).reply;

/** The contents of the request that gives this reply back, with a result for each of its calls. */
function back(reply: ModelReply, name = model.name): any[] {
  const message = { ...stored(model, reply), model: name };
  const calls = message.content.filter((block): block is ToolCall => block.type === "tool_call");
  return sent("gemini", [user("hi"), message, ...calls.map(({ id }) => result(id, "ok")), user("on")])
    .contents;
}

Deno.test("gemini: a signature goes back on the part that it came with, in one content (CASES A17)", async () => {
  const chunks = [
    partsChunk([
      '{"functionCall":{"name":"f","args":{"a":1}},"thoughtSignature":"Zz9+/=="}',
      '{"functionCall":{"name":"f","args":{"a":2}}}',
    ]),
    ended(),
  ];
  const [, said] = back(await replied(...chunks));
  assert.deepEqual(said, {
    role: "model",
    parts: [
      { functionCall: { id: "run-1-0", name: "f", args: { a: 1 } }, thoughtSignature: "Zz9+/==" },
      { functionCall: { id: "run-1-1", name: "f", args: { a: 2 } } },
    ],
  });
});

Deno.test("gemini: a text's signature goes back with the text, wherever in the stream it stood", async () => {
  const after = ['{"text":"Hel"}', '{"text":"lo"}', '{"text":"","thoughtSignature":"c2ln"}'];
  const within = ['{"text":"Hel","thoughtSignature":"c2ln"}', '{"text":"lo"}'];
  const forms = [[after, [{ text: "Hello", thoughtSignature: "c2ln" }]], [within, [
    { text: "Hel", thoughtSignature: "c2ln" },
    { text: "lo" },
  ]]] as const;
  for (const [parts, expected] of forms) {
    const reply = await replied(...parts.map((part) => partsChunk([part])), ended());
    assert.equal(reply.content.map((block) => block.type === "text" ? block.text : "").join(""), "Hello");
    assert.deepEqual(back(reply)[1].parts, expected);
    assert.ok(!JSON.stringify(back(reply, "gemini/other")).includes("c2ln"));
  }
});

Deno.test("gemini: signed thoughts go back as they came, unsigned ones not at all", async () => {
  const signed = { text: "hm", thought: true, thoughtSignature: "c2ln" };
  const chunks = [{ text: "so", thought: true }, signed, { text: "Well." }].map((part) =>
    JSON.stringify(part)
  );
  const reply = await replied(partsChunk(chunks), ended());
  assert.deepEqual(reply.content.map(({ type }) => type), ["thinking", "thinking", "text"]);
  assert.deepEqual(back(reply)[1].parts, [signed, { text: "Well." }]);
});

Deno.test("gemini: calls of another model are sent as unsigned ones, to models that want a signature (CASES A17)", () => {
  const history = [user("go"), assistant([call("a"), call("b")]), result("a", "1"), result("b", "2")];
  const signatures = (model: string) => {
    const request = sendable(asking(history), `gemini/${model}`);
    const body = JSON.parse(JSON.stringify(geminiContents(model, request)));
    return body[1].parts.map((part: any) => part.thoughtSignature);
  };
  for (const model of ["gemini-3.8-flash", "models/gemini-3-pro-preview", "gemini-flash-latest"]) {
    assert.deepEqual(signatures(model), ["skip_thought_signature_validator", undefined], model);
  }
  for (const model of ["gemini-2.5-pro", "models/gemini-2.0-flash", "gemma-3-27b-it"]) {
    assert.deepEqual(signatures(model), [undefined, undefined], model);
  }
});

Deno.test("gemini: all results of a step are one content, in the order of its calls, by name (CASES A20, A21)", () => {
  const calls = ["Oslo", "Lima"].map((city, n) => call(`c${n}`, { name: "temp", arguments: { city } }));
  const { contents } = sent("gemini", [
    user("go"),
    assistant(calls),
    { ...result("c1", "Lima: 20"), toolName: "c1" },
    { ...result("c0", "Oslo: 3", true), toolName: "c0" },
    user("and?"),
  ]);
  assert.deepEqual(contents.map(({ role }: any) => role), ["user", "model", "user"]);
  assert.deepEqual(contents[2].parts, [
    { functionResponse: { id: "c0", name: "temp", response: { error: "Oslo: 3" } } },
    { functionResponse: { id: "c1", name: "temp", response: { output: "Lima: 20" } } },
    { text: "and?" },
  ]);
});

Deno.test("gemini: images of results stand in them, for older models after them", () => {
  const png = { type: "image", mediaType: "image/png", data: "iVBORw0KGgo=" } as const;
  const history: Message[] = [
    user("go"),
    assistant([call("a"), call("b")]),
    { ...result("a", ""), content: [text("seen"), png] },
    result("b", "2"),
  ];
  const last = (model: string) =>
    geminiContents(model, sendable(asking(history), `gemini/${model}`)).at(-1)!.parts;
  const inlineData = { data: png.data, mimeType: png.mediaType };
  const response = { output: "seen\n(an image)" };
  const [first, second, ...rest] = last("gemini-3.8-flash");
  assert.deepEqual(first!.functionResponse, { id: "a", name: "add", response, parts: [{ inlineData }] });
  assert.deepEqual([second!.functionResponse!.id, rest], ["b", []]);
  const [old, , ...shown] = last("gemini-2.5-flash");
  assert.deepEqual(old!.functionResponse, { id: "a", name: "add", response });
  assert.deepEqual(shown, [{ text: "Images of the results:" }, { inlineData }]);
});

Deno.test("gemini: tools whose names begin in a way of their own are offered, forced and called (CASES C09)", async () => {
  for (const name of ["7zip", "-x", "9"]) {
    const toolChoice = { type: "function", name } as const;
    const request = asking(undefined, { tools: [{ ...add, name }], toolChoice });
    const said = (body: any) => body.tools[0].functionDeclarations[0].name;
    const wire = said((await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, request)).body);
    const frames = each.frames({ calls: [{ id: "a", name: wire, args: ["{}"] }] });
    const { reply, body } = await replyTo(each, { chunks: frames }, request);
    assert.deepEqual(body.toolConfig.functionCallingConfig.allowedFunctionNames, [wire]);
    assert.deepEqual(called(reply), [[name, {}]]);
  }
  const { contents } = sent("gemini", [
    user("go"),
    assistant([call("a", { name: "7 zip" })]),
    result("a", "1"),
  ]);
  assert.equal(contents[1].parts[0].functionCall.name, "n.7_zip");
  assert.equal(contents[2].parts[0].functionResponse.name, "n.7_zip");
});

Deno.test("gemini: a model's name leads to no other place", () => {
  for (const name of ["a?key=1", "../files", "a#", "a b", "a&b", "a:countTokens"]) {
    assert.throws(() => gemini(`gemini/${name}`, { apiKey: "k" }), (error) => error instanceof InputError);
  }
  for (const name of ["gemini-3.8-flash", "models/gemini-3-pro-preview", "tunedModels/mine_1"]) {
    assert.equal(gemini(`gemini/${name}`, { apiKey: "k" }).name, `gemini/${name}`);
  }
});

Deno.test("gemini: its reasons to stop (CASES B17, B19, B21)", async () => {
  const reasons = [
    ["STOP", "stop", undefined],
    ["MAX_TOKENS", "length", undefined],
    ["SAFETY", "refusal", "SAFETY"],
    ["RECITATION", "refusal", "RECITATION"],
    ["PROHIBITED_CONTENT", "refusal", "PROHIBITED_CONTENT"],
    ["SPII", "refusal", "SPII"],
    ["LANGUAGE", "other", "LANGUAGE"],
    ["OTHER", "other", "OTHER"],
    ["BRAND_NEW", "other", "BRAND_NEW"],
  ] as const;
  for (const [finish, stopReason, stopDetail] of reasons) {
    const reply = await replied(partsChunk(['{"text":"Hm"}']), ended(finish));
    assert.deepEqual([reply.stopReason, reply.stopDetail], [stopReason, stopDetail]);
  }
  const refused = await replied(partsChunk(['{"functionCall":{"name":"f"}}']), ended("SAFETY"));
  assert.deepEqual([refused.stopReason, called(refused)], ["refusal", [["f", {}]]]);
});

Deno.test("gemini: a message that could not be made is no answer, and nothing in it is run (CASES B20)", async () => {
  for (const finish of ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"]) {
    for (const parts of [[], ['{"functionCall":{"name":"f","args":{}}}']]) {
      const error = await refusal(replied(partsChunk(parts, { finishReason: finish })));
      assert.deepEqual([error.code, error.retryable], ["empty", true]);
      assert.match(error.message, new RegExp(finish));
    }
  }
  const error = await refusal(replied(ended("MISSING_THOUGHT_SIGNATURE")));
  assert.equal(error.code, "bad_request");
});

Deno.test("gemini: a prompt that is blocked is a refusal", async () => {
  const usageMetadata = { promptTokenCount: 9 };
  const reply = await replied(
    event({ promptFeedback: { blockReason: "PROHIBITED_CONTENT" }, usageMetadata }),
  );
  assert.deepEqual(reply, {
    content: [],
    stopReason: "refusal",
    stopDetail: "PROHIBITED_CONTENT",
    usage: { input: 9, output: 0 },
  });
});

Deno.test("gemini: counts are totals; thoughts are output, what its tools read is input (CASES B10)", async () => {
  const counted = (usageMetadata: object) => event({ usageMetadata });
  const { usage } = await replied(
    counted({ promptTokenCount: 10, candidatesTokenCount: 1, thoughtsTokenCount: 30 }),
    counted({ promptTokenCount: 10, candidatesTokenCount: 4, toolUsePromptTokenCount: 7 }),
    ended(),
  );
  assert.deepEqual(usage, { input: 17, output: 34, reasoning: 30 });
});

Deno.test("gemini: STOP in every chunk ends nothing (CASES B18)", async () => {
  const finishReason = "STOP";
  const reply = await replied(
    partsChunk(['{"text":"a"}'], { finishReason }),
    partsChunk(['{"text":"b"}'], { finishReason }),
    partsChunk(['{"functionCall":{"name":"f","args":{"x":1}}}'], { finishReason }),
  );
  assert.deepEqual(reply.content[0], { type: "text", text: "ab" });
  assert.deepEqual([reply.stopReason, called(reply)], ["tool_calls", [["f", { x: 1 }]]]);
});

Deno.test("gemini: comments in an event, an end mark, and a last event that nothing ends (CASES B08)", async () => {
  const hello = partsChunk(['{"text":"Hello"}']);
  for (
    const chunks of [
      [`: ping\nid: 7\n${hello}`, ended()],
      [hello, ended(), "data: [DONE]\n\n"],
      [hello, ended().trimEnd()],
      [hello.replaceAll("\n", "\r\n"), ended().replaceAll("\n", "\r")],
    ]
  ) assert.deepEqual((await replied(...chunks)).content, [{ type: "text", text: "Hello" }]);
});

Deno.test("gemini: one request is one request, whatever the SDK would go on with", async () => {
  const continued = event({ candidates: [{ finishReason: "CONTINUATION", continuationToken: "dG9r" }] });
  for (const chunks of [[continued], [], [partsChunk(['{"text":"a"}'])]]) {
    await using server = byteServer();
    server.play({ chunks });
    await each.model(server.url).reply(asking(), quiet()).catch(() => {});
    assert.equal(server.requests.length, 1);
  }
});

Deno.test("gemini: the base address may name its version", async () => {
  await using server = byteServer();
  server.play({ chunks: each.frames({ text: ["ok"] }) });
  for (const base of ["", "/", "/v1", "/v1beta/", "/gateway"]) {
    await gemini("gemini/m", { apiKey: "k", baseURL: server.url + base }).reply(asking(), quiet());
  }
  assert.deepEqual(
    server.requests.map(({ path }) => path.replace("/models/m:streamGenerateContent", "")),
    ["/v1beta", "/v1beta", "/v1", "/v1beta", "/gateway/v1beta"],
  );
});

Deno.test("gemini: a result goes as text, also where it is JSON with references", () => {
  const schema = '{"$ref":"#/$defs/X"}';
  const { contents } = sent("gemini", [user("go"), assistant([call("a")]), result("a", schema)]);
  assert.deepEqual(contents[2].parts[0].functionResponse.response, { output: schema });
});

Deno.test("gemini: a run goes on after a malformed call, with its signature and both results (CASES A17, B20)", async () => {
  await using server = modelServer("gemini", ({ results }, n) => {
    if (!results.length) return { ...calls(["add", { a: 1 }], ["add", { a: 2 }]), thinking: "c2ln" };
    return n === 2 ? { ...calls(["add", { a: 3 }]), stop: "MALFORMED_FUNCTION_CALL" } : "Added";
  });
  const ran: number[] = [];
  const parameters = z.object({ a: z.number() });
  const adds = defineTool({ name: "add", description: "", parameters, execute: ({ a }) => void ran.push(a) });
  const pawl = createPawl({ tools: [adds], models: modelFromEnv(server.env) });
  assert.equal(await pawl.exec("Add"), "Added");
  await pawl.close();
  assert.deepEqual(ran, [1, 2]);
  const [, second, third] = server.requests.map(({ body }) => body.contents);
  assert.deepEqual(second, third);
  assert.deepEqual(third[1].parts.map((part: any) => part.thoughtSignature), ["c2ln", undefined]);
  assert.equal(third[2].parts.length, 2);
});
