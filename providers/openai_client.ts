/** The model that both OpenAI wires make. */
import { type Capabilities, capabilitiesOf } from "./capabilities.ts";
import type { Delta, Model, ModelRequest } from "../src/model.ts";
import { sendable } from "./history.ts";
import { harmless, read, type Reader } from "./reader.ts";

export interface OpenAIOptions {
  apiKey: string;
  /** Default: https://api.openai.com/v1 */
  baseURL?: string;
  /** Where the server differs from what is known of its like. For Chat Completions. */
  capabilities?: Partial<Capabilities>;
}

/** What one of the wires makes of requests and streams. */
interface Wire<Body, Event> {
  /** Below the base URL. */
  path: string;
  body(model: string, request: ModelRequest, can: Capabilities): Body;
  reader(onDelta: (delta: Delta) => void): Reader<Event>;
}

/** The model `name` ("vendor/model") over one of the wires. */
export function overWire<Body, Event>(name: string, options: OpenAIOptions, wire: Wire<Body, Event>): Model {
  const model = name.slice(name.indexOf("/") + 1);
  const known = capabilitiesOf(options.baseURL || "https://api.openai.com/v1", model);
  const can = { ...known, ...options.capabilities };
  return {
    name,
    formats: () => can.formats,
    reply: async (request, { signal, onDelta, onSign }) => {
      const body = wire.body(model, sendable(request, name, can.echoesReasoning), can);
      const open = async (signal: AbortSignal) => {
        const { post } = await import("./openai_call.ts");
        return await post<Event>(wire.path, body, options, signal);
      };
      return await read(open, wire.reader(harmless(onDelta)), {
        name,
        apiKey: options.apiKey,
        signal,
        onSign,
      });
    },
  };
}
