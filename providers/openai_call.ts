/**
 * Of OpenAI's SDK what one call takes, how streams and errors are read: all of it would be a quarter of what a Worker weighs. Imported
 * where it is first needed.
 */
import { APIError } from "openai/core/error";
import { Stream } from "openai/core/streaming";
import { fetchStream } from "./answer.ts";
import type { OpenAIOptions } from "./openai_client.ts";

/** One try. Throws the SDK's APIError for answers that are none. */
export async function post<Event>(
  path: string,
  body: unknown,
  { apiKey, baseURL }: OpenAIOptions,
  signal: AbortSignal,
): Promise<AsyncIterable<Event>> {
  const left = new AbortController(), base = (baseURL || "https://api.openai.com/v1").replace(/\/+$/, "");
  const answer = await fetchStream(base + path, {
    method: "POST",
    headers: {
      "accept": "application/json",
      "authorization": `Bearer ${apiKey}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
    signal: AbortSignal.any([signal, left.signal]),
  });
  if (!answer.ok) {
    const text = await answer.text(), error = parsed(text);
    throw APIError.generate(answer.status, error, error ? undefined : text, answer.headers);
  }
  // The SDK would log what it cannot parse.
  return Stream.fromSSEResponse<Event>(answer, left, { logLevel: "off" } as Client);
}

type Client = Parameters<typeof Stream.fromSSEResponse>[2];

function parsed(text: string): object | undefined {
  try {
    return JSON.parse(text) ?? undefined;
  } catch {
    return undefined;
  }
}
