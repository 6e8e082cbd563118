/**
 * Stands in for QStash: the HTTP API that its SDK speaks, over a real socket, and deliveries signed as its are. What a test needs besides
 * is in the object that is answered: everything that came, a hand on the clock, and faults.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Clock, systemClock } from "../../src/clock.ts";
import { type Faults, type Message, Messages } from "./qstash_messages.ts";
import { type Asked, day, type Limits, readAsked, Refused } from "./qstash_wire.ts";

export type { Message } from "./qstash_messages.ts";
export { sign } from "./qstash_wire.ts";

export interface QstashServerOptions {
  /** Waits are by this clock: stands it still, `advance` it and wait until `idle`. */
  clock?: Clock;
  /** Factor of the time between tries, for tests in real time. */
  backoffScale?: number;
  /** Makes the deliveries; default: `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
  limits?: Partial<Limits>;
}

export interface ApiCall {
  method: string;
  path: string;
  headers: Headers;
  text: string;
}

interface Schedule {
  scheduleId: string;
  cron: string;
  asked: Asked;
  createdAt: number;
  isPaused: boolean;
}

export interface QstashServer extends AsyncDisposable {
  url: string;
  token: string;
  keys: { current: string; next: string };
  /** For a service that shall be called by it; but where, PAWL_PUBLIC_URL says. */
  env: Record<string, string>;
  /** All that was asked of the API. */
  calls: ApiCall[];
  /** All messages that were ever accepted, failure callbacks included. */
  messages: Message[];
  faults: Faults;
  inside: Messages;
  schedules: Map<string, Schedule>;
  /** The next key becomes the current one, and another the next. */
  rotateKeys(): void;
  /** A schedule's time has come. */
  fire(scheduleId: string): void;
  idle(): Promise<void>;
}

const encoder = new TextEncoder();

