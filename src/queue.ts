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
  /**
   * Queues that deliver inside this process call `deliver` with a message id that is the same for every try of one message. A deliver
   * that throws is tried again. Queues that deliver over HTTP lack this.
   */
  attach?(deliver: (delivery: Delivery, message: string) => Promise<void>): void;
  /** Ends timers and waits for what is under way. */
  close?(): Promise<void>;
}

/**
 * Queues remember ids for minutes whatever became of the message, so an id must name everything that makes this publishing another one
 * (`relatives.md` H1, CASES F19).
 */
export function deduplicationId(d: Delivery): string {
  return [d.thread, d.incarnation, d.ticket, d.hop, d.behind ?? 0].join("~");
}
