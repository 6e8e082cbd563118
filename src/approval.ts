/**
 * Calls that run only once somebody approved them. What is approved is one call with its arguments: neither another call nor other arguments
 * can run by it (CASES F13).
 */
import type { Answer, Bodies } from "./entry.ts";
import { InputError, messageOf } from "./errors.ts";
import { canonical, fingerprintOf } from "./fingerprint.ts";
import type { CallState } from "./frame.ts";
import type { UserBlock } from "./message.ts";
import { settled, type Tool, type Wait, waitOf } from "./tool.ts";
import { check } from "./validate.ts";

/** What a call waits for before it runs, if for anything; "refused": it was decided for all of the thread. */
export function firstOf(
  tool: Tool,
  args: unknown,
  always: ReadonlyMap<string, boolean>,
  now: number,
): Wait | "refused" | undefined {
  const wait = approvalOf(tool, args, now) ?? waitOf(tool.wait?.(args, now));
  const decided = wait?.for === "approval" ? always.get(tool.name) : undefined;
  if (decided === undefined) return wait;
  return decided ? undefined : "refused";
}

/** Undefined: it needs none. A tool that cannot say is asked for rather than run. */
function approvalOf({ approval, approvalExpiresMs }: Tool, args: unknown, now: number): Wait | undefined {
  if (!approval) return undefined;
  let asked: unknown = true;
  try {
    if (approval !== true) asked = settled(approval(args), "approval");
  } catch (error) {
    asked = `It could not be told whether this needs an approval: ${messageOf(error)}`;
  }
  if (!asked) return undefined;
  return {
    for: "approval",
    ...(typeof asked === "string" ? { reason: asked } : {}),
    ...(approvalExpiresMs === undefined ? {} : { until: now + approvalExpiresMs }),
  };
}

/** Arguments that an approval changes must suit the tool, as far as it is known here. Throws InputError. */
export function checkEdited(answer: Answer, tool?: Tool): void {
  if (!("arguments" in answer) || !answer.arguments) return;
  if (!answer.approve) {
    throw new InputError("bad_input", "arguments: only a call that is approved can run with others");
  }
  const checked = tool && check(tool, answer.arguments);
  if (checked && !checked.ok) throw new InputError("bad_input", `arguments: ${checked.message}`);
}

/** What tells whether a call still means what was shown when it was to be approved. */
export function shownAs(args: unknown): string {
  return fingerprintOf(canonical(args));
}

/** The model is told that the call ran with other arguments than its own. */
export function toldOf<R extends { content: Bodies["result"]["content"] }>(call: CallState, result: R): R {
  const { edited } = call;
  if (!edited) return result;
  const note = `(It ran with arguments that were changed when it was approved: ${JSON.stringify(edited)})`;
  const { content } = result;
  const told: UserBlock[] | string = typeof content === "string"
    ? `${note}\n${content}`
    : [{ type: "text", text: note }, ...content];
  return { ...result, content: told };
}
