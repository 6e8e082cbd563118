/** Verbs that keep runs in memory and run nothing: only what the HTTP face needs to show how it asks and how it answers. */
import type { Answer, MailKind } from "../../src/entry.ts";
import { InputError } from "../../src/errors.ts";
import type { Event, Placed } from "../../src/event.ts";
import type { Json, Message } from "../../src/message.ts";
import type { Settings } from "../../src/run.ts";
import { defineTool, type Tool } from "../../src/tool.ts";
import type { Accepted, Content, Key, RunView, StartOptions, Verbs } from "../../src/verbs.ts";
import * as z from "zod";

const noRun = () => new InputError("not_found", "There is no such run");

export class FakeVerbs implements Verbs {
  /** Every call that may change something, in order. */
  readonly calls: { verb: string; tenant: string; args: unknown[] }[] = [];
  /** Thrown by the next call instead of an answer. */
  failure: unknown;
  /** How many are reading events now, and how many events they have taken. */
  watching = 0;
  taken = 0;
  transcript: Message[] = [];
  tools: Tool[] = [
    defineTool({
      name: "weather",
      description: "Weather of a city",
      parameters: z.object({ city: z.string() }),
      execute: () => "",
    }),
    { name: "plain", description: "", parameters: { type: "object" }, replay: "safe", execute: () => "" },
  ];
  readonly #runs = new Map<string, RunView>();
  readonly #events: Placed[] = [];
  #changed = Promise.withResolvers<void>();
  #count = 0;

  start(tenant: string, content: Content, settings: Settings, options: StartOptions = {}): Promise<Accepted> {
    this.#called("start", tenant, [content, settings, options]);
    return Promise.resolve(this.#accept(tenant, options.thread ?? `t${this.#count}`, settings.metadata));
  }

  send(tenant: string, run: string, kind: MailKind, content: Content, key?: Key): Promise<Accepted> {
    const view = this.#find(tenant, run);
    this.#called("send", tenant, [run, kind, content, key]);
    return Promise.resolve({ run, thread: view.thread, status: view.status, messageId: "m9" });
  }

  cancel(tenant: string, run: string): Promise<RunView> {
    const view = this.#find(tenant, run);
    this.#called("cancel", tenant, [run]);
    if (view.status === "completed") throw new InputError("conflict", "The run has completed");
    view.status = "cancelled";
    return Promise.resolve(view);
  }

  resolve(tenant: string, run: string, toolCallId: string, answer: Answer, key?: Key) {
    const view = this.#find(tenant, run);
    this.#called("resolve", tenant, [run, toolCallId, answer, key]);
    if (toolCallId === "never") throw new InputError("not_found", "There is no such call");
    if (toolCallId === "closed") throw new InputError("conflict", "The call is closed");
    return Promise.resolve({ repeat: toolCallId === "again", run: view });
  }

  async run(tenant: string, run: string): Promise<RunView> {
    return await this.#find(tenant, run);
  }

  async settled(tenant: string, run: string, ms: number): Promise<RunView> {
    const view = await this.#find(tenant, run);
    this.#called("settled", tenant, [run, ms]);
    return view;
  }

  runs(tenant: string, options: { status?: string; limit: number; after?: string }) {
    this.#called("runs", tenant, [options]);
    const runs = [...this.#runs].filter(([name]) => name.startsWith(`${tenant}/`)).map(([, view]) => view);
    return Promise.resolve({ runs, next: "n2" });
  }

  async messages(tenant: string, of: { run: string } | { thread: string }, options = {}) {
    if ("run" in of) await this.#find(tenant, of.run);
    this.#called("messages", tenant, [of, options]);
    return { messages: this.transcript };
  }

  async *events(tenant: string, run: string, { after, signal }: { after?: string; signal: AbortSignal }) {
    this.#find(tenant, run);
    this.watching++;
    try {
      const gone = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      let at = after === undefined ? 0 : this.#events.findIndex((placed) => placed.id === after) + 1;
      if (after !== undefined && at === 0) {
        yield this.#place(run, { type: "resync", messages: this.transcript, run: this.#find(tenant, run) });
      }
      while (!signal.aborted) {
        const placed = this.#events[at++];
        if (placed) {
          this.taken++;
          yield placed;
          if (placed.event.type === "agent_end") return;
        } else {
          at--;
          if (this.#find(tenant, run).status === "completed") return;
          await Promise.race([this.#changed.promise, gone]);
        }
      }
    } finally {
      this.watching--;
    }
  }

  delete(tenant: string, thread: string): Promise<void> {
    this.#called("delete", tenant, [thread]);
    return Promise.resolve();
  }

  menu(settings: Settings): ReturnType<Verbs["menu"]> {
    this.#called("menu", "", [settings]);
    return Promise.resolve({
      tools: this.tools,
      deferred: new Set(["plain"]),
      removed: [{ name: "gone", layer: "availability" as const, reason: "not set: KEY" }],
      warnings: [],
    });
  }

  deliver(): Promise<void> {
    throw new Error("The HTTP face delivers nothing by itself");
  }

  failed(): Promise<void> {
    throw new Error("The HTTP face publishes nothing by itself");
  }

  sweep(): Promise<number> {
    throw new Error("The HTTP face sweeps nothing by itself");
  }

  /** A run that is there already. */
  given(tenant: string, fields: Partial<RunView> = {}): RunView {
    const { run } = this.#accept(tenant, fields.thread ?? `t${this.#count}`, fields.metadata);
    return Object.assign(this.#find(tenant, run), fields);
  }

  emit(run: string, ...events: Event[]): void {
    events.forEach((event) => this.#events.push(this.#place(run, event)));
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #place(run: string, event: Event): Placed {
    return { id: `${this.#events.length}.0`, run, frame: ".", event };
  }

  #called(verb: string, tenant: string, args: unknown[]): void {
    this.calls.push({ verb, tenant, args });
    const failure = this.failure;
    this.failure = undefined;
    if (failure !== undefined) throw failure;
  }

  #find(tenant: string, run: string): RunView {
    const view = this.#runs.get(`${tenant}/${run}`);
    if (!view) throw noRun();
    return view;
  }

  #accept(tenant: string, thread: string, metadata: { [key: string]: Json } = {}): Accepted {
    const id = `${thread}~r${this.#count++}`;
    this.#runs.set(`${tenant}/${id}`, {
      id,
      thread,
      status: "queued",
      iterations: 0,
      slices: 0,
      usage: { input: 0, output: 0 },
      createdAt: 1,
      updatedAt: 2,
      metadata,
    });
    return { run: id, thread, status: "queued", messageId: "m1" };
  }
}
