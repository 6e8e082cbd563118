/**
 * The store in one SQLite file, for one machine: each verb is one transaction. It decides what the port promises; rows and statements are
 * in `sqlite_tables.ts`, listeners and partials (which need not outlive the process) in `audience.ts`.
 */
import type { Clock } from "../clock.ts";
import { FatalError, InputError } from "../errors.ts";
import type { Delivery } from "../queue.ts";
import { isActive, type Status } from "../run.ts";
import type {
  Change,
  Claimed,
  Commit,
  Committed,
  Lease,
  Reading,
  Renewed,
  RunRecord,
  Store,
  Submission,
  Submitted,
} from "../store.ts";
import { Audience } from "./audience.ts";
import { type SeenRow, Tables, type ThreadRow } from "./sqlite_tables.ts";

const mailLimit = { count: 64, bytes: 1_000_000 };
const week = 7 * 24 * 60 * 60 * 1000;

/** What a commit answered beside entries and counts; kept, so that its repeat answers the same. */
interface Outcome {
  quiet: boolean;
  publish?: Delivery;
}

/**
 * Opens the file, or makes it; ":memory:" lives as long as the store. What was answered is on the disk. Several processes may share a
 * file, but `watch` and `stream` reach only listeners in the same process. A thread is gone `ttlMs` (default: a week) after its last change.
 */
export function sqliteStore(path: string, options: { clock: Clock; ttlMs?: number }): Store {
  return new SqliteStore(path, options.clock, options.ttlMs ?? week);
}

class SqliteStore implements Store {
  readonly name: string;
  readonly #tables: Tables;
  readonly #audience = new Audience();
  readonly #clock: Clock;
  readonly #ttlMs: number;

  constructor(path: string, clock: Clock, ttlMs: number) {
    this.name = path;
    this.#tables = new Tables(path);
    this.#clock = clock;
    this.#ttlMs = ttlMs;
  }

  submit(s: Submission): Promise<Submitted> {
    return this.#change(s.thread, () => {
      const t = this.#find(s.thread);
      const seen = t && s.key && this.#tables.seen(t, s.key.name);
      if (seen) return seen.hash === s.key!.hash ? this.#repeat(t, seen) : { is: "conflict" };
      if (s.like !== undefined && !(t && this.#tables.run(t, s.like))) return { is: "unknown" };
      const submitted = s.answer && t ? this.#answer(t, s) : this.#accept(t, s);
      if (submitted.is === "ok" && s.key) {
        this.#tables.remember(this.#find(s.thread)!, s.key.name, { hash: s.key.hash, ...submitted });
      }
      return submitted;
    });
  }

