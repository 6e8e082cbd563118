/** What the store's contract is told with: a thread, its callers and its slices. */
import assert from "node:assert/strict";
import type { MailKind } from "../../src/entry.ts";
import type { Delivery } from "../../src/queue.ts";
import type { Claimed, Commit, Committed, Lease, Store, Submission } from "../../src/store.ts";
import { type ManualClock, settle } from "../support/clock.ts";

/** The lifetime of threads that `open` must give its store. */
export const ttlMs = 7 * 24 * 3_600_000;
export const minute = 60_000;

export type Test = (behaviour: string, body: (scene: Scene) => Promise<void>) => void;

/** The answer, which must be of this kind. */
export function expect<T extends { is: string }, Is extends T["is"]>(answer: T, is: Is): T & { is: Is } {
  assert.equal(answer.is, is, JSON.stringify(answer));
  return answer as T & { is: Is };
}

export class Scene {
  readonly thread = "acme~talk";
  #runs = 0;
  #mails = 0;

  constructor(readonly store: Store, readonly clock: ManualClock) {}

  submission(over: Partial<Submission> = {}): Submission {
    return {
      thread: this.thread,
      incarnation: "i1",
      run: `talk~r${++this.#runs}`,
      settings: '{"v":1}',
      ...(!("mail" in over) && { mail: this.mail("steering") }),
      endBody: '{"status":"cancelled"}',
      due: this.clock.now() + 15 * minute,
      ...over,
    };
  }

  mail(kind: MailKind, text = `text ${this.#mails + 1}`): NonNullable<Submission["mail"]> {
    const id = `m${++this.#mails}`;
    return { kind, id, body: JSON.stringify({ content: text }), note: `{"kind":"${kind}"}` };
  }

  submit(over: Partial<Submission> = {}) {
    return this.store.submit(this.submission(over));
  }

  /** Starts a run. */
  async prompt(over: Partial<Submission> = {}) {
    const submitted = expect(await this.submit(over), "ok");
    assert.equal(submitted.started, true);
    return { ...submitted, publish: submitted.publish! };
  }

  /** Mail for the thread's active run. */
  async send(kind: MailKind, over: Partial<Submission> = {}) {
    const reading = await this.store.read(this.thread, {});
    const like = reading!.current;
    return expect(await this.submit({ like, settings: undefined, mail: this.mail(kind), ...over }), "ok");
  }

  answer(run: string, path: string, entry = `answer ${run} ${path} 0 -\n{"content":"yes"}`) {
    return this.submit({ like: run, settings: undefined, mail: undefined, answer: { path, entry } });
  }

  claim(delivery: Delivery, options: Partial<Parameters<Store["claim"]>[1]> = {}): Promise<Claimed> {
    return this.store.claim(delivery, { message: "message-1", leaseMs: minute, ...options });
  }

  /** A claim that succeeds. */
  async slice(delivery: Delivery, options: Partial<Parameters<Store["claim"]>[1]> = {}): Promise<Slice> {
    return new Slice(this, expect(await this.claim(delivery, options), "claimed"));
  }

  /** A run that has taken its prompt and is running. */
  async running(over: Partial<Submission> = {}): Promise<Slice> {
    const { publish } = await this.prompt(over);
    const slice = await this.slice(publish);
    await slice.ok({ take: everything });
    return slice;
  }

  /** A run with one call that waits for an answer. */
  async waiting(): Promise<{ run: string; publish: Delivery }> {
    const slice = await this.running();
    const { publish } = await slice.ok({
      change: {
        append: [`wait ${slice.run} 1.0 0 -\n{}`],
        open: { "1.0": `w${result(slice.run, "1.0")}` },
        leave: { status: "waiting", wakeAt: this.clock.now() + 60 * minute },
      },
    });
    return { run: slice.run, publish: publish! };
  }

  async log(): Promise<string[]> {
    return (await this.store.read(this.thread, { from: 0 }))!.entries;
  }

  /** Ids of what was taken into the log, in order. */
  async taken(): Promise<string[]> {
    return (await this.log()).filter((e) => e.startsWith("user ")).map((e) =>
      e.split("\n")[0]!.split(" ")[4]!
    );
  }

  async status(run: string): Promise<string | undefined> {
    return (await this.store.read(this.thread, { run }))?.run?.status;
  }
}

export const everything: Commit["take"] = [{ kinds: ["steering", "follow_up"], all: true }];
export const completed = { status: "completed" as const, ending: '{"text":"done"}' };

/** The entry that a cancel appends for a call. */
export function result(run: string, path: string): string {
  return `result ${run} ${path} 0 -\n{"content":"cancelled"}`;
}

/** One who holds a lease, or did: counts commits and entries as a slice does. */
export class Slice {
  readonly lease: Lease;
  readonly run: string;
  known: number;
  #last: Commit | undefined;
  #sequence = 0;

  constructor(readonly scene: Scene, readonly claimed: Claimed & { is: "claimed" }) {
    this.lease = claimed.lease;
    this.run = claimed.run;
    this.known = claimed.length;
  }

  async commit(over: Partial<Commit> = {}): Promise<Committed> {
    const { clock, store } = this.scene;
    this.#last = {
      sequence: this.#sequence + 1,
      known: this.known,
      change: {},
      head: `user ${this.run} . 0`,
      due: clock.now() + 15 * minute,
      ...over,
    };
    const committed = await store.commit(this.lease, this.#last);
    if (committed.is === "ok") {
      this.#sequence = this.#last.sequence;
      this.known += committed.entries.length;
    }
    return committed;
  }

  /** The last commit again, as after a lost answer. */
  repeat(): Promise<Committed> {
    return this.scene.store.commit(this.lease, this.#last!);
  }

  async ok(over: Partial<Commit> = {}) {
    return expect(await this.commit(over), "ok");
  }
}

/** Waits for what a driver may do a little later. */
export async function eventually(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await condition()) return;
    await settle();
  }
  assert.fail(`Expected that ${what}, which did not happen`);
}
