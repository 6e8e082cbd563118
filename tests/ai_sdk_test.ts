/** Models of the AI SDK, over one of its real providers and the vendor's own checks. */
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { aiSdk } from "../providers/mod.ts";
import { createPawl, defineTool } from "../src/mod.ts";
import { asking, called, modelContract, refusal, replyTo, stored, user } from "./contract/model.ts";
import { byteServer } from "./support/byte_server.ts";
import { chunk, type Dialect, dialect, done } from "./support/dialect.ts";

const compatible: Dialect = {
  ...dialect("openai-chat"),
  model: (baseURL, apiKey = "key-1") =>
    aiSdk(
      createOpenAICompatible({ name: "compatible", baseURL, apiKey, includeUsage: true }).chatModel("m"),
      {
        apiKey,
      },
    ),
  // The specification has no word for it, so the loop sees to it.
  single: (body) => body.parallel_tool_calls === undefined,
};

modelContract("ai-sdk", compatible);

const quiet = () => ({ signal: new AbortController().signal, onDelta: () => {} });

Deno.test("ai-sdk: what the model thought goes back to it, and to nobody else", async () => {
  await using server = byteServer();
  server.play({
    chunks: [chunk({ reasoning_content: "hm" }), chunk({ content: "So" }), chunk({}, "stop"), done],
  });
  const model = compatible.model(server.url), message = stored(model, await model.reply(asking(), quiet()));
  assert.deepEqual(message.content.map(({ type }) => type), ["thinking", "text"]);
  server.play({ chunks: [chunk({ content: "ok" }), chunk({}, "stop"), done] });
  await model.reply(asking([user("hi"), message, user("on")]), quiet());
  assert.match(server.requests[1]!.text, /"reasoning_content":"hm"/);
  await model.reply(asking([user("hi"), { ...message, model: "other/m" }, user("on")]), quiet());
  assert.doesNotMatch(server.requests[2]!.text, /hm/);
});

Deno.test("ai-sdk: a model of version 2, with its names for usage and reasons, runs tools", async () => {
  const prompts: unknown[] = [];
  const says = [
    [
      { type: "tool-input-start", id: "c1", toolName: "add" },
      { type: "tool-input-delta", id: "c1", delta: "{}" },
      {
        type: "tool-call",
        toolCallId: "c1",
        toolName: "add",
        input: '{"a":1}',
        providerMetadata: { v: { sig: "s" } },
      },
      { type: "tool-call", toolCallId: "w1", toolName: "web_search", input: "{}", providerExecuted: true },
      {
        type: "finish",
        finishReason: "tool-calls",
        usage: { inputTokens: 3, outputTokens: 2, cachedInputTokens: 1 },
      },
    ],
    [
      { type: "text-start", id: "t" },
      { type: "text-delta", id: "t", delta: "done" },
      { type: "finish", finishReason: "stop", usage: { inputTokens: 4, outputTokens: 1 } },
    ],
  ];
  const model = {
    specificationVersion: "v2",
    provider: "two",
    modelId: "m",
    supportedUrls: {},
    doGenerate: () => assert.fail("it is streamed"),
    doStream: ({ prompt }: { prompt: unknown }) => {
      prompts.push(prompt);
      return Promise.resolve({ stream: ReadableStream.from<unknown>(says.shift()!) });
    },
  };
  const pawl = createPawl({
    models: aiSdk(model),
    tools: [defineTool({ name: "add", description: "", parameters: { type: "object" }, execute: () => "2" })],
  });
  assert.equal(await pawl.exec("Go"), "done");
  const [, assistant, tool] = prompts[1] as any[];
  assert.deepEqual([
    assistant.content[0].toolName,
    assistant.content[0].input,
    assistant.content[0].providerOptions,
  ], [
    "add",
    { a: 1 },
    { v: { sig: "s" } },
  ]);
  assert.equal(tool.content[0].output.value, "2");
  await pawl.close();
});

Deno.test("ai-sdk: reasons to stop that nobody knows are no success, and a stream without one has broken off", async () => {
  const odd = await replyTo(compatible, { chunks: [chunk({ content: "x" }), chunk({}, "eaten"), done] });
  assert.equal(odd.reply.stopReason, "other");
  const filtered = await replyTo(compatible, {
    chunks: [chunk({ content: "x" }), chunk({}, "content_filter"), done],
  });
  assert.equal(filtered.reply.stopReason, "refusal");
  assert.deepEqual(called(filtered.reply), []);
  await using server = byteServer();
  server.play({ chunks: [chunk({ content: "x" }), done] });
  assert.equal((await refusal(compatible.model(server.url).reply(asking(), quiet()))).code, "network");
});
