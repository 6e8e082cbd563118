import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import type { AssistantMessage, Message, ToolCall } from "../src/message.ts";
import { type Delta, ModelError, type ModelRequest } from "../src/model.ts";
import type { Tool } from "../src/tool.ts";
import { check, schemaOf } from "../src/validate.ts";
import { demo } from "../providers/demo.ts";
import { calculate } from "../tools/calculate.ts";
import { fetchUrl } from "../tools/fetch_url.ts";
import { now } from "../tools/now.ts";
import { wait } from "../tools/wait.ts";

const all = [calculate, now, fetchUrl([]), wait];
const specs = (tools: Tool[]) =>
  tools.map(({ name, description, parameters }) => ({ name, description, parameters: schemaOf(parameters) }));

const user = (content: string): Message => ({ role: "user", id: "u", content, at: 0 });
const result = (call: ToolCall, content: string, isError = false): Message => ({
  role: "tool",
  id: `r-${call.id}`,
  toolCallId: call.id,
  toolName: call.name,
  content,
  isError,
  at: 0,
});

async function turn(messages: Message[], request: Partial<ModelRequest> = {}) {
  const deltas: Delta[] = [];
  const reply = await demo.reply(
    { messages, tools: specs(all), toolChoice: "auto", ...request },
    { signal: new AbortController().signal, onDelta: (delta) => void deltas.push(delta) },
  );
  const message = {
    role: "assistant",
    id: `a${messages.length}`,
    at: 0,
    model: demo.name,
    ...reply,
    content: reply.content.map((block, i) =>
      block.type === "tool_call" ? { ...block, id: `c${messages.length}-${i}` } : block
    ),
  } as AssistantMessage;
  const calls = message.content.filter((block) => block.type === "tool_call");
  const text = message.content.map((block) => block.type === "text" ? block.text : "").join("");
  return { message, calls, asked: calls.map((call) => [call.name, call.arguments]), text, deltas, reply };
}

const asked = async (prompt: string, request?: Partial<ModelRequest>) =>
  (await turn([user(prompt)], request)).asked;

Deno.test("The demonstration says in its first message what it is, and not again", async () => {
  const first = await turn([user("What is 2 + 3?")]);
  match(first.text, /^I am a rule-based demonstration, not a language model\. I will calculate 2 \+ 3\.$/);
  const second = await turn([user("What is 2 + 3?"), first.message, result(first.calls[0]!, "5")]);
  equal(second.text, "2 + 3 = 5");
  equal([first.reply.stopReason, second.reply.stopReason], ["tool_calls", "stop"]);
});

Deno.test("It finds arithmetic", async () => {
  const cases: [string, string[]][] = [
    ["2+2", ["2+2"]],
    ["What is 6 times 7?", ["6 * 7"]],
    ["10 divided by 4, plus 1", ["10 / 4"]],
    ["Compute (1 + 2) * -3.5 and 2e3 ^ 2.", ["(1 + 2) * -3.5", "2e3 ^ 2"]],
    ["sqrt(16) please (or is it max(1, 2)?)", ["sqrt(16)", "max(1, 2)"]],
    ["1) 2*3, 4*5\n2) 7-1\n- 8 + 1", ["2*3", "4*5", "7-1", "8 + 1"]],
    ["1,000 * 2 + max(1,200)", ["1000 * 2 + max(1,200)"]],
    ["(that is 2+2)", ["2+2"]],
    ["twice 2+2 and 2+2", ["2+2"]],
    ["On 2026-01-31 gpt-4-5 had v1.2-3 and 17 items, index -2", []],
    ["5 apples", []],
    ["", []],
  ];
  for (const [prompt, expressions] of cases) {
    equal(await asked(prompt), expressions.map((expression) => ["calculate", { expression }]), prompt);
  }
});

Deno.test("It finds questions for the time and date, with a zone or a city", async () => {
  const cases: [string, unknown][] = [
    ["What time is it?", {}],
    ["Tell me the time please", {}],
    ["what's the date today", {}],
    ["Current time in Tokyo", { time_zone: "Asia/Tokyo" }],
    ["What is the local time in New York right now?", { time_zone: "America/New_York" }],
    ["the time in Europe/Oslo", { time_zone: "Europe/Oslo" }],
    ["time and date: what is the time in UTC?", { time_zone: "UTC" }],
    ["What time is it in Nowhere?", {}],
  ];
  for (const [prompt, args] of cases) equal(await asked(prompt), [["now", args]], prompt);
  for (const prompt of ["At the time of writing", "The day after", "Take your time."]) {
    equal(await asked(prompt), [], prompt);
  }
});

