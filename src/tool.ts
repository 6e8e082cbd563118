/** A tool: what the model may call, and what runs when it does. */
import type * as z from "zod";
import type { Exec, Schema } from "./choice.ts";
import type { UserBlock } from "./message.ts";
import type { RemovedTool, Settings, WaitFor } from "./run.ts";

/** JSON Schema of type object, or a zod object. */
export type Parameters = Schema;

export interface ToolContext {
  /** Aborts when the run is cancelled or its slice is cut. */
  signal: AbortSignal;
  /**
   * The identity of this call's effect. The same when the call runs again after a crash (`replay: "safe"`), and when the model repeats a
   * call whose outcome is unknown.
   */
  idempotencyKey: string;
  toolCallId: string;
  run: string;
  thread: string;
  /**
   * Tells watchers how it goes: at most 1,000 times in a call, 1,000 code points each, of which the head and the tail are kept. What comes
   * after that, or after the tool has settled, is ignored.
   */
  onUpdate(text: string): void;
  /** The platform's fetch, counted against the slice's subrequests. */
  fetch: typeof fetch;
}

/** What the body of an agentic function gets besides. Both are found in the log when the body runs again from its start. */
export interface AgenticContext extends ToolContext {
  /**
   * Opens a nested loop and answers its text, its choice or its value. Nested calls that are open at the same time need different keys.
   */
  exec: Exec<ExecOptions>;
  /** Runs `body` once and records what it returned (JSON). At least once: it is recorded after it ran. */
  step<T>(name: string, body: () => Promise<T> | T): Promise<T>;
}

export interface ExecOptions extends
  Pick<
    Settings,
    | "model"
    | "system"
    | "toolset"
    | "toolsSource"
    | "toolsAllow"
    | "toolsDeny"
    | "toolChoice"
    | "toolChoiceScope"
    | "parallelToolCalls"
    | "maxIterations"
    | "steering"
  > {
  /** Names from the outer menu; it only narrows. [] for none. */
  tools?: string[];
  key?: string;
}

/**
 * What a call waits for, and the moment (Unix ms) at which the wait is over in any case. Without one it is half of the time that the thread
 * is kept.
 */
export interface Wait {
  for: WaitFor;
  until?: number;
  reason?: string;
}

/** What a tool gives as a wait. Throws TypeError for what is none. */
export function waitOf(given: unknown): Wait | undefined {
  if (settled(given, "wait") === undefined) return undefined;
  const { for: what, until, reason } = Object(given) as Wait;
  const refuse = (field: string, expected: string, got: unknown): never => {
    throw new TypeError(`${field} of a wait: expected ${expected}, got ${got}`);
  };
  if (!["time", "answer", "approval"].includes(what)) refuse("for", '"time", "answer" or "approval"', what);
  if (until !== undefined && (typeof until !== "number" || Number.isNaN(until))) {
    refuse("until", "Unix ms, or nothing", until);
  }
  if (reason !== undefined && typeof reason !== "string") refuse("reason", "text, or nothing", reason);
  return { for: what, until, reason };
}

/** What a function that must answer at once has answered. Throws TypeError for a promise. */
export function settled<T>(given: T, field: string): T {
  if (!(given instanceof Promise)) return given;
  given.catch(() => {});
  throw new TypeError(`${field}: expected an answer at once, got a promise. Do not make the function async`);
}

/** The settings of a deployment. They are handed in, never read from the process. */
export type Environment = { readonly [name: string]: string | undefined };

/** A time that the model may ask for. What is below or above the bounds becomes the bound; what is no number, the default. */
export interface AskedTimeout {
  /** The ms that these arguments ask for; undefined if they do not say. */
  from(args: any): number | undefined;
  defaultMs: number;
  /** Default 1. */
  minMs?: number;
  maxMs: number;
}

/** What became of a call that was cut off. */
export type Reconciled = { is: "done"; result: unknown } | { is: "not_done" } | { is: "unknown" };

/** A tool whose arguments have been checked; the form in which the loop knows all tools. */
export interface Tool {
  name: string;
  description: string;
  parameters: Parameters;
  /** What a crash in the middle of a call means: "safe" runs it again, "never" (default) tells the model that the outcome is unknown. */
  replay?: "safe" | "never";
  /**
   * For `replay: "never"`: asked after a crash in the middle of a call what became of it, by the key that its body was given. "not_done"
   * lets it run again under that key; "unknown", or an exception, is what the model is told.
   */
  reconcile?(idempotencyKey: string, args: any): Reconciled | Promise<Reconciled>;
  /**
   * For `replay: "never"`: names the effect that these arguments have, such as an order's number. The thread remembers it: asked for again,
   * a success is answered without running; while the outcome is unknown, `reconcile` is asked or the call refused; with other arguments it
   * is refused. A call that failed may be made again, under the same idempotency key if its arguments are the same: what `execute` throws
   * says that the effect was not had, except an AbortError or a TimeoutError, after which it is unknown, as it is after the tool's timeout.
   */
  key?(args: any): string;
  /** Neighbouring calls of parallel tools may overlap. */
  parallel?: boolean;
  /**
   * How long a call may take; then its signal aborts and the model gets an error. Absent: as long as the slice. For an agentic function it
   * counts from the call's first beginning, across slices, crashes and waits, and what its body opened ends with it.
   */
  timeoutMs?: number | AskedTimeout;
  /** The most code points of text in a result, 1 to 100,000; of longer ones the head and the tail are kept. Default 30,000. */
  maxResultLength?: number;
  /**
   * A successful result also answers later calls in the thread with the same arguments, in whatever order of keys: for ever, or for so
   * long. Not where the call waits first.
   */
  cache?: boolean | { ttlMs: number };
  /** Durable waiting before the call runs: the run holds no function meanwhile. Undefined: no wait. */
  wait?(args: any, now: number): Wait | undefined;
  /**
   * A call runs only once somebody approved it: every one, or those for which this gives a reason or true. If it throws, an approval is
   * asked for. `wait` is not asked then.
   */
  approval?: true | ((args: any) => string | boolean | undefined);
  /** How long an approval is waited for; then the model is told that it expired. Default: half of the time that the thread is kept. */
  approvalExpiresMs?: number;
  /** Asked once, when the deployment starts. If it does not say true, or throws, there is no such tool. */
  availableIf?(env: Environment): boolean;
  /** false: in no menu, except where `tools` names it. */
  expose?: boolean;
  /** Values of a run's `toolsSource` for which the tool is not offered: "slack", "webhook". */
  unsafeIn?: readonly string[];
  /** Settings without which it is not offered. */
  requiresEnv?: readonly string[];
  /** Asked whenever a menu is made. If it does not say true, or throws, the tool is not offered. */
  check?(env: Environment): boolean;
  /** Its schema stays out of the request until the model finds it with `tool_search`. */
  defer?: boolean;
  /** Words by which `tool_search` finds it, besides its name and description. */
  hint?: string;
  /** The body calls `exec` and `step` and is run again from its start in each slice. */
  agentic?: boolean;
  /** Returns a string, or a value that becomes JSON, or a `ToolOutput`; may throw: the model gets the error. */
  execute(args: any, context: AgenticContext): unknown;
}

