/** A model that asks for whatever the dice say, fails like a vendor, and refuses what vendors refuse. */
import { callsOf, type Message, textOf } from "../../../src/message.ts";
import {
  type Model,
  ModelError,
  type ModelReply,
  type ModelRequest,
  type Models,
} from "../../../src/model.ts";
import { Dice } from "./dice.ts";
import { type Books, delicate } from "./tools.ts";
import { forever, type Isolate, type World } from "./world.ts";

export interface Request {
  at: number;
  isolate: Isolate;
  /** Id of its last message: it says which run it was made for. */
  last: string;
}

export function simulatedModels(
  world: World,
  isolate: Isolate,
  books: Books,
  requests: Request[],
  seed: number,
): Models {
  const dice = new Dice(seed, `model ${isolate.number}`), clock = world.clockOf(isolate);
  const model: Model = {
    name: "simulated/model",
    async reply(request, { signal, onDelta }) {
      const fault = faultOf(request.messages) ?? changed(request.messages, books);
      if (fault) world.problem("R9 sendable", `${fault} in ${shape(request.messages)}`);
      requests.push({ at: world.time.now(), isolate, last: request.messages.at(-1)?.id ?? "" });
      world.note(() => `${isolate.name} model: ${shape(request.messages)}`);

      const ms = dice.chance(0.04) ? 70_000 : dice.between(300, 5_000), heeds = dice.chance(0.7);
      const reply = plan(request, dice);
      for (const block of reply.content) books.blocks.add(JSON.stringify(block));
      const text = textOf(reply.content);
      for (const part of [text.slice(0, 7), text.slice(7)]) {
        await clock.sleep(ms / 2, heeds ? signal : undefined);
        if (heeds && signal.aborted) throw new ModelError("aborted", "The call was aborted");
        if (part) onDelta({ type: "text", text: part });
      }
      if (world.fault(0.015)) {
        world.kill(isolate, "while the model spoke");
        return await forever();
      }
      if (world.fault(0.05)) {
        throw new ModelError("overloaded", "Try later", dice.pick([undefined, 3_000, 90_000]));
      }
      if (world.fault(0.004)) throw new ModelError("bad_request", "No");
      return reply;
    },
  };
  return { default: model.name, get: () => model };
}

function plan({ messages, tools }: ModelRequest, dice: Dice): ModelReply {
  const since = messages.findLastIndex((message) => message.role === "user");
  const turns = messages.slice(since).filter((message) => message.role === "assistant").length;
  const first = messages.find((message) => message.role === "user");
  const level = Number(/^level (\d)/.exec(textOf(first?.content ?? ""))?.[1] ?? 0);
  const usage = { input: 10, output: 5 };
  const said = `text ${messages.length} of ${messages.at(-1)?.id} ${delicate}`;
  if (dice.chance([0.15, 0.45, 0.8][Math.min(turns, 2)]!) || !tools.length) {
    return { content: [{ type: "text", text: said }], stopReason: "stop", usage };
  }
  const menu = tools.map((tool) => tool.name).filter((name) => name !== "agent" || level < 2);
  const unknown = messages.findLast((message) =>
    message.role === "tool" && message.toolName === "pay" && textOf(message.content).includes("unknown")
  );
  const calls = Array.from({ length: dice.between(1, 3) }, (_, index) => {
    // Now and then it does what it should not: pay again although the outcome is unknown.
    const again = unknown?.role === "tool" && index === 0 && dice.chance(0.3)
      ? messages.flatMap((message) => message.role === "assistant" ? callsOf(message) : [])
        .find((call) => call.id === unknown.toolCallId)
      : undefined;
    const name = again?.name ?? (dice.chance(0.02) ? "nothing" : dice.pick(menu));
    const args = again?.arguments ??
      { n: `${messages.at(-1)?.id} ${index}`, level: level + 1, text: delicate, list: [], none: {} };
    return { type: "tool_call" as const, name, arguments: args };
  });
  const text = dice.chance(0.5) ? [{ type: "text" as const, text: said }] : [];
  return { content: [...text, ...calls], stopReason: "tool_calls", usage };
}

/** The first reason for which a vendor would refuse these messages (DESIGN rule 9). */
export function faultOf(messages: readonly Message[]): string | undefined {
  if (messages.at(-1)?.role === "assistant") return "the last message is the assistant's";
  return faultInside(messages);
}

/** The same for a transcript that is not about to be sent: it may end with the assistant. */
export function faultInside(messages: readonly Message[]): string | undefined {
  if (messages[0] && messages[0].role !== "user") return "the first message is not a user's";
  const seen = new Set<string>();
  let owed: string[] = [];
  for (const message of messages) {
    if (seen.has(message.id)) return `message ${message.id} comes twice`;
    seen.add(message.id);
    if (message.role === "tool") {
      if (owed.shift() !== message.toolCallId) {
        return `result of ${message.toolCallId} is not where it belongs`;
      }
      continue;
    }
    if (owed.length) return `a ${message.role} message comes before the results of ${owed}`;
    if (message.role === "assistant") owed = callsOf(message).map((call) => call.id);
  }
  if (owed.length) return `no result for ${owed}`;
}

/** Anything that nobody said in this way (rule 6). */
function changed(messages: readonly Message[], books: Books): string | undefined {
  for (const message of messages) {
    // The loop asks once more for a call that was forced.
    const own = message.role === "user" && message.source === "pawl" &&
      /^Before you answer, call /.test(textOf(message.content));
    if (message.role === "user" && !own && !books.texts.has(textOf(message.content))) {
      return `nobody said ${JSON.stringify(message.content)}`;
    }
    if (message.role === "tool" && !message.isError && !books.texts.has(textOf(message.content))) {
      return `no tool returned ${JSON.stringify(message.content)}`;
    }
    if (message.role !== "assistant") continue;
    for (const block of message.content) {
      const said = block.type === "tool_call" ? { ...block, id: undefined } : block;
      if (!books.blocks.has(JSON.stringify(said))) return `no model said ${JSON.stringify(block)}`;
    }
  }
}

export function shape(messages: readonly Message[]): string {
  return messages.map((message) =>
    message.role === "assistant"
      ? `assistant(${callsOf(message).map((call) => call.name)})`
      : message.role === "tool"
      ? `tool(${message.toolName}${message.isError ? "!" : ""})`
      : "user"
  ).join(" ");
}
