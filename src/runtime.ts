/**
 * The verbs over a store and a queue. Whatever is accepted here is in the store before it is answered, and what makes a delivery necessary
 * is published before it is answered (DESIGN rules 2 and 4).
 */
import { type Budget, defaultBudget } from "./budget.ts";
import { type Clock, systemClock } from "./clock.ts";
import { type Answer, decode, encode, type MailKind, publicId, root } from "./entry.ts";
import { InputError, LeaseLostError, messageOf, RetryableError } from "./errors.ts";
import { dueMs } from "./lease.ts";
import type { Message } from "./message.ts";
import type { Models } from "./model.ts";
import type { Queue } from "./queue.ts";
import type { Registry } from "./registry.ts";
import * as runs from "./run.ts";
import type { ClientTool, Ending, Progress, Settings, Stored } from "./run.ts";
import { slice, Warm } from "./slice.ts";
import type { Reading, RunRecord, Store, Submission, Submitted } from "./store.ts";
import type { Tool } from "./tool.ts";
import { toolMessage, Transcript } from "./transcript.ts";
import type { Accepted, Content, Key, RunView, StartOptions, Verbs } from "./verbs.ts";
import { watch } from "./watch.ts";

export interface RuntimeOptions {
  store: Store;
  queue: Queue;
  models: Models;
  registry: Registry;
  clock?: Clock;
  budget?: Partial<Budget>;
  leaseMs?: number;
  ttlMs?: number;
}

const sweepPage = 50;

