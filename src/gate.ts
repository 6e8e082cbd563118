/**
 * What stands between a call and its tool besides the rules of the loop: results that are known already, and the deployment's hooks.
 *
 * G1. A call that has begun is not asked about again: what it runs with is in its `call` entry.
 * G2. What a person approved runs with what was approved, or not at all.
 */
import { publicId, type Result } from "./entry.ts";
import { messageOf } from "./errors.ts";
import { aborted } from "./execute.ts";
import { canonical, signature } from "./fingerprint.ts";
import type { HookedCall, HookedResult } from "./hook.ts";
import type { ToolCall } from "./message.ts";
import type { Asked, Loop } from "./outcome.ts";
import { capped, render } from "./render.ts";
import type { WaitFor } from "./run.ts";
import { type Tool, ToolOutput } from "./tool.ts";
import type { CallState } from "./frame.ts";
import { check } from "./validate.ts";

const hookMs = 30_000;

/** The arguments that a call runs with, as far as that is known. */
export function argumentsOf({ asked }: Loop, of: CallState): ToolCall["arguments"] {
  const said = asked.get(of.path), hooked = said && "arguments" in said ? said.arguments : undefined;
  return of.arguments ?? hooked ?? of.edited ?? of.call.arguments;
}

/** Whether the hook is still to be asked about a call. */
export function unasked({ hooks, asked }: Loop, { path, state }: CallState): boolean {
  return hooks.beforeToolCall !== undefined && state !== "begun" && !asked.has(path);
}

/** Asks the hook. When it returns, `asked` has the answer, or the slice is cut. */
export async function ask(it: Loop, call: CallState, tool: Tool, waitsFor?: WaitFor): Promise<void> {
  const answer = await heard(it, call, async (hooked): Promise<Asked> => {
    const given = canonical(hooked.arguments), said = await it.hooks.beforeToolCall!(hooked);
    if (!said) return {};
    if ("block" in said && said.block) return { refuse: `blocked: ${said.reason || "no reason was given"}` };
    if (!("arguments" in said) || said.arguments === undefined) return {};
    const wanted = JSON.parse(JSON.stringify(said.arguments));
    if (canonical(wanted) === given) return {};
    if (waitsFor === "approval") {
      return { refuse: "it was approved with these arguments, and the deployment's hook wants others" };
    }
    if (waitsFor === "answer") {
      return { refuse: "it runs elsewhere, with these arguments, and the deployment's hook wants others" };
    }
    const checked = check(tool, wanted);
    return checked.ok
      ? { arguments: wanted }
      : { refuse: `the deployment's hook changed its arguments. ${checked.message}` };
  });
  if (answer) it.asked.set(call.path, "failed" in answer ? { refuse: answer.failed } : answer.said);
}

/** A result that an earlier call of the thread left for this one. */
export function known(it: Loop, call: CallState, { cache }: Tool): Result | undefined {
  const { transcript, now } = it.journal;
  // An effect that is in doubt is not answered by what was before.
  const what = signature(call.call, argumentsOf(it, call));
  if (!cache || transcript.unknown.has(what)) return undefined;
  const found = transcript.reusable.get(what);
  const ttlMs = cache === true ? Infinity : cache.ttlMs;
  if (!found || now() - found.at > ttlMs) return undefined;
  return { content: found.content, isError: false, reused: true };
}

/** What is recorded of a call that has run: what the hook makes of its result, within its length. Undefined: the slice was cut meanwhile. */
export async function recorded(
  it: Loop,
  call: CallState,
  tool: Tool,
  result: Result,
): Promise<Result | undefined> {
  const made = it.hooks.afterToolCall ? await hooked(it, call, tool, result) : result;
  if (!made) return undefined;
  const reusable = tool.cache && call.state === "begun" && !made.isError && !made.terminate;
  const content = capped(made.content, tool.maxResultLength);
  return { ...made, content, ...(reusable ? { reusable } : {}) };
}

async function hooked(it: Loop, call: CallState, tool: Tool, result: Result): Promise<Result | undefined> {
  const { content, isError, terminate } = result;
  const answer = await heard(it, call, async (hooked) => {
    const shown: HookedResult = structuredClone({ content, isError, terminate });
    const by = await it.hooks.afterToolCall!(hooked, shown) ?? {};
    const output = Array.isArray(by.content) ? new ToolOutput(by.content) : by.content;
    const rendered = output === undefined ? { content, isError: false } : render(output);
    return {
      content: rendered.content,
      isError: rendered.isError || (by.isError ?? isError),
      terminate: by.terminate ?? terminate,
    };
  });
  if (!answer) return undefined;
  const made = "said" in answer ? answer.said : {
    content: `It ran, but its result cannot be shown: ${answer.failed}`,
    isError: true,
    terminate: false,
  };
  // What it did is done, and must not be done again for want of its result.
  const hidden = made.isError && !(isError && "said" in answer) && tool.replay !== "safe";
  return { ...result, ...made, ...(hidden ? { unknown: true } : {}) };
}

/** What a hook said, or why it said nothing. Undefined: the slice was cut meanwhile. */
async function heard<T>(
  it: Loop,
  call: CallState,
  hook: (call: HookedCall) => T | Promise<T>,
): Promise<{ said: T } | { failed: string } | undefined> {
  const { journal } = it, over = new AbortController();
  const signal = AbortSignal.any([journal.signal, over.signal]);
  const asking = async () => ({
    said: await hook({
      toolName: call.call.name,
      toolCallId: publicId(journal.run, call.path),
      arguments: structuredClone(argumentsOf(it, call)),
      run: journal.run,
      thread: journal.thread,
      signal,
    }),
  });
  const late = { failed: `the deployment's hook did not answer within ${hookMs / 1000} s` };
  try {
    const answer = await journal.work(() =>
      Promise.race([
        asking(),
        journal.sleep(hookMs, over.signal).then(() => late),
        aborted(journal.signal, over.signal),
      ])
    );
    return journal.signal.aborted ? undefined : answer ?? undefined;
  } catch (error) {
    return journal.signal.aborted
      ? undefined
      : { failed: `the deployment's hook failed: ${messageOf(error)}` };
  } finally {
    over.abort(null);
  }
}
