/** The rows of a thread's mailbox, and of the idempotency keys under which mail and answers came. */
import type { MailKind } from "../entry.ts";
import type { MailCounts, Take } from "../store.ts";
import type { Database } from "./sqlite_database.ts";
import type { ThreadRow } from "./sqlite_tables.ts";

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

const keysKept = 1000;

export class Mailbox {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  post(t: ThreadRow, mail: Omit<MailRow, "n">): void {
    this.#db.run(
      `insert into mail select ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5, ?6 from mail where thread = ?1`,
      ...[t.number, mail.kind, mail.id, mail.body, mail.run, mail.noted],
    );
  }

  counts(t: ThreadRow): MailCounts {
    const { steering, followUps } = this.#db.get<{ steering: number; followUps: number }>(
      `select count(*) filter (where kind = 'steering') as steering,
        count(*) filter (where kind = 'follow_up') as followUps from mail where thread = ?`,
      t.number,
    )!;
    return { steering, followUps };
  }

  size(t: ThreadRow): { count: number; bytes: number } {
    return this.#db.get(
      "select count(*) as count, coalesce(sum(octet_length(body)), 0) as bytes from mail where thread = ?",
      t.number,
    )!;
  }

  find(t: ThreadRow, id: string): MailRow | undefined {
    return this.#db.get("select * from mail where thread = ? and id = ?", t.number, id);
  }

  hasMailFor(t: ThreadRow, run: string): boolean {
    return this.#db.get("select 1 from mail where thread = ? and run = ?", t.number, run) !== undefined;
  }

  /** All mail is for another run now. */
  readdress(t: ThreadRow, run: string): void {
    this.#db.run("update mail set run = ? where thread = ?", run, t.number);
  }

  remove(t: ThreadRow, n: number): void {
    this.#db.run("delete from mail where thread = ? and n = ?", t.number, n);
  }

  /** Removes and answers what a `Take` names, oldest first. */
  take(t: ThreadRow, take: Take): MailRow[] {
    const box = this.#db.all<MailRow>("select * from mail where thread = ? order by n", t.number);
    const named = box.filter((mail) => take.kinds.includes(mail.kind));
    const taken = take.all ? named : named.slice(0, 1);
    for (const mail of taken) this.remove(t, mail.n);
    return taken;
  }

  seen(t: ThreadRow, name: string): SeenRow | undefined {
    return this.#db.get("select hash, run, message from seen where thread = ? and name = ?", t.number, name);
  }

  /** Remembers the last 1,000 of a thread. */
  remember(t: ThreadRow, name: string, { hash, run, message }: SeenRow): void {
    const { n } = this.#db.get<{ n: number }>(
      "insert into seen select ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4, ?5 from seen where thread = ?1 returning n",
      ...[t.number, name, hash, run, message],
    )!;
    this.#db.run("delete from seen where thread = ? and n <= ?", t.number, n - keysKept);
  }

  forget(t: ThreadRow, name: string): void {
    this.#db.run("delete from seen where thread = ? and name = ?", t.number, name);
  }
}