export function createRuntime(options: RuntimeOptions): Verbs & { recover(): Promise<number> } {
  const { store, queue, models, registry, clock = systemClock, leaseMs = 60_000, ttlMs = 604_800_000 } =
    options;
  const budget = { ...defaultBudget, ...options.budget };
  const holding = new Map<string, () => void>();

  /** A call to a client tool waits for half the thread's life, so that the run can still tell the model that no answer came. */
  const clientTool = (tool: ClientTool): Tool => ({
    ...tool,
    wait: (_args, now) => ({ for: "answer", until: now + ttlMs / 2 }),
    execute: () => {
      throw new Error("A client tool has no body here");
    },
  });
  const menu = (settings: Settings) => registry.menu(settings, clientTool);
  const sliceOptions = {
    store,
    queue,
    clock,
    models,
    registry,
    budget,
    leaseMs,
    warm: new Warm(64),
    holding,
    menu,
  };

  /** Accepts into the store, then publishes; or neither, and says so. */
  const accept = async (submission: Submission): Promise<Extract<Submitted, { is: "ok" | "repeat" }>> => {
    let answer: Submitted;
    try {
      answer = await store.submit(submission);
    } catch (error) {
      throw unavailable("The store did not answer", error);
    }
    switch (answer.is) {
      case "conflict":
        throw new InputError(
          "conflict",
          "Idempotency-Key: it came before with another request. Use a new key for a new request",
        );
      case "busy":
        throw new InputError(
          "conflict",
          "The thread has an active run. Wait for its end, or choose another if_busy",
        );
      case "closed":
        throw new InputError("conflict", "The call waits for no answer any more");
      case "full":
        throw new InputError(
          "too_many",
          "64 messages or 1 MB wait on this thread. Try again when the run has taken some",
        );
      case "unknown":
        throw new InputError("not_found", "There is no such run");
    }
    if (answer.publish) {
      try {
        await queue.publish(answer.publish);
      } catch (error) {
        const undone = answer.is === "ok" && await store.withdraw(submission).catch(() => true);
        // What could not be withdrawn has been seen: then it was delivered after all.
        if (undone || answer.is === "repeat") throw unavailable("The queue did not take it", error);
      }
    }
    return answer;
  };

  const mail = (
    kind: MailKind,
    content: Content,
    source?: string,
  ): { id: string; body: string } & { kind: MailKind } => ({
    kind,
    id: `m_${clock.id(16)}`,
    body: JSON.stringify({ content, ...(source ? { source } : {}), at: clock.now() }),
  });

  const note = ({ kind }: { kind: MailKind }) => JSON.stringify({ kind, at: clock.now() });

  const cancelled = () => JSON.stringify({ status: "cancelled", at: clock.now() });
  const newRun = (thread: string) => `${runs.publicThread(thread)}~${clock.id(8)}`;

  const read = async (
    tenant: string,
    run: string,
    from?: number,
  ): Promise<Reading & { run: RunRecord; thread: string }> => {
    const thread = runs.threadOfRun(tenant, run);
    const reading = await store.read(thread, { run, from: from ?? Number.MAX_SAFE_INTEGER });
    if (!reading?.run) throw new InputError("not_found", "There is no such run");
    return { ...reading, run: reading.run, thread };
  };

  /** Every entry from `from` on, a page at a time. */
  async function* entries(thread: string, from: number) {
    for (let next = from;;) {
      const page = await store.read(thread, { from: next });
      if (!page?.entries.length) return;
      for (const text of page.entries) yield { text, entry: decode(text) };
      next += page.entries.length;
    }
  }

  /** With settings of its own, mail may not quietly join a run that has others. */
  const sameSettings = async (thread: string, settings: Settings): Promise<void> => {
    const { model, tools, limits, maxIterations } = settings;
    if (model === undefined && tools === undefined && limits === undefined && maxIterations === undefined) {
      return;
    }
    const current = await store.read(thread, { from: Number.MAX_SAFE_INTEGER });
    const reading = current &&
      await store.read(thread, { run: current.current, from: Number.MAX_SAFE_INTEGER });
    if (!reading?.run || !runs.isActive(reading.run.status)) return;
    const active = runs.readStored(reading.run.settings).settings;
    for (const [name, value] of Object.entries({ model, tools, limits, max_iterations: maxIterations })) {
      const has = active[name === "max_iterations" ? "maxIterations" : name as "model"];
      if (value !== undefined && JSON.stringify(value) !== JSON.stringify(has)) {
        throw new InputError(
          "conflict",
          `${name}: the thread's active run has another. Leave it out, or use if_busy "interrupt"`,
        );
      }
    }
  };

  const verbs: Verbs & { recover(): Promise<number> } = {
    async start(
      tenant,
      content,
      settings,
      { thread: named, ifBusy = "steer", source, key }: StartOptions = {},
    ) {
      const offered = menu(settings);
      if (settings.model !== undefined) models.get(settings.model);
      const forced = typeof settings.toolChoice === "object" ? settings.toolChoice.name : undefined;
      if (forced !== undefined && !offered.some((tool) => tool.name === forced)) {
        throw new InputError("bad_input", `tool_choice: the run has no tool "${forced}"`);
      }
      const thread = runs.threadKey(tenant, named ?? (key ? await threadOfKey(key) : `t_${clock.id(16)}`));
      const joins = ifBusy === "steer" || ifBusy === "follow_up";
      if (joins && named !== undefined) await sameSettings(thread, settings);
      const letter = mail(ifBusy === "follow_up" ? "follow_up" : "steering", content, source);
      const stored: Stored = { v: 1, settings, createdAt: clock.now() };
      const answer = await accept({
        thread,
        incarnation: clock.id(12),
        run: newRun(thread),
        settings: JSON.stringify(stored),
        mail: { ...letter, note: note(letter) },
        key,
        ifBusy: joins ? "mail" : ifBusy,
        endBody: cancelled(),
        due: clock.now() + dueMs,
      });
      return accepted(thread, answer);
    },

    async send(tenant, run, kind, content, key) {
      const thread = runs.threadOfRun(tenant, run), letter = mail(kind, content);
      const answer = await accept({
        thread,
        incarnation: "",
        run: newRun(thread),
        like: run,
        mail: { ...letter, note: note(letter) },
        key,
        due: clock.now() + dueMs,
      });
      return accepted(thread, answer);
    },

    async cancel(tenant, run) {
      const { thread } = await read(tenant, run);
      const is = await store.cancel(thread, run, cancelled());
      if (is === "unknown") throw new InputError("not_found", "There is no such run");
      holding.get(run)?.();
      const { run: record } = await read(tenant, run);
      if (is === "ended") throw new InputError("conflict", `The run has ended already: ${record.status}`);
      return view(thread, record);
    },

    async resolve(tenant, run, toolCallId, answer, key) {
      const { thread, run: record } = await read(tenant, run);
      const path = await waitingPath(thread, record, toolCallId, answer);
      const { is } = await accept({
        thread,
        incarnation: "",
        run: newRun(thread),
        like: run,
        answer: { path, entry: encode("answer", run, path, answer) },
        key,
        due: clock.now() + dueMs,
      });
      return { repeat: is === "repeat", run: view(thread, (await read(tenant, run)).run) };
    },

    async run(tenant, run) {
      const { thread, run: record } = await read(tenant, run);
      return view(thread, record);
    },

    async settled(tenant, run, ms, { signal, orWaits = true } = {}) {
      const until = clock.now() + ms, thread = runs.threadOfRun(tenant, run);
      let news = Promise.withResolvers<void>();
      const stop = store.watch(thread, () => news.resolve());
      try {
        for (;;) {
          const now = await verbs.run(tenant, run), left = until - clock.now();
          const over = !runs.isActive(now.status) || (orWaits && now.status === "waiting");
          if (over || left <= 0 || signal?.aborted) return now;
          const rest = new AbortController();
          const signals = signal ? [rest.signal, signal] : [rest.signal];
          await Promise.race([news.promise, clock.sleep(Math.min(left, 5_000), AbortSignal.any(signals))]);
          rest.abort();
          news = Promise.withResolvers<void>();
        }
      } finally {
        stop();
      }
    },

    async runs(tenant, { status, limit, after }) {
      const listed = await store.runs(`${tenant}~`, { status, limit: limit + 1, after });
      const views: RunView[] = [];
      for (const { thread, run } of listed.slice(0, limit)) {
        const reading = await store.read(thread, { run, from: Number.MAX_SAFE_INTEGER });
        if (reading?.run) views.push(view(thread, reading.run));
      }
      return { runs: views, ...(listed.length > limit ? { next: listed[limit - 1]!.run } : {}) };
    },

    async messages(tenant, of, { after, limit = 100, frame } = {}) {
      const { thread, first } = "run" in of
        ? await read(tenant, of.run).then(({ thread, run }) => ({ thread, first: run.first }))
        : { thread: runs.threadKey(tenant, of.thread), first: 0 };
      if (!("run" in of) && !await store.read(thread, { from: Number.MAX_SAFE_INTEGER })) {
        throw new InputError("not_found", "There is no such thread");
      }
      const all = await transcriptOf(thread, first, "run" in of ? of.run : undefined, frame);
      const from = after === undefined ? 0 : all.findIndex((message) => message.id === after) + 1;
      if (after !== undefined && from === 0) {
        throw new InputError("bad_input", `after: there is no message "${after}" here`);
      }
      const page = all.slice(from, from + limit);
      return { messages: page, ...(from + limit < all.length ? { next: page.at(-1)!.id } : {}) };
    },

    async *events(tenant, run, { after, signal }) {
      const { thread, run: record } = await read(tenant, run);
      const state = async () => ({
        messages: (await verbs.messages(tenant, { run }, { limit: Infinity })).messages,
        run: await verbs.run(tenant, run),
      });
      yield* watch({ store, clock, thread, record, after, signal, state });
    },

    async delete(tenant, thread) {
      const key = runs.threadKey(tenant, thread);
      const reading = await store.read(key, { from: Number.MAX_SAFE_INTEGER });
      if (!await store.delete(key)) throw new InputError("not_found", "There is no such thread");
      if (reading) holding.get(reading.current)?.();
    },

    menu,

    async deliver(delivery, message) {
      try {
        await slice(delivery, message, sliceOptions);
      } catch (error) {
        if (error instanceof LeaseLostError) return;
        if (error instanceof RetryableError) throw error;
        throw new RetryableError(`Advance ${delivery.run}: ${messageOf(error)}`, undefined, { cause: error });
      }
    },

    sweep: () => republish(clock.now()),
    recover: () => republish(Number.MAX_SAFE_INTEGER),
  };
  return verbs;

  /** Publishes what should have come before `before`, page after page. */
  async function republish(before: number): Promise<number> {
    const seen = new Set<string>();
    for (;;) {
      const page = await store.overdue(before, clock.now() + dueMs, sweepPage);
      const fresh = page.filter((delivery) => !seen.has(delivery.thread));
      for (const delivery of fresh) {
        seen.add(delivery.thread);
        await queue.publish(delivery);
      }
      if (!fresh.length) return seen.size;
    }
  }

  /** The path of a call that waits for this kind of answer. Its public id is spelled from it, so the log is searched. */
  async function waitingPath(
    thread: string,
    { id, first }: RunRecord,
    toolCallId: string,
    answer: Answer,
  ): Promise<string> {
    let asked = false;
    for await (const { text, entry } of entries(thread, first)) {
      if (entry.run !== id) continue;
      if (entry.kind === "wait" && publicId(id, entry.path) === toolCallId) {
        const wants = entry.body.for;
        if (wants === "answer" && !("content" in answer)) {
          throw new InputError(
            "bad_input",
            "content: expected the call's result, this call needs no approval",
          );
        }
        if (wants === "approval" && !("approve" in answer)) {
          throw new InputError(
            "bad_input",
            "approve: expected true or false, this call waits for an approval",
          );
        }
        if (wants !== "time") return entry.path;
      }
      asked ||= entry.kind === "assistant" && text.includes(JSON.stringify(toolCallId));
    }
    if (asked) throw new InputError("conflict", "The call waits for no answer");
    throw new InputError("not_found", "tool_call_id: the run has no such call");
  }

  /** Messages of a whole thread or of one run, with the results that a message in progress has so far. */
  async function transcriptOf(thread: string, first: number, run?: string, frame = root): Promise<Message[]> {
    const transcript = new Transcript("");
    for await (const { text, entry } of entries(thread, first)) {
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

function accepted(
  thread: string,
  { run, message, status }: Extract<Submitted, { is: "ok" | "repeat" }>,
): Accepted {
  return { run, thread: runs.publicThread(thread), status, messageId: message };
}

function view(thread: string, record: RunRecord): RunView {
  const { settings, createdAt } = runs.readStored(record.settings);
  const progress: Progress & Partial<Ending> = record.progress
    ? JSON.parse(record.progress)
    : runs.noProgress;
  const { finishReason, text, choice, error, iterations, slices, usage, waitingFor, updatedAt } = progress;
  const ended = !runs.isActive(record.status);
  return {
    id: record.id,
    thread: runs.publicThread(thread),
    status: record.status,
    ...(ended ? { finishReason, text, choice, error, successor: record.successor } : {}),
    iterations,
    slices,
    usage,
    ...(record.status === "waiting" ? { waitingFor } : {}),
    createdAt,
    updatedAt: updatedAt || createdAt,
    metadata: settings.metadata ?? {},
  };
}

/** A keyed prompt that names no thread always gets the same one, so that its repeat finds what the first try did. */
async function threadOfKey(key: Key): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key.name));
  return `k_${
    [...new Uint8Array(digest)].slice(0, 16).map((byte) => byte.toString(16).padStart(2, "0")).join("")
  }`;
}

function unavailable(what: string, cause: unknown): InputError {
  const error = new InputError(
    "unavailable",
    `${what}; nothing was accepted. Repeat the same request, with the same Idempotency-Key if it had one`,
  );
  error.cause = cause;
  return error;
}
