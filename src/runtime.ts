/**
 * The verbs over a store and a queue. Whatever is accepted here is in the store before it is answered, and what makes a delivery necessary
 * is published before it is answered (DESIGN rules 2 and 4).
 */
import { checkPrice } from "./allowance.ts";
import { accept, type Acceptance } from "./acceptance.ts";
import { checkEdited } from "./approval.ts";
import { type Budget, defaultBudget } from "./budget.ts";
import { type Clock, orAfter, systemClock } from "./clock.ts";
import { checkAsked } from "./decision.ts";
import { digest, hex } from "./digest.ts";
import { encode, type MailKind } from "./entry.ts";
import { FatalError, InputError, LeaseLostError, messageOf, RetryableError } from "./errors.ts";
import type { Hooks } from "./hook.ts";
import { dueMs } from "./lease.ts";
import { modelNames, type Models } from "./model.ts";
import { offerOf } from "./offer.ts";
import { defaultPatience, type Patience } from "./patience.ts";
import type { Queue } from "./queue.ts";
import { Reader } from "./reading.ts";
import type { Registry } from "./registry.ts";
import * as runs from "./run.ts";
import type { ClientTool, Settings, Stored } from "./run.ts";
import { type Held, slice, Warm } from "./slice.ts";
import type { Store, Submission } from "./store.ts";
import type { Tool, ToolSource, Using } from "./tool.ts";
import type { Accepted, Content, Key, Verbs } from "./verbs.ts";
import { watch } from "./watch.ts";

export interface RuntimeOptions extends Hooks {
  store: Store;
  queue: Queue;
  models: Models;
  registry: Registry;
  clock?: Clock;
  budget?: Partial<Budget>;
  leaseMs?: number;
  ttlMs?: number;
  compactTokens?: number;
  patience?: Partial<Patience>;
  warm?: Warm;
}

export interface Runtime extends Verbs {
  /** Picks up every open run; for a process that starts on a store that another one left. */
  recover(): Promise<number>;
}

const sweepPage = 50;
/** How long what the queue gave up on waits before it is published again. */
const failedMs = 60_000;
/** How often to look whether a run has ended, although nobody said so. */
const pollMs = 5_000;