Deno.test("It finds URLs and waits", async () => {
  equal(await asked("Read (https://example.com/a-1/2?x=1+1) or http://b.example/."), [
    ["fetch_url", { url: "https://example.com/a-1/2?x=1+1" }],
    ["fetch_url", { url: "http://b.example/" }],
  ]);
  const waits: [string, number][] = [["wait 5 s", 5], ["Wait for 2.5 minutes!", 150], ["wait 1 hour", 3600], [
    "wait 3sec",
    3,
  ]];
  for (const [prompt, seconds] of waits) equal(await asked(prompt), [["wait", { seconds }]], prompt);
});

Deno.test("Several things in one prompt are several calls in one turn, in their order", async () => {
  const prompt = "What time is it in Oslo, wait 2 seconds, what is 2 + 2 and what says https://example.com?";
  const { asked, text } = await turn([user(prompt)]);
  equal(asked.map(([name]) => name), ["now", "wait", "calculate", "fetch_url"]);
  match(
    text,
    /I will look up the time in Europe\/Oslo, wait 2 seconds, calculate 2 \+ 2 and read https:\/\/example\.com\.$/,
  );
});

Deno.test('What comes after "then" is for a later turn', async () => {
  const prompt = "What is 6 * 7, and what time is it? Then wait 2 seconds, then tell me what 2^10 is";
  const messages: Message[] = [user(prompt)];
  const turns: string[][] = [];
  for (let i = 0; i < 3; i++) {
    const { message, calls } = await turn(messages);
    turns.push(calls.map(({ name }) => name));
    messages.push(message, ...calls.map((call) => result(call, "n")));
  }
  equal((await turn(messages)).calls, []);
  equal(turns, [["calculate", "now"], ["wait"], ["calculate"]]);
});

Deno.test("It asks for no tool that it was not offered", async () => {
  const prompt = "2 + 2, the time, wait 5 s, https://example.com";
  equal(await asked(prompt, { tools: specs([now]) }), [["now", {}]]);
  const { text, calls } = await turn([user(prompt)], { tools: [] });
  equal(calls, []);
  match(text, /No tools are offered to me/);
});

Deno.test("A tool without a rule of its own is called by its name, with arguments that its schema takes", async () => {
  const parameters = {
    type: "object",
    properties: {
      city: { type: "string" },
      days: { type: "integer", minimum: 1, maximum: 3 },
      unit: { enum: ["C", "F"] },
      at: { type: "string", format: "date-time" },
      where: { $ref: "#/$defs/place" },
      note: { type: "string" },
    },
    required: ["city", "days", "unit", "at", "where"],
    $defs: { place: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] } },
  };
  const weather: Tool = { name: "weather", description: "", parameters, execute: () => "" };
  const tools = specs([...all, weather]);
  const calls = await asked("Use the weather tool for Oslo, and 1 + 1", { tools });
  const args = { city: "Oslo", days: 1, unit: "C", at: "2026-01-01T00:00:00Z", where: { ok: true } };
  equal(calls, [["weather", args], ["calculate", { expression: "1 + 1" }]]);
  equal(check(weather, args).ok, true);
  equal(await asked("The weather is fine", { tools }), []);
});

Deno.test("Tool choice: none calls nothing, required and a name call something that fits", async () => {
  equal(await asked("2 + 2", { toolChoice: "none" }), []);
  equal(await asked("2 + 2", { toolChoice: "required" }), [["calculate", { expression: "2 + 2" }]]);
  equal(await asked("2 + 2 and the time", { toolChoice: { type: "function", name: "now" } }), [["now", {}]]);
  for (const tool of all) {
    const toolChoice = { type: "function" as const, name: tool.name };
    for (const choice of [{ toolChoice }, { toolChoice: "required" as const, tools: specs([tool]) }]) {
      const [[name, args]] = await asked("Hello", choice) as [[string, unknown]];
      equal([name, check(tool, args).ok], [tool.name, true]);
    }
  }
});

Deno.test("What a forced choice left over is called in the next turn", async () => {
  const prompt = user("2 + 2 and the time");
  const first = await turn([prompt], { toolChoice: { type: "function", name: "now" } });
  const second = await turn([prompt, first.message, result(first.calls[0]!, "noon")]);
  equal(second.asked, [["calculate", { expression: "2 + 2" }]]);
});

