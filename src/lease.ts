/**
 * A slice's hold on a run: it keeps the promises of `Journal` over a store. It owns the lease, the order of commits, the one flag that says
 * "stop", and the question whether everything stands still. It does not know what the loop does.
 *
 * S1. One commit is under way at a time, and what it says is decided when its turn comes; so a sequence number names one change (rule 1).
 * S2. "The slice is over" is one state. Whatever waits for a commit or a park after that stands still for ever: no exception that the body
 *     of an agentic function could swallow.
 * S3. The slice ends by a commit only when nothing is in flight: a step or call that has run is recorded first (DESIGN §3, Replay).
 * S4. Observers cannot hurt: what is shown to watchers is sent aside, and its failures are dropped (rule 10).
 */
import { type Books, counted, released, usedOf } from "./books.ts";
import type { Spending } from "./budget.ts";
import type { Clock } from "./clock.ts";
import { encode, publicId, root } from "./entry.ts";
import { FatalError, LeaseLostError, messageOf, RetryableError } from "./errors.ts";
import type { Journal, Part, Step } from "./journal.ts";
import type { Delivery } from "./queue.ts";
import { clip } from "./render.ts";
import { type Progress, runId, type Settings, type WaitingCall } from "./run.ts";
import { showing } from "./showing.ts";
import type { Change, Claimed, Committed, Store } from "./store.ts";
import type { Transcript } from "./transcript.ts";

export interface Holding {
  store: Store;
  clock: Clock;
  leaseMs: number;
  claimed: Extract<Claimed, { is: "claimed" }>;
  settings: Settings;
  progress: Progress;
  transcript: Transcript;
  thread: string;
  spending: Spending;
}

/** How often the lease is prolonged, and how often a cancel by another process is noticed (within 5 s, rule 8). */
const renewMs = 4_000;
/** Arguments of waiting calls in a run's progress, and the reason of each, for it has room for 4 KB. */
const shownLength = 1_500, shownReason = 300;
/** When the delivery that a commit makes necessary must have come. */
export const dueMs = 900_000;

type Outcome = { publish?: Delivery };
type Pause = { status: "queued" | "waiting"; wakeAt?: number };

