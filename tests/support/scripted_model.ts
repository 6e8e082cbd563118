/** A model that says what the test tells it to say, in order; it fails on a request that nobody expected. */
import type { Json } from "../../src/message.ts";
import {
  type Model,
  ModelError,
  type ModelOptions,
  type ModelReply,
  type ModelRequest,
} from "../../src/model.ts";

export type Said =
  | string
  | Partial<ModelReply>
  | Error
  | ((request: ModelRequest, options: ModelOptions) => Said | Promise<Said>);

export interface ScriptedModel extends Model {
  /** Requests so far, as they were then. */
  requests: ModelRequest[];
  /** Lines of the script that were not used. */
  left(): number;
}

/** `script` is a list, or a function asked for each request. */
export function scriptedModel(
  script: Said[] | ((request: ModelRequest, n: number) => Said | Promise<Said>),
): ScriptedModel {
  const requests: ModelRequest[] = [];
  const lines = Array.isArray(script) ? [...script] : undefined;
  return {
    name: "scripted/model",
    requests,
    left: () => lines?.length ?? 0,
    async reply(request, options) {
      requests.push(structuredClone(request));
      let said: Said | undefined = lines
        ? lines.shift()
        : await (script as (r: ModelRequest, n: number) => Said)(request, requests.length);
      if (said === undefined) {
        throw new ModelError("bad_request", `Scripted model: request ${requests.length} was not expected`);
      }
      while (typeof said === "function") said = await said(request, options);
      if (options.signal.aborted) throw new ModelError("aborted", "The call was aborted");
      if (said instanceof Error) throw said;
      const partial: Partial<ModelReply> = typeof said === "string"
        ? { content: [{ type: "text", text: said }] }
        : said;
      const content = partial.content ?? [];
      for (const block of content) {
        if (block.type === "text") options.onDelta({ type: "text", text: block.text });
      }
      const calls = content.some((block) => block.type === "tool_call");
      return {
        stopReason: calls ? "tool_calls" : "stop",
        usage: { input: 10, output: 5 },
        ...partial,
        content,
      };
    },
  };
}

/** A message that asks for these tools. */
export function calls(...asked: [name: string, args?: { [key: string]: Json }][]): Partial<ModelReply> {
  return { content: asked.map(([name, args = {}]) => ({ type: "tool_call", name, arguments: args })) };
}
