/**
 * The context of the agentic function whose body is running, for an `exec` that was not handed it. It follows the body's promises, and holds
 * nothing by itself.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import type { AgenticContext } from "./tool.ts";

export const ambient = new AsyncLocalStorage<Pick<AgenticContext, "exec"> | undefined>();
