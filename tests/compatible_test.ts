/** Servers that speak a vendor's wire in their own way: what they insist on, what they refuse, and how they say that they are done. */
import assert from "node:assert/strict";
import { capabilitiesOf } from "../providers/capabilities.ts";
import { openaiChat } from "../providers/mod.ts";
import type { AssistantMessage } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { asking, refusal, replyTo, result, stored, user } from "./contract/model.ts";
import { byteServer } from "./support/byte_server.ts";
import { chunk, type Dialect, dialect, done, event } from "./support/dialect.ts";

const chat = dialect("openai-chat"), anthropic = dialect("anthropic");
const quiet = () => ({ signal: new AbortController().signal, onDelta: () => {} });

/** Chat Completions as the model `model` has them. */
const of = (model: string): Dialect => ({
  ...chat,
  model: (baseURL, apiKey = "key-1") => openaiChat(`openai-chat/${model}`, { apiKey, baseURL }),
});

Deno.test("servers that want reasoning_content get it with every answer, others never (CASES A19)", async () => {
  for (
    const [model, echoes] of [["deepseek-reasoner", true], ["moonshotai/kimi-k2.5", true], [
      "llama-4",
      false,
    ]] as const
  ) {
    const each = of(model);
    await using server = byteServer(({ body }: any) => {
      const answers = body.messages.filter(({ role }: any) => role === "assistant");
      const faulty = answers.some((answer: object) => ("reasoning_content" in answer) !== echoes);
      return faulty ? Response.json({ error: { message: "reasoning_content" } }, { status: 400 }) : undefined;
    });
    const made = each.model(server.url);
    server.play({
      chunks: [
        chunk({ reasoning_content: "hm é🎉" }),
        ...chat.frames({ calls: [{ id: "a", name: "add", args: ["{}"] }] }),
      ],
    });
    const thought = stored(made, await made.reply(asking(), quiet()));
    const plain: AssistantMessage = {
      ...thought,
      id: "m-2",
      content: [{ type: "text", text: "Two" }],
      stopReason: "stop",
    };
    const foreign: AssistantMessage = { ...plain, id: "m-3", model: "anthropic/x" };
    server.play({ chunks: chat.frames({ text: ["ok"] }) });
    const history = [user("hi"), thought, result("run-1-0", "1"), plain, user("on"), foreign, user("and on")];
    await made.reply(asking(history), quiet());
    const answers = (server.requests[1]!.body as any).messages.filter(({ role }: any) =>
      role === "assistant"
    );
    assert.deepEqual(
      answers.map((answer: any) => answer.reasoning_content),
      echoes ? ["hm é🎉", "", ""] : [undefined, undefined, undefined],
    );
  }
});

Deno.test("a choice that cannot be forced is left to the model: what was named stands alone (CASES D01, D05)", async () => {
  const other = { ...asking().tools[0]!, name: "other" };
  const choices: [ModelRequest["toolChoice"], string[]][] = [
    ["required", ["add", "other"]],
    [{ type: "function", name: "add" }, ["add"]],
  ];
  for (const [toolChoice, names] of choices) {
    const request = asking(undefined, { toolChoice, tools: [...asking().tools, other] });
    const { body } = await replyTo(
      of("deepseek-reasoner"),
      { chunks: chat.frames({ text: ["ok"] }) },
      request,
    );
    assert.equal(body.tool_choice, "auto");
    assert.deepEqual(body.tools.map((tool: any) => tool.function.name), names);
  }
});

Deno.test("a server that refuses a forced choice all the same is not asked again unchanged (CASES D05)", async () => {
  await using server = byteServer();
  server.play({
    status: 400,
    headers: { "content-type": "application/json" },
    chunks: ['{"error":{"message":"tool_choice is not supported in thinking mode"}}'],
  });
  const error = await refusal(
    chat.model(server.url).reply(asking(undefined, { toolChoice: "required" }), quiet()),
  );
  assert.deepEqual([error.code, error.retryable, server.requests.length], ["bad_request", false, 1]);
});

Deno.test("ids of nine letters and digits where they are wanted: different ids stay different (CASES A13)", async () => {
  const ids = [1, 2, 3].map((n) => `gem.${"x".repeat(64)}${n}`);
  const message: AssistantMessage = {
    ...{
      role: "assistant",
      id: "m",
      model: "gemini/x",
      at: 1,
      usage: { input: 1, output: 1 },
      stopReason: "tool_calls",
    },
    content: ids.map((id) => ({ type: "tool_call", id, name: "add", arguments: {} })),
  };
  const history = [user("hi"), message, ...ids.map((id) => result(id, id.slice(-1)))];
  for (
    const [model, form] of [["mistral-large", /^[A-Za-z0-9]{9}$/], [
      "llama-4",
      /^[A-Za-z0-9_-]{1,40}$/,
    ]] as const
  ) {
    const sent = async () => {
      const { body } = await replyTo(of(model), { chunks: chat.frames({ text: ["ok"] }) }, asking(history));
      const calls = body.messages.find((said: any) => said.tool_calls).tool_calls.map((call: any) => call.id);
      const results = body.messages.filter(({ role }: any) => role === "tool").map((said: any) =>
        said.tool_call_id
      );
      assert.deepEqual(results, calls);
      return calls;
    };
    const first = await sent();
    assert.equal(new Set(first).size, 3);
    for (const id of first) assert.match(id, form);
    assert.deepEqual(await sent(), first);
  }
});

