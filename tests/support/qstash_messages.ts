/** The stand-in's inside: messages from their acceptance to their end, and everything that may go wrong with them on the way. */
import type { Clock } from "../../src/clock.ts";
import { type Asked, backoff, base64, sign } from "./qstash_wire.ts";

export interface Message extends Asked {
  id: string;
  state: "CREATED" | "ACTIVE" | "RETRY" | "DELIVERED" | "FAILED" | "CANCELLED";
  /** Tries after the first so far. */
  retried: number;
  createdAt: number;
  /** Statuses of its tries; 0: no answer. */
  answers: number[];
}

export interface Dead extends Message {
  dlqId: string;
  status: number;
  answer: { headers: Headers; body: Uint8Array };
}

/** What goes wrong from now on. */
export interface Faults {
  /** Each try is made so often, at once. */
  copies: number;
  /** By how many real ms tries are late; different numbers change their order. */
  lateMs(message: Message): number;
  /** So many answers to publishes get lost: the message is accepted, and the connection breaks. */
  dropPublishAnswers: number;
  /** So many answers to deliveries get lost: what was done is done, and the try counts as failed. */
  dropDeliveryAnswers: number;
  /** While it is not 0, every publish is answered with it. */
  publishStatus: number;
  /** The clock of this QStash is fast, or slow. */
  clockAheadMs: number;
}

/** For how long an id is remembered, whatever became of its message. */
const rememberedMs = 600_000;

export interface Courier {
  clock: Clock;
  /** Factor of the time between tries. */
  backoffScale: number;
  fetch(request: Request): Promise<Response>;
  keys: { current: string; next: string };
}

export class Messages {
  readonly all: Message[] = [];
  dead: Dead[] = [];
  readonly faults: Faults = {
    copies: 1,
    lateMs: () => 0,
    dropPublishAnswers: 0,
    dropDeliveryAnswers: 0,
    publishStatus: 0,
    clockAheadMs: 0,
  };
  /** Per flow-control key: how many deliveries were under way at once, at most. */
  readonly most = new Map<string, number>();
  readonly #active = new Map<string, number>();
  readonly #waiting = new Map<string, (() => void)[]>();
  readonly #seen = new Map<string, { message: string; until: number }>();
  readonly #stopped = new AbortController();
  #held: { message: Message; go: () => void }[] | undefined;
  #busy = 0;
  #calm = Promise.withResolvers<void>();

  constructor(readonly courier: Courier) {}

  now(): number {
    return this.courier.clock.now() + this.faults.clockAheadMs;
  }

  accept(asked: Asked): { messageId: string; deduplicated?: true } {
    const id = `msg_${crypto.randomUUID().replaceAll("-", "")}`;
    if (asked.deduplicationId !== undefined) {
      const seen = this.#seen.get(asked.deduplicationId);
      if (seen && seen.until > this.now()) return { messageId: seen.message, deduplicated: true };
      this.#seen.set(asked.deduplicationId, { message: id, until: this.now() + rememberedMs });
    }
    const message: Message = {
      ...asked,
      id,
      state: "CREATED",
      retried: 0,
      createdAt: this.now(),
      answers: [],
    };
    this.all.push(message);
    this.#busy++;
    this.#carry(message).finally(() => this.#rest());
    return { messageId: id };
  }

  /** Tries wait from now on, until `release` lets those go that wait, in the order that it is given. */
  hold(): void {
    this.#held ??= [];
  }

