/**
 * The store in one SQLite file, for one machine: each verb is one transaction. What senders may do is in `sqlite_submit.ts`, what slices may
 * do in `sqlite_slice.ts`, what can happen to a thread at all in `sqlite_threads.ts`.
 */
import type { Clock } from "../clock.ts";
import { InputError } from "../errors.ts";
import type { Delivery } from "../queue.ts";
import { isActive, type Status } from "../run.ts";
import type {
  Claimed,
  Commit,
  Committed,
  Lease,
  Reading,
  Renewed,
  Store,
  Submission,
  Submitted,
} from "../store.ts";
import { Audience } from "./audience.ts";
import { Database } from "./sqlite_database.ts";
import { claim, commit, renew } from "./sqlite_slice.ts";
import { submit, withdraw } from "./sqlite_submit.ts";
import { deliveryOf, Threads } from "./sqlite_threads.ts";

const week = 7 * 24 * 60 * 60 * 1000;

/**
 * Opens the file, or makes it; ":memory:" lives as long as the store. What was answered is on the disk. Several processes may share a
 * file, but `watch` and `stream` reach only listeners in the same process. A thread is gone `ttlMs` (default: a week) after its last change.
 */
export function sqliteStore(path: string, options: { clock: Clock; ttlMs?: number }): Store {
  return new SqliteStore(path, options.clock, options.ttlMs ?? week);
}

class SqliteStore implements Store {
  readonly name: string;
  readonly #database: Database;
  readonly #audience = new Audience();
  readonly #threads: Threads;

  constructor(path: string, clock: Clock, ttlMs: number) {
    this.name = path;
    this.#database = new Database(path);
    this.#threads = new Threads(this.#database, this.#audience, clock, ttlMs);
  }

  submit(submission: Submission): Promise<Submitted> {
    return this.#change(submission.thread, () => submit(this.#threads, submission));
  }

  withdraw(submission: Submission): Promise<boolean> {
    return this.#change(submission.thread, () => withdraw(this.#threads, submission));
  }

  claim(delivery: Delivery, options: Parameters<Store["claim"]>[1]): Promise<Claimed> {
    return this.#change(delivery.thread, () => claim(this.#threads, delivery, options));
  }

  commit(lease: Lease, change: Commit): Promise<Committed> {
    return this.#change(lease.thread, () => commit(this.#threads, lease, change));
  }

  renew(lease: Lease, leaseMs: number): Promise<Renewed> {
    return this.#write(() => renew(this.#threads, lease, leaseMs));
  }

  stream(lease: Lease, items: string[], reset: boolean): Promise<boolean> {
    return attempt(() => {
      const t = this.#threads.leased(lease);
      if (t?.status !== "running") return false;
      this.#audience.add(t.incarnation, t.length, items, reset);
      this.#audience.wake(t.name);
      return true;
    });
  }

  cancel(thread: string, run: string, endBody: string): Promise<"ok" | "repeat" | "ended" | "unknown"> {
    return this.#change(thread, () => {
      const t = this.#threads.find(thread);
      const record = t && this.#threads.tables.run(t, run);
      if (!record) return "unknown";
      if (!isActive(record.status)) return record.status === "cancelled" ? "repeat" : "ended";
      this.#threads.cancel(t, endBody);
      this.#threads.save(t);
      return "ok";
    });
  }

  read(thread: string, options: { run?: string; from?: number }): Promise<Reading | undefined> {
    return this.#look(() => {
      const { tables, mailbox } = this.#threads;
      const t = this.#threads.find(thread);
      if (!t) return undefined;
      const run = tables.run(t, options.run ?? t.run);
      const live = this.#audience.partial(t.incarnation);
      return {
        incarnation: t.incarnation,
        length: t.length,
        current: t.run,
        ...(run && { run }),
        mail: mailbox.counts(t),
        entries: options.from === undefined ? [] : tables.page(t, options.from),
        ...(live && { live }),
      };
    });
  }

  watch(thread: string, wake: () => void, { live } = { live: false }): () => void {
    return this.#audience.watch(thread, wake, live);
  }

  put(thread: string, hash: string, value: string): Promise<void> {
    return this.#write(() => {
      const t = this.#threads.find(thread);
      // Written without its thread, nothing would ever remove it.
      if (!t) throw new InputError("not_found", `Store a value: there is no thread ${thread}`);
      this.#threads.tables.putLarge(t, hash, value);
    });
  }

  get(thread: string, hash: string): Promise<string | undefined> {
    return this.#look(() => {
      const t = this.#threads.find(thread);
      return t && this.#threads.tables.large(t, hash);
    });
  }

  delete(thread: string): Promise<boolean> {
    return this.#change(thread, () => {
      const t = this.#threads.find(thread);
      this.#threads.tables.removeThread(thread);
      if (t) this.#audience.drop(t.incarnation);
      return t !== undefined;
    });
  }

  overdue(before: number, next: number, limit: number): Promise<Delivery[]> {
    return this.#write(() => {
      const { tables } = this.#threads;
      const now = this.#threads.now();
      for (const incarnation of tables.purge(now)) this.#audience.drop(incarnation);
      return tables.overdue(before, limit, now).map((t) => {
        tables.save({ ...t, due: next });
        // Queues remember ids: this publishing needs one that no other had.
        return { ...deliveryOf(t), hop: next };
      });
    });
  }

  runs(
    prefix: string,
    options: { status?: Status; limit: number; after?: string },
  ): Promise<{ thread: string; run: string }[]> {
    return this.#look(() => this.#threads.tables.runs(prefix, { ...options, now: this.#threads.now() }));
  }

  close(): Promise<void> {
    return attempt(() => this.#database.close());
  }

  /** A verb that changes what watchers see. They are told once it is durable. */
  async #change<T>(thread: string, verb: () => T): Promise<T> {
    const result = await this.#write(verb);
    this.#audience.wake(thread);
    return result;
  }

  #write<T>(verb: () => T): Promise<T> {
    return attempt(() => this.#database.atomic(verb, "immediate"));
  }

  #look<T>(verb: () => T): Promise<T> {
    return attempt(() => this.#database.atomic(verb, "deferred"));
  }
}

/** What it throws becomes a rejection. */
function attempt<T>(work: () => T): Promise<T> {
  return new Promise((resolve) => resolve(work()));
}
