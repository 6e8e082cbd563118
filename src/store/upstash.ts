/**
 * The store in Upstash Redis, for any number of processes: each verb is one script and one round trip. What a script does is in
 * `upstash_thread.ts`, `upstash_submit.ts`, `upstash_slice.ts` and `upstash_reading.ts`; here is how it is asked.
 */
import { type Clock, systemClock } from "../clock.ts";
import { InputError } from "../errors.ts";
import type { Delivery } from "../queue.ts";
import type { Status } from "../run.ts";
import {
  type Claimed,
  type ClaimOptions,
  type Commit,
  type Committed,
  holderOf,
  type Lease,
  type Reading,
  type Renewed,
  type Store,
  type Submission,
  type Submitted,
} from "../store.ts";
import { type Commands, Connection, type Reply } from "./upstash_connection.ts";
import { Index } from "./upstash_index.ts";
import * as reading from "./upstash_reading.ts";
import * as slice from "./upstash_slice.ts";
import * as sending from "./upstash_submit.ts";
import { watch } from "./upstash_subscription.ts";
import { channelOf, prelude, threadKeys } from "./upstash_thread.ts";
import * as wire from "./upstash_wire.ts";

export interface UpstashOptions {
  /** Of the REST API; https, but for a stand-in. */
  url: string;
  token: string;
  /** A thread is gone so long after its last change, as a whole. Default: a week. */
  ttlMs?: number;
  /** What all keys begin with. Default: "pawl:". */
  prefix?: string;
  /** How long one request may take. Default: 10 s. */
  timeoutMs?: number;
  /** Whether scripts say that they touch only their own keys, and so lock no more. Servers that are not Upstash refuse that. Default: yes. */
  keyLocking?: boolean;
  /**
   * Keeps a request's connections for a moment after its end, on hosts that else cut them off: a watcher that leaves says so. Nothing that
   * matters depends on it (CASES F21).
   */
  waitUntil?: (work: Promise<unknown>) => void;
  /** For tests: this clock alone then says when leases and threads end and waits are over. Otherwise Redis does. */
  clock?: Clock;
}

const week = 7 * 24 * 60 * 60 * 1000;

/**
 * Nothing is sent when it is made, and it holds no connection between two calls except for those who watch. A call whose answer is lost
 * throws RetryableError; it may have been applied. `runs` knows a tenant's latest 10,000.
 */
export function upstashStore(options: UpstashOptions): Store {
  return new UpstashStore(options);
}

class UpstashStore implements Store {
  readonly name = "Upstash Redis";
  readonly #connection: Connection;
  readonly #index: Index;
  readonly #options: UpstashOptions;
  readonly #prefix: string;
  readonly #ttlMs: number;
  readonly #clock: Clock;
  /** Who watches, each ended by its own controller: a Worker shares no signal between requests. */
  readonly #watches = new Map<AbortController, Promise<void>>();

  constructor(options: UpstashOptions) {
    const { url, token, prefix = "pawl:", ttlMs = week, timeoutMs = 10_000, keyLocking = true } = options;
    this.#options = options;
    this.#prefix = prefix;
    this.#ttlMs = ttlMs;
    this.#clock = options.clock ?? systemClock;
    this.#connection = new Connection({ url, token, timeoutMs, keyLocking });
    this.#index = new Index(this.#connection, prefix, ttlMs);
  }

