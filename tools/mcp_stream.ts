/** What the SDK's transport does not see to: requests whose stream breaks off are answered, and no stream is held that nobody listens to. */

/** A fetch for the SDK's transport. */
export function watched(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const isPost = init?.method === "POST";
    // What a server says unasked is not wanted, and platforms count the connections that are open.
    if (!isPost && init?.method !== "DELETE" && !new Headers(init?.headers).has("last-event-id")) {
      return new Response(null, { status: 405 });
    }
    const response = await fetch(input, init);
    const streams = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (!isPost || !streams || !response.body) return response;
    const { id } = JSON.parse(String(init.body));
    return id === undefined ? response : new Response(answered(response.body, id), response);
  };
}

/**
 * An event stream that ends with an error as the answer to request `id`. If the answer was there, the error is nobody's; if the events have
 * ids, the SDK asks for the rest itself, and nothing is added.
 */
function answered(body: ReadableStream<Uint8Array>, id: unknown): ReadableStream<Uint8Array> {
  const reader = body.getReader(), decoder = new TextDecoder();
  const error = { code: -32000, message: "Connection closed" };
  let tail = "\n", hasIds = false;
  return new ReadableStream({
    async pull(controller) {
      const { value } = await reader.read().catch(() => ({ value: undefined }));
      if (value) {
        const text = tail + decoder.decode(value, { stream: true });
        hasIds ||= /[\r\n]id: ?\S/.test(text);
        tail = text.slice(-5);
        return controller.enqueue(value);
      }
      // The line breaks end an event that was cut off.
      const last = `\n\ndata: ${JSON.stringify({ jsonrpc: "2.0", id, error })}\n\n`;
      if (!hasIds) controller.enqueue(new TextEncoder().encode(last));
      controller.close();
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
