/**
 * QStash as the queue: deliveries are HTTP messages to the service's public URL, signed by QStash. Nothing here outlives a request but
 * settings, so one queue may serve many requests of an isolate.
 *
 * What the SDK would do by itself is switched off where it hurts: its development mode trusts keys that everybody
 * knows, its errors repeat what was sent, and its settings come from the process where none are given.
 */
import { Client, type PublishRequest, QstashError, Receiver } from "@upstash/qstash";
import type { Clock } from "../clock.ts";
import { digest, hex } from "../digest.ts";
import { FatalError, RetryableError } from "../errors.ts";
import { deduplicationId, type Delivery, type HttpQueue, type Incoming, type Received } from "../queue.ts";
import { readDelivery, readFailure, writeDelivery } from "./qstash_message.ts";

export interface QstashOptions {
  token: string;
  /** Of the QStash region; default: the EU's. */
  url?: string;
  /** Both, so that a key can be rolled while messages are under way. */
  currentSigningKey: string;
  nextSigningKey: string;
  /** The service as QStash reaches it, and as its signatures name it. */
  publicUrl: string;
  clock: Clock;
  /** The longest delay that the plan allows; longer waits are published again and again until they are over. Default: 7 days. */
  maxDelayMs?: number;
  /** How many slices of one tenant may run at once. */
  parallelism?: number;
  /** How far the clocks of QStash and of this machine may be apart. */
  clockToleranceS?: number;
  /** How long QStash may take to answer. */
  timeoutMs?: number;
}

/** Tries after the first. What fails them all comes back as a failure, and then by the sweep. */
const retries = 3;
/** Where a function dies without an answer: 5 s, 25 s, 125 s. What answers says itself when it wants to be tried again. */
const retryDelay = "5000 * pow(5, retried)";
/** All that is sent besides what QStash is told: the headers of a request that is being answered stay here. */
const json = { "Content-Type": "application/json" };

/** Throws FatalError if a setting is missing: the SDK would look for another in the process, or verify nothing. */
export function qstashQueue(options: QstashOptions): HttpQueue {
  return new QstashQueue(options);
}

class QstashQueue implements HttpQueue {
  readonly name = "QStash";
  readonly #client: Client;
  readonly #receiver: Receiver;
  readonly #publicUrl: string;
  readonly #clock: Clock;
  readonly #maxDelayMs: number;
  readonly #parallelism: number;
  readonly #clockTolerance: number;
  readonly #timeoutMs: number;

  constructor(options: QstashOptions) {
    const { currentSigningKey, nextSigningKey } = options;
    for (const name of ["token", "currentSigningKey", "nextSigningKey", "publicUrl"] as const) {
      if (!options[name]) throw new FatalError("setting", `QStash: ${name} is missing`);
    }
    this.#client = clientOf(options);
    this.#receiver = new Receiver({ currentSigningKey, nextSigningKey, devMode: false });
    this.#publicUrl = options.publicUrl.replace(/\/+$/, "");
    this.#clock = options.clock;
    this.#maxDelayMs = options.maxDelayMs ?? 604_800_000;
    this.#parallelism = options.parallelism ?? 10;
    this.#clockTolerance = options.clockToleranceS ?? 5;
    this.#timeoutMs = options.timeoutMs ?? 10_000;
  }

  async publish(delivery: Delivery): Promise<void> {
    const request = await this.#request(delivery);
    await this.#ask(() => this.#client.publish(request));
  }

  async publishAll(deliveries: Delivery[]): Promise<void> {
    if (!deliveries.length) return;
    const requests = await Promise.all(deliveries.map((delivery) => this.#request(delivery)));
    const answers = await this.#ask(() => this.#client.batch(requests));
    const refused = answers.flat().filter((answer) => "error" in answer).length;
    if (refused) throw new RetryableError(`Publish to QStash: it refused ${refused} of ${deliveries.length}`);
  }

  async sweepAgain(message: string): Promise<void> {
    const request: PublishRequest = {
      url: `${this.#publicUrl}/sweep`,
      body: "{}",
      headers: json,
      deduplicationId: await idOf(`sweep~${message}`),
      retries,
    };
    await this.#ask(() => this.#client.publish(request));
  }

  async receive({ path, headers, body }: Incoming): Promise<Received | undefined> {
    const signature = headers.get("upstash-signature"), message = headers.get("upstash-message-id");
    if (!signature || !message) return undefined;
    const text = exactText(await body());
    if (text === undefined) return undefined;
    try {
      await this.#receiver.verify({
        signature,
        body: text,
        // Not the request's own URL: behind a proxy it is another, and a signature for another service must not do here.
        url: this.#publicUrl + path,
        clockTolerance: this.#clockTolerance,
      });
    } catch {
      return undefined;
    }
    const from = { message, retried: Number(headers.get("upstash-retried")) || 0 };
    if (path === "/sweep") return { ...from, is: "sweep" };
    if (path === "/slices/failed") {
      const failure = readFailure(text);
      return failure ? { ...from, is: "failed", ...failure } : { ...from, is: "unknown" };
    }
    const delivery = path === "/slices" ? readDelivery(text) : undefined;
    return delivery ? { ...from, is: "delivery", delivery } : { ...from, is: "unknown" };
  }

