/**
 * The rows of the SQLite store and the small operations on them that its verbs are made of. Nothing here opens a transaction but `atomic`,
 * and nothing decides: the rules are in `sqlite.ts`.
 */
import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import type { MailKind } from "../entry.ts";
import type { Status } from "../run.ts";
import type { MailCounts, RunRecord, Take } from "../store.ts";
import { openDatabase } from "./sqlite_schema.ts";

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

export interface MailRow {
  n: number;
  kind: MailKind;
  id: string;
  body: string;
  run: string;
  noted: number;
}

export interface SeenRow {
  hash: string;
  run: string;
  message: string;
}

/** As many UTF-16 units of entries as one answer carries (port: 2 MB). */
const pageSize = 2_000_000;
const keysKept = 1000;

export class Tables {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(path: string) {
    this.#db = openDatabase(path);
  }

  close(): void {
    this.#db.close();
  }

  /** All of it or nothing. Reads see one moment; "immediate" also keeps other writers out from the start. */
  atomic<T>(work: () => T, mode: "immediate" | "deferred" = "immediate"): T {
    this.#run(`begin ${mode}`);
    try {
      const result = work();
      this.#run("commit");
      return result;
    } catch (error) {
      if (this.#db.isTransaction) this.#run("rollback");
      throw error;
    }
  }

  // Threads

  thread(name: string, now: number): ThreadRow | undefined {
    return this.#get("select * from thread where name = ? and ends > ?", name, now);
  }

  /** Replaces a thread of that name, which can only be one whose lifetime is over. */
  makeThread(name: string, incarnation: string, run: string, ends: number): ThreadRow {
    this.removeThread(name);
    return this.#get(
      "insert into thread (name, incarnation, run, status, ends) values (?, ?, ?, 'queued', ?) returning *",
      name,
      incarnation,
      run,
      ends,
    )!;
  }

