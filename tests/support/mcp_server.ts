/** An MCP server of the test's own, for what no real one does on demand: it says what it is told to say, and keeps what it was sent. */
import type { Json } from "../../src/message.ts";

export interface Sent {
  /** None: a notice. */
  id?: unknown;
  method: string;
  params: any;
  session: string | null;
  headers: Headers;
}

/** A call under way. */
export interface Call {
  name: string;
  args: any;
  meta: any;
  progress(progress: number, total?: number, message?: string): void;
  /** Ends the answer in the middle, without a result. */
  breakOff(): void;
  /** Resolves when the client takes the call back. */
  cancelled: Promise<void>;
}

export interface McpFake extends AsyncDisposable {
  url: string;
  /** All messages so far. */
  sent: Sent[];
  /** Names of the tools called so far. */
  readonly calls: string[];
  /** Sessions that have begun and not ended. */
  readonly sessions: ReadonlySet<string>;
  /** As it lists them; a name alone is a tool that takes anything. */
  tools: Json[];
  answer(call: Call): unknown;
  /** Answers a request before anybody looks at it. */
  fault?(sent: Sent): Response | Promise<Response> | undefined;
  /** Knows no session any more, as after a restart. */
  forget(): void;
  /** Nothing listens any more, and what was open breaks. */
  die(): Promise<void>;
}

export function mcpFake(
  tools: Json[],
  answer: McpFake["answer"] = ({ name }) => text(`${name} done`),
): McpFake {
  const sessions = new Set<string>(), cancels = new Map<string, () => void>();
  const streams = new Set<() => void>(), end = new AbortController();
  let count = 0;

  const call = (id: unknown, { name, arguments: args, _meta: meta }: any, session: string | null) => {
    const { promise: cancelled, resolve } = Promise.withResolvers<void>();
    cancels.set(`${session} ${id}`, resolve);
    const encoder = new TextEncoder();
    let close = () => {};
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        const say = (message: object) => {
          try {
            controller.enqueue(
              encoder.encode(`data: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`),
            );
          } catch { /* The client has gone. */ }
        };
        close = () => {
          streams.delete(close);
          try {
            controller.close();
          } catch { /* The client has gone. */ }
        };
        streams.add(close);
        const progress: Call["progress"] = (progress, total, message) =>
          say({
            method: "notifications/progress",
            params: { progressToken: meta.progressToken, progress, total, message },
          });
        (async () => await fake.answer({ name, args, meta, progress, breakOff: close, cancelled }))().then(
          (result) => say({ id, result }),
          (error) => say({ id, error: { code: -32602, message: error.message } }),
        ).then(close);
      },
      cancel: () => void streams.delete(close),
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };

  const serve = async (request: Request): Promise<Response> => {
    const session = request.headers.get("mcp-session-id");
    if (request.method === "DELETE") {
      fake.sent.push({ method: "DELETE", params: {}, session, headers: request.headers });
      return new Response(null, { status: sessions.delete(session!) ? 200 : 404 });
    }
    if (request.method !== "POST") return new Response(null, { status: 405 });
    const { id, method, params = {} } = await request.json();
    const sent = { id, method, params, session, headers: request.headers };
    fake.sent.push(sent);
    const fault = await fake.fault?.(sent);
    if (fault) return fault;
    if (method === "initialize") {
      const name = `s${++count}`;
      sessions.add(name);
      const result = {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "fake", version: "1" },
      };
      return Response.json({ jsonrpc: "2.0", id, result }, { headers: { "mcp-session-id": name } });
    }
    if (!sessions.has(session!)) return new Response("no such session", { status: 404 });
    if (method === "notifications/cancelled") cancels.get(`${session} ${params.requestId}`)?.();
    if (id === undefined) return new Response(null, { status: 202 });
    if (method === "tools/call") return call(id, params, session);
    const tools = fake.tools.map((tool) =>
      typeof tool === "string" ? { name: tool, inputSchema: { type: "object" } } : tool
    );
    return Response.json({ jsonrpc: "2.0", id, result: { tools } });
  };

  const server = Deno.serve(
    { port: 0, hostname: "127.0.0.1", signal: end.signal, onListen: () => {} },
    serve,
  );
  const fake: McpFake = {
    url: `http://127.0.0.1:${server.addr.port}/mcp`,
    sent: [],
    get calls() {
      return fake.sent.filter(({ method }) => method === "tools/call").map(({ params }) => params.name);
    },
    sessions,
    tools,
    answer,
    forget: () => sessions.clear(),
    async die() {
      for (const close of streams) close();
      end.abort();
      await server.finished;
    },
    async [Symbol.asyncDispose]() {
      await fake.die();
    },
  };
  return fake;
}

export function text(text: string, more: object = {}): { content: Json[] } {
  return { content: [{ type: "text", text }], ...more };
}
