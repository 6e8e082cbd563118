/**
 * A vendor on a local port, for services that run as processes of their own: it speaks one wire, refuses what the real one refuses, and
 * answers each request by a function of what that request says.
 */
import assert from "node:assert/strict";
import { byteServer, type Recorded, type Script } from "./byte_server.ts";
import { dialect, type Said } from "./dialect.ts";
import { faultOf, strictly, type Wire } from "./strict.ts";

/** A message of a request, whatever wire it came over. Anthropic's results in a user message are tool messages here, in their order. */
export interface Turn {
  role: "system" | "user" | "assistant" | "tool";
  text: string;
  calls: { id: string; name: string; args: any }[];
  /** Of a tool message: whose result it is, and whether the vendor is told that it failed. */
  id?: string;
  isError?: boolean;
}

export interface Asked {
  turns: Turn[];
  /** The text of the last message. */
  last: string;
  /** Results by the order in which they stand. */
  results: Turn[];
  body: any;
  headers: Headers;
}

/** What the model says; a string is text alone. `hold` keeps the second half of its stream back until it resolves. */
export type Reply =
  | string
  | (Said & { hold?: Promise<unknown> })
  | { status: number; code: string; message: string };

export interface ModelServer extends AsyncDisposable {
  wire: Wire;
  requests: Asked[];
  /** What a service needs to find this vendor. */
  env: Record<string, string>;
}

/** The key that services get from `env`. */
export const apiKey = "SEKRIT-q1";

