/** What really happened, noted where it happened: at the store, in the order of its effects. The rules judge by it. */
import type { Clock } from "../../../src/clock.ts";
import type { Store } from "../../../src/store.ts";

export interface Facts {
  /** When runs were cancelled. */
  cancelled: Map<string, number>;
  /** When runs were claimed. */
  claims: Map<string, number[]>;
  /** How many of these claims ended in a wait. */
  waits: Map<string, number>;
  /** Logs of threads that were deleted, and when. */
  deleted: { thread: string; at: number; log: string[] }[];
}

/** The same store, under observation. */
export function witness(inner: Store, clock: Clock): { store: Store; facts: Facts } {
  const facts: Facts = { cancelled: new Map(), claims: new Map(), waits: new Map(), deleted: [] };
  const waited = new Set<string>();
  const store: Store = {
    name: inner.name,
    submit: async (submission) => {
      const before = await inner.read(submission.thread, {});
      const answer = await inner.submit(submission);
      if (answer.is === "ok" && answer.started && submission.ifBusy === "interrupt" && before) {
        const run = (await inner.read(submission.thread, { run: before.current }))?.run;
        if (run?.status === "cancelled" && !facts.cancelled.has(run.id)) {
          facts.cancelled.set(run.id, clock.now());
        }
      }
      return answer;
    },
    withdraw: (submission) => inner.withdraw(submission),
    claim: async (delivery, options) => {
      const answer = await inner.claim(delivery, options);
      if (answer.is === "claimed") {
        facts.claims.set(answer.run, [...facts.claims.get(answer.run) ?? [], clock.now()]);
      }
      return answer;
    },
    commit: async (lease, commit) => {
      const answer = await inner.commit(lease, commit);
      const left = (answer.is === "ok" && answer.quiet ? commit.quiet?.leave : undefined) ??
        commit.change.leave;
      if (answer.is === "ok" && left?.status === "waiting" && answer.publish) {
        const claim = `${lease.thread} ${lease.incarnation} ${lease.token}`, { run } = answer.publish;
        if (!waited.has(claim)) facts.waits.set(run, (facts.waits.get(run) ?? 0) + 1);
        waited.add(claim);
      }
      return answer;
    },
    renew: (lease, leaseMs) => inner.renew(lease, leaseMs),
    stream: (lease, items, reset) => inner.stream(lease, items, reset),
    cancel: async (thread, run, endBody) => {
      const is = await inner.cancel(thread, run, endBody);
      if (is === "ok") facts.cancelled.set(run, clock.now());
      return is;
    },
    read: (thread, options) => inner.read(thread, options),
    watch: (thread, wake, options) => inner.watch(thread, wake, options),
    put: (thread, hash, value) => inner.put(thread, hash, value),
    get: (thread, hash) => inner.get(thread, hash),
    delete: async (thread) => {
      const log = await logOf(inner, thread);
      const gone = await inner.delete(thread);
      if (gone) facts.deleted.push({ thread, at: clock.now(), log });
      return gone;
    },
    overdue: (before, next, limit) => inner.overdue(before, next, limit),
    runs: (prefix, options) => inner.runs(prefix, options),
    close: () => inner.close(),
  };
  return { store, facts };
}

/** Every entry of a thread's log, a page at a time. */
export async function logOf(store: Store, thread: string): Promise<string[]> {
  const log: string[] = [];
  for (;;) {
    const page = await store.read(thread, { from: log.length });
    if (!page?.entries.length) return log;
    log.push(...page.entries);
  }
}
