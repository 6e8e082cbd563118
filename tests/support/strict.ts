/**
 * Refuses what the real vendors refuse, so that a faulty request fails loudly whatever a test looks at. Each check takes a request's body
 * and returns the first fault, or nothing.
 */
import type { Recorded } from "./byte_server.ts";
import { demand, Fault, formatTaken, jsonObject, nameTaken, Pairs, parametersTaken, said } from "./demand.ts";
import { bedrock } from "./strict_bedrock.ts";
import { gemini } from "./strict_gemini.ts";

export type Wire = "openai" | "openai-chat" | "anthropic" | "gemini" | "bedrock";

const faults: Record<Wire, (body: any) => void> = {
  "openai": responses,
  "openai-chat": chat,
  "anthropic": anthropic,
  "gemini": gemini,
  "bedrock": bedrock,
};

export function faultOf(wire: Wire, body: unknown): string | undefined {
  try {
    demand(isWellFormed(body), "a string holds half a surrogate pair");
    faults[wire](body);
  } catch (error) {
    if (error instanceof Fault) return error.message;
    return `not understood: ${error}`;
  }
}

/** For `byteServer`: answers a faulty request with the vendor's 400. */
export function strictly(wire: Wire): (request: Pick<Recorded, "body">) => Response | undefined {
  return ({ body }) => {
    const message = faultOf(wire, body);
    if (message === undefined) return undefined;
    const error = { type: "invalid_request_error", message };
    return Response.json(wire === "anthropic" ? { type: "error", error } : { error }, { status: 400 });
  };
}

