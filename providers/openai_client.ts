/** The OpenAI SDK, set up so that it does one try and decides nothing by itself, and the model that both OpenAI wires make with it. */
import type OpenAI from "openai";
import type { Delta, Model, ModelRequest } from "../src/model.ts";
import { fetchStream } from "./answer.ts";
import { sendable } from "./history.ts";
import { harmless, noTimeout, read, type Reader } from "./reader.ts";

export interface OpenAIOptions {
  apiKey: string;
  /** Default: https://api.openai.com/v1 */
  baseURL?: string;
}

/** What one of the wires makes of requests and streams. */
interface Wire<Body, Event> {
  body(model: string, request: ModelRequest): Body;
  create(sdk: OpenAI, body: Body, signal: AbortSignal): Promise<AsyncIterable<Event>>;
  reader(onDelta: (delta: Delta) => void): Reader<Event>;
}

/** The model `name` ("vendor/model") over one of the wires. */
export function overWire<Body, Event>(name: string, options: OpenAIOptions, wire: Wire<Body, Event>): Model {
  const model = name.slice(name.indexOf("/") + 1), sdk = client(options);
  return {
    name,
    formats: () => true,
    reply: async (request, { signal, onDelta, onSign }) => {
      const body = wire.body(model, sendable(request, name));
      const open = async (signal: AbortSignal) => await wire.create(await sdk(), body, signal);
      return await read(open, wire.reader(harmless(onDelta)), {
        name,
        apiKey: options.apiKey,
        signal,
        onSign,
      });
    },
  };
}

/** Made at its first use, and kept: on Workers nothing that does I/O may outlive its request, but this holds no connection (CASES F24). */
function client({ apiKey, baseURL }: OpenAIOptions): () => Promise<OpenAI> {
  let made: OpenAI | undefined;
  return async () => {
    // Not the package: that brings two more clients along.
    const { OpenAI } = await import("openai/client");
    return made ??= new OpenAI({
      apiKey,
      // Always given: the SDK would read the environment instead, and log what it could not parse.
      baseURL: baseURL || "https://api.openai.com/v1",
      organization: null,
      project: null,
      logLevel: "off",
      maxRetries: 0,
      timeout: noTimeout,
      fetch: fetchStream,
    });
  };
}