export async function qstashServer(options: QstashServerOptions = {}): Promise<QstashServer> {
  const keys = { current: "sig_current", next: "sig_next" }, token = "qstash-token";
  const limits: Limits = { maxDelayMs: 7 * day, maxBytes: 1_048_576, maxRetries: 3, ...options.limits };
  const inside = new Messages({
    clock: options.clock ?? systemClock,
    backoffScale: options.backoffScale ?? 1,
    fetch: options.fetch ?? fetch,
    keys,
  });
  const { faults } = inside, calls: ApiCall[] = [], schedules = new Map<string, Schedule>();
  let rotations = 0;

  const rotateKeys = () => {
    keys.current = keys.next;
    keys.next = `sig_next_${++rotations}`;
  };

  /** What an accepted publish answers; `lost`: its answer never arrives. */
  const publish = (asked: Asked) => {
    if (faults.publishStatus) throw new Refused(faults.publishStatus, "publish failed");
    const answer = inside.accept(asked);
    return { status: answer.deduplicated ? 202 : 201, body: { ...answer, url: asked.destination } };
  };

  const batch = (text: string) =>
    (JSON.parse(text) as { destination: string; headers: Record<string, string>; body?: string }[]).map(
      ({ destination, headers, body }) => {
        try {
          const bytes = encoder.encode(body ?? "");
          return publish(readAsked(destination, new Headers(headers), bytes, inside.now(), limits)).body;
        } catch (error) {
          if (error instanceof Refused) return { error: error.message };
          throw error;
        }
      },
    );

  const schedule = (destination: string, headers: Headers, body: Uint8Array<ArrayBuffer>) => {
    const scheduleId = headers.get("upstash-schedule-id") ?? `scd_${crypto.randomUUID()}`;
    const cron = headers.get("upstash-cron");
    if (!cron) throw new Refused(400, "cron is missing");
    const asked = { ...readAsked(destination, headers, body, inside.now(), limits), scheduleId };
    schedules.set(scheduleId, { scheduleId, cron, asked, createdAt: inside.now(), isPaused: false });
    return { scheduleId };
  };
  const shown = ({ asked, ...one }: Schedule) => ({
    ...one,
    destination: asked.destination,
    method: asked.method,
    retries: asked.retries,
    body: new TextDecoder().decode(asked.body),
  });

  const retryDead = (query: URLSearchParams) => {
    const ids = query.getAll("dlqIds");
    const chosen = inside.dead.filter(({ dlqId }) => !ids.length || ids.includes(dlqId));
    inside.dead = inside.dead.filter((one) => !chosen.includes(one));
    return {
      // Its id is remembered still; that must not swallow it.
      responses: chosen.map((dead) =>
        inside.accept({ ...dead, deduplicationId: undefined, notBefore: inside.now() })
      ),
    };
  };

  const shownDead = () =>
    inside.dead.map(({ id, dlqId, destination, status, answer, body, createdAt }) => ({
      messageId: id,
      dlqId,
      url: destination,
      createdAt,
      responseStatus: status,
      responseBody: new TextDecoder().decode(answer.body),
      body: new TextDecoder().decode(body),
    }));

  const message = (id: string) => {
    const found = inside.all.find((one) => one.id === id && !["DELIVERED", "FAILED"].includes(one.state));
    if (!found) throw new Refused(404, `message ${id} not found`);
    return found;
  };

  const answer = (
    method: string,
    path: string,
    query: URLSearchParams,
    headers: Headers,
    body: Uint8Array<ArrayBuffer>,
  ): { status?: number; body: unknown } => {
    if (headers.get("authorization") !== `Bearer ${token}`) {
      throw new Refused(401, "unauthorized: invalid token");
    }
    const text = () => new TextDecoder().decode(body);
    const [, what, rest = ""] = /^\/v2\/(\w+)(?:\/(.+))?$/s.exec(path) ?? [];
    switch (`${method} ${what}`) {
      case "POST publish":
        return publish(readAsked(rest, headers, body, inside.now(), limits));
      case "POST batch":
        if (faults.publishStatus) throw new Refused(faults.publishStatus, "batch failed");
        return { body: batch(text()) };
      case "GET messages":
        return { body: { messageId: message(rest).id, ...message(rest) } };
      case "DELETE messages":
        message(rest).state = "CANCELLED";
        return { status: 202, body: undefined };
      case "GET dlq":
        return { body: { messages: shownDead() } };
      case "POST dlq":
        return { body: retryDead(query) };
      case "DELETE dlq":
        inside.dead = inside.dead.filter(({ dlqId }) => dlqId !== rest);
        return { body: { deleted: 1 } };
      case "POST schedules":
        return { body: schedule(rest, headers, body) };
      case "GET schedules": {
        if (!rest) return { body: [...schedules.values()].map(shown) };
        const one = schedules.get(rest);
        if (!one) throw new Refused(404, "schedule not found");
        return { body: shown(one) };
      }
      case "DELETE schedules":
        schedules.delete(rest);
        return { body: undefined };
      case "GET keys":
        return { body: keys };
      case "POST keys":
        rotateKeys();
        return { body: keys };
    }
    throw new Refused(404, `no such path: ${path}`);
  };

  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Uint8Array[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return; // Whoever sent it died over it.
    }
    const body = new Uint8Array(await new Blob(chunks as BlobPart[]).arrayBuffer());
    const { method = "GET", url = "/" } = request;
    const at = url.indexOf("?"), path = at < 0 ? url : url.slice(0, at);
    const headers = new Headers();
    for (const [name, values] of Object.entries(request.headersDistinct)) {
      for (const value of values ?? []) headers.append(name, value);
    }
    calls.push({ method, path, headers, text: new TextDecoder().decode(body) });
    const reply = (status: number, value: unknown) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(value === undefined ? undefined : JSON.stringify(value));
    };
    try {
      const query = new URLSearchParams(at < 0 ? "" : url.slice(at + 1));
      const { status = 200, body: value } = answer(method, path, query, headers, body);
      if (/^\/v2\/(publish|batch)/.test(path) && faults.dropPublishAnswers > 0) {
        faults.dropPublishAnswers--;
        return request.socket.destroy();
      }
      reply(status, value);
    } catch (error) {
      const refused = error instanceof Refused ? error : new Refused(500, String(error));
      reply(refused.status, { error: refused.message });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    url,
    token,
    keys,
    get env() {
      return {
        QSTASH_URL: url,
        QSTASH_TOKEN: token,
        QSTASH_CURRENT_SIGNING_KEY: keys.current,
        QSTASH_NEXT_SIGNING_KEY: keys.next,
      };
    },
    calls,
    messages: inside.all,
    faults,
    inside,
    schedules,
    rotateKeys,
    fire: (id) => void inside.accept({ ...schedules.get(id)!.asked, notBefore: inside.now() }),
    idle: () => inside.idle(),
    async [Symbol.asyncDispose]() {
      inside.stop();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
