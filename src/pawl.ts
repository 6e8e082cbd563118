/** A whole Pawl over a store and a queue that somebody chose: verbs for one tenant, and the HTTP face for all. */
import { ambient } from "./ambient.ts";
import { resultOf, settingsOf, type Wanted } from "./asking.ts";
import type { Budget } from "./budget.ts";
import type { Exec } from "./choice.ts";
import { type Clock, systemClock } from "./clock.ts";
import type { Answer } from "./entry.ts";
import { RunFailedError } from "./errors.ts";
import type { Placed } from "./event.ts";
import { canonical } from "./fingerprint.ts";
import type { Hooks } from "./hook.ts";
import { type Face, httpFace } from "./http/app.ts";
import type { Tenants } from "./http/auth.ts";
import { deliveries } from "./http/deliveries.ts";
import type { Message } from "./message.ts";
import type { Model, Models } from "./model.ts";
import type { Patience } from "./patience.ts";
import { deliversOverHttp, type Delivery, type Queue } from "./queue.ts";
import { Registry } from "./registry.ts";
import { isActive, type RunView, type Settings } from "./run.ts";
import { createRuntime } from "./runtime.ts";
import type { Warm } from "./slice.ts";
import type { Store } from "./store.ts";
import type { Environment, ExecOptions, Toolset } from "./tool.ts";
import type { Accepted, Content, Key, StartOptions } from "./verbs.ts";

export interface PawlOptions extends Hooks {
  /** From defineTool or agenticFunction, or as the seed gives them: `{spec, execute}`. */
  tools?: readonly unknown[];
  /** Parts of them that a run may ask for by name; "full" and "none" there always are. */
  toolsets?: { readonly [name: string]: Toolset };
  /** What tools' `availableIf`, `requiresEnv` and `check` look at; default: nothing is set. */
  env?: Environment;
  /** One model, or where models come from: `modelFromEnv(env)`. */
  models: Model | Models;
  store: Store;
  queue: Queue;
  clock?: Clock;
  /** A slice's limits. */
  budget?: Partial<Budget>;
  leaseMs?: number;
  ttlMs?: number;
  /**
   * Once a model call took so many tokens, the older part of the thread is summarised before the next; default 150,000. A vendor that
   * refuses a context as too long has the same effect.
   */
  compactTokens?: number;
  /** How long a model may send nothing before its call is tried again; default 2 minutes for the first sign of it, then 5. */
  patience?: Partial<Patience>;
  /** Transcripts held between slices, where they shall outlive this Pawl. */
  warm?: Warm;
  /** Who may use `fetch`; none: only clients on this machine. */
  tenants?: Tenants;
  /** Whose runs the verbs below see; default "local". */
  tenant?: string;
  /** Hears of failures that are nobody's input, behind `fetch` and in deliveries inside this process. */
  onError?: (error: unknown) => void;
}

/** An idempotency key as its user writes it: any string. */
type Keyed = { key?: string };

type RunOptions = Settings & Omit<StartOptions, "key"> & Keyed;

/** Verbs reject with InputError when the caller is at fault. */
export interface Pawl {
  /** Runs to the end, here, and answers the text, the choice or the value. Throws RunFailedError if the run fails or is cancelled. */
  exec: Exec<Omit<RunOptions, keyof Wanted>>;
  /** Accepts a prompt, durably, and answers at once. */
  start(content: Content, options?: RunOptions): Promise<Accepted>;
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
  const { store, queue, clock = systemClock, tenant = "local", tenants = [], onError } = options;
  const models: Models = "reply" in options.models ? only(options.models) : options.models;
  const registry = new Registry(options.tools ?? [], options);
  const verbs = createRuntime({ ...options, models, registry, clock });
  queue.attach?.((delivery, message) =>
    verbs.deliver(delivery, message).catch((error) => {
      // The queue will try again, and says nothing of it.
      onError?.(error);
      throw error;
    })
  );
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
    exec: (async (content: Content, options: Omit<RunOptions, keyof Wanted> & Wanted = {}) => {
      // In the body of an agentic function it is that function's nested loop, unless it names a thread of its own.
      const inside = options.thread === undefined ? ambient.getStore() : undefined;
      if (inside) return await inside.exec(content, options as ExecOptions);
      const { run } = await start(content, settingsOf(options));
      for (;;) {
        const view = await verbs.settled(tenant, run, 60_000, { orWaits: false });
        if (view.status === "cancelled") throw new RunFailedError("cancelled", "The run was cancelled", run);
        if (!isActive(view.status)) return await resultOf(options, view, run);
      }
    }) as Pawl["exec"],
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
