/**
 * The queue of one machine: timers of this process. It keeps nothing when the process ends; whoever starts it publishes again what the
 * store says is open.
 */
import type { Clock } from "../clock.ts";
import { RetryableError } from "../errors.ts";
import { deduplicationId, type Delivery, type Queue } from "../queue.ts";

const firstRetryMs = 1000;
const lastRetryMs = 60_000;

type Deliver = (delivery: Delivery, message: string) => Promise<void>;

/**
 * Delivers each thread's deliveries one at a time, under a message id that is the thread's alone: so the delivery that comes after a
 * restart takes over the lease of the one that died. What throws is tried again, after what a RetryableError asks for or else after 1 s,
 * 2 s, 4 s and so on up to 60 s, for as long as the process lives. What is published before `attach` waits for it.
 */
export function inProcessQueue(clock: Clock): Queue {
  return new InProcessQueue(clock);
}

class InProcessQueue implements Queue {
  readonly name = "in-process";
  readonly #clock: Clock;
  /** From publishing to success, by deduplication id. */
  readonly #pending = new Map<string, { delivery: Delivery; done?: Promise<void> }>();
  /** The end of each thread's line. */
  readonly #lines = new Map<string, Promise<unknown>>();
  readonly #closing = new AbortController();
  #deliver: Deliver | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  publish(delivery: Delivery): Promise<void> {
    if (this.#closing.signal.aborted) {
      return Promise.reject(
        new RetryableError("Publish a delivery: the process is shutting down. Send it again"),
      );
    }
    const id = deduplicationId(delivery);
    if (!this.#pending.has(id)) {
      this.#pending.set(id, { delivery });
      if (this.#deliver) this.#begin(id, this.#deliver);
    }
    return Promise.resolve();
  }

  attach(deliver: Deliver): void {
    this.#deliver = deliver;
    for (const id of this.#pending.keys()) this.#begin(id, deliver);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all([...this.#pending.values()].map(({ done }) => done));
  }

  #begin(id: string, deliver: Deliver): void {
    const entry = this.#pending.get(id)!;
    entry.done ??= this.#see(entry.delivery, deliver).finally(() => this.#pending.delete(id));
  }

  async #see(delivery: Delivery, deliver: Deliver): Promise<void> {
    await this.#until(delivery.at ?? 0);
    for (
      let retryMs = firstRetryMs;
      !this.#closing.signal.aborted;
      retryMs = Math.min(2 * retryMs, lastRetryMs)
    ) {
      try {
        await this.#inLine(delivery, deliver);
        return;
      } catch (error) {
        const asked = error instanceof RetryableError ? error.retryAfterMs : undefined;
        await this.#until(this.#clock.now() + (asked ?? retryMs));
      }
    }
  }

  /** Only the delivering is in line: while one delivery waits to be tried again, a newer one may make it needless. */
  async #inLine(delivery: Delivery, deliver: Deliver): Promise<void> {
    const { thread } = delivery;
    const before = this.#lines.get(thread);
    const turn = (async () => {
      await before?.catch(() => {});
      if (!this.#closing.signal.aborted) await deliver(delivery, `local~${thread}`);
    })();
    this.#lines.set(thread, turn);
    try {
      await turn;
    } finally {
      if (this.#lines.get(thread) === turn) this.#lines.delete(thread);
    }
  }

  /** One sleep may be shorter than asked for: timers have a longest time. */
  async #until(moment: number): Promise<void> {
    while (!this.#closing.signal.aborted && this.#clock.now() < moment) {
      await this.#clock.sleep(moment - this.#clock.now(), this.#closing.signal);
    }
  }
}