/** A proxy that checks what goes to `url`, for mocks that take everything. Resources are the caller's to dispose of. */
export function strictProxy(wire: Wire, url: string): AsyncDisposable & { url: string; faults: string[] } {
  const found: string[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const text = await request.text();
    const fault = faultOf(wire, JSON.parse(text));
    if (fault) found.push(fault);
    if (fault) {
      return Response.json({ error: { type: "invalid_request_error", message: fault } }, { status: 400 });
    }
    const { pathname, search } = new URL(request.url);
    return await fetch(url + pathname + search, {
      method: request.method,
      headers: request.headers,
      body: text,
    });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}`,
    faults: found,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([key, held]) => key.isWellFormed() && isWellFormed(held));
}

function toolsTaken(body: any, names: unknown[] | undefined, schemas: any[], forced: unknown): void {
  const given = names ?? [];
  demand(names === undefined || given.length, "tools must not be empty");
  demand(given.length || body.tool_choice === undefined, "tool_choice is only allowed with tools");
  demand(
    given.length || body.parallel_tool_calls === undefined,
    "parallel_tool_calls is only allowed with tools",
  );
  given.forEach(nameTaken);
  demand(new Set(given).size === given.length, "tool names must be unique");
  schemas.forEach(parametersTaken);
  demand(forced === undefined || given.includes(forced), `tool_choice names ${forced}, which is no tool`);
}

function chat(body: any): void {
  toolsTaken(
    body,
    body.tools?.map((tool: any) => tool.function.name),
    body.tools?.map((tool: any) => tool.function.parameters) ?? [],
    body.tool_choice?.function?.name,
  );
  demand(body.messages?.some((message: any) => message.role !== "system"), "messages are empty");
  if (body.response_format) {
    const { type, json_schema: format } = body.response_format;
    demand(type === "json_schema" && /^[\w-]{1,64}$/.test(format?.name), "response_format has no name");
    formatTaken(format, format.strict);
  }
  const pairs = new Pairs();
  for (const message of body.messages) {
    if (message.role === "tool") {
      pairs.result(message.tool_call_id);
      said(message.content, "tool message");
      continue;
    }
    pairs.settled();
    const { content, tool_calls: calls } = message;
    if (message.role === "assistant") {
      demand(calls === undefined || calls.length, "tool_calls must not be empty");
      if (content !== null || !calls) said(content, "assistant");
      for (const call of calls ?? []) {
        pairs.call(call.id, 40);
        nameTaken(call.function.name);
        jsonObject(call.function.arguments);
      }
    } else if (Array.isArray(content)) {
      demand(content.length, "content must not be empty");
      for (const part of content) {
        part.type === "text" ? said(part.text, "user") : demand(part.image_url?.url, "no url");
      }
    } else said(content, message.role);
  }
  pairs.settled();
  demand(
    body.messages.at(-1).role !== "assistant",
    "the conversation must not end with an assistant message",
  );
}

function responses(body: any): void {
  toolsTaken(
    body,
    body.tools?.map((tool: any) => tool.name),
    body.tools?.map((tool: any) => tool.parameters) ?? [],
    body.tool_choice?.name,
  );
  demand(body.store === false, "this suite wants nothing stored");
  if (body.instructions !== undefined) said(body.instructions, "instructions");
  demand(body.input?.length, "input is empty");
  if (body.text?.format) {
    const { type, name, strict } = body.text.format;
    demand(type === "json_schema" && /^[\w-]{1,64}$/.test(name), "text.format has no name");
    formatTaken(body.text.format, strict !== false);
  }
  const pairs = new Pairs();
  let reasoning: string | undefined, answering = false;
  for (const item of body.input) {
    const led = item.type === "reasoning" || item.type === "function_call" || item.role === "assistant";
    demand(
      !reasoning || led,
      `item ${reasoning} of type reasoning was provided without its required following item`,
    );
    reasoning = undefined;
    if (item.type === "reasoning") {
      demand(
        item.id && item.encrypted_content && Array.isArray(item.summary),
        "reasoning that was not stored",
      );
      reasoning = item.id;
    } else if (item.type === "function_call") {
      if (answering) pairs.settled();
      pairs.call(item.call_id, 64);
      nameTaken(item.name);
      jsonObject(item.arguments);
    } else if (item.type === "function_call_output") {
      pairs.result(item.call_id);
      if (typeof item.output === "string") said(item.output, "output");
      else demand(item.output.length, "output must not be empty");
    } else {
      if (item.role !== "assistant") pairs.settled();
      if (Array.isArray(item.content)) {
        demand(item.content.length, "content must not be empty");
        for (const part of item.content) part.type === "input_text" && said(part.text, item.role);
      } else said(item.content, item.role);
    }
    answering = item.type === "function_call_output";
  }
  demand(!reasoning, `item ${reasoning} of type reasoning was provided without its required following item`);
  pairs.settled();
  demand(body.input.at(-1).role !== "assistant", "the conversation must not end with an assistant message");
}

function anthropic(body: any): void {
  toolsTaken(
    body,
    body.tools?.map((tool: any) => tool.name),
    body.tools?.map((tool: any) => tool.input_schema) ?? [],
    body.tool_choice?.name,
  );
  demand(body.max_tokens > 0, "max_tokens: field required");
  const system = typeof body.system === "string" ? [{ text: body.system }] : body.system ?? [];
  for (const { text } of system) said(text, "system");
  const marks = JSON.stringify(body).split('"cache_control"').length - 1;
  demand(marks <= 4, `a maximum of 4 blocks with cache_control may be provided. Found ${marks}`);
  demand(body.messages?.[0]?.role === "user", "first message must use the user role");
  if (body.output_config?.format) {
    demand(body.output_config.format.type === "json_schema", "output_config.format is of no type");
    formatTaken(body.output_config.format, true);
  }
  const pairs = new Pairs();
  let before: string | undefined;
  for (const { role, content } of body.messages) {
    demand(role !== before, "roles must alternate");
    before = role;
    demand(Array.isArray(content) && content.length, "content must not be empty");
    let texts = 0;
    for (const block of content) {
      if (block.type === "text") {
        said(block.text, `text content blocks of ${role}`);
        texts++;
      } else if (block.type === "tool_result") {
        demand(role === "user" && !texts, "tool_result blocks must come before text");
        pairs.result(block.tool_use_id);
        demand(block.content.length, "tool_result content must not be empty");
        for (const part of block.content) {
          if (part.type === "text") said(part.text, "tool_result");
          else demand(!block.is_error, "all content must be text if is_error is true");
        }
      } else if (block.type === "tool_use") {
        pairs.call(block.id, 64);
        nameTaken(block.name);
        demand(
          block.input && typeof block.input === "object" && !Array.isArray(block.input),
          "input must be an object",
        );
      } else if (block.type === "thinking") {
        demand(block.signature?.trim(), "thinking: signature: field required");
      } else if (block.type === "redacted_thinking") {
        demand(block.data, "redacted_thinking: data: field required");
      }
    }
    demand(
      !/thinking/.test(content.at(-1).type),
      "the final block in an assistant message cannot be thinking",
    );
    if (role === "user") pairs.settled();
  }
  // A paused turn goes on from what the vendor's own tools have said.
  const paused = body.messages.at(-1).content.some?.(({ type }: any) => type.startsWith("server_tool_"));
  demand(before === "user" || paused, "this model does not support assistant message prefill");
}