  save(t: ThreadRow): void {
    this.#run(
      `update thread set run = ?, status = ?, claimed = ?, token = ?, sequence = ?, outcome = ?, ticket = ?, attempts = ?,
        claims = ?, length = ?, wake = ?, until = ?, holder = ?, progress = ? where number = ?`,
      ...[t.run, t.status, t.claimed, t.token, t.sequence, t.outcome, t.ticket, t.attempts],
      ...[t.claims, t.length, t.wake, t.until, t.holder, t.progress, t.number],
    );
    // These two are in indexes, whose pages would be written along even if nothing changed.
    this.#run("update thread set due = ?1 where number = ?2 and due is not ?1", t.due, t.number);
    this.#run("update thread set ends = ?1 where number = ?2 and ends <> ?1", t.ends, t.number);
  }

  removeThread(name: string): void {
    this.#run("delete from thread where name = ?", name);
  }

  /** Removes some of the threads whose lifetime is over. */
  purge(now: number): void {
    this.#run(
      "delete from thread where number in (select number from thread where ends <= ? limit 100)",
      now,
    );
  }

  overdue(before: number, limit: number): ThreadRow[] {
    return this.#all("select * from thread where due < ? order by due limit ?", before, limit);
  }

  // Log

  append(t: ThreadRow, entry: string): void {
    this.#run("insert into log values (?, ?, ?)", t.number, t.length++, entry);
  }

  /** Every entry from an index on. */
  entries(t: ThreadRow, from: number): string[] {
    return this.#all<{ entry: string }>(
      "select entry from log where thread = ? and n >= ? order by n",
      t.number,
      from,
    ).map((row) => row.entry);
  }

  /** As many entries as one answer carries, but at least one if there is one. */
  page(t: ThreadRow, from: number): string[] {
    const entries: string[] = [];
    let size = 0;
    const rows = this.#sql("select entry from log where thread = ? and n >= ? order by n").iterate(
      t.number,
      from,
    );
    for (const row of rows) {
      const entry = row.entry as string;
      size += entry.length;
      if (size > pageSize && entries.length > 0) break;
      entries.push(entry);
    }
    return entries;
  }

  // Open calls

  /** In the order of a message: a shorter path comes first, so 3.2 is before 3.10. */
  open(t: ThreadRow): Record<string, string> {
    const rows = this.#all<{ path: string; call: string }>(
      "select path, call from open where thread = ? order by length(path), path",
      t.number,
    );
    return Object.fromEntries(rows.map(({ path, call }) => [path, call]));
  }

  call(t: ThreadRow, path: string): string | undefined {
    return this.#get<{ call: string }>("select call from open where thread = ? and path = ?", t.number, path)
      ?.call;
  }

  setCall(t: ThreadRow, path: string, call: string): void {
    this.#run("insert or replace into open values (?, ?, ?)", t.number, path, call);
  }

  closeCall(t: ThreadRow, path: string): void {
    this.#run("delete from open where thread = ? and path = ?", t.number, path);
  }

  closeCalls(t: ThreadRow): void {
    this.#run("delete from open where thread = ?", t.number);
  }

  // Mail

  post(t: ThreadRow, mail: Omit<MailRow, "n">): void {
    this.#run(
      `insert into mail select ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5, ?6 from mail where thread = ?1`,
      ...[t.number, mail.kind, mail.id, mail.body, mail.run, mail.noted],
    );
  }

  mailCounts(t: ThreadRow): MailCounts {
    const { steering, followUps } = this.#get<{ steering: number; followUps: number }>(
      `select count(*) filter (where kind = 'steering') as steering,
        count(*) filter (where kind = 'follow_up') as followUps from mail where thread = ?`,
      t.number,
    )!;
    return { steering, followUps };
  }

  mailSize(t: ThreadRow): { count: number; bytes: number } {
    return this.#get(
      "select count(*) as count, coalesce(sum(octet_length(body)), 0) as bytes from mail where thread = ?",
      t.number,
    )!;
  }

  mail(t: ThreadRow, id: string): MailRow | undefined {
    return this.#get("select * from mail where thread = ? and id = ?", t.number, id);
  }

  hasMailFor(t: ThreadRow, run: string): boolean {
    return this.#get("select 1 from mail where thread = ? and run = ?", t.number, run) !== undefined;
  }

  readdressMail(t: ThreadRow, run: string): void {
    this.#run("update mail set run = ? where thread = ?", run, t.number);
  }

  removeMail(t: ThreadRow, n: number): void {
    this.#run("delete from mail where thread = ? and n = ?", t.number, n);
  }

  /** Removes and answers what a `Take` names, oldest first. */
  takeMail(t: ThreadRow, take: Take): MailRow[] {
    const box = this.#all<MailRow>("select * from mail where thread = ? order by n", t.number);
    const named = box.filter((mail) => take.kinds.includes(mail.kind));
    const taken = take.all ? named : named.slice(0, 1);
    for (const mail of taken) this.removeMail(t, mail.n);
    return taken;
  }

  // Runs

  makeRun(t: ThreadRow, id: string, settings: string): void {
    this.#run(
      "insert into run (thread, id, settings, first) values (?, ?, ?, ?)",
      ...[t.number, id, settings, t.length],
    );
  }

  settings(t: ThreadRow, run: string): string | undefined {
    return this.#get<{ settings: string }>(
      "select settings from run where thread = ? and id = ?",
      t.number,
      run,
    )
      ?.settings;
  }

  run(t: ThreadRow, id: string): RunRecord | undefined {
    const row = this.#get<{
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
    this.#run(
      "update run set status = ?, progress = ?, successor = ? where thread = ? and id = ?",
      ...[status, progress, successor, t.number, t.run],
    );
  }

  /** Removes the thread's latest run as if it had never been, and answers the one before it. */
  undoRun(t: ThreadRow): { id: string; status: Status } | undefined {
    this.#run("delete from run where thread = ? and id = ?", t.number, t.run);
    this.#run("update run set successor = null where thread = ? and successor = ?", t.number, t.run);
    return this.#get("select id, status from run where thread = ? order by made desc limit 1", t.number);
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
    return this.#all<{ thread: string; run: string }>(
      `select t.name as thread, r.id as run from run r join thread t on t.number = r.thread
        where substr(t.name, 1, length(?1)) = ?1 and t.ends > ?2
        and (?3 is null or coalesce(r.status, t.status) = ?3)
        and (?4 is null or r.made < (
          select a.made from run a join thread b on b.number = a.thread where a.id = ?4 and substr(b.name, 1, length(?1)) = ?1))
        order by r.made desc limit ?5`,
      ...[prefix, now, status, after, limit],
    ).map(({ thread, run }) => ({ thread, run }));
  }

  // Idempotency keys

  seen(t: ThreadRow, name: string): SeenRow | undefined {
    return this.#get("select hash, run, message from seen where thread = ? and name = ?", t.number, name);
  }

  /** Remembers the last 1,000 of a thread. */
  remember(t: ThreadRow, name: string, { hash, run, message }: SeenRow): void {
    const { n } = this.#get<{ n: number }>(
      "insert into seen select ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5 from seen where thread = ?1 returning n",
      ...[t.number, name, hash, run, message],
    )!;
    this.#run("delete from seen where thread = ? and n <= ?", t.number, n - keysKept);
  }

  forget(t: ThreadRow, name: string): void {
    this.#run("delete from seen where thread = ? and name = ?", t.number, name);
  }

  // Large values

  putLarge(t: ThreadRow, hash: string, value: string): void {
    this.#run(
      "insert or ignore into large values (?, ?, ?)",
      t.number,
      hash,
      new TextEncoder().encode(value),
    );
  }

  large(t: ThreadRow, hash: string): string | undefined {
    const row = this.#get<{ value: Uint8Array }>(
      "select value from large where thread = ? and hash = ?",
      t.number,
      hash,
    );
    return row && new TextDecoder("utf-8", { ignoreBOM: true }).decode(row.value);
  }

  #sql(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) this.#statements.set(sql, statement = this.#db.prepare(sql));
    return statement;
  }

  #run(sql: string, ...values: SQLInputValue[]): void {
    this.#sql(sql).run(...values);
  }

  #get<Row>(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#sql(sql).get(...values) as Row | undefined;
  }

  #all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#sql(sql).all(...values) as Row[];
  }
}
