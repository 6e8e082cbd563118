/**
 * The service over both stand-ins: Upstash Redis before a real one, and QStash. Processes are objects, so that one can be killed at any
 * moment, and time is in the test's hand.
 */
import assert from "node:assert/strict";
import { decode, type Entry } from "../../src/entry.ts";
import { createPawl, type Pawl, type Store } from "../../src/mod.ts";
import type { PawlOptions } from "../../src/pawl.ts";
import { type QstashOptions, qstashQueue } from "../../src/queue/qstash.ts";
import { upstashStore } from "../../src/store/upstash.ts";
import type { ManualClock } from "./clock.ts";
import { connection, publicUrl, steppedClock } from "./qstash_scene.ts";
import { type Message, type QstashServer, qstashServer, type QstashServerOptions } from "./qstash_server.ts";
import { type ScriptedModel, scriptedModel } from "./scripted_model.ts";
import { freshPrefix, upstash } from "./upstash.ts";
import type { UpstashRest } from "./upstash_rest.ts";

export interface SceneOptions extends Partial<Omit<PawlOptions, "queue" | "store">> {
  queue?: Partial<QstashOptions>;
  server?: QstashServerOptions;
  /** These stand in the place of a store's own verbs. */
  verbs?(store: Store): Partial<Store>;
}

export interface Process {
  pawl: Pawl;
  /** From now on it answers nobody, and nothing that it asks reaches Redis or QStash. The next one takes its place. */
  kill(): void;
}

export interface UpstashScene extends AsyncDisposable {
  rest: UpstashRest;
  qstash: QstashServer;
  clock: ManualClock;
  model: ScriptedModel;
  /** A look at what is stored, from outside. */
  store: Store;
  prefix: string;
  /** What the service reported to its operator. */
  reported: unknown[];
  /** Gets the deliveries and the calls. */
  process: Process;
  /** Another process takes its place. The one before goes on with what it has. */
  another(): Process;
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
  view(run: string): Promise<any>;
  messages(run: string): Promise<any[]>;
  log(thread: string): Promise<Entry[]>;
  /** All of Redis that is this scene's. */
  keys(): Promise<string[]>;
  /** Has QStash deliver this message's delivery again, as another message and at once. */
  again(message: Message): Promise<void>;
  /** Lets time pass until it is so much later; deliveries may be under way. */
  pass(ms: number): Promise<void>;
  /** Lets time pass until this holds. */
  passUntil(holds: () => unknown | Promise<unknown>, withinMs?: number): Promise<void>;
}

export type Open = (
  script: Parameters<typeof scriptedModel>[0],
  options?: SceneOptions,
) => Promise<UpstashScene>;

/** Tests over Redis; ignored, visibly, where there is none. */
export async function upstashSceneTests(): Promise<
  (name: string, body: (open: Open) => Promise<void>) => void
> {
  const rest = await upstash();
  return (name, body) =>
    Deno.test({
      name: `Upstash and QStash: ${name}`,
      ignore: rest === undefined,
      fn: () =>
        body((script, options) => upstashScene(rest!, script, options)).finally(() =>
          rest!.fault = undefined
        ),
    });
}

