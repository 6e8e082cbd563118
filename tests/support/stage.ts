/**
 * A world for one schedule: nothing happens by chance. The test delivers what the queue holds, when and where it likes, and says what becomes
 * of which request.
 */
import { decode, type Entry } from "../../src/entry.ts";
import { deduplicationId, type Delivery } from "../../src/queue.ts";
import type { Budget } from "../../src/budget.ts";
import { type Settings, threadKey } from "../../src/run.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import type { Tool } from "../../src/tool.ts";
import type { StartOptions } from "../../src/verbs.ts";
import { only } from "./harness.ts";
import { scriptedModel } from "./scripted_model.ts";
import { logOf } from "./simulation/facts.ts";
import { type Fate, forever, type Isolate, minute, tenant, unlessDead, World } from "./simulation/world.ts";

export interface StageOptions {
  tools?: Tool[];
  budget?: Partial<Budget>;
  ttlMs?: number;
}

export class Stage {
  readonly world: World;
  readonly model: ReturnType<typeof scriptedModel>;
  /** What the queue has taken, in order. */
  readonly queued: Delivery[] = [];
  /** What it dropped, because it had seen the id within ten minutes. */
  readonly swallowed: Delivery[] = [];
  /** Never fails, never dies. */
  readonly door: Isolate;
  #next: { verb: string; fate: Fate; when: (args: any[]) => boolean }[] = [];
  #ids = new Map<string, number>();
  #messages = 0;
  #working?: Isolate;

  constructor(script: Parameters<typeof scriptedModel>[0], { tools = [], budget, ttlMs }: StageOptions = {}) {
    this.model = scriptedModel(script);
    this.world = new World({
      seed: 1,
      faults: 0,
      budget,
      ttlMs,
      store: (clock) => sqliteStore(":memory:", { clock, ttlMs }),
      tools: (_world, isolate) =>
        tools.map((tool) => ({
          ...tool,
          execute: (args: unknown, context: any) =>
            unlessDead(isolate, Promise.resolve(tool.execute(args, context))),
        })),
      models: (_world, isolate) =>
        only({
          name: this.model.name,
          reply: (request, options) => unlessDead(isolate, this.model.reply(request, options)),
        }),
      publish: (_world, delivery) => this.#accept(delivery),
      fate: (_n, verb, args) => {
        const found = this.#next.findIndex((next) => next.verb === verb && next.when(args));
        return found < 0 ? "well" : this.#next.splice(found, 1)[0]!.fate;
      },
    });
    this.door = this.world.isolate("door");
  }

  get time() {
    return this.world.time;
  }

  /** The next such request meets this fate. */
  meets(verb: string, fate: Fate, when: (args: any[]) => boolean = () => true): void {
    this.#next.push({ verb, fate, when });
  }

  /** Every fate that was announced has been met. */
  get met(): boolean {
    return this.#next.length === 0;
  }

  /** The next commit that says something of this kind meets this fate. */
  commitMeets(fate: Fate, text: string): void {
    this.meets("commit", fate, ([, commit]) => JSON.stringify(commit).includes(text));
  }

  /** The isolate that works just now dies; what it does is never done. For tools and models. */
  die(): Promise<never> {
    this.world.kill(this.#working!, "by the schedule");
    return forever();
  }

  start(content: string, settings: Settings = {}, options: StartOptions = {}) {
    return this.ask((pawl) => pawl.start(tenant, content, settings, { thread: "t", ...options }));
  }

  /** Somebody asks for something. Rejects if the isolate that should have answered died. */
  async ask<T>(what: (pawl: Isolate["pawl"]) => Promise<T>, at = this.door): Promise<T> {
    const died = new Promise<never>((_, reject) => at.mourners.push(() => reject(new Error("No answer"))));
    return await this.time.until(Promise.race([what(at.pawl), died]));
  }

  /** A delivery arrives, in a process of its own if no other is named: "done", "again" or "died". */
  async deliver(
    delivery = this.queued.at(-1)!,
    { message = `q${++this.#messages}`, on = this.world.isolate("worker") }: {
      message?: string;
      on?: Isolate;
    } = {},
  ): Promise<"done" | "again" | "died"> {
    this.#working = on;
    const died = new Promise<"died">((resolve) => on.mourners.push(() => resolve("died")));
    const answered = on.pawl.deliver(delivery, message).then(() => "done" as const, () => "again" as const);
    return await this.time.until(Promise.race([answered, died]));
  }

  /** Delivers what the queue takes, each at its time, until the run has ended. */
  async play(run: string): Promise<void> {
    for (let turns = 0; turns < 100; turns++) {
      if (["completed", "failed", "cancelled"].includes((await this.view(run)).status)) return;
      const next = this.queued.at(-1)!;
      await this.until(next.at ?? 0);
      await this.deliver(next);
    }
    throw new Error("The run does not end");
  }

  /** Lets time pass until this moment. */
  async until(moment: number): Promise<void> {
    await this.time.pass(Math.max(0, moment - this.time.now()));
  }

  view(run: string) {
    return this.ask((pawl) => pawl.run(tenant, run));
  }

  async log(thread = "t"): Promise<Entry[]> {
    return (await logOf(this.world.store, threadKey(tenant, thread))).map(decode);
  }

  /** The transcript in short: who said what. */
  async transcript(thread = "t"): Promise<string[]> {
    const { messages } = await this.ask((pawl) => pawl.messages(tenant, { thread }, { limit: 1000 }));
    return messages.map(({ role, content }) => {
      if (typeof content === "string") return `${role}: ${content}`;
      const said = content.map((block) =>
        block.type === "tool_call" ? `${block.name}()` : block.type === "text" ? block.text : block.type
      );
      return `${role}: ${said.join(" ")}`;
    });
  }

  #accept(delivery: Delivery): void {
    const id = deduplicationId(delivery), seen = this.#ids.get(id), now = this.time.now();
    if (seen !== undefined && now - seen < 10 * minute) return void this.swallowed.push(delivery);
    this.#ids.set(id, now);
    this.queued.push(delivery);
  }
}
