/** Runs a tool's body once, within its time, and turns whatever becomes of it into a result. */
import { ambient } from "./ambient.ts";
import { enclosure } from "./enclosure.ts";
import { publicId, type Result } from "./entry.ts";
import { messageOf } from "./errors.ts";
import type { Loop } from "./outcome.ts";
import { clip, render } from "./render.ts";
import { type AgenticContext, type Tool, ToolPending } from "./tool.ts";
import type { CallState } from "./frame.ts";

const timedOut = Symbol("timed out");

const notAgentic = () => {
  throw new TypeError("Only the body of an agenticFunction may call exec and step; this is a plain tool");
};
const undeclared = { exec: notAgentic, step: notAgentic };

/** The most that watchers hear of one call. */
const maxUpdates = 1_000, maxUpdateLength = 1_000;

/** Undefined: the slice was cut while it ran, so that its outcome is for the next slice to judge; or what is around it is over. */
export async function execute(
  it: Loop,
  call: CallState,
  tool: Tool,
  args: unknown,
): Promise<Result | ToolPending | undefined> {
  const { journal } = it, toolCallId = publicId(journal.run, call.path);
  const timeoutMs = timeoutOf(tool, args), since = tool.agentic ? call.at! : journal.now();
  const leftMs = timeoutMs === undefined ? Infinity : since + timeoutMs - journal.now();
  if (leftMs <= 0) return timeout(tool, timeoutMs!);

  const given = new AbortController(), over = new AbortController();
  const abort = () => given.abort(journal.signal.reason);
  if (journal.signal.aborted) abort();
  else journal.signal.addEventListener("abort", abort, { signal: over.signal });
  let updates = 0;
  const inside = tool.agentic ? enclosure(journal, since + (timeoutMs ?? Infinity), over.signal) : undefined;
  const context: AgenticContext = {
    signal: given.signal,
    idempotencyKey: call.key!,
    toolCallId,
    run: journal.run,
    thread: journal.thread,
    fetch: journal.fetch,
    onUpdate: (text) => {
      if (over.signal.aborted || ++updates > maxUpdates) return;
      journal.show(call.path, { toolCallId, text: clip(String(text), maxUpdateLength) });
    },
    ...(inside ? it.nested(call, { ...it, journal: inside }) : undeclared),
  };
  // A tool may ignore its signal, so it is raced against it (CASES A05); what it does later changes nothing.
  const body = async () => {
    // A plain tool inside a nested loop is not that loop's function.
    const around = tool.agentic ? context : undefined;
    const running = ambient.run(around, async () => await tool.execute(args, context));
    running.catch(() => {});
    const races: Promise<unknown>[] = [running, aborted(journal.signal, over.signal)];
    if (leftMs < Infinity) races.push(journal.sleep(leftMs, over.signal).then(() => timedOut));
    return await Promise.race(races);
  };
  const outcome = async (): Promise<Result | ToolPending | undefined> => {
    try {
      const value = await (tool.agentic ? body() : journal.work(body));
      if (journal.signal.aborted) return undefined;
      if (value instanceof ToolPending) return value;
      if (value !== timedOut) return { ...render(value), ran: true };
      given.abort(new DOMException("The tool's time is over", "TimeoutError"));
      return timeout(tool, timeoutMs!);
    } catch (error) {
      return journal.signal.aborted ? undefined : failure(tool, error);
    } finally {
      // With a reason: the default one is an exception with a stack.
      over.abort(null);
    }
  };
  const result = await outcome();
  // Who watches hears of its progress before its end.
  if (updates) await journal.work(() => journal.shown());
  return result;
}

/** What it may take; undefined: as long as the slice. */
function timeoutOf({ timeoutMs }: Tool, args: unknown): number | undefined {
  if (typeof timeoutMs !== "object") return timeoutMs;
  const { from, defaultMs, minMs = 1, maxMs } = timeoutMs;
  let asked: unknown;
  try {
    asked = from(args);
  } catch {
    // Then they do not say.
  }
  const ms = typeof asked === "number" && !Number.isNaN(asked) ? asked : defaultMs;
  return Math.min(maxMs, Math.max(minMs, ms));
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

function timeout(tool: Tool, ms: number): Result {
  return unverified(tool, `Tool "${tool.name}" timed out after ${ms / 1000} s: what it did is unknown`);
}

/** What a body throws says that nothing was done, unless it broke off waiting for an answer that may still have come. */
function failure(tool: Tool, error: unknown): Result {
  const brokeOff = error instanceof Error && ["AbortError", "TimeoutError"].includes(error.name);
  return brokeOff
    ? unverified(tool, `Tool "${tool.name}" was aborted: what it did is unverified (${messageOf(error)})`)
    : { content: messageOf(error), isError: true, ran: true };
}

function unverified(tool: Tool, content: string): Result {
  return { content, isError: true, ran: true, ...(tool.replay === "safe" ? {} : { unknown: true }) };
}

export function aborted(signal: AbortSignal, until: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { signal: until });
  });
}
