/** The file of the SQLite store: its tables, its version, and how it is opened. What is in the tables belongs to `sqlite_tables.ts`. */
import { DatabaseSync } from "node:sqlite";
import { FatalError, messageOf } from "../errors.ts";

/** Kept in the file as `user_version`. Whoever changes the schema counts it up and says how older files become the new one. */
const version = 1;

/**
 * A commit writes one row of `thread` and one of `log` for each entry, and nothing else that grows: so its size does not depend on the
 * thread's. Columns that change with every commit are in no index, and settings are in `run`, which is written when a run starts and when
 * it ends. Everything else of a thread goes when its row goes.
 */
const schema = `
create table thread (
  number integer primary key autoincrement,
  name text not null unique,
  incarnation text not null,
  run text not null,
  status text not null,
  claimed integer not null default 0,   -- whether its run was ever claimed
  token integer not null default 0,
  sequence integer not null default 0,
  outcome text,                         -- of the commit with that sequence, JSON
  ticket integer not null default 0,
  attempts integer not null default 0,
  claims integer not null default 0,
  length integer not null default 0,
  wake integer,                         -- not before this moment
  due integer,                          -- the delivery must have come; null once the run has ended
  ends integer not null,                -- the thread's lifetime
  until integer,                        -- the lease's end; null when nobody holds it
  holder text,                          -- the message that holds it
  progress text not null default ''     -- of the run while it is active
);
create index thread_due on thread (due) where due is not null;
create index thread_ends on thread (ends);

create table log (
  thread integer not null references thread on delete cascade,
  n integer not null,
  entry text not null,
  primary key (thread, n)
) without rowid;

create table open (
  thread integer not null references thread on delete cascade,
  path text not null,
  call text not null,                   -- a letter and the result entry that a cancel appends
  primary key (thread, path)
) without rowid;

create table mail (
  thread integer not null references thread on delete cascade,
  n integer not null,
  kind text not null,
  id text not null,
  body text not null,
  run text not null,                    -- the run that will take it, as far as known
  noted integer not null,               -- whether the log says that it waits
  primary key (thread, n)
) without rowid;

create table run (
  made integer primary key autoincrement,
  thread integer not null references thread on delete cascade,
  id text not null,
  settings text not null,
  first integer not null,
  status text,                          -- null while the run is active: then the thread's row has it
  progress text,
  successor text,
  unique (thread, id)
);
create index run_id on run (id);

create table seen (
  thread integer not null references thread on delete cascade,
  n integer not null,
  name text not null,
  hash text not null,
  run text not null,
  message text not null,
  primary key (thread, n),
  unique (thread, name)
) without rowid;

create table large (
  thread integer not null references thread on delete cascade,
  hash text not null,
  value blob not null,                  -- UTF-8; as text, a NUL would end it
  primary key (thread, hash)
) without rowid;
`;

/** Opens the file, or makes it. Refuses what another program or a newer version wrote. */
export function openDatabase(path: string): DatabaseSync {
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
    // An accepted request survives kill -9 with any setting: the write-ahead log is then with the operating system. FULL also waits for
    // the disk, so that a power failure cannot take back a prompt that was answered 2xx (DESIGN rule 2) or the entry that says a tool
    // was started (rule 5). That costs some milliseconds a commit; a turn takes seconds.
    db.exec("pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on");
    db.exec("begin immediate");
    prepare(db, path);
    db.exec("commit");
    return db;
  } catch (error) {
    db.close();
    if (error instanceof FatalError) throw error;
    throw new FatalError("store", `Open the store ${path}: ${messageOf(error)}`, { cause: error });
  }
}

function prepare(db: DatabaseSync, path: string): void {
  const found = Number(db.prepare("pragma user_version").get()!.user_version);
  if (found === version) return;
  if (found > version) {
    throw new FatalError(
      "schema",
      `Open the store ${path}: it has schema version ${found}, this version of Pawl reads ${version}. Run a newer Pawl or name another file`,
    );
  }
  if (db.prepare("select 1 from sqlite_schema").get()) {
    throw new FatalError(
      "schema",
      `Open the store ${path}: it is the database of another program. Name another file`,
    );
  }
  db.exec(schema);
  db.exec(`pragma user_version = ${version}`);
}
