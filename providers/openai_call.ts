/**
 * Of OpenAI's SDK what one call takes, how errors are read: all of it would be a quarter of what a Worker weighs, and its streams fail on
 * events that hold nothing. Imported where it is first needed.
 */
import { APIError } from "openai/core/error";
import { fetchStream, parsed } from "./answer.ts";
import { frames } from "./frames.ts";
import type { OpenAIOptions } from "./openai_client.ts";

/** One try. Throws the SDK's APIError for answers that are none. */
export async function post<Event>(
  path: string,
  body: unknown,
  { apiKey, baseURL }: OpenAIOptions,
  signal: AbortSignal,
): Promise<AsyncIterable<Event>> {
  const base = (baseURL || "https://api.openai.com/v1").replace(/\/+$/, "");
  const answer = await fetchStream(base + path, {
    method: "POST",
    headers: {
      "accept": "application/json",
      "authorization": `Bearer ${apiKey}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok) {
    const text = await answer.text(), error: object | undefined = parsed(text) ?? undefined;
    throw APIError.generate(answer.status, error, error ? undefined : text, answer.headers);
  }
  return events(answer);
}

async function* events<Event>({ body, headers }: Response): AsyncGenerator<Event> {
  for await (const { data, event: name } of frames(body)) {
    const event = JSON.parse(data);
    // Some servers say it by the event's name alone; in Responses such an event is one of its own, with a type.
    const error = event?.error ?? (name === "error" && event?.type !== "error" ? event : undefined);
    if (error) throw new APIError(undefined, error, undefined, headers);
    yield event;
  }
}