  release(order: (held: Message[]) => Message[] = (held) => held): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const message of order(held.map(({ message }) => message))) {
      held.find((one) => one.message === message)?.go();
    }
  }

  /** Resolves when no delivery is under way and none is to come but for what waits for its time. */
  async idle(): Promise<void> {
    // Once more round the event loop: what a test's clock has woken up begins.
    await new Promise((resolve) => setTimeout(resolve, 0));
    while (this.#busy > 0) await this.#calm.promise;
  }

  stop(): void {
    this.#stopped.abort();
    this.release();
  }

  async #carry(message: Message): Promise<void> {
    await this.#until(message.notBefore);
    for (;; message.retried++) {
      const answer = await this.#try(message);
      if (this.#stopped.signal.aborted || message.state === "CANCELLED") return;
      message.answers.push(answer.status);
      if (answer.status >= 200 && answer.status < 300) return void (message.state = "DELIVERED");
      const hopeless = answer.status === 489 && answer.headers.get("upstash-nonretryable-error") === "true";
      if (hopeless || message.retried >= message.retries) return await this.#bury(message, answer);
      message.state = "RETRY";
      const waitMs = backoff(message, message.retried, answer.headers, this.now());
      await this.#until(this.now() + waitMs * this.courier.backoffScale);
    }
  }

  async #try(message: Message): Promise<Dead["answer"] & { status: number }> {
    const { faults } = this, { flow } = message;
    if (flow) await this.#enter(flow.key, flow.parallelism);
    try {
      const late = faults.lateMs(message);
      if (late > 0) await new Promise((resolve) => setTimeout(resolve, late));
      if (this.#held) {
        this.#rest();
        await new Promise<void>((go) => this.#held!.push({ message, go }));
        this.#busy++;
      }
      if (message.state === "CANCELLED" || this.#stopped.signal.aborted) return nothing();
      message.state = "ACTIVE";
      const [answer] = await Promise.all(
        Array.from({ length: faults.copies }, () => this.#deliver(message)),
      );
      if (faults.dropDeliveryAnswers > 0) {
        faults.dropDeliveryAnswers--;
        return nothing();
      }
      return answer!;
    } finally {
      if (flow) this.#leave(flow.key);
    }
  }

  async #deliver(message: Message): Promise<Dead["answer"] & { status: number }> {
    const { destination: url, method, body, headers, id, retried, scheduleId } = message;
    const now = Date.now() + this.faults.clockAheadMs;
    const request = new Request(url, {
      method,
      body,
      headers: {
        ...headers,
        "user-agent": "Upstash-QStash",
        "upstash-message-id": id,
        "upstash-retried": String(retried),
        "upstash-signature": await sign(this.courier.keys.current, { url, body, now }),
        ...(scheduleId && { "upstash-schedule-id": scheduleId }),
      },
    });
    try {
      const answer = await this.courier.fetch(request);
      return {
        status: answer.status,
        headers: answer.headers,
        body: new Uint8Array(await answer.arrayBuffer()),
      };
    } catch {
      return nothing();
    }
  }

  #bury(message: Message, { status, headers, body }: Dead["answer"] & { status: number }): void {
    message.state = "FAILED";
    const dlqId = `dlq_${crypto.randomUUID()}`;
    this.dead.push({ ...message, dlqId, status, answer: { headers, body } });
    if (!message.failureCallback) return;
    const lists = (all: Iterable<[string, string]>) =>
      Object.fromEntries([...all].map(([name, value]) => [name, [value]]));
    const callback = {
      status,
      header: lists(headers),
      body: base64(body),
      retried: message.retried,
      maxRetries: message.retries,
      dlqId,
      sourceMessageId: message.id,
      url: message.destination,
      method: message.method,
      sourceHeader: lists(Object.entries(message.headers)),
      sourceBody: base64(message.body),
      notBefore: String(message.notBefore),
      createdAt: String(message.createdAt),
    };
    this.accept({
      destination: message.failureCallback.url,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: new TextEncoder().encode(JSON.stringify(callback)),
      notBefore: this.now(),
      retries: message.failureCallback.retries,
    });
  }

  async #enter(key: string, parallelism: number): Promise<void> {
    while ((this.#active.get(key) ?? 0) >= parallelism) {
      const line = this.#waiting.get(key) ?? [];
      this.#waiting.set(key, line);
      await new Promise<void>((go) => line.push(go));
    }
    const active = (this.#active.get(key) ?? 0) + 1;
    this.#active.set(key, active);
    this.most.set(key, Math.max(active, this.most.get(key) ?? 0));
  }

  #leave(key: string): void {
    this.#active.set(key, this.#active.get(key)! - 1);
    this.#waiting.get(key)?.shift()?.();
  }

  /** By this QStash's own clock. */
  async #until(moment: number): Promise<void> {
    const { signal } = this.#stopped;
    while (this.now() < moment && !signal.aborted) {
      this.#rest();
      await this.courier.clock.sleep(moment - this.now(), signal);
      this.#busy++;
    }
  }

  #rest(): void {
    if (--this.#busy > 0) return;
    this.#calm.resolve();
    this.#calm = Promise.withResolvers();
  }
}

function nothing(): Dead["answer"] & { status: number } {
  return { status: 0, headers: new Headers(), body: new Uint8Array() };
}
