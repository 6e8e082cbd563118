/** What brings a run's deliveries: at least once, in any order, not before their time. */

/**
 * A call to advance a run. It is small and says nothing that the store does not say better: whoever gets it asks the store what to do.
 * `ticket` is counted up by every change that makes a delivery necessary; `hop` by every re-publishing of one ticket.
 */
export interface Delivery {
  thread: string;
  incarnation: string;
  run: string;
  ticket: number;
  hop: number;
  /** Not before this moment (Unix ms); absent or past: now. */
  at?: number;
  /** Token of the lease that this delivery waits for; only part of its deduplication id. */
  behind?: number;
}

export interface Queue {
  /** What it is, for people: "in-process", "QStash". */
  readonly name: string;
  /**
   * Resolves when the delivery is durable as far as this queue can make it so; throws if it is not. The same delivery again, within
   * minutes, may be dropped (see `deduplicationId`).
   */
  publish(delivery: Delivery): Promise<void>;
  /** Many at once: what is not taken does not keep the others back, and makes the whole throw. Absent: they are published one by one. */
  publishAll?(deliveries: Delivery[]): Promise<void>;
  /**
   * Queues that deliver inside this process call `deliver` with a message id that is the same for every try of one message. A deliver
   * that throws is tried again. Queues that deliver over HTTP lack this.
   */
  attach?(deliver: (delivery: Delivery, message: string) => Promise<void>): void;
  /** Ends timers and waits for what is under way. */
  close?(): Promise<void>;
}

/** A queue that delivers over HTTP, to POST /slices, /slices/failed and /sweep of the service. */
export interface HttpQueue extends Queue {
  /**
   * What this request says, if the queue has sent it: to this path, with these bytes. Undefined: it has not, or nobody can tell. The body
   * is read at most once, and only if the request looks as if it came from the queue.
   */
  receive(request: Incoming): Promise<Received | undefined>;
  /** Has POST /sweep come once more. `message` is the one that asks for it: its tries and duplicates ask for one only. */
  sweepAgain(message: string): Promise<void>;
}

export interface Incoming {
  path: string;
  headers: Headers;
  body(): Promise<Uint8Array>;
}

/**
 * `message` is the same for every try and every duplicate of one message; `retried` counts its tries from 0. Only a higher one says that
 * the try before is over.
 */
export type Received =
  & { message: string; retried: number }
  & (
    | { is: "delivery"; delivery: Delivery }
    /** The queue has given up on this delivery. `hopeless`: because it was told that trying again is no use. */
    | { is: "failed"; delivery: Delivery; hopeless: boolean }
    | { is: "sweep" }
    /** It is the queue's, and means nothing to this version. */
    | { is: "unknown" }
  );

export function deliversOverHttp(queue: Queue): queue is HttpQueue {
  return "receive" in queue;
}

/**
 * Queues remember ids for minutes whatever became of the message, so an id must name everything that makes this publishing another one
 * (`relatives.md` H1, CASES F19).
 */
export function deduplicationId(d: Delivery): string {
  return [d.thread, d.incarnation, d.ticket, d.hop, d.behind ?? 0].join("~");
}
