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
  /** Tells watchers how it goes. Calls after the tool has settled are ignored. */
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

/** What a call waits for before it runs, and the moment (Unix ms) at which the wait is over in any case. */
export interface Wait {
  for: WaitFor;
  until: number;
  reason?: string;
}

/** The settings of a deployment. They are handed in, never read from the process. */
export type Environment = { readonly [name: string]: string | undefined };

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
   * is refused. A call that failed may be made again, under the same idempotency key if its arguments are the same.
   */
  key?(args: any): string;
  /** Neighbouring calls of parallel tools may overlap. */
  parallel?: boolean;
  timeoutMs?: number;
  /** Durable waiting before the call runs: the run holds no function meanwhile. Undefined: no wait. */
  wait?(args: any, now: number): Wait | undefined;
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

/** A result that says more than text. Any other value that a tool returns is text or becomes JSON. */
export class ToolOutput {
  constructor(readonly content: string | UserBlock[], readonly isError = false) {}
}

type Input<P> = P extends z.ZodType ? z.output<P> : { [key: string]: any };

/** Defines a tool; `execute` receives what its zod schema puts out. */
export function defineTool<const P extends Parameters>(
  tool: Omit<Tool, "parameters" | "execute" | "agentic" | "wait" | "key" | "reconcile"> & {
    parameters: P;
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
  tool: Omit<Tool, "parameters" | "execute" | "agentic" | "wait" | "replay" | "key" | "reconcile"> & {
    parameters: P;
    execute(args: Input<P>, context: AgenticContext): unknown;
  },
): Tool {
  return { ...tool, agentic: true, replay: "safe" } as unknown as Tool;
}