Deno.test("what a server is known not to take is not sent to it, and may be said otherwise", () => {
  const mistral = capabilitiesOf("https://api.mistral.ai/v1", "mistral-small");
  assert.deepEqual([mistral.streamOptions, mistral.ids], [false, "nine"]);
  const deepseek = capabilitiesOf("https://api.deepseek.com", "deepseek-chat");
  assert.deepEqual([deepseek.formats, deepseek.parallelFlag, deepseek.forcedChoice], [false, false, true]);
  const own = capabilitiesOf("https://api.openai.com/v1", "gpt-5.4-mini");
  assert.ok(own.streamOptions && own.forcedChoice && own.formats && !own.echoesReasoning);
  assert.equal(capabilitiesOf("https://notdeepseek.com", "x").formats, true);
  const said = openaiChat("openai-chat/x", { apiKey: "k", capabilities: { formats: false } });
  assert.equal(said.formats!({}, []), false);
});

Deno.test("servers end an answer in the words of what they serve (CASES B21)", async () => {
  const words = {
    stop: ["stop", "STOP", "eos", "end_turn", "stop_sequence"],
    length: ["length", "MAX_TOKENS", "model_length"],
    refusal: ["content_filter", "SAFETY"],
    other: ["eaten"],
  };
  for (const [stopReason, finishes] of Object.entries(words)) {
    for (const finish of finishes) {
      const { reply } = await replyTo(chat, { chunks: [chunk({ content: "x" }), chunk({}, finish), done] });
      assert.equal(reply.stopReason, stopReason, finish);
    }
  }
});

/** A stream of Anthropic's with these blocks. */
function blocks(list: { start: object; deltas?: object[] }[], stop: string): string[] {
  return [
    event({ type: "message_start", message: { usage: { input_tokens: 10, output_tokens: 1 } } }),
    ...list.flatMap(({ start, deltas = [] }, index) => [
      event({ type: "content_block_start", index, content_block: start }),
      ...deltas.map((delta) => event({ type: "content_block_delta", index, delta })),
      event({ type: "content_block_stop", index }),
    ]),
    event({ type: "message_delta", delta: { stop_reason: stop }, usage: { output_tokens: 5 } }),
    event({ type: "message_stop" }),
  ];
}

const searching = [
  { start: { type: "text", text: "" }, deltas: [{ type: "text_delta", text: "Let me look. " }] },
  {
    start: { type: "server_tool_use", id: "st1", name: "web_search", input: {} },
    deltas: [{ type: "input_json_delta", partial_json: '{"query":' }, {
      type: "input_json_delta",
      partial_json: '"é"}',
    }],
  },
];

Deno.test("anthropic: a paused turn goes on with what was said, unchanged, and is one message (CASES B17)", async () => {
  let asked = 0;
  await using server = byteServer(({ body }: any) => {
    if (asked++ === 0) return undefined;
    assert.deepEqual(body.messages.at(-1), {
      role: "assistant",
      content: [
        { type: "text", text: "Let me look. " },
        { type: "server_tool_use", id: "st1", name: "web_search", input: { query: "é" } },
      ],
    });
    const found = { type: "web_search_tool_result", tool_use_id: "st1", content: [] };
    const said = [{ start: found }, {
      start: { type: "text", text: "" },
      deltas: [{ type: "text_delta", text: "Found." }],
    }];
    return new Response(blocks(said, "end_turn").join(""), {
      headers: { "content-type": "text/event-stream" },
    });
  });
  server.play({ chunks: blocks(searching, "pause_turn") });
  const reply = await anthropic.model(server.url).reply(asking(), quiet());
  assert.equal(
    reply.content.map((block) => block.type === "text" ? block.text : "?").join(""),
    "Let me look. Found.",
  );
  assert.equal(reply.stopReason, "stop");
  assert.deepEqual([reply.usage.input, reply.usage.output], [20, 10]);
  assert.equal(asked, 2);
});

Deno.test("anthropic: a turn that pauses for ever is no success, after some requests (CASES B17)", async () => {
  await using server = byteServer();
  server.play({ chunks: blocks(searching, "pause_turn") });
  const reply = await anthropic.model(server.url).reply(asking(), quiet());
  assert.deepEqual([reply.stopReason, reply.stopDetail, server.requests.length], ["other", "pause_turn", 6]);
});
