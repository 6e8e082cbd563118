/**
 * The loop's only door to the world: what is known (the transcript), what may be written (commits), what may still be begun (budget) and
 * when to stand still (park). `lease.ts` keeps these promises over a store.
 */
import type { Bodies, Kind } from "./entry.ts";
import type { Delta } from "./model.ts";
import type { Amount, Ending, Progress, Settings } from "./run.ts";
import type { MailCounts, Take } from "./store.ts";
import type { Transcript } from "./transcript.ts";
import type { Usage } from "./message.ts";

/** A part of what one commit says, in the loop's words. */
export interface Part {
  append?: string[];
  open?: Record<string, string>;
  close?: string[];
  /** Counters to be written with it. */
  count?: Counts;
  /** Ends the run. */
  end?: { status: "completed" | "failed"; ending: Omit<Ending, keyof Progress> };
}

export interface Counts {
  iterations?: number;
  usage?: Usage;
  /** What `usage` cost. */
  usd?: number;
  unaccounted?: number;
  /** Books the next model call of a frame, in place of what was booked for it before. */
  book?: { frame: string; booking: Booking };
  /** What was booked for this frame's call is not needed any more: `usage` says what became of it, or it was not made. */
  settle?: string;
  /** What was booked for this frame's call counts as used, since nobody knows. */
  forfeit?: string;
}

/** The most that a model call can use, its input and at most `output` tokens. */
export interface Booking extends Amount {
  output: number;
  /** The limit that keeps its message from being longer. */
  limit?: "max_tokens_total" | "max_cost_usd";
}

export interface Step {
  change?: Part;
  quiet?: Part;
  take?: Take[];
  /** The frame whose transcript the taken mail joins, and the turn it comes before. */
  into?: { frame: string; turn: number };
  /** A message or a result is in it. */
  advances?: boolean;
}

export interface Journal {
  readonly run: string;
  readonly thread: string;
  readonly settings: Settings;
  readonly transcript: Transcript;
  /** As of the store's last answer. */
  readonly mail: MailCounts;
  /** What the run has used so far, all slices and frames together. */
  readonly usage: Usage;
  /** That, what it cost, and what is booked. */
  readonly used: Amount;
  /** What is booked for a frame's next model call. */
  booking(frame: string): Booking | undefined;
  /** Whether something is booked for another frame. */
  sharing(frame: string): boolean;
  /** Aborts when the lease is lost, the run is cancelled or the slice is cut. */
  readonly signal: AbortSignal;
  /** The slice has reached its hard limit: what is in flight is given up. */
  readonly cut: boolean;
  /** No model or tool call may begin any more. */
  readonly spent: boolean;
  /** How long this slice may still begin calls, in ms. */
  readonly leftMs: number;
  now(): number;
  /** 0 ≤ x < 1 */
  chance(): number;

  /**
   * Writes one step. `decide` is called when its turn comes, for one commit is under way at a time; undefined: nothing to write any more.
   * Resolves whether the step's `quiet` part applied. Never rejects, and does not resolve once the slice is over: what waits for it stands
   * still.
   */
  commit(decide: () => Step | undefined): Promise<boolean>;
  /** Runs something that must be recorded before the slice ends: a model call, a tool, a step. */
  work<T>(body: () => Promise<T>): Promise<T>;
  /**
   * Stands still: until the moment `until`, or, without it, until the next slice. Resolves if there may be something to do earlier; may
   * never resolve.
   */
  park(until?: number): Promise<void>;
  /** Resolves after `ms`, or when the slice or `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** True once for each call that a commit of this slice permitted: it may run now. False: an earlier slice began it. */
  permitted(path: string): boolean;
  /** Shows watchers a piece of what is going on. Costs nothing when nobody watches. */
  show(frame: string, piece: Piece): void;
  /** Resolves when watchers can see all that was shown, or after a moment; never rejects. */
  shown(): Promise<void>;
  /** Counts a model call against the slice. */
  countTurn(): void;
  /** The platform's fetch, counted against the slice. */
  readonly fetch: typeof fetch;
  /** Tells watchers of something that does not stop the run. It rides on the next commit. */
  warn(code: string, message: string): void;
  /** Header and body of an entry of this run. */
  entry<K extends Kind>(kind: K, path: string, body: Bodies[K], more?: { n?: number; id?: string }): string;
}

/** What watchers see before it is in the log. */
export type Piece =
  | { message: string; begins: true }
  /** The message is in the log, or void; not sent. */
  | { message: string; ends: true }
  | { message: string; delta: Delta }
  | { toolCallId: string; text: string };
