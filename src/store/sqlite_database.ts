/** The file of the SQLite store: how it is opened, its statements and its transactions. */
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { FatalError, messageOf } from "../errors.ts";
import { schema, version } from "./sqlite_schema.ts";

export class Database {
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** Opens the file, or makes it. Refuses, untouched, what another program or a newer version wrote. */
  constructor(path: string) {
    this.#db = open(path);
  }

  /** All of it or nothing. Reads see one moment; "immediate" also keeps other writers out from the start. */
  atomic<T>(work: () => T, mode: "immediate" | "deferred"): T {
    this.run(`begin ${mode}`);
    try {
      const result = work();
      this.run("commit");
      return result;
    } catch (error) {
      if (this.#db.isTransaction) this.run("rollback");
      throw error;
    }
  }

  run(sql: string, ...values: SQLInputValue[]): void {
    this.#prepare(sql).run(...values);
  }

  get<Row>(sql: string, ...values: SQLInputValue[]): Row | undefined {
    return this.#prepare(sql).get(...values) as Row | undefined;
  }

  all<Row>(sql: string, ...values: SQLInputValue[]): Row[] {
    return this.#prepare(sql).all(...values) as Row[];
  }

  close(): void {
    this.#db.close();
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) this.#statements.set(sql, statement = this.#db.prepare(sql));
    return statement;
  }
}

function open(path: string): DatabaseSync {
  let db: DatabaseSync;
  try {
    db = new DatabaseSync(path, { timeout: 5000 });
  } catch (error) {
    throw new FatalError(
      "store",
      `Open the store ${path}: ${messageOf(error)}. Its folder must exist and be writable`,
      { cause: error },
    );
  }
  try {
    check(db, path);
    // An accepted request survives kill -9 with any setting: the write-ahead log is then with the operating system. FULL also waits for
    // the disk, so that a power failure cannot take back a prompt that was answered 2xx (DESIGN rule 2) or the entry that says a tool
    // was started (rule 5). That costs some milliseconds a commit; a turn takes seconds.
    // A page holds some turns: with smaller ones results of 2 KB leave half of the file empty.
    db.exec("pragma page_size = 8192");
    db.exec("pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on");
    db.exec("begin immediate");
    // Another process may have made the tables since the check.
    if (versionOf(db) === 0) db.exec(`${schema}; pragma user_version = ${version}`);
    db.exec("commit");
    return db;
  } catch (error) {
    db.close();
    if (error instanceof FatalError) throw error;
    throw new FatalError("store", `Open the store ${path}: ${messageOf(error)}`, { cause: error });
  }
}

function versionOf(db: DatabaseSync): number {
  return Number(db.prepare("pragma user_version").get()!.user_version);
}

function check(db: DatabaseSync, path: string): void {
  const found = versionOf(db);
  if (found > version) {
    throw new FatalError(
      "schema",
      `Open the store ${path}: it has schema version ${found}, this version of Pawl reads ${version}. Run a newer Pawl or name another file`,
    );
  }
  if (found === 0 && db.prepare("select 1 from sqlite_schema").get()) {
    throw new FatalError(
      "schema",
      `Open the store ${path}: it is the database of another program. Name another file`,
    );
  }
}
