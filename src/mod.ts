/**
 * The library face: everything a program needs to run agent loops of its own, with or without a server.
 *
 * @module
 */
import type { Budget } from "./budget.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { Answer } from "./entry.ts";
import { RunFailedError } from "./errors.ts";
import type { Placed } from "./event.ts";
import { type Face, httpFace } from "./http/app.ts";
import type { Tenants } from "./http/auth.ts";
import { deliveries } from "./http/deliveries.ts";
import type { Message } from "./message.ts";
import type { Model, Models } from "./model.ts";
import { deliversOverHttp, type Delivery, type Queue } from "./queue.ts";
import { inProcessQueue } from "./queue/in_process.ts";
import { Registry } from "./registry.ts";
import type { RunView, Settings } from "./run.ts";
import { createRuntime } from "./runtime.ts";
import type { Store } from "./store.ts";
import { sqliteStore } from "./store/sqlite.ts";
import { canonical } from "./transcript.ts";
import type { Accepted, Content, Key, StartOptions } from "./verbs.ts";

export { FatalError, InputError, RetryableError, RunFailedError } from "./errors.ts";
export { type ExecOptions, type ToolContext, ToolOutput } from "./tool.ts";
export { type AgenticContext, agenticFunction, defineTool, type Tool } from "./tool.ts";
export { type Model, ModelError, type ModelReply, type ModelRequest, type Models } from "./model.ts";
export type { Accepted, Clock, Content, Delivery, Message, Placed, Queue, RunView, Settings, Store };

export interface PawlOptions {
  /** From defineTool or agenticFunction, or as the seed gives them: `{spec, execute}`. */
  tools?: readonly unknown[];
  /** One model, or where models come from: `modelFromEnv(env)`. */
  models: Model | Models;
  /** Default: in memory, gone with the process. */
  store?: Store;
  /** Default: in this process. */
  queue?: Queue;
  clock?: Clock;
  /** A slice's limits. */
  budget?: Partial<Budget>;
  leaseMs?: number;
  ttlMs?: number;
  /** Who may use `fetch`; none: only clients on this machine. */
  tenants?: Tenants;
  /** Whose runs the verbs below see; default "local". */
  tenant?: string;
  /** Hears of failures behind `fetch` that are nobody's input. */
  onError?: (error: unknown) => void;
}

/** An idempotency key as its user writes it: any string. */
type Keyed = { key?: string };

/** Verbs reject with InputError when the caller is at fault. */
export interface Pawl {
  /** Runs to the end, here, and answers the text. Throws RunFailedError if the run fails or is cancelled. */
  exec(content: Content, options?: Settings & Omit<StartOptions, "key"> & Keyed): Promise<string>;
  /** Accepts a prompt, durably, and answers at once. */
  start(content: Content, options?: Settings & Omit<StartOptions, "key"> & Keyed): Promise<Accepted>;
  steer(run: string, content: Content, options?: Keyed): Promise<Accepted>;
  followUp(run: string, content: Content, options?: Keyed): Promise<Accepted>;
  cancel(run: string): Promise<RunView>;
  /** Answers a call that waits. */
  resolve(run: string, toolCallId: string, answer: Answer): Promise<{ repeat: boolean; run: RunView }>;
  read(run: string): Promise<RunView & { messages: Message[] }>;
  watch(run: string, options?: { after?: string; signal?: AbortSignal }): AsyncIterable<Placed>;
  deliver(delivery: Delivery, message: string, retried?: number): Promise<void>;
  sweep(limit?: number): Promise<number>;
  /** Picks up every open run; for a process that starts on a store that another one left. */
  recover(): Promise<number>;
  /** The HTTP face. `from.remoteAddress` is the client's address, needed where there are no keys. */
  fetch(request: Request, from?: { remoteAddress?: string }): Promise<Response>;
  close(): Promise<void>;
}

export function createPawl(options: PawlOptions): Pawl {
  const { clock = systemClock, tenant = "local", tenants = [], onError, budget, leaseMs, ttlMs } = options;
  const store = options.store ?? sqliteStore(":memory:", { clock, ttlMs });
  const queue = options.queue ?? inProcessQueue(clock);
  const models: Models = "reply" in options.models ? only(options.models) : options.models;
  const registry = new Registry([...options.tools ?? []]);
  const verbs = createRuntime({ store, queue, models, registry, clock, budget, leaseMs, ttlMs });
  queue.attach?.(verbs.deliver);
  let face: Face | undefined;

  const start: Pawl["start"] = (content, { thread, ifBusy, source, key, ...settings } = {}) =>
    verbs.start(tenant, content, settings, {
      thread,
      ifBusy,
      source,
      key: keyOf(key, { content, thread, ...settings }),
    });

  return {
    start,
    async exec(content, options) {
      const { run } = await start(content, options);
      for (;;) {
        const view = await verbs.settled(tenant, run, 60_000, { orWaits: false });
        if (view.status === "completed") return view.text ?? "";
        if (view.status === "failed") throw new RunFailedError(view.error!.code, view.error!.message, run);
        if (view.status === "cancelled") throw new RunFailedError("cancelled", "The run was cancelled", run);
      }
    },
    steer: (run, content, { key } = {}) =>
      verbs.send(tenant, run, "steering", content, keyOf(key, { run, content })),
    followUp: (run, content, { key } = {}) =>
      verbs.send(tenant, run, "follow_up", content, keyOf(key, { run, content })),
    cancel: (run) => verbs.cancel(tenant, run),
    resolve: (run, toolCallId, answer) => verbs.resolve(tenant, run, toolCallId, answer),
    async read(run) {
      const view = await verbs.run(tenant, run);
      return { ...view, messages: (await verbs.messages(tenant, { run }, { limit: Infinity })).messages };
    },
    watch: (run, { after, signal = new AbortController().signal } = {}) =>
      verbs.events(tenant, run, { after, signal }),
    deliver: verbs.deliver,
    sweep: verbs.sweep,
    recover: verbs.recover,
    fetch: async (request, from = {}) => {
      face ??= httpFace(verbs, {
        tenants,
        clock,
        onError,
        ...(deliversOverHttp(queue) && { deliveries: deliveries(verbs, queue, onError) }),
      });
      return await face.fetch(request, from);
    },
    async close() {
      await queue.close?.();
      await store.close();
    },
  };
}

function only(model: Model): Models {
  return { default: model.name, get: () => model };
}

function keyOf(name: string | undefined, what: unknown): Key | undefined {
  return name === undefined ? undefined : { name, hash: canonical(what) };
}
