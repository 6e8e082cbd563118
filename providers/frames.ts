/** Streams of server-sent events, for the vendors whose SDK fails on what servers send between them. Imported where it is first needed. */
import { EventSourceParserStream } from "eventsource-parser/stream";

/** Each event's data, and its name if it has one, up to the end mark. Comments and events that hold nothing keep a line open, and say no more (CASES B08). */
export async function* frames(body: Response["body"]): AsyncGenerator<{ data: string; event?: string }> {
  const events = body?.pipeThrough(new TextDecoderStream())
    // The last event may lack the line that ends it; half an event is no JSON.
    .pipeThrough(new TransformStream({ flush: (end) => end.enqueue("\n\n") }))
    .pipeThrough(new EventSourceParserStream());
  for await (const { data, event } of events ?? []) {
    if (data.trim() === "[DONE]") return;
    if (data.trim()) yield { data, event };
  }
}