export function createRuntime(options: RuntimeOptions): Runtime {
  const { store, queue, models, registry, clock = systemClock } = options;
  const { leaseMs = 60_000, ttlMs = 604_800_000, compactTokens = 150_000 } = options;
  const menu = (settings: Settings, offered: Tool[] = [], loaded?: () => ReadonlySet<string>) =>
    registry.menu(settings, clientTool, offered, loaded);
  const offer = (settings: Settings, using: Using) => offerOf(registry, settings, using);
  const removed = (settings: Settings) => {
    try {
      return menu(settings).removed;
    } catch {
      // The deployment has changed since the run began, and lacks what its settings name.
      return [];
    }
  };
  const reader = new Reader(store, clock, removed), holding = new Map<string, Held>();
  const budget = { ...defaultBudget, ...options.budget }, { warm = new Warm() } = options;
  const patience = { ...defaultPatience, ...options.patience };
  const sliceOptions = {
    store,
    queue,
    clock,
    models,
    registry,
    hooks: options,
    budget,
    leaseMs,
    compactTokens,
    longestWaitMs: ttlMs / 2,
    patience,
    warm,
    holding,
    menu,
    offer,
  };

  /** What every submission has in common; `like` is the run it is meant for. */
  const submit = (thread: string, more: Partial<Submission>, busy?: string) =>
    accept(store, queue, {
      thread,
      incarnation: clock.id(12),
      run: runs.runId(runs.publicThread(thread), clock.id(8)),
      due: clock.now() + dueMs,
      ...more,
    }, busy);
  const mail = (kind: MailKind, content: Content, source?: string) => {
    const at = clock.now();
    return {
      kind,
      id: `m_${clock.id(16)}`,
      body: JSON.stringify({ content, ...(source ? { source } : {}), at }),
      note: JSON.stringify({ kind, at }),
    };
  };
  const cancelled = () => JSON.stringify({ status: "cancelled", at: clock.now() });

  /** Publishes what should have come before `before`, page after page. */
  const republish = async (before: number, limit = Infinity): Promise<number> => {
    const seen = new Set<string>();
    while (seen.size < limit) {
      const page = await store.overdue(before, clock.now() + dueMs, Math.min(sweepPage, limit - seen.size));
      const fresh = page.filter((delivery) => !seen.has(delivery.thread));
      if (!fresh.length) break;
      for (const { thread } of fresh) seen.add(thread);
      if (queue.publishAll) await queue.publishAll(fresh);
      else for (const delivery of fresh) await queue.publish(delivery);
    }
    return seen.size;
  };

  return {
    async menu(settings) {
      const { tools, warnings, close } = await offer(settings, {
        signal: new AbortController().signal,
        fetch,
      });
      await close();
      return { ...menu(settings, tools), warnings };
    },

    async start(tenant, content, settings, { thread: named, ifBusy = "steer", source, key } = {}) {
      refuseUnbuilt(settings);
      checkAsked(settings);
      checkChoice(settings, menu(settings).tools, registry.sources(settings));
      if (settings.model !== undefined) modelNames(settings.model).forEach((name) => models.get(name));
      await checkPrice(models, settings);
      const thread = runs.threadKey(tenant, named ?? (key ? await threadOfKey(key) : `t_${clock.id(16)}`));
      const joins = ifBusy === "steer" || ifBusy === "follow_up";
      const asks = joins ? ownSettings.some((name) => settings[name] !== undefined) : ifBusy === "interrupt";
      const before = named !== undefined && asks ? await reader.current(thread) : undefined;
      const other = joins ? otherSetting(settings, before) : undefined;
      const stored: Stored = { v: 1, settings, createdAt: clock.now() };
      const answer = await submit(thread, {
        settings: JSON.stringify(stored),
        mail: mail(ifBusy === "follow_up" ? "follow_up" : "steering", content, source),
        key,
        // The store decides whether the thread is busy: it may be idle by now, and a repeat is answered in any case.
        ifBusy: other ? "reject" : joins ? "mail" : ifBusy,
        endBody: cancelled(),
      }, other && `${other}: the thread's active run has another. Leave it out, or use if_busy "interrupt"`);
      if (ifBusy === "interrupt" && before && before.id !== answer.run) holding.get(before.id)?.stop();
      return accepted(thread, answer);
    },

    async send(tenant, run, kind, content, key) {
      const thread = runs.threadOfRun(tenant, run);
      return accepted(thread, await submit(thread, { like: run, mail: mail(kind, content), key }));
    },

    async cancel(tenant, run) {
      const { thread } = await reader.run(tenant, run);
      const is = await store.cancel(thread, run, cancelled());
      if (is === "unknown") throw new InputError("not_found", "There is no such run");
      holding.get(run)?.stop();
      const now = await reader.view(tenant, run);
      if (is === "ended") throw new InputError("conflict", `The run has ended already: ${now.status}`);
      return now;
    },

    async resolve(tenant, run, toolCallId, answer, key) {
      const { thread, run: record } = await reader.run(tenant, run);
      const waits = await reader.waitingCall(thread, record, toolCallId, answer);
      if (!waits) return { repeat: true, run: await reader.view(tenant, run) };
      const { path, name, answered } = waits;
      checkEdited(answer, registry.get(name));
      const entry = encode("answer", run, path, answer);
      const repeat = await submit(thread, { like: run, answer: { path, entry }, key }).then(
        ({ is }) => is === "repeat",
        (error) => {
          // The store has forgotten calls that are done; the log has not.
          if (answered && error instanceof InputError && error.code === "conflict" && !key) return true;
          throw error;
        },
      );
      return { repeat, run: await reader.view(tenant, run) };
    },

    run: (tenant, run) => reader.view(tenant, run),
    runs: (tenant, options) => reader.runs(tenant, options),
    messages: (tenant, of, options) => reader.messages(tenant, of, options),

    async settled(tenant, run, ms, { signal, orWaits = true } = {}) {
      const until = clock.now() + ms, thread = runs.threadOfRun(tenant, run);
      let news = Promise.withResolvers<void>();
      const watching = () => store.watch(thread, () => news.resolve());
      let stop = watching();
      try {
        for (;;) {
          const now = await reader.view(tenant, run), left = until - clock.now();
          const over = !runs.isActive(now.status) || (orWaits && now.status === "waiting");
          if (over || left <= 0 || signal?.aborted) return now;
          // A slice of this process says itself when it ends; the store would tell of each commit.
          const held = holding.get(run);
          if (held) stop();
          await orAfter(clock, Math.min(left, pollMs), held?.ended ?? news.promise, signal);
          news = Promise.withResolvers<void>();
          if (held) stop = watching();
        }
      } finally {
        stop();
      }
    },

    async *events(tenant, run, { after, signal }) {
      const { thread, run: record } = await reader.run(tenant, run);
      const state = async () => ({
        messages: (await reader.messages(tenant, { run }, { limit: Infinity })).messages,
        run: await reader.view(tenant, run),
      });
      yield* watch({ store, clock, thread, record, after, signal, state });
    },

    async delete(tenant, thread) {
      const key = runs.threadKey(tenant, thread), current = await reader.current(key);
      if (!await store.delete(key)) throw new InputError("not_found", "There is no such thread");
      if (current) holding.get(current.id)?.stop();
    },

    async deliver(delivery, message, retried) {
      try {
        await slice(delivery, { message, retried }, sliceOptions);
      } catch (error) {
        if (error instanceof LeaseLostError) return;
        if (error instanceof RetryableError || error instanceof FatalError) throw error;
        throw new RetryableError(`Advance ${delivery.run}: ${messageOf(error)}`, undefined, { cause: error });
      }
    },

    async failed(delivery) {
      const { thread, incarnation, run, hop } = delivery;
      const known = await store.read(thread, { run, from: Number.MAX_SAFE_INTEGER });
      if (known?.incarnation !== incarnation || !known.run || !runs.isActive(known.run.status)) return;
      // If its ticket is not the current one any more, the claim publishes that.
      await queue.publish({ ...delivery, hop: hop + 1, at: clock.now() + failedMs });
    },

    sweep: (limit) => republish(clock.now(), limit),
    recover: () => republish(Number.MAX_SAFE_INTEGER),
  };
}

