/** Runs a tool's body once, within its time, and turns whatever becomes of it into a result. */
import { ambient } from "./ambient.ts";
import { publicId } from "./entry.ts";
import { messageOf } from "./errors.ts";
import type { Bodies } from "./entry.ts";
import type { Loop } from "./outcome.ts";
import { render } from "./render.ts";
import type { AgenticContext, Tool } from "./tool.ts";
import type { CallState } from "./frame.ts";

type Result = Omit<Bodies["result"], "toolName" | "at">;

const timedOut = Symbol("timed out");

const notAgentic = () => {
  throw new TypeError("Only the body of an agenticFunction may call exec and step; this is a plain tool");
};
const undeclared = { exec: notAgentic, step: notAgentic };

/** Undefined: the slice was cut while it ran, so that its outcome is for the next slice to judge. */
export async function execute(
  it: Loop,
  call: CallState,
  tool: Tool,
  args: unknown,
): Promise<Result | undefined> {
  const { journal } = it, toolCallId = publicId(journal.run, call.path);
  const given = new AbortController(), over = new AbortController();
  const abort = () => given.abort(journal.signal.reason);
  if (journal.signal.aborted) abort();
  else journal.signal.addEventListener("abort", abort, { signal: over.signal });

  const context: AgenticContext = {
    signal: given.signal,
    idempotencyKey: call.key!,
    toolCallId,
    run: journal.run,
    thread: journal.thread,
    fetch: journal.fetch,
    onUpdate: (text) => {
      if (!over.signal.aborted) journal.show(call.path, { toolCallId, text: String(text) });
    },
    ...(tool.agentic ? it.nested(call, it) : undeclared),
  };
  // A tool may ignore its signal, so it is raced against it (CASES A05); what it does later changes nothing.
  const body = async () => {
    // A plain tool inside a nested loop is not that loop's function.
    const around = tool.agentic ? context : undefined;
    const running = ambient.run(around, async () => await tool.execute(args, context));
    running.catch(() => {});
    const races: Promise<unknown>[] = [running, aborted(journal.signal, over.signal)];
    if (tool.timeoutMs !== undefined) {
      races.push(journal.sleep(tool.timeoutMs, over.signal).then(() => timedOut));
    }
    return await Promise.race(races);
  };
  try {
    const value = await (tool.agentic ? body() : journal.work(body));
    if (value === timedOut) {
      given.abort(new DOMException("The tool's time is over", "TimeoutError"));
      return timeout(tool);
    }
    if (journal.cut) return undefined;
    return { ...render(value), ran: true };
  } catch (error) {
    if (journal.cut) return undefined;
    return { content: failure(tool, error), isError: true, ran: true };
  } finally {
    // With a reason: the default one is an exception with a stack.
    over.abort(null);
  }
}

export const unknown: Result = {
  content: "Interrupted while it ran: its outcome is unknown. Do not simply repeat it; check what it did",
  isError: true,
  ran: true,
  unknown: true,
};

/** What became of a call that an earlier slice let begin. "not_done": it may run. Undefined: the slice was cut meanwhile. */
export async function reconcile(
  { journal }: Loop,
  call: CallState,
  tool: Tool,
  args: unknown,
): Promise<Result | "not_done" | undefined> {
  if (!tool.reconcile) return unknown;
  const over = new AbortController();
  try {
    const asked = async () => await tool.reconcile!(call.key!, args);
    const became = await journal.work(() => Promise.race([asked(), aborted(journal.signal, over.signal)]));
    if (!became || journal.cut) return undefined;
    if (became.is === "done") return { ...render(became.result), ran: true };
    return became.is === "not_done" ? "not_done" : unknown;
  } catch (error) {
    return journal.cut ? undefined : { ...unknown, content: `${unknown.content} (${messageOf(error)})` };
  } finally {
    over.abort(null);
  }
}

function timeout(tool: Tool): Result {
  const content = `Tool "${tool.name}" timed out after ${tool.timeoutMs! / 1000} s: what it did is unknown`;
  return { content, isError: true, ran: true, ...(tool.replay === "safe" ? {} : { unknown: true }) };
}

function failure(tool: Tool, error: unknown): string {
  const isAbort = error instanceof Error && error.name === "AbortError";
  return isAbort ? `Tool "${tool.name}" was aborted: what it did is unverified` : messageOf(error);
}

function aborted(signal: AbortSignal, until: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { signal: until });
  });
}