export function holdLease(it: Holding): Journal & { ended: Promise<Outcome>; fail(error: unknown): void } {
  const { store, clock, claimed: { lease, run }, transcript, spending } = it;
  let { mail, watched } = it.claimed, sequence = 0, opened = false;
  let books: Books = { progress: it.progress, bookings: new Map() };
  let over = false, cut = false, inFlight = 0;
  let last: Promise<unknown> = Promise.resolve();
  const parked: { until?: number; wake(): void }[] = [];
  const permitted = new Set<string>(), warnings: string[] = [];
  const aborter = new AbortController(), finished = new AbortController();
  const { promise: ended, resolve: end, reject } = Promise.withResolvers<Outcome>();

  /** S2. */
  const close = (reason: unknown) => {
    over = true;
    finished.abort();
    aborter.abort(reason);
  };
  const fail = (error: unknown) => {
    if (over) return;
    close(error);
    if (error instanceof LeaseLostError) end({});
    else reject(error);
  };
  const cutOff = (limit: string) => {
    if (over) return;
    cut = true;
    aborter.abort(new DOMException(`The slice has reached its limit of ${limit}`, "TimeoutError"));
  };
  const stand = () => new Promise<never>(() => {});

  const changeOf = (part: Part, leave?: Change["leave"]): Change => {
    const { count, end: ending } = part;
    if (count || leave || ending) {
      const { progress, bookings } = counted(leave && !cut ? released(books) : books, count ?? {});
      books = {
        bookings,
        progress: {
          ...progress,
          updatedAt: clock.now(),
          waitingFor: leave?.status === "waiting" ? waitingFor(shownLength) : undefined,
        },
      };
    }
    const { progress } = books;
    return {
      append: part.append,
      open: part.open,
      close: part.close,
      progress: count || leave ? JSON.stringify(progress) : undefined,
      leave: ending
        ? {
          status: ending.status,
          ending: JSON.stringify({ ...progress, ...ending.ending }),
          successor: runId(it.thread, clock.id(8)),
        }
        : leave,
    };
  };

  /** The slice's first commit says that it began; warnings ride on whatever comes next. */
  const withOpening = (change: Change): Change => {
    const more = warnings.splice(0);
    if (!opened) more.unshift(encode("slice", run, root, { at: clock.now() }, { n: books.progress.slices }));
    opened = true;
    if (!more.length) return change;
    const append = [...change.append ?? []], at = append[0]?.startsWith("start ") ? 1 : 0;
    append.splice(at, 0, ...more);
    return { ...change, append };
  };

  const write = async (
    step: Step,
    leave?: { change?: Pause; quiet?: Pause },
  ): Promise<boolean> => {
    const change = withOpening(changeOf(step.change ?? {}, leave?.change));
    const afterChange = books;
    const quiet = step.quiet && changeOf(step.quiet, leave?.quiet);
    const commit = {
      sequence: ++sequence,
      known: transcript.length,
      change,
      quiet,
      take: step.take,
      head: step.into && `user ${run} ${step.into.frame} ${step.into.turn}`,
      advances: step.advances,
      // A wait's delivery comes when it is over; before that the sweep has nothing to miss.
      due: Math.max(clock.now(), leave?.quiet?.wakeAt ?? 0) + dueMs,
    };
    const answer = await repeated(() => store.commit(lease, commit));
    if (over) return await stand();
    if (answer.is === "lost") {
      fail(new LeaseLostError());
      return await stand();
    }
    books = quiet && !answer.quiet ? afterChange : books;
    transcript.append(answer.entries);
    mail = answer.mail;
    watched = answer.watched;
    for (const part of [step.change, answer.quiet ? step.quiet : undefined]) {
      for (const [path, value] of Object.entries(part?.open ?? {})) if (value[0] === "s") permitted.add(path);
    }
    const left = answer.quiet ? quiet?.leave ?? change.leave : change.leave;
    if (!left) return answer.quiet;
    close(new LeaseLostError());
    end({ publish: answer.publish });
    return await stand();
  };

  /** A commit whose answer was lost is sent again: the store knows its sequence number. */
  const repeated = async (send: () => Promise<Committed>): Promise<Committed> => {
    for (let tries = 1;; tries++) {
      try {
        spending.subrequests++;
        return await send();
      } catch (error) {
        if (over) return await stand();
        if (error instanceof FatalError || tries >= 3) {
          throw new RetryableError(`Commit: ${messageOf(error)}`, undefined, { cause: error });
        }
        await clock.sleep(100 * tries, finished.signal);
      }
    }
  };

  /** S1, S3: in line, and in flight until it is done. */
  const inLine = <T>(body: () => Promise<T>): Promise<T> => {
    const mine = work(() => last.then(() => over ? stand() : body()));
    last = mine.catch(() => {});
    return mine.catch((error) => {
      fail(error);
      return stand();
    });
  };

  const work = async <T>(body: () => Promise<T>): Promise<T> => {
    inFlight++;
    try {
      return await body();
    } finally {
      inFlight--;
      settle();
    }
  };

  /** S3. When all branches stand still, one commit ends the slice; if something came meanwhile, they look again. */
  let settling = false;
  const settle = () => {
    if (settling || over || !parked.length) return;
    settling = true;
    // A branch that goes on does so at once, in microtasks; after a whole round of the event loop nothing is about to begin.
    clock.sleep(0).then(async () => {
      settling = false;
      if (over || inFlight || !parked.length) return;
      const now = clock.now();
      // After the cut nobody goes on: a call that was given up would begin a second time beside its first body.
      if (!cut && parked.some((branch) => branch.until !== undefined && branch.until <= now)) return wake();
      if (cut || parked.some((branch) => branch.until === undefined)) {
        await inLine(() =>
          write({ change: { append: [pause("queued")] } }, { change: { status: "queued" } })
        );
        return;
      }
      const wakeAt = Math.min(...parked.map((branch) => branch.until!));
      await inLine(() =>
        write({ quiet: { append: [pause("waiting", wakeAt)] } }, { quiet: { status: "waiting", wakeAt } })
      );
      wake();
    });
  };
  const wake = () => parked.splice(0).forEach((branch) => branch.wake());

  const pause = (status: "queued" | "waiting", wakeAt?: number) =>
    encode("pause", run, root, { status, ...(wakeAt ? { wakeAt, waitingFor: waitingFor() } : {}) });
  /** `room`: how many characters of arguments may be shown. */
  const waitingFor = (room = Infinity): WaitingCall[] =>
    transcript.openCalls().flatMap(({ path, call, state, wait }) => {
      if (state !== "waiting" || !wait) return [];
      const { for: what, until, reason: whole } = wait;
      const reason = room < Infinity ? whole && clip(whole, shownReason) : whole;
      room -= JSON.stringify([reason, call.arguments]).length;
      return [{
        ...{ toolCallId: publicId(run, path), name: call.name, for: what, until },
        ...(reason ? { reason } : {}),
        ...(room >= 0 ? { arguments: call.arguments } : {}),
      }];
    });

  // One timer per slice for each: the lease, the hard limit.
  (async () => {
    for (;;) {
      await clock.sleep(Math.min(renewMs, it.leaseMs / 3), finished.signal);
      if (over) return;
      spending.subrequests++;
      if (spending.exhausted) cutOff("subrequests");
      // A renew that fails says nothing: the next one, or a commit, will tell.
      const renewed = await store.renew(lease, it.leaseMs).catch(() => undefined);
      if (renewed?.is === "lost") return fail(new LeaseLostError());
      if (renewed) watched = renewed.watched;
    }
  })();
  clock.sleep(spending.budget.hardMs, finished.signal).then(() => cutOff("time"));

  // S4.
  const { show, shown } = showing({
    clock,
    run,
    wanted: () => watched && !spending.scarce,
    finished: finished.signal,
    send: async (items, begins) => {
      spending.subrequests++;
      await store.stream(lease, items, begins);
    },
  });

  return {
    run,
    thread: it.thread,
    settings: it.settings,
    transcript,
    signal: aborter.signal,
    ended,
    fail,
    get mail() {
      return mail;
    },
    get usage() {
      return books.progress.usage;
    },
    get used() {
      return usedOf(books.progress);
    },
    booking: (frame) => books.bookings.get(frame),
    sharing: (frame) => [...books.bookings.keys()].some((other) => other !== frame),
    get cut() {
      return cut;
    },
    get spent() {
      return cut || spending.spent(clock.now());
    },
    get leftMs() {
      return spending.leftMs(clock.now());
    },
    now: () => clock.now(),
    chance: () => parseInt(clock.id(8), 36) / 36 ** 8,
    commit: (decide) =>
      inLine(async () => {
        const step = decide();
        return step ? await write(step) : false;
      }),
    work: async (body) => {
      const value = await work(body);
      return over ? await stand() : value;
    },
    park: (until) =>
      new Promise<void>((resolve) => {
        if (over) return;
        parked.push({ until, wake: resolve });
        settle();
      }),
    sleep: (ms, signal) =>
      clock.sleep(ms, signal ? AbortSignal.any([signal, aborter.signal]) : aborter.signal),
    permitted: (path) => permitted.delete(path),
    show,
    shown,
    countTurn: () => spending.turn(),
    fetch: async (input, init) => {
      spending.fetch();
      return await fetch(input, init);
    },
    warn: (code, message) => void warnings.push(encode("warning", run, root, { code, message })),
    entry: (kind, path, body, more) => encode(kind, run, path, body, more),
  };
}