Deno.test("Without parallel calls it makes one in each turn", async () => {
  const messages: Message[] = [user("1 + 1, 2 + 2, 3 + 3")];
  const turns: unknown[] = [];
  for (let i = 0; i < 4; i++) {
    const { message, calls, text } = await turn(messages, { parallelToolCalls: false });
    turns.push(calls.length === 1 ? calls[0]!.arguments.expression : text);
    messages.push(message, ...calls.map((call) => result(call, "n")));
  }
  equal(turns, ["1 + 1", "2 + 2", "3 + 3", "1 + 1 = n\n2 + 2 = n\n3 + 3 = n"]);
});

Deno.test("The closing text is made of the results, and calls an error an error", async () => {
  const prompt = user("What time is it, wait 2 s, 1 / 0, https://example.com");
  const { message, calls } = await turn([prompt]);
  const texts = ["noon", "Waited 2 seconds.", "Position 5: division by zero", "x".repeat(600)];
  const results = calls.map((call, i) => result(call, texts[i]!, i === 2));
  const { text } = await turn([prompt, message, ...results]);
  equal(text.split("\n"), [
    "It is noon.",
    "Waited 2 seconds.",
    "calculate failed: Position 5: division by zero",
    `https://example.com says: ${"x".repeat(500)}…`,
  ]);
});

Deno.test("Steering and follow-ups are prompts of their own", async () => {
  const first = await turn([user("1 + 1 and 2 + 2")]);
  const [one, two] = first.calls;
  const skipped = result(two!, "Skipped due to queued user message", true);
  const steered = [user("1 + 1 and 2 + 2"), first.message, result(one!, "2"), skipped, user("Rather 3 + 3")];
  const second = await turn(steered);
  equal(second.asked, [["calculate", { expression: "3 + 3" }]]);
  const closed = await turn([...steered, second.message, result(second.calls[0]!, "6")]);
  equal(closed.text, "1 + 1 = 2\ncalculate failed: Skipped due to queued user message\n3 + 3 = 6");
  const followed = await turn([
    ...steered,
    second.message,
    result(second.calls[0]!, "6"),
    closed.message,
    user("1 + 1"),
  ]);
  equal(followed.asked, [["calculate", { expression: "1 + 1" }]]);
  const thanks = await turn([
    ...steered,
    second.message,
    result(second.calls[0]!, "6"),
    closed.message,
    user("Thanks!"),
  ]);
  equal(thanks.calls, []);
  match(
    thanks.text,
    /^I found no rule for "Thanks!"\. I know arithmetic, .*: calculate, now, fetch_url, wait\.$/,
  );
});

Deno.test("It streams its text in pieces, then its calls, and replies with the same", async () => {
  const { deltas, reply, text } = await turn([user("2 + 2 and the time")]);
  const pieces = deltas.filter((delta) => delta.type === "text");
  ok(pieces.length > 2);
  equal(pieces.map(({ text }) => text).join(""), text);
  equal(deltas.slice(pieces.length), [
    { type: "tool_call", index: 0, name: "calculate", text: '{"expression":"2 + 2"}' },
    { type: "tool_call", index: 1, name: "now", text: "{}" },
  ]);
  ok(reply.usage.input > 0 && reply.usage.output > 0);
});

Deno.test("The same request gets the same reply", async () => {
  const prompt = "What time is it in Oslo, 2 + 2, wait 5 s, https://example.com";
  equal((await turn([user(prompt)])).reply, (await turn([user(prompt)])).reply);
});

Deno.test("An abort in the middle of its text is an error, and nothing is asked for", async () => {
  const abort = new AbortController();
  const deltas: Delta[] = [];
  const onDelta = (delta: Delta) => {
    deltas.push(delta);
    abort.abort();
  };
  const request: ModelRequest = { messages: [user("2 + 2")], tools: specs(all), toolChoice: "auto" };
  await rejects(
    demo.reply(request, { signal: abort.signal, onDelta }),
    (error) => error instanceof ModelError && error.code === "aborted",
  );
  equal(deltas.length, 1);
});

Deno.test("A prompt that is a megabyte of anything is answered in time (H09)", async () => {
  const start = performance.now();
  for (
    const piece of [
      "1+",
      "(",
      "wait 1",
      "http://",
      "what time ",
      "use ",
      "the ",
      " ",
      "times",
      "-",
      "1,000,",
      "(1",
      "((1))",
    ]
  ) {
    await turn([user(piece.repeat(1_000_000 / piece.length))]);
  }
  ok(performance.now() - start < 5000);
});