/**
 * Tools that another program offers, so that only it can tell which they are. It is asked once in a slice, and not at all for a run that can
 * use none of them.
 */
export interface ToolSource {
  /** For people: who did not answer. */
  readonly name: string;
  /** Whether a tool of this name, if there is one, is to be asked for here. Known without asking anybody. */
  covers(name: string): boolean;
  /**
   * Asks for the tools; what they hold open is theirs until `close`. Rejects if they cannot be had, which costs the run these tools and
   * nothing else: the message becomes a warning, so it must hold no secrets.
   */
  open(using: Using): Promise<{ tools: Tool[]; close(): Promise<void> }>;
}

/** What a source may use: a signal that ends the asking, and the platform's fetch, counted against the slice's subrequests. */
export interface Using {
  signal: AbortSignal;
  fetch: typeof fetch;
}

/** A part of a deployment's tools: their names, and other toolsets whose tools are in it too. Includes may go in circles. */
export interface Toolset {
  tools?: readonly string[];
  includes?: readonly string[];
}

/** What a run may call. */
export interface Menu {
  /** All of it, in a stable order. A call is looked up here. */
  tools: Tool[];
  /** The names of those that a request shows only once the model has found them. */
  deferred: ReadonlySet<string>;
  removed: RemovedTool[];
}

/**
 * What a tool returns whose result comes later from outside, through `POST /runs/{id}/tool_results` or `resolve`: it has begun something
 * under its `toolCallId`, and the run waits without a function until it is answered or the time is over.
 */
export class ToolPending {
  readonly wait: Wait;
  /** `until`: Unix ms. `reason`: for people, what is waited for. */
  constructor(more: { until?: number; reason?: string } = {}) {
    this.wait = waitOf({ ...more, for: "answer" })!;
  }
}

/** A result that says more than text. Any other value that a tool returns is text or becomes JSON. */
export class ToolOutput {
  readonly isError: boolean;
  /**
   * The loop ends after this batch of calls, if all its results say so: the run, or the nested one in which the call was made, with
   * finish_reason "terminated" and what the model said last. Mail that waits goes first.
   */
  readonly terminate: boolean;
  constructor(
    readonly content: string | UserBlock[],
    is: boolean | { isError?: boolean; terminate?: boolean } = false,
  ) {
    const { isError = false, terminate = false } = typeof is === "boolean" ? { isError: is } : is;
    this.isError = isError;
    this.terminate = terminate;
  }
}

type Input<P> = P extends z.ZodType ? z.output<P> : { [key: string]: any };

type Timeout<P> = number | (Omit<AskedTimeout, "from"> & { from(args: Input<P>): number | undefined });

type Approval<P> = true | ((args: Input<P>) => string | boolean | undefined);

/** Defines a tool; `execute` receives what its zod schema puts out. */
export function defineTool<const P extends Parameters>(
  tool:
    & Omit<
      Tool,
      "parameters" | "execute" | "agentic" | "wait" | "approval" | "key" | "reconcile" | "timeoutMs"
    >
    & {
      parameters: P;
      approval?: Approval<P>;
      timeoutMs?: Timeout<P>;
      key?(args: Input<P>): string;
      wait?(args: Input<P>, now: number): Wait | undefined;
      reconcile?(idempotencyKey: string, args: Input<P>): Reconciled | Promise<Reconciled>;
      execute(args: Input<P>, context: ToolContext): unknown;
    },
): Tool {
  return tool as unknown as Tool;
}

/** Defines a tool whose body may itself call models: its progress survives slices and crashes by replay (DESIGN §3). */
export function agenticFunction<const P extends Parameters>(
  tool:
    & Omit<
      Tool,
      | "parameters"
      | "execute"
      | "agentic"
      | "wait"
      | "approval"
      | "replay"
      | "key"
      | "reconcile"
      | "timeoutMs"
    >
    & {
      parameters: P;
      approval?: Approval<P>;
      timeoutMs?: Timeout<P>;
      execute(args: Input<P>, context: AgenticContext): unknown;
    },
): Tool {
  return { ...tool, agentic: true, replay: "safe" } as unknown as Tool;
}
