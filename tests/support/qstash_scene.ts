/** A service between the SQLite store and a QStash stand-in, with time in the test's hand; deliveries come as signed HTTP requests. */
import assert from "node:assert/strict";
import { type Clock, systemClock } from "../../src/clock.ts";
import { createPawl, type Pawl, type Store } from "../../src/mod.ts";
import type { PawlOptions } from "../../src/pawl.ts";
import { type QstashOptions, qstashQueue } from "../../src/queue/qstash.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { type ManualClock, manualClock, settle } from "./clock.ts";
import { type QstashServer, qstashServer, type QstashServerOptions } from "./qstash_server.ts";
import { type Said, type ScriptedModel, scriptedModel } from "./scripted_model.ts";

export const publicUrl = "https://pawl.example";

export interface QstashScene extends AsyncDisposable {
  pawl: Pawl;
  qstash: QstashServer;
  clock: ManualClock;
  model: ScriptedModel;
  /** What the service reported to its operator. */
  reported: unknown[];
  /** Stands before the service: answers in its place, or nothing. */
  before: (request: Request) => Response | undefined | Promise<Response | undefined>;
  call(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<{ status: number; headers: Headers; json: any }>;
  /** POST /runs, which must be accepted; answers the run's id. */
  start(body?: object): Promise<string>;
  /** Lets time pass until it is so much later and nothing more is under way. */
  pass(ms: number): Promise<void>;
  status(run: string): Promise<string>;
}

/** `verbs` stand in the place of the store's own. */
export async function qstashScene(
  script: Parameters<typeof scriptedModel>[0] | Said[],
  { queue, server, verbs, ...options }:
    & Partial<Omit<PawlOptions, "queue" | "store">>
    & {
      queue?: Partial<QstashOptions>;
      server?: QstashServerOptions;
      verbs?: (store: Store) => Partial<Store>;
    } = {},
): Promise<QstashScene> {
  const clock = steppedClock(), model = scriptedModel(script);
  const reported: unknown[] = [];
  const scene = { before: (_: Request) => undefined } as unknown as QstashScene;
  const qstash = await qstashServer({
    clock,
    fetch: async (request) => await scene.before(request) ?? await pawl.fetch(request),
    ...server,
  });
  const whole = sqliteStore(":memory:", { clock }), changed = verbs?.(whole) ?? {};
  const store = new Proxy(whole, {
    get(_, name: keyof Store) {
      const value = changed[name] ?? whole[name];
      return typeof value === "function" ? value.bind(whole) : value;
    },
  });
  const pawl = createPawl({
    models: model,
    clock,
    tenants: [{ tenant: "acme", key: "key-acme" }, { tenant: "beta", key: "key-beta" }],
    onError: (error) => reported.push(error),
    ...options,
    store,
    queue: qstashQueue({ ...connection(qstash, clock), ...queue }),
  });
  const call: QstashScene["call"] = async (method, path, body, headers = {}) => {
    const answer = await pawl.fetch(
      new Request(`${publicUrl}${path}`, {
        method,
        headers: { authorization: "Bearer key-acme", ...headers },
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    );
    return { status: answer.status, headers: answer.headers, json: await answer.json() };
  };
  return Object.assign(scene, {
    pawl,
    qstash,
    clock,
    model,
    reported,
    call,
    async start(body: object = {}) {
      const { status, json } = await call("POST", "/runs", { content: "Go", ...body });
      assert.equal(status, 202, JSON.stringify(json));
      return json.id;
    },
    async pass(ms: number) {
      await qstash.idle();
      // In steps: what one delivery publishes may be due before the next.
      for (let left = ms; left > 0; left -= 1000) {
        await clock.advance(Math.min(1000, left));
        await qstash.idle();
      }
    },
    status: async (run: string) => (await call("GET", `/runs/${run}`)).json.status,
    async [Symbol.asyncDispose]() {
      await qstash[Symbol.asyncDispose]();
      await pawl.close();
    },
  });
}

/** What waits for no time goes on by itself; all else waits for the test. */
export function steppedClock(): ManualClock {
  const manual = manualClock(Date.now());
  const sleep: Clock["sleep"] = (ms, signal) => ms > 0 ? manual.sleep(ms, signal) : settle();
  return Object.create(manual, { sleep: { value: sleep } });
}

/** What a queue needs to know of this server. */
export function connection(
  { url, token, keys }: Pick<QstashServer, "url" | "token" | "keys">,
  clock: Clock = systemClock,
): QstashOptions {
  return { token, url, currentSigningKey: keys.current, nextSigningKey: keys.next, publicUrl, clock };
}
