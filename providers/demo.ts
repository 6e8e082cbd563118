/**
 * A stand-in for a language model: rules, offline, the same answer every time. It picks real tools for what it finds in a prompt, so that
 * all that surrounds a model can be tried without a key, and it says what it is. What a prompt gives reason for is in `rules.ts`.
 */
import { type AssistantMessage, callsOf, type Message, textOf, type ToolMessage } from "../src/message.ts";
import { type Model, ModelError, type ModelOptions, type ModelRequest } from "../src/model.ts";
import { type Call, callsIn, phrase, plausible } from "./rules.ts";

export const demo: Model = {
  name: "demo/rules",
  async reply(request, options) {
    const { text, calls } = answer(request);
    await say(text, options);
    calls.forEach(({ name, arguments: args }, index) =>
      options.onDelta({ type: "tool_call", index, name, text: JSON.stringify(args) })
    );
    const content = [{ type: "text" as const, text }, ...calls];
    return {
      content,
      stopReason: calls.length > 0 ? "tool_calls" : "stop",
      // An estimate: there are no tokens here, and four characters for each is what they come to in English.
      usage: { input: tokens([request.system, request.messages, request.tools]), output: tokens(content) },
    };
  },
};

const introduction = "I am a rule-based demonstration, not a language model.";

function answer(request: ModelRequest): { text: string; calls: Call[] } {
  const { messages } = request;
  const { prompt, since } = lastPrompt(messages);
  const done = new Set(since.filter(isAssistant).flatMap(callsOf).map(identity));
  // What comes after "then" is for a later turn: it was asked for after the rest.
  const stages = prompt.split(/\b(?:and )?then\b|\bafter that\b/i).map((stage) =>
    callsIn(stage, request.tools)
  );
  const next = stages.map((stage) => stage.filter((call) => !done.has(identity(call)))).find((stage) =>
    stage.length > 0
  );
  const calls = choose(request, prompt, next ?? []);
  const first = !messages.some(isAssistant);
  const text = calls.length > 0 ? `I will ${listed(calls.map(phrase))}.` : closing(request, prompt);
  return { text: first ? `${introduction} ${text}` : text, calls };
}

/** What was asked last, which may be steering that came after results, and what was said since. */
function lastPrompt(messages: Message[]): { prompt: string; since: Message[] } {
  const end = messages.findLastIndex(({ role }) => role === "user") + 1;
  const start = messages.slice(0, end).findLastIndex(({ role }) => role !== "user") + 1;
  const prompt = messages.slice(start, end).map(({ content }) => textOf(content)).join("\n");
  return { prompt, since: messages.slice(end) };
}

/** The calls of this turn: what the choice allows and demands of those that there is reason for. */
function choose(
  { tools, toolChoice, parallelToolCalls }: ModelRequest,
  prompt: string,
  calls: Call[],
): Call[] {
  if (toolChoice === "none") return [];
  const forced = toolChoice === "auto"
    ? undefined
    : toolChoice === "required"
    ? tools[0]
    : tools.find(({ name }) => name === toolChoice.name);
  let chosen = typeof toolChoice === "object" ? calls.filter(({ name }) => name === toolChoice.name) : calls;
  if (chosen.length === 0 && forced) chosen = [plausible(forced, prompt)];
  return parallelToolCalls === false ? chosen.slice(0, 1) : chosen;
}

/** What the results were since it last had nothing more to do; without results, what it could have done. */
function closing({ messages, tools, toolChoice }: ModelRequest, prompt: string): string {
  const begin = messages.findLastIndex((message) => isAssistant(message) && callsOf(message).length === 0) +
    1;
  const stretch = messages.slice(begin);
  const calls = new Map(stretch.filter(isAssistant).flatMap(callsOf).map((call) => [call.id, call]));
  const results = stretch.filter((message): message is ToolMessage => message.role === "tool");
  const lines = results.map((result) => report(result, calls.get(result.toolCallId)?.arguments ?? {}));
  if (messages.at(-1)?.role === "tool") return lines.join("\n");
  const usable = toolChoice === "none" ? [] : tools.map(({ name }) => name);
  const able = usable.length === 0
    ? "No tools are offered to me here, so there is nothing that I can do."
    : `I know arithmetic, the time, URLs, "wait 5 seconds" and "use NAME", for tools I am offered: ${
      usable.join(", ")
    }.`;
  const asked = Array.from(prompt.trim()).slice(0, 80).join("");
  return [...lines, `I found no rule for ${JSON.stringify(asked)}. ${able}`].join("\n");
}

function report({ toolName, content, isError }: ToolMessage, args: Call["arguments"]): string {
  const whole = Array.from(textOf(content).trim() || "(no text)");
  const text = whole.length > 500 ? `${whole.slice(0, 500).join("")}…` : whole.join("");
  if (isError) return `${toolName} failed: ${text}`;
  if (toolName === "calculate") return `${args.expression} = ${text}`;
  if (toolName === "now") return `It is ${text}.`;
  if (toolName === "wait") return text;
  return `${toolName === "fetch_url" ? args.url : toolName} says: ${text}`;
}

async function say(text: string, { signal, onDelta }: ModelOptions): Promise<void> {
  for (const piece of text.match(/.{1,24}/gsu) ?? []) {
    // Lets whoever aborts have a turn between two pieces.
    await new Promise((resolve) => queueMicrotask(() => resolve(undefined)));
    if (signal.aborted) throw new ModelError("aborted", "The demonstration was stopped");
    onDelta({ type: "text", text: piece });
  }
}

function isAssistant(message: Message): message is AssistantMessage {
  return message.role === "assistant";
}

const identity = (call: Call) => JSON.stringify([call.name, call.arguments]);

const tokens = (value: unknown) => Math.ceil(JSON.stringify(value).length / 4);

/** "a, b and c" */
function listed(items: string[]): string {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}
