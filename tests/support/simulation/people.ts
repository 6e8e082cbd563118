/** People: they start, steer, follow up, answer, cancel, interrupt and delete, and repeat a request of which they got no answer. */
import { InputError } from "../../../src/errors.ts";
import type { Settings } from "../../../src/run.ts";
import { threadKey } from "../../../src/run.ts";
import type { Reading } from "../../../src/store.ts";
import type { Accepted, Key, Verbs } from "../../../src/verbs.ts";
import type { Dice } from "./dice.ts";
import { type Books, delicate } from "./tools.ts";
import { hour, minute, tenant, type World } from "./world.ts";

/** One message that somebody sent. */
export interface Letter {
  text: string;
  thread: string;
  sentAt: number;
  /** When it was sent, or sent again, for the last time. */
  lastAt: number;
  accepted?: Accepted;
}

export interface Answered {
  run: string;
  toolCallId: string;
  text: string;
  /** This one was the first. */
  first: boolean;
}

type Outcome<T> = { is: "ok"; value: T } | { is: "refused"; code: string } | { is: "unknown" };

export class People {
  readonly letters: Letter[] = [];
  readonly answers: Answered[] = [];
  /** Runs whose cancel was answered well. */
  readonly cancelled = new Set<string>();
  /** How many are still about to do something. */
  busy = 0;
  #said = 0;

  constructor(
    readonly world: World,
    readonly books: Books,
    readonly dice: Dice,
    readonly onStart: (accepted: Accepted) => void,
  ) {}

  /** Schedules what happens on a thread. */
  live(thread: string, settings: Settings): void {
    const { dice } = this;
    const soon = () => dice.chance(0.25) ? dice.between(0, 3 * hour) : dice.between(0, 90_000);
    this.at(0, () => this.start(thread, settings));
    for (let i = 0; i < 4; i++) {
      if (dice.chance(0.5)) this.at(soon(), () => this.send(thread, settings, dice.chance(0.6)));
    }
    if (dice.chance(0.2)) this.at(soon(), () => this.start(thread, settings, "interrupt"));
    if (dice.chance(0.25)) this.at(soon(), () => this.cancel(thread));
    if (dice.chance(0.08)) {
      this.at(soon(), async () => {
        await this.delete(thread);
        await this.start(thread, settings);
      });
    }
    for (let i = 0; i < 10; i++) {
      this.at(dice.between(0, i * 20 * minute + minute), () => this.answer(thread));
    }
  }

