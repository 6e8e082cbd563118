/**
 * A model server that says exactly the bytes it is told: cut anywhere, one at a time, after an event of the test's, with a socket that stays
 * open. For what a mock of a vendor cannot be scripted to do wrong.
 */

export interface Script {
  status?: number;
  headers?: Record<string, string>;
  /** Sent one by one; a promise holds the rest back until it resolves. */
  chunks: (string | Uint8Array<ArrayBuffer> | Promise<unknown>)[];
  /** What comes after the last chunk: a clean end (default), a torn connection, or nothing at all. */
  then?: "close" | "cut" | "open";
}

export interface Recorded {
  method: string;
  path: string;
  headers: Headers;
  body: any;
  /** The body as it came: parsing rounds big integers. */
  text: string;
  /** Resolves when the client has left before the answer's end. */
  left: Promise<void>;
}

export interface ByteServer extends AsyncDisposable {
  url: string;
  requests: Recorded[];
  /** Sets the answers to come: each request takes the next one, and the last one serves all that follow. */
  play(...scripts: (Script | Writer)[]): void;
}

/** Writes a script for the request it is shown. */
export type Writer = (request: Recorded) => Script | Promise<Script>;

/** `check` may refuse a request before any script is played, as the vendor would. */
export function byteServer(check?: (request: Recorded) => Response | undefined): ByteServer {
  const requests: Recorded[] = [];
  const scripts: (Script | Writer)[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const left = Promise.withResolvers<void>();
    const text = await request.text().catch(() => undefined);
    if (text === undefined) return new Response(); // Whoever sent it died over it.
    const recorded: Recorded = {
      method: request.method,
      path: new URL(request.url).pathname,
      headers: request.headers,
      body: text ? JSON.parse(text) : undefined,
      text,
      left: left.promise,
    };
    requests.push(recorded);
    const refused = check?.(recorded);
    if (refused) return refused;
    const next = scripts.length > 1 ? scripts.shift() : scripts[0];
    if (!next) return new Response("no script", { status: 500 });
    const script = typeof next === "function" ? await next(recorded) : next;
    return new Response(stream(script, left.resolve), {
      status: script.status ?? 200,
      headers: {
        "content-type": "text/event-stream",
        // A body shorter than was promised is how a torn connection looks, without the noise of an error in the server.
        ...(script.then === "cut" ? { "content-length": "1000000000" } : {}),
        ...script.headers,
      },
    });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}`,
    requests,
    play: (...next) => void scripts.splice(0, scripts.length, ...next),
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}

function stream({ chunks, then = "close" }: Script, left: () => void): ReadableStream<Uint8Array> {
  const rest = [...chunks];
  let gone: () => void;
  const leaving = new Promise<void>((resolve) => gone = resolve);
  return new ReadableStream({
    async pull(controller) {
      while (rest.length) {
        const chunk = rest.shift()!;
        if (chunk instanceof Promise) await Promise.race([chunk, leaving]);
        else return controller.enqueue(typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk);
      }
      if (then === "open") await leaving;
      else controller.close();
    },
    cancel() {
      gone();
      left();
    },
  }, { highWaterMark: 0 });
}

/** The same bytes, each in a chunk of its own. */
export function bytewise(...parts: (string | Uint8Array<ArrayBuffer>)[]): Uint8Array<ArrayBuffer>[] {
  return parts.flatMap((part) =>
    Array.from(
      typeof part === "string" ? new TextEncoder().encode(part) : part,
      (byte) => Uint8Array.of(byte),
    )
  );
}