/** `answer` is given the request and its number, from 1. Disposing of the server asserts that it never had to refuse anything. */
export function modelServer(
  wire: Wire,
  answer: (asked: Asked, n: number) => Reply | Promise<Reply>,
): ModelServer {
  const requests: Asked[] = [], faults: string[] = [];
  const server = byteServer((request) => {
    const fault = faultOf(wire, request.body);
    if (fault) faults.push(`request ${requests.length + 1}: ${fault}`);
    return strictly(wire)(request);
  });
  const { promise: closing, resolve: close } = Promise.withResolvers<Reply>();
  server.play(async (request) => {
    const asked = askedOf(wire, request);
    const n = requests.push(asked);
    // An answer that never comes must not keep the server.
    return script(wire, await Promise.race([answer(asked, n), closing]));
  });
  const vendor = wire.startsWith("openai") ? "OPENAI" : wire.toUpperCase();
  const keys: Record<string, string> = wire === "bedrock"
    ? { AWS_REGION: "us-east-1", AWS_ACCESS_KEY_ID: "AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY: apiKey }
    : { [`${vendor}_API_KEY`]: apiKey };
  return {
    wire,
    requests,
    env: {
      PAWL_MODEL: `${wire}/m`,
      ...keys,
      [`${vendor}_BASE_URL`]: server.url,
    },
    async [Symbol.asyncDispose]() {
      close("The vendor is gone");
      await server[Symbol.asyncDispose]();
      assert.deepEqual(faults, [], "the vendor refused requests");
    },
  };
}

/** A message that asks for these tools. */
export function calls(...asked: [name: string, args?: object][]): Said {
  return {
    calls: asked.map(([name, args = {}], n) => ({ id: `call_${n}`, name, args: [JSON.stringify(args)] })),
  };
}

function script(wire: Wire, reply: Reply): Script {
  const vendor = dialect(wire);
  if (typeof reply === "object" && "status" in reply) {
    const headers = { "content-type": "application/json" };
    return { status: reply.status, headers, chunks: [vendor.error(reply.code, reply.message)] };
  }
  const said = typeof reply === "string" ? { text: [reply] } : reply;
  const frames = vendor.frames(said), half = Math.ceil(frames.length / 2);
  return { chunks: said.hold ? [...frames.slice(0, half), said.hold, ...frames.slice(half)] : frames };
}

function askedOf(wire: Wire, { body, headers }: Recorded): Asked {
  const turns = wire === "openai"
    ? ofResponses(body)
    : wire === "anthropic"
    ? ofAnthropic(body)
    : wire === "gemini"
    ? ofGemini(body)
    : wire === "bedrock"
    ? ofBedrock(body)
    : ofChat(body);
  return {
    turns,
    last: turns.at(-1)!.text,
    results: turns.filter((turn) => turn.role === "tool"),
    body,
    headers,
  };
}

function textOf(content: any): string {
  return typeof content === "string" ? content : (content ?? []).map((part: any) => part.text ?? "").join("");
}

/** OpenAI's wires have no flag for failures. */
function result(id: string, content: any): Turn {
  const text = textOf(content);
  return { role: "tool", id, text, isError: text.startsWith("Error: "), calls: [] };
}

function ofChat(body: any): Turn[] {
  return body.messages.map((message: any): Turn =>
    message.role === "tool" ? result(message.tool_call_id, message.content) : {
      role: message.role,
      text: textOf(message.content),
      calls: (message.tool_calls ?? []).map((call: any) => ({
        id: call.id,
        name: call.function.name,
        args: JSON.parse(call.function.arguments),
      })),
    }
  );
}

/** Items of one message of the model's stand alone there; here they are one turn again. */
function ofResponses(body: any): Turn[] {
  const turns: Turn[] = body.instructions ? [{ role: "system", text: body.instructions, calls: [] }] : [];
  for (const item of body.input) {
    if (item.type === "function_call_output") turns.push(result(item.call_id, item.output));
    else if (item.role && item.role !== "assistant") {
      turns.push({ role: item.role, text: textOf(item.content), calls: [] });
    } else {
      if (turns.at(-1)?.role !== "assistant") turns.push({ role: "assistant", text: "", calls: [] });
      const turn = turns.at(-1)!;
      if (item.type === "function_call") {
        turn.calls.push({ id: item.call_id, name: item.name, args: JSON.parse(item.arguments) });
      } else turn.text += textOf(item.content);
    }
  }
  return turns;
}

function ofAnthropic(body: any): Turn[] {
  const turns: Turn[] = body.system ? [{ role: "system", text: textOf(body.system), calls: [] }] : [];
  for (const { role, content } of body.messages) {
    for (const block of content.filter((block: any) => block.type === "tool_result")) {
      turns.push({
        role: "tool",
        id: block.tool_use_id,
        text: textOf(block.content),
        isError: block.is_error === true,
        calls: [],
      });
    }
    const rest = content.filter((block: any) => block.type !== "tool_result");
    if (!rest.length) continue;
    turns.push({
      role,
      text: textOf(rest),
      calls: rest.filter((block: any) => block.type === "tool_use")
        .map(({ id, name, input }: any) => ({ id, name, args: input })),
    });
  }
  return turns;
}

function ofGemini(body: any): Turn[] {
  const { systemInstruction: system } = body;
  const turns: Turn[] = system ? [{ role: "system", text: textOf(system.parts), calls: [] }] : [];
  for (const { role, parts } of body.contents) {
    const calls = [];
    for (const { functionResponse: answer, functionCall: call } of parts) {
      if (call) calls.push(call);
      if (!answer) continue;
      const { output, error } = answer.response, isError = error !== undefined;
      turns.push({ role: "tool", id: answer.id, text: isError ? error : output, isError, calls: [] });
    }
    const text = textOf(parts);
    if (text || calls.length) turns.push({ role: role === "model" ? "assistant" : "user", text, calls });
  }
  return turns;
}

function ofBedrock(body: any): Turn[] {
  const { system, messages } = body;
  const turns: Turn[] = system ? [{ role: "system", text: textOf(system), calls: [] }] : [];
  for (const { role, content } of messages) {
    for (const { toolResult: result } of content) {
      if (!result) continue;
      const text = textOf(result.content), isError = result.status === "error" || text.startsWith("Error: ");
      turns.push({ role: "tool", id: result.toolUseId, text, isError, calls: [] });
    }
    const calls = content.flatMap(({ toolUse: call }: any) =>
      call ? [{ id: call.toolUseId, name: call.name, args: call.input }] : []
    );
    const text = textOf(content);
    if (text || calls.length) turns.push({ role, text, calls });
  }
  return turns;
}
