/**
 * Of Google's SDK what one call takes: all of it would be a fifth of what a Worker weighs. Imported where it is first needed.
 *
 * The SDK says what requests and chunks look like, but they travel here: its own way loses events that begin with a comment, rounds integers
 * beyond 2^53, and keeps no header of an error.
 */
import { Models } from "@google/genai/web";
import { fetchStream, parsed } from "./answer.ts";
import { nestsWithin, spelled } from "./call.ts";
import { frames } from "./frames.ts";
import type { GeminiOptions } from "./gemini.ts";

/** What the SDK wants of that which sends its requests. */
interface Sender {
  isVertexAI(): boolean;
  requestStream(request: { path: string; body: string; abortSignal?: AbortSignal }): Promise<Chunks>;
}

type Chunks = AsyncGenerator<{ headers: object; json(): unknown }>;

/** The SDK's models; each call of theirs is one request. */
export function models({ apiKey, baseURL }: GeminiOptions): Models {
  const base = (baseURL || "https://generativelanguage.googleapis.com").replace(/\/+$/, "");
  // Signatures and JSON Schema are documented for this version.
  const root = /\/v\d\w*$/.test(base) ? base : `${base}/v1beta`;
  const sender: Sender = {
    isVertexAI: () => false,
    requestStream: async ({ path, body, abortSignal: signal }) => {
      const headers = { "content-type": "application/json", "x-goog-api-key": apiKey };
      const answer = await fetchStream(`${root}/${path}`, { method: "POST", headers, body, signal });
      if (!answer.ok) throw failed(await answer.text(), answer);
      return chunks(answer.body);
    },
  };
  return new Models(sender as unknown as ConstructorParameters<typeof Models>[0]);
}

async function* chunks(body: Response["body"]): Chunks {
  for await (const { data } of frames(body)) {
    const chunk = JSON.parse(data);
    if (chunk?.error) throw failed(data);
    yield { headers: {}, json: () => nestsWithin(chunk, deepest) ? exact(chunk, data) : chunk };
  }
}

/** Deeper than any call's arguments may nest; a reviver would overflow the stack. */
const deepest = 200;

/** What the model said keeps the spelling of its numbers; counts are plain numbers. */
function exact(chunk: object, data: string): object {
  return "candidates" in chunk ? { ...chunk, candidates: JSON.parse(data, spelled).candidates } : chunk;
}

/** In the shape that the other vendors' SDKs give to errors. */
function failed(text: string, { status, headers }: Partial<Response> = {}): Error {
  // Where nobody asked for a stream, Gemini's errors come in a list.
  const [body] = [parsed(text)].flat(1);
  const error = body?.error ?? body;
  return Object.assign(new Error(status ? `${status} ${text}` : text), { status, headers, error });
}
