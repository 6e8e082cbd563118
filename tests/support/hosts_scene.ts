/** A host of the service with the world around it on this machine: Redis and QStash as stand-ins, a vendor, and a slow corner of the web. */
import assert from "node:assert/strict";
import { type ByteServer, byteServer, type Script as Page } from "./byte_server.ts";
import type { Got } from "./event_client.ts";
import type { Host, HostKind } from "./hosts.ts";
import { type Asked, type ModelServer, modelServer, type Reply } from "./model_server.ts";
import { type QstashServer, qstashServer } from "./qstash_server.ts";
import { type Answer, until } from "./service.ts";
import type { UpstashRest } from "./upstash_rest.ts";

export interface HostScene extends AsyncDisposable {
  host: Host;
  rest: UpstashRest;
  qstash: QstashServer;
  model: ModelServer;
  headers: Record<string, string>;
  /** Pages that `fetch_url` reads, by their paths. */
  web: { url: string; pages: Record<string, Page>; requests: ByteServer["requests"] };
  /** All requests of the service to the world so far. */
  asked(): number;
  /** What the vendor says in the run with this prompt, or loop: line after line, or as the function says. */
  says(prompt: string, script: Reply[] | ((asked: Asked) => Reply | Promise<Reply>)): void;
  ask(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** POST /runs, which must be accepted; answers the run's id. */
  start(content: string, more?: object): Promise<string>;
  /** The run once it has this status. */
  reaches(run: string, status: string): Promise<any>;
  messages(run: string): Promise<any[]>;
  /** The run's events until the stream ends, without reconnecting. */
  events(run: string, lastEventId?: string): Promise<Got[]>;
}

export interface HostSceneOptions {
  env?: Record<string, string>;
  /** Makes the deliveries. */
  deliver?: (request: Request, scene: HostScene) => Promise<Response>;
}

/** Several may share one Redis: each host has a tenant of its own. */
export async function hostScene(
  kind: HostKind,
  rest: UpstashRest,
  { env, deliver = (request) => fetch(request) }: HostSceneOptions = {},
): Promise<HostScene> {
  await using stack = new AsyncDisposableStack();
  const scripts = new Map<string, (asked: Asked) => Reply | Promise<Reply>>();
  const model = stack.use(modelServer("openai-chat", (asked) => {
    const prompt = asked.turns.find(({ role }) => role === "user")!.text;
    return scripts.get(prompt)!(asked);
  }));
  const server = stack.use(byteServer()), pages: Record<string, Page> = {};
  server.play(({ path }) => pages[path] ?? { status: 404, chunks: ["no such page"] });
  const qstash = stack.use(
    await qstashServer({ backoffScale: 0.02, fetch: (request) => deliver(request, scene) }),
  );
  const key = `key-${kind.name}`, headers = { authorization: `Bearer ${key}` };
  const host = stack.use(
    await kind.start({
      ...model.env,
      ...rest.env,
      ...qstash.env,
      PAWL_API_KEYS: `${kind.name}:${key}`,
      PAWL_ALLOW_HOSTS: new URL(server.url).host,
      ...env,
    }),
  );
  const all = stack.move();

  const scene: HostScene = {
    ...{ host, rest, qstash, model, headers },
    web: { url: server.url, pages, requests: server.requests },
    asked: () => rest.requests + qstash.calls.length + model.requests.length + server.requests.length,
    says(prompt, script) {
      const lines = (asked: Asked) => {
        const said = asked.turns.filter(({ role }) => role === "assistant").length;
        return (script as Reply[])[said] ?? "There is no more to say";
      };
      scripts.set(prompt, typeof script === "function" ? script : lines);
    },
    async ask(method, path, body, more = {}) {
      const answer = await fetch(host.url + path, {
        method,
        headers: { ...headers, ...more },
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
      const text = await answer.text();
      const isJson = answer.headers.get("content-type")?.startsWith("application/json");
      return {
        ...{ status: answer.status, headers: answer.headers, text },
        json: isJson ? JSON.parse(text) : undefined,
      };
    },
    async start(content, more) {
      const { status, json, text } = await scene.ask("POST", "/runs", { content, ...more });
      assert.equal(status, 202, text);
      return json.id;
    },
    reaches: (run, status) =>
      until(async () => {
        const { json } = await scene.ask("GET", `/runs/${run}?wait=1`);
        return json.status === status && json;
      }, () => `${run} is ${status}; the service said: ${host.said()}`),
    async messages(run) {
      const { status, json, text } = await scene.ask("GET", `/runs/${run}/messages?limit=200`);
      assert.equal(status, 200, text);
      return json.messages;
    },
    async events(run, lastEventId) {
      const { text } = await scene.ask(
        "GET",
        `/runs/${run}/events`,
        undefined,
        lastEventId === undefined ? {} : { "last-event-id": lastEventId },
      );
      return framesOf(text);
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
  return scene;
}

/** Deliveries one at a time, with what the service asks of the world during each, and after it has answered. */
export function countedDeliveries() {
  const invocations: { during: number; after: number }[] = [];
  let last: Promise<unknown> = Promise.resolve();
  const one = async (request: Request, { asked, ask }: HostScene) => {
    const before = asked(),
      answer = await fetch(request),
      body = await answer.arrayBuffer(),
      during = asked() - before;
    // Whatever is still about to happen gets the time for it.
    for (let n = 0; n < 10; n++) await ask("GET", "/healthz");
    invocations.push({ during, after: asked() - before - during });
    return new Response(body, answer);
  };
  const deliver: HostSceneOptions["deliver"] = (request, scene) => {
    const mine = last.then(() => one(request, scene));
    last = mine.catch(() => {});
    return mine;
  };
  return { deliver, invocations };
}

/** Whole frames; comments are left out. */
export function framesOf(text: string): Got[] {
  return text.split("\n\n").slice(0, -1).flatMap((frame) => {
    const [, id, event, data] = /^id: (.*)\nevent: (.*)\ndata: (.*)$/.exec(frame) ?? [];
    return id === undefined ? [] : [{ id, event: event!, data: JSON.parse(data!) }];
  });
}

/** Text of tool results and of the messages around them, as "role: text". */
export function spoken(messages: any[]): string[] {
  return messages.map(({ role, content }) => {
    const text = typeof content === "string"
      ? content
      : content.map((block: any) => block.text ?? `[${block.name}]`).join("");
    return `${role}: ${text}`;
  });
}
