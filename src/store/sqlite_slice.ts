/** The SQLite store's verbs for those who advance a run: claim, commit, renew. Each runs inside a transaction of its caller's. */
import { FatalError } from "../errors.ts";
import type { Delivery } from "../queue.ts";
import { isActive } from "../run.ts";
import {
  type Change,
  type Claimed,
  type ClaimOptions,
  type Commit,
  type Committed,
  holderOf,
  type Lease,
  type Renewed,
  takesOver,
} from "../store.ts";
import type { ThreadRow } from "./sqlite_tables.ts";
import { deliveryOf, type Threads } from "./sqlite_threads.ts";

/** What a commit answered beside entries and counts; kept, so that its repeat answers the same. */
interface Outcome {
  quiet: boolean;
  publish?: Delivery;
}

export function claim(
  threads: Threads,
  delivery: Delivery,
  options: ClaimOptions,
): Claimed {
  const { leaseMs, known = 0, incarnation } = options, { tables } = threads, holder = holderOf(options);
  const t = threads.find(delivery.thread);
  if (!t || t.incarnation !== delivery.incarnation || !isActive(t.status)) return { is: "nothing" };
  const unheld = threads.isUnheld(t);
  const again = { ...deliveryOf(t), hop: delivery.hop + 1 };
  if (t.run !== delivery.run || t.ticket !== delivery.ticket || (t.wake ?? 0) > threads.now()) {
    return unheld ? { is: "nothing", publish: again } : { is: "nothing" };
  }
  if (!unheld && !takesOver(holder, t.holder!)) {
    return { is: "busy", publish: { ...again, at: t.until! + 1000, behind: t.token } };
  }
  t.status = "running";
  t.claimed = 1;
  t.wake = null;
  t.until = threads.now() + leaseMs;
  t.holder = holder;
  t.sequence = 0;
  t.outcome = null;
  t.token++;
  t.attempts++;
  t.claims++;
  threads.save(t);
  threads.audience.void(t.incarnation);

  const from = incarnation === t.incarnation && known <= t.length ? known : 0;
  return {
    is: "claimed",
    lease: { thread: t.name, incarnation: t.incarnation, token: t.token },
    run: t.run,
    settings: tables.settings(t, t.run)!,
    progress: t.progress,
    attempts: t.attempts,
    claims: t.claims,
    open: tables.open(t),
    ...threads.signs(t),
    from,
    length: t.length,
    entries: tables.page(t, from),
  };
}

export function commit(threads: Threads, lease: Lease, c: Commit): Committed {
  const t = threads.leased(lease);
  if (!t) return { is: "lost" };
  if (c.sequence !== t.sequence || t.outcome === null) apply(threads, t, c);
  const outcome = JSON.parse(t.outcome!) as Outcome;
  return { is: "ok", ...outcome, ...threads.signs(t), entries: threads.tables.entries(t, c.known) };
}

function apply(threads: Threads, t: ThreadRow, c: Commit): void {
  if (c.sequence !== t.sequence + 1 || t.status !== "running") {
    const next = t.status === "running" ? `expected ${t.sequence + 1}` : "which ended the slice";
    throw new FatalError(
      "sequence",
      `Commit ${c.sequence} to ${t.name}: the last was ${t.sequence}, ${next}. A slice has one commit under way at a time`,
    );
  }
  const before = t.length;
  const quiet = c.quiet !== undefined && c.known === before;
  t.sequence = c.sequence;
  if (c.advances) t.attempts = 0;
  write(threads, t, c.change);
  if (quiet) write(threads, t, c.quiet!);
  if (quiet || !c.quiet) take(threads, t, c);
  const leaving = (quiet ? c.quiet!.leave : undefined) ?? c.change.leave;
  const publish = leaving && leave(threads, t, leaving, c.due);
  t.outcome = JSON.stringify({ quiet, ...(publish && { publish }) } satisfies Outcome);
  threads.save(t);
  if (t.length > before) threads.audience.drop(t.incarnation);
}

function write({ tables }: Threads, t: ThreadRow, change: Change): void {
  for (const entry of change.append ?? []) tables.append(t, entry);
  for (const [path, call] of Object.entries(change.open ?? {})) tables.setCall(t, path, call);
  for (const path of change.close ?? []) tables.closeCall(t, path);
  if (change.progress !== undefined) t.progress = change.progress;
}

/** Mail leaves the box only here, together with its coming into the log (DESIGN rule 2). */
function take({ tables, mailbox }: Threads, t: ThreadRow, c: Commit): void {
  const head = c.head ?? `user ${t.run} . 0`;
  for (const group of c.take ?? []) {
    const taken = mailbox.take(t, group);
    for (const mail of taken) tables.append(t, `${head} ${mail.id}\n${mail.body}`);
    if (taken.length > 0) return;
  }
}

/** Releases the lease; answers what to publish. The token stays, so that a repeat of the commit is recognised. */
function leave(
  threads: Threads,
  t: ThreadRow,
  leaving: NonNullable<Change["leave"]>,
  due: number,
): Delivery | undefined {
  const { tables, mailbox } = threads;
  if (!("ending" in leaving)) {
    if (leaving.status === "waiting") {
      // Waiting is no failure, however often (rule 7).
      t.attempts = Math.max(0, t.attempts - 1);
      t.claims--;
    }
    threads.rest(t, leaving.status);
    return threads.call(t, due, leaving.wakeAt);
  }
  const { steering, followUps } = mailbox.counts(t);
  const mailLeft = leaving.status === "completed" && steering + followUps > 0;
  const successor = mailLeft ? leaving.successor : undefined;
  tables.endRun(t, leaving.status, leaving.ending, successor ?? null);
  tables.closeCalls(t);
  if (successor === undefined) {
    threads.rest(t, leaving.status);
    return undefined;
  }
  const settings = tables.settings(t, t.run)!;
  mailbox.readdress(t, successor);
  threads.start(t, successor, settings, due);
  return deliveryOf(t);
}

export function renew(threads: Threads, lease: Lease, leaseMs: number): Renewed {
  const t = threads.leased(lease);
  if (t?.status !== "running") return { is: "lost" };
  t.until = threads.now() + leaseMs;
  threads.save(t);
  return { is: "ok", ...threads.signs(t) };
}