  async submit(s: Submission): Promise<Submitted> {
    const now = this.#clock.now();
    // What has settings will most likely start a run.
    const starts = s.settings !== undefined;
    const reply = await this.#run(sending.submit, s.thread, wire.submissionOf(s), (p) => {
      this.#index.look(s.thread, now)(p);
      if (starts) this.#index.started(s.thread, s.run, now)(p);
    });
    const submitted = wire.submittedOf(s.thread, reply as Reply[]);
    const started = "started" in submitted && submitted.started;
    if (starts !== started) {
      const set = starts ? this.#index.remove([s]) : this.#index.add(s.thread, s.run, now);
      await set.catch(() => {}); // Only a hint: what was submitted is.
    }
    return submitted;
  }

  async withdraw({ thread, mail, key }: Submission): Promise<boolean> {
    if (!mail) return false;
    return await this.#run(sending.withdraw, thread, [mail.id, wire.optional(key?.name)]) === 1;
  }

  async claim(delivery: Delivery, options: ClaimOptions): Promise<Claimed> {
    const { thread, incarnation, run, ticket } = delivery;
    const { leaseMs, known = 0 } = options;
    const args = [incarnation, run, ticket, holderOf(options), leaseMs, known, options.incarnation ?? ""].map(
      String,
    );
    // A successor was started by a commit, which writes no hint.
    const listed = this.#index.seen(thread, run, this.#clock.now());
    const reply = await this.#run(slice.claim, thread, args, listed);
    return wire.claimedOf(delivery, reply as Reply[]);
  }

  async commit({ thread, incarnation, token }: Lease, c: Commit): Promise<Committed> {
    const args = [incarnation, String(token), ...wire.commitOf(c)];
    return wire.committedOf(thread, incarnation, c, await this.#run(slice.commit, thread, args) as Reply[]);
  }

  async renew({ thread, incarnation, token }: Lease, leaseMs: number): Promise<Renewed> {
    const reply = await this.#run(slice.renew, thread, [incarnation, String(token), String(leaseMs)]);
    const [is, counts] = reply as ["lost"] | ["ok", [number, number, number]];
    return is === "ok" ? { is, ...wire.signs(counts) } : { is };
  }

  async stream({ thread, incarnation, token }: Lease, items: string[], reset: boolean): Promise<boolean> {
    const args = [incarnation, String(token), reset ? "1" : "0", ...wire.listed(items)];
    return await this.#run(slice.stream, thread, args) === 1;
  }

  async cancel(thread: string, run: string, endBody: string): Promise<"ok" | "repeat" | "ended" | "unknown"> {
    return await this.#run(reading.cancel, thread, [run, endBody]) as "ok" | "repeat" | "ended" | "unknown";
  }

  async read(thread: string, { run, from }: { run?: string; from?: number }): Promise<Reading | undefined> {
    const args = [wire.optional(run), wire.optional(from?.toString())];
    const reply = await this.#run(reading.read, thread, args);
    return reply ? wire.readingOf(run, reply as Reply[]) : undefined;
  }

  watch(thread: string, wake: () => void, { live } = { live: false }): () => void {
    const stop = new AbortController();
    const watching = watch({
      url: this.#options.url,
      token: this.#options.token,
      channel: channelOf(this.#prefix, thread),
      clock: this.#clock,
      signal: stop.signal,
      live,
      wake,
      say: (id, ms) => this.#run(reading.watch, thread, [id, String(ms)]),
    }).finally(() => this.#watches.delete(stop));
    this.#watches.set(stop, watching);
    this.#options.waitUntil?.(watching);
    return () => stop.abort();
  }

  async put(thread: string, hash: string, value: string): Promise<void> {
    if (await this.#run(reading.put, thread, [hash, value]) === 1) return;
    throw new InputError("not_found", `Store a value: there is no thread ${thread}`);
  }

  async get(thread: string, hash: string): Promise<string | undefined> {
    const value = await this.#run(reading.get, thread, [hash]) as string | null;
    return value?.slice(1);
  }

  async delete(thread: string): Promise<boolean> {
    return await this.#run(reading.remove, thread, []) === 1;
  }

  async overdue(before: number, next: number, limit: number): Promise<Delivery[]> {
    const args = [String(before), String(next)];
    const look = async (threads: string[]) => {
      const replies = await this.#all(reading.overdue, threads.map((thread) => ({ thread, args })));
      return (replies as ([number, Reply[]?] | null)[]).map((reply, i) => {
        if (!reply) return undefined;
        const [due, delivery] = reply;
        // Queues remember ids: this publishing needs one that no other had.
        return {
          due,
          ...(delivery && { delivery: { ...wire.deliveryOf(threads[i]!, delivery), hop: next } }),
        };
      });
    };
    return await this.#index.overdue({ before, next, limit, look });
  }

  async runs(
    prefix: string,
    options: { status?: Status; limit: number; after?: string },
  ): Promise<{ thread: string; run: string }[]> {
    return await this.#index.runs(prefix, {
      ...options,
      look: (runs) => this.#all(reading.status, runs.map(({ thread, run }) => ({ thread, args: [run] }))),
    });
  }

  async close(): Promise<void> {
    for (const stop of this.#watches.keys()) stop.abort();
    await Promise.all(this.#watches.values());
  }

  #run(script: string, thread: string, args: string[], before?: Commands): Promise<Reply> {
    return this.#connection.run({ script: prelude + script, ...this.#call(thread, args) }, before);
  }

  #all(script: string, calls: { thread: string; args: string[] }[]): Promise<Reply[]> {
    return this.#connection.all(prelude + script, calls.map(({ thread, args }) => this.#call(thread, args)));
  }

  #call(thread: string, args: string[]) {
    const alone = this.#options.clock ? "1" : "0";
    return {
      keys: threadKeys(this.#prefix, thread),
      args: [String(this.#clock.now()), alone, String(this.#ttlMs), ...args],
    };
  }
}
