/**
 * The rows of threads, logs, open calls, runs and large values, and the small operations on them that the store's verbs are made of.
 * Nothing here decides anything.
 */
import type { Status } from "../run.ts";
import type { RunRecord } from "../store.ts";
import type { Database } from "./sqlite_database.ts";

/** A thread's row. Verbs change it in memory and `save` it at their end. */
export interface ThreadRow {
  readonly number: number;
  readonly name: string;
  readonly incarnation: string;
  run: string;
  status: Status;
  claimed: number;
  token: number;
  sequence: number;
  outcome: string | null;
  ticket: number;
  attempts: number;
  claims: number;
  length: number;
  wake: number | null;
  due: number | null;
  ends: number;
  until: number | null;
  holder: string | null;
  progress: string;
}

/** As many UTF-16 units of entries as one answer carries (port: 2 MB). */
const pageSize = 2_000_000;
/** Rows are read by so many, which takes half the time of one by one. */
const readAhead = 64;
const fromIndex = "select entry from log where thread = ? and n >= ? order by n";

export class Tables {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  // Threads

  thread(name: string, now: number): ThreadRow | undefined {
    return this.#db.get("select * from thread where name = ? and ends > ?", name, now);
  }

  /** Replaces a thread of that name, which can only be one whose lifetime is over. */
  makeThread(name: string, incarnation: string, run: string, ends: number): ThreadRow {
    this.removeThread(name);
    return this.#db.get(
      "insert into thread (name, incarnation, run, status, ends) values (?, ?, ?, 'queued', ?) returning *",
      ...[name, incarnation, run, ends],
    )!;
  }

  save(t: ThreadRow): void {
    this.#db.run(
      `update thread set run = ?, status = ?, claimed = ?, token = ?, sequence = ?, outcome = ?, ticket = ?, attempts = ?,
        claims = ?, length = ?, wake = ?, until = ?, holder = ?, progress = ? where number = ?`,
      ...[t.run, t.status, t.claimed, t.token, t.sequence, t.outcome, t.ticket, t.attempts],
      ...[t.claims, t.length, t.wake, t.until, t.holder, t.progress, t.number],
    );
    // These two are in indexes, whose pages would be written along even if nothing changed.
    this.#db.run("update thread set due = ?1 where number = ?2 and due is not ?1", t.due, t.number);
    this.#db.run("update thread set ends = ?1 where number = ?2 and ends <> ?1", t.ends, t.number);
  }

  removeThread(name: string): void {
    this.#db.run("delete from thread where name = ?", name);
  }

  /** Removes some of the threads whose lifetime is over, and answers their incarnations. */
  purge(now: number): string[] {
    return this.#db.all<{ incarnation: string }>(
      "delete from thread where number in (select number from thread where ends <= ? limit 100) returning incarnation",
      now,
    ).map((row) => row.incarnation);
  }

  overdue(before: number, limit: number, now: number): ThreadRow[] {
    return this.#db.all(
      "select * from thread where due < ? and ends > ? order by due limit ?",
      ...[before, now, limit],
    );
  }

  // Log

  append(t: ThreadRow, entry: string): void {
    this.#db.run("insert into log values (?, ?, ?)", t.number, t.length++, entry);
  }

  /** Every entry from an index on. */
  entries(t: ThreadRow, from: number): string[] {
    return this.#db.all<{ entry: string }>(fromIndex, t.number, from).map((row) => row.entry);
  }

  /** As many entries as one answer carries, but at least one if there is one. */
  page(t: ThreadRow, from: number): string[] {
    const entries: string[] = [];
    let size = 0;
    for (;;) {
      const rows = this.#db.all<{ entry: string }>(
        `${fromIndex} limit ${readAhead}`,
        t.number,
        from + entries.length,
      );
      for (const { entry } of rows) {
        size += entry.length;
        if (size > pageSize && entries.length > 0) return entries;
        entries.push(entry);
      }
      if (rows.length < readAhead) return entries;
    }
  }

  // Open calls

  /** In the order of a message: a shorter path comes first, so 3.2 is before 3.10. */
  open(t: ThreadRow): Record<string, string> {
    const rows = this.#db.all<{ path: string; call: string }>(
      "select path, call from open where thread = ? order by length(path), path",
      t.number,
    );
    return Object.fromEntries(rows.map(({ path, call }) => [path, call]));
  }

  call(t: ThreadRow, path: string): string | undefined {
    const row = this.#db.get<{ call: string }>(
      "select call from open where thread = ? and path = ?",
      ...[t.number, path],
    );
    return row?.call;
  }

  setCall(t: ThreadRow, path: string, call: string): void {
    this.#db.run("insert or replace into open values (?, ?, ?)", t.number, path, call);
  }

  closeCall(t: ThreadRow, path: string): void {
    this.#db.run("delete from open where thread = ? and path = ?", t.number, path);
  }

  closeCalls(t: ThreadRow): void {
    this.#db.run("delete from open where thread = ?", t.number);
  }

  // Runs

  makeRun(t: ThreadRow, id: string, settings: string): void {
    this.#db.run(
      "insert into run (thread, id, settings, first) values (?, ?, ?, ?)",
      ...[t.number, id, settings, t.length],
    );
  }

  settings(t: ThreadRow, run: string): string | undefined {
    const row = this.#db.get<{ settings: string }>(
      "select settings from run where thread = ? and id = ?",
      ...[t.number, run],
    );
    return row?.settings;
  }

  run(t: ThreadRow, id: string): RunRecord | undefined {
    const row = this.#db.get<{
      settings: string;
      first: number;
      status: Status | null;
      progress: string | null;
      successor: string | null;
    }>("select * from run where thread = ? and id = ?", t.number, id);
    if (!row) return undefined;
    return {
      id,
      status: row.status ?? t.status,
      settings: row.settings,
      progress: row.progress ?? t.progress,
      first: row.first,
      ...(row.successor !== null && { successor: row.successor }),
    };
  }

  endRun(t: ThreadRow, status: Status, progress: string, successor: string | null): void {
    this.#db.run(
      "update run set status = ?, progress = ?, successor = ? where thread = ? and id = ?",
      ...[status, progress, successor, t.number, t.run],
    );
  }

  /** Removes the thread's latest run as if it had never been, and answers the one before it. */
  undoRun(t: ThreadRow): { id: string; status: Status } | undefined {
    this.#db.run("delete from run where thread = ? and id = ?", t.number, t.run);
    this.#db.run("update run set successor = null where thread = ? and successor = ?", t.number, t.run);
    return this.#db.get("select id, status from run where thread = ? order by made desc limit 1", t.number);
  }

  /** `substr` and not LIKE: a prefix may hold "%" and "_". */
  runs(
    prefix: string,
    { status = null, after = null, limit, now }: {
      status?: Status | null;
      after?: string | null;
      limit: number;
      now: number;
    },
  ): { thread: string; run: string }[] {
    return this.#db.all<{ thread: string; run: string }>(
      `select t.name as thread, r.id as run from run r join thread t on t.number = r.thread
        where substr(t.name, 1, length(?1)) = ?1 and t.ends > ?2
        and (?3 is null or coalesce(r.status, t.status) = ?3)
        and (?4 is null or r.made < (
          select a.made from run a join thread b on b.number = a.thread where a.id = ?4 and substr(b.name, 1, length(?1)) = ?1))
        order by r.made desc limit ?5`,
      ...[prefix, now, status, after, limit],
    ).map(({ thread, run }) => ({ thread, run }));
  }

  // Large values

  putLarge(t: ThreadRow, hash: string, value: string): void {
    this.#db.run(
      "insert or ignore into large values (?, ?, ?)",
      ...[t.number, hash, new TextEncoder().encode(value)],
    );
  }

  large(t: ThreadRow, hash: string): string | undefined {
    const row = this.#db.get<{ value: Uint8Array }>(
      "select value from large where thread = ? and hash = ?",
      ...[t.number, hash],
    );
    return row && new TextDecoder("utf-8", { ignoreBOM: true }).decode(row.value);
  }
}
