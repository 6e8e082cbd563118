/** The OpenAI SDK, set up so that it does one try and decides nothing by itself. Both OpenAI wires use it. */
import type OpenAI from "openai";
import { fetchStream } from "./answer.ts";
import { noTimeout } from "./reader.ts";

export interface OpenAIOptions {
  apiKey: string;
  /** Default: https://api.openai.com/v1 */
  baseURL?: string;
}

/** Made at its first use, and kept: on Workers nothing that does I/O may outlive its request, but this holds no connection (CASES F24). */
export function client({ apiKey, baseURL }: OpenAIOptions): () => Promise<OpenAI> {
  let made: OpenAI | undefined;
  return async () => {
    const { OpenAI } = await import("openai");
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
