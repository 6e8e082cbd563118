/** The tables of the SQLite store, and their version. What is in them belongs to `sqlite_tables.ts` and `sqlite_mail.ts`. */

/** Kept in the file as `user_version`. Whoever changes the schema counts it up and says how older files become the new one. */
export const version = 1;

/**
 * A commit writes one row of `thread` and one of `log` for each entry, and nothing else that grows: so its size does not depend on the
 * thread's. Columns that change with every commit are in no index, and settings are in `run`, which is written when a run starts and when
 * it ends. Everything else of a thread goes when its row goes.
 */
export const schema = `
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
); -- with a rowid: else entries of some KB would each fill pages of their own

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
  first integer not null,
  status text,                          -- null while the run is active: then the thread's row has it, and its progress
  successor text,
  settings text not null,               -- these may be long, and listings need what stands before them
  progress text,
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
