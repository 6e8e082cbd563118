/** A whole Pawl in virtual time, over a real store: what a test needs to start runs, steer them and see how they end. */
import type { Budget } from "../../src/budget.ts";
import type { Placed } from "../../src/event.ts";
import type { Model, Models, Price } from "../../src/model.ts";
import type { Hooks } from "../../src/hook.ts";
import type { Delivery, Queue } from "../../src/queue.ts";
import { Registry, type RegistryOptions } from "../../src/registry.ts";
import type { Settings } from "../../src/run.ts";
import { createRuntime } from "../../src/runtime.ts";
import type { Warm } from "../../src/slice.ts";
import type { Store } from "../../src/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import type { Content, RunView, StartOptions } from "../../src/verbs.ts";
import { type Said, type ScriptedModel, scriptedModel } from "./scripted_model.ts";
import { VirtualTime } from "./virtual_time.ts";

export interface HarnessOptions extends RegistryOptions, Hooks {
  tools?: unknown[];
  budget?: Partial<Budget>;
  time?: VirtualTime;
  store?: Store;
  leaseMs?: number;
  ttlMs?: number;
  compactTokens?: number;
  patience?: { firstMs?: number; idleMs?: number };
  warm?: Warm;
  price?: Price;
}

export type Harness = ReturnType<typeof harness>;

export function harness(
  script: Said[] | ((...a: any[]) => Said) | ScriptedModel,
  options: HarnessOptions = {},
) {
  const time = options.time ?? new VirtualTime();
  const store = options.store ?? sqliteStore(":memory:", { clock: time });
  const model = "reply" in script ? script : scriptedModel(script as Said[]);
  const published: Delivery[] = [], failures: unknown[] = [];
  let holdBack = false;
  const queue: Queue = {
    name: "test",
    publish: (delivery) => {
      published.push(delivery);
      if (!holdBack) deliver(delivery);
      return Promise.resolve();
    },
  };
  const deliver = (delivery: Delivery, message = `m${published.length}`) => {
    time.sleep(Math.max(1, (delivery.at ?? 0) - time.now())).then(async () => {
      await pawl.deliver(delivery, message).catch((error) => {
        failures.push(error);
        deliver({ ...delivery, at: time.now() + 12_000 }, message);
      });
    });
  };
  const pawl = createRuntime({
    store,
    queue,
    models: only(model, options.price),
    registry: new Registry(options.tools ?? [], options),
    beforeToolCall: options.beforeToolCall,
    afterToolCall: options.afterToolCall,
    clock: time,
    budget: options.budget,
    leaseMs: options.leaseMs,
    ttlMs: options.ttlMs,
    compactTokens: options.compactTokens,
    patience: options.patience,
    warm: options.warm,
  });
  return {
    time,
    store,
    model,
    pawl,
    published,
    failures,
    queue,
    deliver,
    /** Publishes from now on go nowhere. */
    loseDeliveries: (lose = true) => void (holdBack = lose),
    start: (content: Content, settings: Settings = {}, more?: StartOptions) =>
      time.until(pawl.start("local", content, settings, more)),
    /** Lets time pass until the run ends or waits. */
    settled: (run: string): Promise<RunView> => time.until(pawl.settled("local", run, 3_600_000)),
    /** Lets time pass until the run has ended. */
    async ended(run: string): Promise<RunView> {
      for (let tries = 0; tries < 1000; tries++) {
        const view = await time.until(pawl.settled("local", run, 86_400_000));
        if (["completed", "failed", "cancelled"].includes(view.status)) return view;
        await time.step();
      }
      throw new Error("The run does not end");
    },
    async messages(run: string, frame?: string) {
      return (await pawl.messages("local", { run }, { limit: Infinity, frame })).messages;
    },
    /** All events of a run that has ended. */
    async events(run: string, after?: string): Promise<Placed[]> {
      const events: Placed[] = [];
      const collect = (async () => {
        for await (
          const event of pawl.events("local", run, { after, signal: new AbortController().signal })
        ) events.push(event);
      })();
      await time.until(collect);
      return events;
    },
  };
}

/** A price makes that of all models known. */
export function only(model: Model, price?: Price): Models {
  return {
    default: model.name,
    get: () => model,
    ...(price ? { prices: () => Promise.resolve(() => price) } : {}),
  };
}
