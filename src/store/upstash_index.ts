/**
 * Which threads have runs, and which have something due: sorted sets outside the threads' keys. They are hints. Whoever finds a thread in
 * them asks the thread itself; so an entry too many costs a look, and none is ever removed while it could matter.
 *
 * `due` says of a thread when to look at it: never later than its delivery is due. Submitting sets that to now, looking moves it on; so
 * nothing needs to be written when a slice begins or ends. `runs`, one set for each tenant, has the latest runs by the time of their start.
 */
import type { Delivery } from "../queue.ts";
import type { Commands, Connection } from "./upstash_connection.ts";

const runsKept = 10_000;

/** Gives out threads to be looked at, and says when to look again: so two sweeps at once share the work. */
const take = `
local before, next, limit = ARGV[1], ARGV[2], ARGV[3]
local threads = redis.call('ZRANGE', KEYS[1], '-inf', '(' .. before, 'BYSCORE', 'LIMIT', 0, limit)
for _, thread in ipairs(threads) do redis.call('ZADD', KEYS[1], next, thread) end
return threads
`;

/** Forgets threads, unless something was submitted to them since they were given out: that would have moved them forward. */
const drop = `
for i = 2, #ARGV do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) >= tonumber(ARGV[1]) then redis.call('ZREM', KEYS[1], ARGV[i]) end
end
return 0
`;

export class Index {
  readonly #connection: Connection;
  readonly #prefix: string;
  readonly #keepMs: number;

  constructor(connection: Connection, prefix: string, ttlMs: number) {
    this.#connection = connection;
    this.#prefix = prefix;
    // A hint that is gone too early hides a run; one that stays costs little.
    this.#keepMs = 10 * ttlMs;
  }

  get #due(): string {
    return `${this.#prefix}due`;
  }

  #runs(thread: string): string {
    return `${this.#prefix}runs:${tenantOf(thread)}`;
  }

  /** The thread is to be looked at by then. */
  look(thread: string, at: number): Commands {
    return (p) => p.zadd(this.#due, { lt: true }, { score: at, member: thread });
  }

  /** The run has started. */
  started(thread: string, run: string, at: number): Commands {
    const key = this.#runs(thread);
    return (p) => {
      this.seen(thread, run, at)(p);
      p.zremrangebyrank(key, 0, -1 - runsKept);
      p.pexpire(key, this.#keepMs);
    };
  }

  /** The run is there; it is listed by when it was seen first. */
  seen(thread: string, run: string, at: number): Commands {
    return (p) => p.zadd(this.#runs(thread), { nx: true }, { score: at, member: memberOf(thread, run) });
  }

  async add(thread: string, run: string, at: number): Promise<void> {
    await this.#connection.pipeline(this.started(thread, run, at));
  }

  /** These have not started, or are gone. */
  async remove(runs: Listed[]): Promise<void> {
    await this.#connection.pipeline((p) =>
      runs.map(({ thread, run }) => p.zrem(this.#runs(thread), memberOf(thread, run)))
    );
  }

  /** `look` answers the present status of runs, or null for those that are not there. */
  async runs(tenant: string, { status, limit, after, look }: {
    status?: string;
    limit: number;
    after?: string;
    look(runs: Listed[]): Promise<unknown[]>;
  }): Promise<Listed[]> {
    const found: Listed[] = [], gone: Listed[] = [];
    for await (const page of this.#pages(tenant, after, Math.max(20, Math.min(limit, 200)))) {
      const statuses = await look(page);
      page.forEach((run, i) => {
        if (statuses[i] === null) gone.push(run);
        else if (status === undefined || statuses[i] === status) found.push(run);
      });
      if (found.length >= limit) break;
    }
    await this.remove(gone);
    return found.slice(0, limit);
  }

  async *#pages(tenant: string, after: string | undefined, size: number): AsyncGenerator<Listed[]> {
    const key = this.#runs(tenant);
    let from = 0;
    if (after !== undefined) {
      const last = memberOf(threadOf(tenant, after), after);
      const [rank] = await this.#connection.pipeline((p) => p.zrevrank(key, last));
      if (typeof rank?.result !== "number") return;
      from = rank.result + 1;
    }
    for (;; from += size) {
      const [found] = await this.#connection.pipeline((p) =>
        p.zrange(key, from, from + size - 1, { rev: true })
      );
      const members = (found?.result ?? []) as string[];
      yield members.map((member) => {
        const [thread, run] = member.split("\n") as [string, string];
        return { thread, run };
      });
      if (members.length < size) return;
    }
  }

  /** `look` answers when a thread is due, with its delivery if that is before `before`; undefined if nothing ever is. */
  async overdue({ before, next, limit, look }: {
    before: number;
    next: number;
    limit: number;
    look(threads: string[]): Promise<({ due: number; delivery?: Delivery } | undefined)[]>;
  }): Promise<Delivery[]> {
    const found: Delivery[] = [], seen = new Set<string>();
    for (;;) {
      const wanted = limit - found.length;
      const taken = await this.#take(before, next, wanted);
      const threads = taken.filter((thread) => !seen.has(thread));
      const looks = await look(threads);
      const idle: string[] = [], later: { thread: string; due: number }[] = [];
      for (const [i, thread] of threads.entries()) {
        const { due, delivery } = looks[i] ?? {};
        seen.add(thread);
        if (delivery) found.push(delivery);
        else if (due === undefined) idle.push(thread);
        else later.push({ thread, due });
      }
      await this.#drop(next, idle);
      await this.#connection.pipeline((p) => later.map(({ thread, due }) => this.look(thread, due)(p)));
      if (taken.length < wanted || threads.length === 0 || found.length >= limit) return found;
    }
  }

  async #take(before: number, next: number, limit: number): Promise<string[]> {
    const args = [before, next, limit].map(String);
    return await this.#connection.run({ script: take, keys: [this.#due], args }) as string[];
  }

  async #drop(next: number, threads: string[]): Promise<void> {
    if (threads.length === 0) return;
    await this.#connection.run({ script: drop, keys: [this.#due], args: [String(next), ...threads] });
  }
}

interface Listed {
  thread: string;
  run: string;
}

/** Up to and with the first "~". */
function tenantOf(thread: string): string {
  return thread.slice(0, thread.indexOf("~") + 1);
}

/** A run's id holds its thread's. */
function threadOf(tenant: string, run: string): string {
  return tenant + run.slice(0, run.indexOf("~"));
}

function memberOf(thread: string, run: string): string {
  return `${thread}\n${run}`;
}