  async start(thread: string, settings: Settings, ifBusy?: "interrupt", text?: string): Promise<void> {
    const { dice } = this, busy = ifBusy ?? (dice.chance(0.2) ? "follow_up" : undefined);
    await this.#post(
      thread,
      text,
      (pawl, content, key) => pawl.start(tenant, content, settings, { thread, key, ifBusy: busy }),
    );
  }

  async send(thread: string, settings: Settings, steering: boolean): Promise<void> {
    const { dice } = this;
    const { current } = await this.peek(thread) ?? {};
    if (!current) return await this.start(thread, settings);
    // An answer may come in the very moment in which steering skips its call.
    if (dice.chance(0.5)) this.at(dice.between(0, 120), () => this.answer(thread));
    await this.#post(
      thread,
      undefined,
      (pawl, content, key) => pawl.send(tenant, current, steering ? "steering" : "follow_up", content, key),
    );
  }

  async #post(
    thread: string,
    given: string | undefined,
    post: (pawl: Verbs, content: string, key?: Key) => Promise<Accepted>,
  ): Promise<void> {
    const { books, world, dice } = this, n = ++this.#said;
    const text = books.say(given ?? `message ${n} ${delicate}`);
    const now = world.time.now(), letter: Letter = { text, thread, sentAt: now, lastAt: now };
    this.letters.push(letter);
    const key = dice.chance(0.7) ? { name: `key ${n}`, hash: `hash ${n}` } : undefined;
    const outcome = await this.#request(`post ${n}`, (pawl) => post(pawl, text, key), key ? 6 : 1);
    world.note(() => `post ${n}: ${JSON.stringify(outcome)}`);
    if (outcome.is !== "ok") return;
    letter.accepted = outcome.value;
    letter.lastAt = world.time.now();
    this.onStart(outcome.value);
    if (!key || !dice.chance(0.3)) return;
    await world.time.sleep(dice.between(0, 5 * minute));
    letter.lastAt = world.time.now() + minute;
    await this.#repeat(letter, key, (pawl, hash) => post(pawl, text, { ...key, hash }));
  }

  /** The same key again answers the same ids, whatever became of the run; with another body it is a conflict. */
  async #repeat(
    { accepted, text, thread, sentAt }: Letter,
    key: Key,
    post: (pawl: Verbs, hash: string) => Promise<Accepted>,
  ): Promise<void> {
    const another = this.dice.chance(0.3);
    const outcome = await this.#request("repeat", (pawl) => post(pawl, another ? "another" : key.hash), 3);
    if (
      this.world.facts.deleted.some((gone) => gone.thread === threadKey(tenant, thread) && gone.at >= sentAt)
    ) {
      return;
    }
    if (another && outcome.is === "ok") this.world.problem("R2 key", `${key.name} took another body`);
    if (!another && outcome.is === "refused") {
      this.world.problem("R2 key", `${text}: its repeat got ${outcome.code}`);
    }
    if (another || outcome.is !== "ok") return;
    const { run, messageId } = outcome.value;
    if (run !== accepted!.run || messageId !== accepted!.messageId) {
      this.world.problem(
        "R2 key",
        `${key.name} answered ${run} ${messageId}, before ${JSON.stringify(accepted)}`,
      );
    }
  }

  async cancel(thread: string): Promise<void> {
    const { current } = await this.peek(thread) ?? {};
    if (!current) return;
    const outcome = await this.#request("cancel", (pawl) => pawl.cancel(tenant, current), 6);
    this.world.note(() => `cancel ${current}: ${JSON.stringify(outcome)}`);
    if (outcome.is === "ok") this.cancelled.add(current);
  }

  async delete(thread: string): Promise<void> {
    const outcome = await this.#request("delete", (pawl) => pawl.delete(tenant, thread), 6);
    this.world.note(() => `delete ${thread}: ${JSON.stringify(outcome)}`);
  }

  /** Answers what the thread's run waits for; sometimes twice, in other words. */
  async answer(thread: string): Promise<void> {
    const { dice, world } = this, { run } = await this.peek(thread) ?? {};
    if (run?.status !== "waiting") return;
    const waiting = JSON.parse(run.progress).waitingFor as {
      toolCallId: string;
      for: string;
      until: number;
    }[] | undefined;
    for (const call of waiting ?? []) {
      if (call.for === "time" || dice.chance(0.4)) continue;
      // Or in the moment in which its time is over.
      const last = call.until - world.time.now(), soon = last < 2 * hour && dice.chance(0.3);
      for (let times = dice.chance(0.3) ? 2 : 1; times > 0; times--) {
        this.at(soon ? Math.max(0, last + dice.between(-60, 120)) : dice.between(0, 2_000), async () => {
          const text = this.books.say(`answer ${++this.#said} ${delicate}`);
          const answer = call.for === "answer"
            ? { content: text, isError: dice.chance(0.1) }
            : { approve: dice.chance(0.7), reason: text };
          const outcome = await this.#request(
            "resolve",
            (pawl) => pawl.resolve(tenant, run.id, call.toolCallId, answer),
            6,
          );
          world.note(() => `answer to ${call.toolCallId}: ${JSON.stringify(outcome)}`);
          if (outcome.is !== "ok" || call.for !== "answer") return;
          const { toolCallId } = call;
          this.answers.push({ run: run.id, toolCallId, text, first: !outcome.value.repeat });
        });
      }
    }
  }

  /** The thread's latest run as it really is. */
  peek(thread: string): Promise<Reading | undefined> {
    return this.world.store.read(threadKey(tenant, thread), {});
  }

  /** Somebody does something in `ms`. */
  at(ms: number, act: () => Promise<void>): void {
    this.busy++;
    this.world.time.sleep(ms).then(act)
      .catch((error) => this.world.problem("R0 code", `A person met ${error?.stack}`))
      .finally(() => this.busy--);
  }

  /** Repeats a request until it is answered, at most `tries` times. */
  async #request<T>(what: string, ask: (pawl: Verbs) => Promise<T>, tries: number): Promise<Outcome<T>> {
    const { world, dice } = this;
    for (let n = 1; n <= tries; n++) {
      const warm = world.isolates.filter((isolate) => !isolate.dead && !isolate.observer).slice(-4);
      const isolate = warm.length && dice.chance(0.5) ? dice.pick(warm) : world.isolate(`door ${what} ${n}`);
      const broken = new Promise<Outcome<T>>((resolve) => {
        isolate.mourners.push(() => void world.time.sleep(1_000).then(() => resolve({ is: "unknown" })));
      });
      const asked = ask(isolate.pawl).then(
        (value): Outcome<T> => ({ is: "ok", value }),
        (error): Outcome<T> => {
          const refused = error instanceof InputError && error.code !== "unavailable";
          if (error instanceof TypeError) world.problem("R0 code", `${error.stack}`);
          return refused ? { is: "refused", code: error.code } : { is: "unknown" };
        },
      );
      const outcome = await Promise.race([asked, broken]);
      if (outcome.is !== "unknown") return outcome;
      await world.time.sleep(2_000);
    }
    return { is: "unknown" };
  }
}
