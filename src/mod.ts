/**
 * The library face: everything a program needs to run agent loops of its own, with or without a server.
 *
 * @module
 */
import { systemClock } from "./clock.ts";
import { createPawl as createPawlOver, type Pawl, type PawlOptions } from "./pawl.ts";
import { inProcessQueue } from "./queue/in_process.ts";
import { sqliteStore } from "./store/sqlite.ts";

export { type Choices, type Chosen, defineChoice } from "./choice.ts";
export { DecisionError } from "./decision.ts";
export type { Before, HookedCall, HookedResult, Hooks } from "./hook.ts";
export { FatalError, InputError, RetryableError, RunFailedError } from "./errors.ts";
export {
  type AgenticContext,
  agenticFunction,
  defineTool,
  type Environment,
  type ExecOptions,
  type Tool,
  type ToolContext,
  ToolOutput,
  ToolPending,
  type Toolset,
} from "./tool.ts";
export { type Model, ModelError, type ModelReply, type ModelRequest, type Models } from "./model.ts";
export type { Clock } from "./clock.ts";
export type { Placed } from "./event.ts";
export type { Message } from "./message.ts";
export type { Delivery, Queue } from "./queue.ts";
export type { Choice, RunView, Settings } from "./run.ts";
export type { Store } from "./store.ts";
export type { Accepted, Content } from "./verbs.ts";
export type { Pawl };

/** A Pawl; without a store it lives in memory and is gone with the process, without a queue it runs in this process. */
export function createPawl(options: Omit<PawlOptions, "store" | "queue"> & Partial<PawlOptions>): Pawl {
  const { clock = systemClock, ttlMs } = options;
  return createPawlOver({
    ...options,
    clock,
    store: options.store ?? sqliteStore(":memory:", { clock, ttlMs }),
    queue: options.queue ?? inProcessQueue(clock),
  });
}