  #repeat(t: ThreadRow, { run, message }: Omit<SeenRow, "hash">): Submitted {
    const status = this.#tables.run(t, run)?.status ?? t.status;
    const publish = t.run === run && this.#isUnheld(t) ? deliveryOf(t) : undefined;
    return { is: "repeat", run, message, status, started: false, ...(publish && { publish }) };
  }

  #answer(t: ThreadRow, { like, answer, due }: Submission): Submitted {
    const call = t.run === like && isActive(t.status) ? this.#tables.call(t, answer!.path) : undefined;
    if (call?.startsWith("a")) return this.#repeat(t, { run: t.run, message: "-" });
    if (!call?.startsWith("w")) return { is: "closed" };
    this.#tables.setCall(t, answer!.path, "a" + call.slice(1));
    this.#tables.append(t, answer!.entry);
    const publish = this.#wake(t, due);
    this.#extend(t);
    this.#tables.save(t);
    return {
      is: "ok",
      run: t.run,
      message: "-",
      status: t.status,
      started: false,
      ...(publish && { publish }),
    };
  }

  #accept(found: ThreadRow | undefined, s: Submission): Submitted {
    const busy = found !== undefined && isActive(found.status);
    if (busy && s.ifBusy === "reject") return { is: "busy" };
    const message = s.mail?.id ?? "-";
    if (busy && s.ifBusy !== "interrupt") return this.#wait(found, s, message);

    const settings = s.settings ??
      (found && s.like !== undefined ? this.#tables.settings(found, s.like) : undefined);
    if (settings === undefined) return { is: "unknown" };
    if (busy) this.#cancel(found, s.endBody ?? "{}");
    const t = found ??
      this.#tables.makeThread(s.thread, s.incarnation, s.run, this.#clock.now() + this.#ttlMs);
    // A prompt that starts a run is never refused for mail left over from an earlier run, or nothing could start here any more.
    if (s.mail) this.#tables.post(t, { ...s.mail, run: s.run, noted: 0 });
    this.#start(t, s.run, settings, s.due);
    this.#extend(t);
    this.#tables.save(t);
    return { is: "ok", run: s.run, message, status: t.status, started: true, publish: deliveryOf(t) };
  }

  /** Mail for a run that is active. */
  #wait(t: ThreadRow, s: Submission, message: string): Submitted {
    let publish: Delivery | undefined;
    if (s.mail) {
      const { count, bytes } = this.#tables.mailSize(t);
      const size = new TextEncoder().encode(s.mail.body).length;
      if (count >= mailLimit.count || bytes + size > mailLimit.bytes) return { is: "full" };
      this.#tables.post(t, { ...s.mail, run: t.run, noted: 1 });
      this.#tables.append(t, s.mail.note);
      if (s.mail.kind === "steering") publish = this.#wake(t, s.due);
      this.#extend(t);
      this.#tables.save(t);
    }
    // Whoever finds a ticket that nobody holds publishes it again (rule 4); a wait's delivery is merely not due yet.
    if (t.status !== "waiting" && this.#isUnheld(t)) publish = deliveryOf(t);
    return { is: "ok", run: t.run, message, status: t.status, started: false, ...(publish && { publish }) };
  }

  withdraw(s: Submission): Promise<boolean> {
    return this.#change(s.thread, () => {
      const t = this.#find(s.thread);
      const mail = t && s.mail && this.#tables.mail(t, s.mail.id);
      if (!mail) return false;
      const mine = t.run === mail.run && isActive(t.status);
      if (mine && !mail.noted && t.claimed) return false;

      this.#tables.removeMail(t, mail.n);
      if (mail.noted) this.#tables.append(t, `withdrawn ${mail.run} . 0 ${mail.id}\n{}`);
      if (s.key) this.#tables.forget(t, s.key.name);
      // Others may have sent mail to the run meanwhile, which was accepted: then it stays.
      if (isActive(t.status) && !t.claimed && !this.#tables.hasMailFor(t, t.run)) {
        const before = this.#tables.undoRun(t);
        if (!before) {
          this.#tables.removeThread(t.name);
          return true;
        }
        t.run = before.id;
        this.#rest(t, before.status);
      }
      this.#tables.save(t);
      return true;
    });
  }

  claim(
    delivery: Delivery,
    options: { message: string; leaseMs: number; known?: number; incarnation?: string },
  ): Promise<Claimed> {
    return this.#change(delivery.thread, () => {
      const t = this.#find(delivery.thread);
      if (!t || t.incarnation !== delivery.incarnation || !isActive(t.status)) return { is: "nothing" };
      const now = this.#clock.now();
      const again = { ...deliveryOf(t), hop: delivery.hop + 1 };
      if (t.run !== delivery.run || t.ticket !== delivery.ticket || (t.wake ?? 0) > now) {
        return this.#isUnheld(t) ? { is: "nothing", publish: again } : { is: "nothing" };
      }
      if (!this.#isUnheld(t) && t.holder !== options.message) {
        return { is: "busy", publish: { ...again, at: t.until! + 1000, behind: t.token } };
      }
      Object.assign(t, { status: "running", claimed: 1, wake: null });
      Object.assign(t, { until: now + options.leaseMs, holder: options.message });
      Object.assign(t, { sequence: 0, outcome: null });
      t.token++;
      t.attempts++;
      t.claims++;
      this.#extend(t);
      this.#tables.save(t);
      this.#audience.void(t.incarnation);

      const { known = 0 } = options;
      const from = options.incarnation === t.incarnation && known <= t.length ? known : 0;
      return {
        is: "claimed",
        lease: { thread: t.name, incarnation: t.incarnation, token: t.token },
        run: t.run,
        settings: this.#tables.settings(t, t.run)!,
        progress: t.progress,
        attempts: t.attempts,
        claims: t.claims,
        open: this.#tables.open(t),
        ...this.#signs(t),
        from,
        length: t.length,
        entries: this.#tables.page(t, from),
      };
    });
  }

  commit(lease: Lease, c: Commit): Promise<Committed> {
    return this.#change(lease.thread, () => {
      const t = this.#leased(lease);
      if (!t) return { is: "lost" };
      if (c.sequence !== t.sequence || t.outcome === null) this.#apply(t, c);
      const outcome = JSON.parse(t.outcome!) as Outcome;
      return { is: "ok", ...outcome, ...this.#signs(t), entries: this.#tables.entries(t, c.known) };
    });
  }

  #apply(t: ThreadRow, c: Commit): void {
    if (c.sequence !== t.sequence + 1 || t.status !== "running") {
      const next = t.status === "running" ? t.sequence + 1 : "nothing: its slice has ended";
      throw new FatalError(
        "sequence",
        `Commit ${c.sequence} to ${t.name}: the last was ${t.sequence}, expected ${next}. A slice has one commit under way at a time`,
      );
    }
    const before = t.length;
    const quiet = c.quiet !== undefined && c.known === before;
    t.sequence = c.sequence;
    if (c.advances) t.attempts = 0;
    this.#write(t, c.change);
    if (quiet) this.#write(t, c.quiet!);
    if (!c.quiet || quiet) {
      for (const take of c.take ?? []) {
        const taken = this.#tables.takeMail(t, take);
        for (const mail of taken) this.#tables.append(t, `${c.head} ${mail.id}\n${mail.body}`);
        if (taken.length > 0) break;
      }
    }
    const leave = (quiet ? c.quiet!.leave : undefined) ?? c.change.leave;
    const publish = leave && this.#leave(t, leave, c.due);
    t.outcome = JSON.stringify({ quiet, ...(publish && { publish }) } satisfies Outcome);
    this.#extend(t);
    this.#tables.save(t);
    if (t.length > before) this.#audience.drop(t.incarnation);
  }

  #write(t: ThreadRow, change: Change): void {
    for (const entry of change.append ?? []) this.#tables.append(t, entry);
    for (const [path, call] of Object.entries(change.open ?? {})) this.#tables.setCall(t, path, call);
    for (const path of change.close ?? []) this.#tables.closeCall(t, path);
    if (change.progress !== undefined) t.progress = change.progress;
  }

  /** Releases the lease; answers what to publish. The token stays, so that a repeat of the commit is recognised. */
  #leave(t: ThreadRow, leave: NonNullable<Change["leave"]>, due: number): Delivery | undefined {
    if (!("ending" in leave)) {
      if (leave.status === "waiting") {
        t.attempts = Math.max(0, t.attempts - 1);
        t.claims--;
      }
      this.#rest(t, leave.status);
      t.ticket++;
      t.due = due;
      t.wake = leave.wakeAt ?? null;
      return deliveryOf(t);
    }
    const { steering, followUps } = this.#tables.mailCounts(t);
    const successor = leave.status === "completed" && steering + followUps > 0 ? leave.successor : undefined;
    this.#tables.endRun(t, leave.status, leave.ending, successor ?? null);
    this.#tables.closeCalls(t);
    if (successor === undefined) {
      this.#rest(t, leave.status);
      return undefined;
    }
    const settings = this.#tables.settings(t, t.run)!;
    this.#tables.readdressMail(t, successor);
    this.#start(t, successor, settings, due);
    return deliveryOf(t);
  }

  renew(lease: Lease, leaseMs: number): Promise<Renewed> {
    return attempt(() =>
      this.#tables.atomic(() => {
        const t = this.#leased(lease);
        if (t?.status !== "running") return { is: "lost" };
        t.until = this.#clock.now() + leaseMs;
        this.#extend(t);
        this.#tables.save(t);
        return { is: "ok", ...this.#signs(t) };
      })
    );
  }

  stream(lease: Lease, items: string[], reset: boolean): Promise<boolean> {
    return attempt(() => {
      const t = this.#leased(lease);
      if (t?.status !== "running") return false;
      this.#audience.add(t.incarnation, t.length, items, reset);
      this.#audience.wake(t.name);
      return true;
    });
  }

  cancel(thread: string, run: string, endBody: string): Promise<"ok" | "repeat" | "ended" | "unknown"> {
    return this.#change(thread, () => {
      const t = this.#find(thread);
      const record = t && this.#tables.run(t, run);
      if (!record) return "unknown";
      if (!isActive(record.status)) return record.status === "cancelled" ? "repeat" : "ended";
      this.#cancel(t, endBody);
      this.#extend(t);
      this.#tables.save(t);
      return "ok";
    });
  }

  /** Final in itself: the token counted up is what stops the run's slice (DESIGN rule 8). */
  #cancel(t: ThreadRow, endBody: string): void {
    for (const call of Object.values(this.#tables.open(t))) this.#tables.append(t, call.slice(1));
    this.#tables.append(t, `end ${t.run} . 0 -\n${endBody}`);
    this.#tables.closeCalls(t);
    this.#tables.endRun(t, "cancelled", t.progress, null);
    this.#rest(t, "cancelled");
    t.token++;
    this.#audience.drop(t.incarnation);
  }

  read(thread: string, options: { run?: string; from?: number }): Promise<Reading | undefined> {
    return this.#look(() => {
      const t = this.#find(thread);
      if (!t) return undefined;
      const run: RunRecord | undefined = this.#tables.run(t, options.run ?? t.run);
      const live = this.#audience.partial(t.incarnation);
      return {
        incarnation: t.incarnation,
        length: t.length,
        current: t.run,
        ...(run && { run }),
        mail: this.#tables.mailCounts(t),
        entries: options.from === undefined ? [] : this.#tables.page(t, options.from),
        ...(live && { live }),
      };
    });
  }

  watch(thread: string, wake: () => void): () => void {
    return this.#audience.watch(thread, wake);
  }

  put(thread: string, hash: string, value: string): Promise<void> {
    return attempt(() =>
      this.#tables.atomic(() => {
        const t = this.#find(thread);
        // Written without its thread, nothing would ever remove it.
        if (!t) throw new InputError("not_found", `Store a value: there is no thread ${thread}`);
        this.#tables.putLarge(t, hash, value);
      })
    );
  }

  get(thread: string, hash: string): Promise<string | undefined> {
    return this.#look(() => {
      const t = this.#find(thread);
      return t && this.#tables.large(t, hash);
    });
  }

  delete(thread: string): Promise<boolean> {
    return this.#change(thread, () => {
      const t = this.#find(thread);
      this.#tables.removeThread(thread);
      if (t) this.#audience.drop(t.incarnation);
      return t !== undefined;
    });
  }

  overdue(before: number, next: number, limit: number): Promise<Delivery[]> {
    return attempt(() =>
      this.#tables.atomic(() => {
        this.#tables.purge(this.#clock.now());
        return this.#tables.overdue(before, limit).map((t) => {
          t.due = next;
          this.#tables.save(t);
          // Queues remember ids: this publishing needs one that no other had.
          return { ...deliveryOf(t), hop: next };
        });
      })
    );
  }

  runs(
    prefix: string,
    options: { status?: Status; limit: number; after?: string },
  ): Promise<{ thread: string; run: string }[]> {
    return this.#look(() => this.#tables.runs(prefix, { ...options, now: this.#clock.now() }));
  }

  close(): Promise<void> {
    return attempt(() => this.#tables.close());
  }

  // What the verbs share

  #find(thread: string): ThreadRow | undefined {
    return this.#tables.thread(thread, this.#clock.now());
  }

  /** The thread, if this lease is the latest on it (DESIGN rule 1). One that has run out is good until another takes it. */
  #leased(lease: Lease): ThreadRow | undefined {
    const t = this.#find(lease.thread);
    return t?.incarnation === lease.incarnation && t.token === lease.token ? t : undefined;
  }

  /** The current ticket was not claimed, or its claimant's lease has ended. */
  #isUnheld(t: ThreadRow): boolean {
    return isActive(t.status) && (t.status !== "running" || t.until! <= this.#clock.now());
  }

  #start(t: ThreadRow, run: string, settings: string, due: number): void {
    this.#tables.makeRun(t, run, settings);
    t.run = run;
    this.#rest(t, "queued");
    Object.assign(t, { claimed: 0, attempts: 0, claims: 0, progress: "" });
    t.ticket++;
    t.due = due;
  }

  /** A run that waits is queued under a new ticket. */
  #wake(t: ThreadRow, due: number): Delivery | undefined {
    if (t.status !== "waiting") return undefined;
    this.#rest(t, "queued");
    t.ticket++;
    t.due = due;
    return deliveryOf(t);
  }

  /** Nobody holds the thread and nothing is due. */
  #rest(t: ThreadRow, status: Status): void {
    Object.assign(t, { status, wake: null, due: null, until: null, holder: null });
  }

  /** A thread's end only moves outwards, and not with every change: that would write its index each time. A wait moves it past its end. */
  #extend(t: ThreadRow): void {
    const ends = Math.max(this.#clock.now(), t.wake ?? 0) + this.#ttlMs;
    if (ends - t.ends >= (t.wake === null ? this.#ttlMs / 10 : 0)) t.ends = ends;
  }

  #signs(t: ThreadRow) {
    return { mail: this.#tables.mailCounts(t), watched: this.#audience.watches(t.name) };
  }

  /** A verb that changes what watchers see. They are told once it is durable. */
  async #change<T>(thread: string, verb: () => T): Promise<T> {
    const result = await attempt(() => this.#tables.atomic(verb));
    this.#audience.wake(thread);
    return result;
  }

  #look<T>(verb: () => T): Promise<T> {
    return attempt(() => this.#tables.atomic(verb, "deferred"));
  }
}

/** What it throws becomes a rejection. */
function attempt<T>(work: () => T): Promise<T> {
  return new Promise((resolve) => resolve(work()));
}

/** The delivery that the thread's current ticket makes necessary. */
function deliveryOf(t: ThreadRow): Delivery {
  const { name: thread, incarnation, run, ticket, wake } = t;
  return { thread, incarnation, run, ticket, hop: 0, ...(wake !== null && { at: wake }) };
}
