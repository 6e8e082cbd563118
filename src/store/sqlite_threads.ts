/** What can happen to a thread, whoever asks for it: the transitions that the verbs of callers and of slices are made of. */
import type { Clock } from "../clock.ts";
import type { Delivery } from "../queue.ts";
import { isActive, type Status } from "../run.ts";
import type { Lease } from "../store.ts";
import type { Audience } from "./audience.ts";
import type { Database } from "./sqlite_database.ts";
import { Mailbox } from "./sqlite_mail.ts";
import { Tables, type ThreadRow } from "./sqlite_tables.ts";

export class Threads {
  readonly tables: Tables;
  readonly mailbox: Mailbox;
  readonly audience: Audience;
  readonly #clock: Clock;
  readonly #ttlMs: number;

  constructor(database: Database, audience: Audience, clock: Clock, ttlMs: number) {
    this.tables = new Tables(database);
    this.mailbox = new Mailbox(database);
    this.audience = audience;
    this.#clock = clock;
    this.#ttlMs = ttlMs;
  }

  now(): number {
    return this.#clock.now();
  }

  find(thread: string): ThreadRow | undefined {
    return this.tables.thread(thread, this.now());
  }

  make(thread: string, incarnation: string, run: string): ThreadRow {
    return this.tables.makeThread(thread, incarnation, run, this.now() + this.#ttlMs);
  }

  /** The thread, if this lease is the latest on it (DESIGN rule 1). One that has run out is good until another takes it. */
  leased(lease: Lease): ThreadRow | undefined {
    const t = this.find(lease.thread);
    return t?.incarnation === lease.incarnation && t.token === lease.token ? t : undefined;
  }

  /** Nobody has claimed the current ticket, or the claimant's lease has ended: whoever finds it publishes it again (rule 4). */
  isUnheld(t: ThreadRow): boolean {
    return isActive(t.status) && (t.status !== "running" || t.until! <= this.now());
  }

  /** A run is queued on a thread that has none. */
  start(t: ThreadRow, run: string, settings: string, due: number): void {
    this.tables.makeRun(t, run, settings);
    t.run = run;
    t.claimed = 0;
    t.attempts = 0;
    t.claims = 0;
    t.progress = "";
    this.rest(t, "queued");
    this.call(t, due);
  }

  /** A run that waits is queued, and its delivery answered; any other stays as it is. */
  wake(t: ThreadRow, due: number): Delivery | undefined {
    if (t.status !== "waiting") return undefined;
    this.rest(t, "queued");
    return this.call(t, due);
  }

  /** Nobody holds the thread and nothing is due. */
  rest(t: ThreadRow, status: Status): void {
    t.status = status;
    t.wake = null;
    t.due = null;
    t.until = null;
    t.holder = null;
  }

  /** A delivery has become necessary: counts up the ticket. */
  call(t: ThreadRow, due: number, wakeAt?: number): Delivery {
    t.ticket++;
    t.due = due;
    t.wake = wakeAt ?? null;
    return deliveryOf(t);
  }

  /** Final in itself: the token counted up is what stops the run's slice (rule 8). */
  cancel(t: ThreadRow, endBody: string): void {
    for (const call of Object.values(this.tables.open(t))) this.tables.append(t, call.slice(1));
    this.tables.append(t, `end ${t.run} . 0 -\n${endBody}`);
    this.tables.closeCalls(t);
    this.tables.endRun(t, "cancelled", t.progress, null);
    this.rest(t, "cancelled");
    t.token++;
    this.audience.drop(t.incarnation);
  }

  /** Writes the row. The thread's end only moves outwards, and not each time, as that writes an index; a wait moves it past its own end. */
  save(t: ThreadRow): void {
    const ends = Math.max(this.now(), t.wake ?? 0) + this.#ttlMs;
    if (ends - t.ends >= (t.wake === null ? this.#ttlMs / 10 : 0)) t.ends = ends;
    this.tables.save(t);
  }

  /** What every answer to a slice says of the world outside. */
  signs(t: ThreadRow) {
    return { mail: this.mailbox.counts(t), watched: this.audience.watches(t.name) };
  }
}

/** The delivery that the thread's current ticket makes necessary. */
export function deliveryOf(t: ThreadRow): Delivery {
  const { name: thread, incarnation, run, ticket, wake } = t;
  return { thread, incarnation, run, ticket, hop: 0, ...(wake !== null && { at: wake }) };
}
