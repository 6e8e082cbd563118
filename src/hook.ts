/** What a deployment lets happen before and after every call of a tool; words only, `gate.ts` asks them. */
import type { ToolCall, UserBlock } from "./message.ts";

/** A call that may run, or has run. */
export interface HookedCall {
  toolName: string;
  toolCallId: string;
  /** As the model sent them, or as a person who approved the call did: JSON that suits the tool's parameters. A copy. */
  arguments: ToolCall["arguments"];
  run: string;
  thread: string;
  /** Aborts when the run is cancelled, its slice is cut, or the hook's time is over: 30 s. */
  signal: AbortSignal;
}

/** Blocks the call: it does not run, and the model gets the reason. Or lets it run with other arguments, which are checked as the model's are. */
export type Before = { block: true; reason?: string } | { arguments: ToolCall["arguments"] };

/** What the model is told of a call. */
export interface HookedResult {
  content: string | UserBlock[];
  isError: boolean;
  /** The loop may end after this batch (`ToolOutput`). */
  terminate?: boolean;
}

/**
 * Hooks are part of no run: they are asked in the process that is about to run the call, or has run it, and their failures are that call's
 * results.
 */
export interface Hooks {
  /**
   * Asked before a call begins whose arguments are valid, and after it was approved where that is needed. A call that has begun is not asked
   * about again; one that has not may be, in a later slice. A call that was approved, and one that runs elsewhere, cannot be given other
   * arguments. An exception, and no answer in time, mean that the call does not run.
   */
  beforeToolCall?(call: HookedCall): Before | undefined | void | Promise<Before | undefined | void>;
  /**
   * Asked once a call has run, before its result is recorded and cut to its length; the fields that it answers replace those of the result.
   * After an exception, or no answer in time, the model gets an error and nothing of the result.
   */
  afterToolCall?(
    call: HookedCall,
    result: HookedResult,
  ): Partial<HookedResult> | undefined | void | Promise<Partial<HookedResult> | undefined | void>;
}
