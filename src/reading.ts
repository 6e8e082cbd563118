/** What a store says of threads and runs, in the words of those who ask. It reads, and changes nothing. */
import type { Clock } from "./clock.ts";
import { type Answer, decode, type Entry, publicId, root } from "./entry.ts";
import { InputError } from "./errors.ts";
import type { Message } from "./message.ts";
import * as runs from "./run.ts";
import type { Ending, Progress, RemovedTool, RunView, Settings, Status } from "./run.ts";
import type { Reading, RunRecord, Store } from "./store.ts";
import { toolMessage, Transcript } from "./transcript.ts";

/** No entries are wanted. */
const nothing = Number.MAX_SAFE_INTEGER;

/** How long an answer is held for a call that has begun and does not wait yet. */
const earlyMs = 5_000;

export class Reader {
  /** `removed`: what a run's settings keep from it. */
  constructor(
    readonly store: Store,
    readonly clock: Clock,
    readonly removed: (settings: Settings) => RemovedTool[],
  ) {}

  /** A run of a tenant, without its entries. Throws not_found for what is unknown or another's. */
  async run(tenant: string, run: string): Promise<Reading & { run: RunRecord; thread: string }> {
    const thread = runs.threadOfRun(tenant, run);
    const reading = await this.store.read(thread, { run, from: nothing });
    if (!reading?.run) throw new InputError("not_found", "There is no such run");
    return { ...reading, run: reading.run, thread };
  }

  /** The latest run of a thread; undefined if there is no such thread. */
  async current(thread: string): Promise<RunRecord | undefined> {
    const known = await this.store.read(thread, { from: nothing });
    return known && (await this.store.read(thread, { run: known.current, from: nothing }))?.run;
  }

  async view(tenant: string, run: string): Promise<RunView> {
    const { thread, run: record } = await this.run(tenant, run);
    const toolsRemoved = this.removed(runs.readStored(record.settings).settings);
    return { ...view(thread, record), ...(toolsRemoved.length ? { toolsRemoved } : {}) };
  }

  async runs(tenant: string, { status, limit, after }: { status?: Status; limit: number; after?: string }) {
    // A page after what is gone would be empty, and look like the end.
    if (after !== undefined && !await this.#knows(tenant, after)) {
      const named = JSON.stringify(after.slice(0, 80));
      throw new InputError("bad_input", `after: there is no run ${named} any more. Begin again without it`);
    }
    const listed = await this.store.runs(`${tenant}~`, { status, limit: limit + 1, after });
    const views: RunView[] = [];
    for (const { thread, run } of listed.slice(0, limit)) {
      const reading = await this.store.read(thread, { run, from: nothing });
      if (reading?.run) views.push(view(thread, reading.run));
    }
    return { runs: views, ...(listed.length > limit ? { next: listed[limit - 1]!.run } : {}) };
  }

