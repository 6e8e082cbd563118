/**
 * One delivery: claim, go on, hand over. It owns what happens before the loop and after it.
 *
 * H1. It resolves only when what follows is durable: ended, waiting with its wake-up published, or the next delivery published (rule 4).
 * H2. It publishes the ticket that its own commit, or the claim, answered; never one read later.
 */
import { type Budget, Spending } from "./budget.ts";
import type { Clock } from "./clock.ts";
import { root } from "./entry.ts";
import { LeaseLostError } from "./errors.ts";
import type { Hooks } from "./hook.ts";
import { holdLease } from "./lease.ts";
import { loop } from "./loop.ts";
import type { Model, Models } from "./model.ts";
import { type Offer, withPossibleChoice } from "./offer.ts";
import { fail } from "./outcome.ts";
import type { Patience } from "./patience.ts";
import type { Delivery, Queue } from "./queue.ts";
import type { Registry } from "./registry.ts";
import { nested } from "./replay.ts";
import { maxIterations, noProgress, type Progress, publicThread, readStored, type Settings } from "./run.ts";
import type { Store } from "./store.ts";
import type { Menu, Tool, Using } from "./tool.ts";
import { Transcript } from "./transcript.ts";

export interface SliceOptions {
  store: Store;
  queue: Queue;
  clock: Clock;
  models: Models;
  registry: Registry;
  hooks: Hooks;
  budget: Budget;
  leaseMs: number;
  compactTokens: number;
  longestWaitMs: number;
  patience: Patience;
  /** Transcripts that this process holds, and its slices, by run. Only speed depends on either. */
  warm: Warm;
  holding: Map<string, Held>;
  offer(settings: Settings, using: Using): Promise<Offer>;
  menu(settings: Settings, offered: Tool[], loaded: () => ReadonlySet<string>): Menu;
}

export interface Held {
  stop(): void;
  /** Resolves when the slice has ended, however it did. */
  ended: Promise<void>;
}

/** Claims since the run last came further; claims of the run in all (rule 7). */
const maxAttempts = 5;
const maxClaims = (settings: Settings) => 3 * maxIterations(settings) + 20;

/** Advances the run of a delivery by one slice. Throws RetryableError when the delivery must come again. */
export async function slice(
  delivery: Delivery,
  { message, retried }: { message: string; retried?: number },
  it: SliceOptions,
): Promise<void> {
  const { store, queue, clock, warm } = it;
  const held = warm.take(delivery.thread);
  const claimed = await store.claim(delivery, {
    message,
    retried,
    leaseMs: it.leaseMs,
    known: held?.length,
    incarnation: held?.incarnation,
  });
  if (claimed.is !== "claimed") {
    if (held) warm.keep(delivery.thread, held);
    if (claimed.publish) await queue.publish(claimed.publish);
    return;
  }
  const spending = new Spending(it.budget, clock.now());
  spending.subrequests++;
  const transcript = held?.incarnation === claimed.lease.incarnation && held.length === claimed.from
    ? held
    : new Transcript(claimed.lease.incarnation);
  transcript.append(claimed.entries);
  while (transcript.length < claimed.length) {
    spending.subrequests++;
    const page = await store.read(delivery.thread, { from: transcript.length });
    if (page?.incarnation !== transcript.incarnation || !page.entries.length) return;
    // Entries that came after the claim are left for the first commit to answer.
    transcript.append(page.entries.slice(0, claimed.length - transcript.length));
  }

  const { settings } = readStored(claimed.settings);
  const before: Progress = claimed.progress ? JSON.parse(claimed.progress) : noProgress;
  const journal = holdLease({
    store,
    clock,
    leaseMs: it.leaseMs,
    claimed,
    settings,
    progress: { ...before, slices: before.slices + 1 },
    transcript,
    thread: publicThread(delivery.thread),
    spending,
  });
  const exhausted = claimed.attempts > maxAttempts || claimed.claims > maxClaims(settings);
  let offer: Promise<Offer> | undefined;
  if (exhausted) {
    const why = claimed.attempts > maxAttempts
      ? `Gave up after ${claimed.attempts - 1} attempts that did not bring the run further`
      : `Gave up after ${claimed.claims - 1} slices, the most that a run with its max_iterations may take`;
    journal.commit(() => fail(journal, "attempts", why));
  } else {
    const { settings: now, gone } = it.registry.still(settings);
    for (const name of gone) {
      journal.warn("tool_gone", `There is no tool "${name}" any more; the run goes on without it`);
    }
    offer = it.offer(now, journal);
    offer.then(async ({ tools, warnings }) => {
      for (const { code, message } of warnings) journal.warn(code, message);
      const { maxCostUsd } = settings.limits ?? {};
      const prices = maxCostUsd === undefined ? undefined : await it.models.prices?.();
      const menu = it.menu(now, tools, () => transcript.root.loaded);
      await loop({
        frame: root,
        journal,
        models: remembered(it.models),
        settings: withPossibleChoice(now, menu.tools),
        menu,
        compactTokens: it.compactTokens,
        longestWaitMs: it.longestWaitMs,
        patience: it.patience,
        hooks: it.hooks,
        asked: new Map(),
        prices,
        narrow: it.registry.narrow.bind(it.registry),
        nested,
      });
    }).catch(journal.fail);
  }
  it.holding.set(claimed.run, {
    stop: () => journal.fail(new LeaseLostError()),
    ended: journal.ended.then(() => {}, () => {}),
  });
  try {
    const { publish } = await journal.ended.finally(() => it.holding.delete(claimed.run));
    warm.keep(delivery.thread, transcript);
    if (publish) await queue.publish(publish);
  } finally {
    await offer?.then(({ close }) => close());
  }
}

/** Each model is made once in a slice, and not anew for each turn. */
function remembered(models: Models): Models {
  const made = new Map<string, Model>();
  return {
    default: models.default,
    get(name) {
      const model = made.get(name) ?? models.get(name);
      made.set(name, model);
      return model;
    },
  };
}

/** Transcripts by thread, the least recently used dropped first. A slice takes one out while it works, so that no two share it. */
export class Warm {
  readonly #held = new Map<string, Transcript>();
  #size = 0;
  /** `room`: how many characters of entries may be held in all. */
  constructor(readonly room = 16_000_000) {}

  take(thread: string): Transcript | undefined {
    const held = this.#held.get(thread);
    this.#held.delete(thread);
    this.#size -= held?.size ?? 0;
    return held;
  }

  keep(thread: string, transcript: Transcript): void {
    this.take(thread);
    // It would drive out all others, and then itself.
    if (transcript.size > this.room) return;
    this.#held.set(thread, transcript);
    this.#size += transcript.size;
    while (this.#size > this.room) this.take(this.#held.keys().next().value!);
  }
}