  async #request(delivery: Delivery): Promise<PublishRequest> {
    const [tenant] = delivery.thread.split("~");
    // As a delay, which QStash's clock cannot shorten if it goes ahead; rounded up, so that no delivery is early by rounding.
    const waitMs = Math.min((delivery.at ?? 0) - this.#clock.now(), this.#maxDelayMs);
    return {
      url: `${this.#publicUrl}/slices`,
      body: writeDelivery(delivery),
      deduplicationId: await idOf(deduplicationId(delivery)),
      ...(waitMs > 0 && { delay: Math.ceil(waitMs / 1000) }),
      retries,
      retryDelay,
      failureCallback: `${this.#publicUrl}/slices/failed`,
      headers: { ...json, "Upstash-Failure-Callback-Retries": String(retries) },
      // Keys are shared by everything that uses this QStash account.
      flowControl: { key: `pawl-${tenant}`, parallelism: this.#parallelism },
    };
  }

  /** Nothing of what was sent or answered gets into the error: the caller's log is no place for it. */
  async #ask<T>(send: () => Promise<T>): Promise<T> {
    const over = new AbortController();
    const late = this.#clock.sleep(this.#timeoutMs, over.signal).then(() => {
      throw new RetryableError(`Publish to QStash: no answer within ${this.#timeoutMs / 1000} s`);
    });
    // When the answer comes first, the sleep's end is nobody's concern.
    late.catch(() => {});
    try {
      return await Promise.race([send(), late]);
    } catch (error) {
      if (error instanceof RetryableError) throw error;
      const status = error instanceof QstashError ? error.status : undefined;
      throw new RetryableError(
        `Publish to QStash: ${status ? `it answered ${status}` : "it cannot be reached"}`,
      );
    } finally {
      over.abort();
    }
  }
}

export interface Schedule {
  id: string;
  cron: string;
  destination: string;
}

/**
 * Has QStash call POST /sweep every 15 minutes. Its id is made of the public URL, so that this again changes nothing, and services that
 * share an account do not take each other's schedule.
 */
export async function scheduleSweep(
  options: Pick<QstashOptions, "token" | "url" | "publicUrl">,
): Promise<Schedule & { was: "created" | "changed" | "there" }> {
  const { schedules } = clientOf(options);
  const destination = `${options.publicUrl.replace(/\/+$/, "")}/sweep`, cron = "*/15 * * * *";
  const id = `pawl-sweep-${(await idOf(destination)).slice(0, 12)}`;
  try {
    const known = (await schedules.list()).find(({ scheduleId }) => scheduleId === id);
    if (known?.cron === cron && known.destination === destination && !known.isPaused) {
      return { id, cron, destination, was: "there" };
    }
    await schedules.create({ scheduleId: id, destination, cron, method: "POST", body: "{}", retries });
    return { id, cron, destination, was: known ? "changed" : "created" };
  } catch (error) {
    const status = error instanceof QstashError ? error.status : undefined;
    throw new FatalError(
      "qstash",
      `QSTASH_URL, QSTASH_TOKEN: QStash ${status ? `answered ${status}` : "cannot be reached"}`,
    );
  }
}

function clientOf({ token, url }: Pick<QstashOptions, "token" | "url">): Client {
  return new Client({
    token,
    baseUrl: url || "https://qstash.upstash.io",
    devMode: false,
    enableTelemetry: false,
    // Only after a connection that failed. Sending twice is harmless: the deduplication id is the same.
    retry: { retries: 2, backoff: (tried) => 100 * 3 ** tried },
  });
}

/** An id as QStash takes it: it refuses ":", which a thread's may hold, and does not say what else. */
async function idOf(text: string): Promise<string> {
  return hex(await digest(text));
}

/** Text that encodes to exactly these bytes; the SDK verifies text. Undefined for what is not UTF-8. */
function exactText(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}