function accepted(thread: string, { run, message, status }: Acceptance): Accepted {
  return { run, thread: runs.publicThread(thread), status, messageId: message };
}

/** A call to a client tool waits for half the thread's life, so that the run can still tell the model that no answer came. */
function clientTool(tool: ClientTool): Tool {
  return {
    ...tool,
    wait: () => ({ for: "answer" }),
    execute: () => {
      throw new Error("A client tool has no body here");
    },
  };
}

/** What the interfaces name and this version cannot do yet is refused: ignoring it would be a lie. */
function refuseUnbuilt({ callbackUrl }: Settings): void {
  if (callbackUrl !== undefined) {
    throw new InputError("bad_input", "callback_url: this version cannot do it yet. Leave it out");
  }
}

/** Sources are not asked here, so what they may have counts as had. */
function checkChoice({ toolChoice }: Settings, offered: Tool[], sources: ToolSource[]): void {
  if (
    typeof toolChoice === "object" && !offered.some((tool) => tool.name === toolChoice.name) &&
    !sources.some((source) => source.covers(toolChoice.name))
  ) {
    throw new InputError("bad_input", `tool_choice: the run has no tool "${toolChoice.name}"`);
  }
  if (toolChoice === "required" && !offered.length && !sources.length) {
    throw new InputError("bad_input", "tool_choice: the run has no tools, so none can be required");
  }
}

const ownSettings = ["model", "tools", "limits", "maxIterations", "choices", "responseFormat"] as const;

/** With settings of its own, mail may not quietly join a run that has others: the field that differs. */
function otherSetting(
  settings: Settings,
  current: { status: runs.Status; settings: string } | undefined,
): string | undefined {
  if (!current || !runs.isActive(current.status)) return undefined;
  const active = runs.readStored(current.settings).settings;
  const differs = ownSettings.find((name) =>
    settings[name] !== undefined && JSON.stringify(settings[name]) !== JSON.stringify(active[name])
  );
  return differs?.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** A keyed prompt that names no thread always gets the same one, so that its repeat finds what the first try did. */
async function threadOfKey(key: Key): Promise<string> {
  return `k_${hex((await digest(key.name)).subarray(0, 16))}`;
}