async function upstashScene(
  rest: UpstashRest,
  script: Parameters<typeof scriptedModel>[0],
  { queue, server, verbs, ...options }: SceneOptions = {},
): Promise<UpstashScene> {
  const clock = steppedClock(),
    model = scriptedModel(script),
    prefix = freshPrefix(),
    reported: unknown[] = [];
  const { url, token } = rest, stores: Store[] = [];
  /** What is on its way to Redis or QStash, and from there: time stands still while any of it moves. */
  let asked = 0, delivering = 0;
  const open = () => {
    const store = upstashStore({ url, token, prefix, clock, ttlMs: options.ttlMs });
    stores.push(store);
    return store;
  };
  const store = open();

  const processes = new Map<Process, Promise<never>>();
  const another = (): Process => {
    const death = Promise.withResolvers<never>(), whole = open(), changed = verbs?.(whole) ?? {};
    death.promise.catch(() => {});
    let dead = false;
    const guarded = <T extends object>(of: T, instead: Partial<T> = {}): T =>
      new Proxy(of, {
        get(_, name) {
          const value = instead[name as keyof T] ?? of[name as keyof T];
          if (typeof value !== "function") return value;
          if (name === "watch" || name === "close" || name === "receive") return value.bind(of);
          return async (...given: unknown[]) => {
            if (dead) return await new Promise(() => {});
            asked++;
            const answer = await value.apply(of, given).finally(() => asked--);
            return dead ? await new Promise(() => {}) : answer;
          };
        },
      });
    const process: Process = {
      pawl: createPawl({
        models: model,
        clock,
        tenants: [{ tenant: "acme", key: "key-acme" }, { tenant: "beta", key: "key-beta" }],
        onError: (error) => reported.push(error),
        ...options,
        store: guarded(whole, changed),
        queue: guarded(qstashQueue({ ...connection(qstash, clock), ...queue })),
      }),
      kill() {
        dead = true;
        death.reject(new TypeError("The connection was closed"));
        if (scene.process === process) another();
      },
    };
    processes.set(process, death.promise);
    return scene.process = process;
  };

  const quiet = async () => {
    const moment = (ms: number) => new Promise<false>((resolve) => setTimeout(() => resolve(false), ms));
    for (let calm = 0; calm < 15;) {
      const idle = await Promise.race([qstash.idle().then(() => true), moment(2)]);
      if (asked > 0) calm = 0;
      else if (idle) return;
      // It waits for time to pass, if it does nothing else for a while; signatures are made beside the event loop.
      else if (delivering > 0) calm++;
    }
  };
  const passUntil: UpstashScene["passUntil"] = async (holds, withinMs = 3_600_000) => {
    for (let left = withinMs;; left -= 1000) {
      await quiet();
      if (await holds()) return;
      assert.ok(left > 0, `Not in time: ${holds}`);
      await clock.advance(Math.min(1000, left));
    }
  };
  const call: UpstashScene["call"] = async (method, path, body, headers = {}) => {
    const answer = await scene.process.pawl.fetch(
      new Request(`${publicUrl}${path}`, {
        method,
        headers: { authorization: "Bearer key-acme", ...headers },
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    );
    const text = await answer.text();
    return { status: answer.status, headers: answer.headers, json: text ? JSON.parse(text) : undefined };
  };

  const qstash = await qstashServer({
    clock,
    fetch: async (request) => {
      const { process } = scene;
      delivering++;
      try {
        return await scene.before(request) ??
          await Promise.race([process.pawl.fetch(request), processes.get(process)!]);
      } finally {
        delivering--;
      }
    },
    ...server,
  });
  const scene: UpstashScene = {
    rest,
    qstash,
    clock,
    model,
    store,
    prefix,
    reported,
    process: undefined as unknown as Process,
    another,
    before: () => undefined,
    call,
    async start(body = {}) {
      const { status, json } = await call("POST", "/runs", { content: "Go", ...body });
      assert.equal(status, 202, JSON.stringify(json));
      return json.id;
    },
    view: async (run) => (await call("GET", `/runs/${run}`)).json,
    messages: async (run) => (await call("GET", `/runs/${run}/messages?limit=200`)).json.messages,
    log: async (thread) => (await rest.redis.lrange(`${prefix}{acme~${thread}}:log`, 0, -1)).map(decode),
    keys: () => rest.redis.keys(`${prefix}*`),
    async again(message) {
      qstash.inside.accept({ ...message, deduplicationId: undefined, notBefore: 0 });
      await quiet();
    },
    async pass(ms) {
      const until = clock.now() + ms;
      await passUntil(() => clock.now() >= until, ms);
    },
    passUntil,
    async [Symbol.asyncDispose]() {
      rest.fault = undefined;
      // Nobody waits for what a test has left hanging.
      for (const process of [...processes.keys()]) process.kill();
      await qstash[Symbol.asyncDispose]();
      for (const each of stores) await each.close();
    },
  };
  another();
  return scene;
}