  async #knows(tenant: string, run: string): Promise<boolean> {
    return await this.run(tenant, run).then(() => true, (error) => {
      if (error instanceof InputError) return false;
      throw error;
    });
  }

  async messages(
    tenant: string,
    of: { run: string } | { thread: string },
    { after, limit = 100, frame }: { after?: string; limit?: number; frame?: string } = {},
  ): Promise<{ messages: Message[]; next?: string }> {
    const all = "run" in of
      ? await this.run(tenant, of.run).then(({ thread, run }) =>
        this.#transcript(thread, run.first, of.run, frame)
      )
      : await this.#transcript(runs.threadKey(tenant, of.thread), 0);
    if (!all) throw new InputError("not_found", "There is no such thread");
    const from = after === undefined ? 0 : all.findIndex((message) => message.id === after) + 1;
    if (after !== undefined && from === 0) {
      throw new InputError("bad_input", `after: there is no message "${after}" here`);
    }
    const page = all.slice(from, from + limit);
    return { messages: page, ...(from + limit < all.length ? { next: page.at(-1)!.id } : {}) };
  }

  /**
   * The path and tool of a call that waits, or has waited, for this kind of answer, and whether it has one; undefined: it had one, and
   * waits for another thing since. What a tool has begun elsewhere may be done before its wait is in the log, so that is waited for a moment.
   */
  async waitingCall(thread: string, run: RunRecord, toolCallId: string, answer: Answer) {
    for (const until = this.clock.now() + earlyMs;;) {
      const call = await this.#waitingCall(thread, run, toolCallId, answer);
      if (call !== "runs") return call;
      if (this.clock.now() >= until) {
        throw new InputError("conflict", "The call runs: it waits for no answer yet");
      }
      await this.clock.sleep(1_000);
    }
  }

  /** A call's public id is spelled from its path, so the log is searched. */
  async #waitingCall(thread: string, { id, first }: RunRecord, toolCallId: string, answer: Answer) {
    let asked = false, runs = false, name = "", was = false;
    let wait: { path: string; wanted: "content" | "approve"; answered: boolean } | undefined;
    for await (const { text, entry } of this.#entries(thread, first)) {
      if (entry.run !== id) continue;
      if (entry.kind === "assistant" && text.includes(JSON.stringify(toolCallId))) {
        asked = true;
        for (const block of entry.body.content) {
          if (block.type === "tool_call" && block.id === toolCallId) name = block.name;
        }
      }
      if (!asked || publicId(id, entry.path) !== toolCallId) continue;
      if (entry.kind === "wait" && entry.body.for !== "time") {
        const wanted = entry.body.for === "answer" ? "content" : "approve";
        wait = { path: entry.path, wanted, answered: false };
      }
      if (entry.kind === "answer" && wait) {
        wait.answered = true;
        was ||= wait.wanted in answer;
      }
      if (entry.kind === "call" || entry.kind === "result") runs = entry.kind === "call";
    }
    if (wait && wait.wanted in answer) return { ...wait, name };
    if (was) return undefined;
    if (runs && "content" in answer && (!wait || wait.answered)) return "runs";
    if (wait) {
      const what = wait.wanted === "content"
        ? "the call's result; it needs no approval"
        : "true or false; the call waits for an approval";
      throw new InputError("bad_input", `${wait.wanted}: expected ${what}`);
    }
    if (asked) throw new InputError("conflict", "The call waits for no answer");
    throw new InputError("not_found", "tool_call_id: the run has no such call");
  }

  /** Every entry from `from` on, read a page at a time. */
  async *#entries(thread: string, from: number): AsyncGenerator<{ text: string; entry: Entry }> {
    for (let next = from;;) {
      const page = await this.store.read(thread, { from: next });
      if (!page?.entries.length) return;
      for (const text of page.entries) yield { text, entry: decode(text) };
      next += page.entries.length;
    }
  }

  /** Messages of a whole thread or of one run, with the results that a message in progress has so far. */
  async #transcript(
    thread: string,
    first: number,
    run?: string,
    frame = root,
  ): Promise<Message[] | undefined> {
    if (run === undefined && !await this.store.read(thread, { from: nothing })) return undefined;
    const transcript = new Transcript("");
    for await (const { text, entry } of this.#entries(thread, first)) {
      if (run !== undefined && entry.kind === "start" && entry.run !== run) break;
      transcript.append([text]);
    }
    const at = transcript.frame(frame);
    if (!at) throw new InputError("not_found", `frame: the run has no frame "${frame}"`);
    const done = at.calls.filter((call) => call.state === "done");
    const shown = done.length === at.calls.length
      ? []
      : done.map((call) => toolMessage(transcript.run, call));
    return [...at.messages, ...shown];
  }
}

export function view(thread: string, record: RunRecord): RunView {
  const { settings, createdAt } = runs.readStored(record.settings);
  const progress: Progress & Partial<Ending> = record.progress
    ? JSON.parse(record.progress)
    : runs.noProgress;
  const { finishReason, text, choice, output, error, iterations, slices, waitingFor, updatedAt } = progress;
  const { usage, usd, booked } = progress;
  const ended = !runs.isActive(record.status);
  return {
    id: record.id,
    thread: runs.publicThread(thread),
    status: record.status,
    ...(ended ? { finishReason, text, choice, output, error, successor: record.successor } : {}),
    iterations,
    slices,
    usage,
    ...(usd === undefined ? {} : { usd }),
    ...(booked ? { booked } : {}),
    ...(record.status === "waiting" ? { waitingFor } : {}),
    createdAt,
    updatedAt: updatedAt || createdAt,
    metadata: settings.metadata ?? {},
  };
}
