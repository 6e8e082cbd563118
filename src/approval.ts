/**
 * Calls that run only once somebody approved them. What is approved is one call with its arguments: neither another call nor other arguments
 * can run by it (CASES F13).
 */
import type { Bodies } from "./entry.ts";
import { messageOf } from "./errors.ts";
import { canonical, fingerprintOf } from "./fingerprint.ts";
import type { CallState } from "./frame.ts";
import type { Json, UserBlock } from "./message.ts";
import type { Tool, Wait } from "./tool.ts";

/** Whether a call must be approved: what to wait for; "refused" and "approved": it was decided for all of the thread. */
export function approvalOf(
  tool: Tool,
  args: unknown,
  always: ReadonlyMap<string, boolean>,
  now: number,
): Wait | "refused" | "approved" | undefined {
  const asked = reasonOf(tool, args);
  if (asked === undefined) return undefined;
  const decided = always.get(tool.name);
  if (decided !== undefined) return decided ? "approved" : "refused";
  const { approvalExpiresMs } = tool;
  return {
    for: "approval",
    ...(asked ? { reason: asked } : {}),
    ...(approvalExpiresMs === undefined ? {} : { until: now + approvalExpiresMs }),
  };
}

/** Undefined: it needs none. A tool that cannot say is asked for rather than run. */
function reasonOf({ approval }: Tool, args: unknown): string | undefined {
  if (!approval) return undefined;
  if (approval === true) return "";
  try {
    const asked: unknown = approval(args);
    if (typeof asked === "string") return asked || undefined;
    return asked ? "" : undefined;
  } catch (error) {
    return `It could not be told whether this needs an approval: ${messageOf(error)}`;
  }
}

/** What tells whether a call still means what was shown when it was to be approved. */
export function shownAs(args: unknown): string {
  return fingerprintOf(canonical(args));
}

/** The arguments that the approval put in the place of the model's. */
export function editedArguments({ answer }: CallState): { [key: string]: Json } | undefined {
  return answer && "approve" in answer && answer.approve ? answer.arguments : undefined;
}

/** The model is told that the call ran with other arguments than its own. */
export function toldOf<R extends { content: Bodies["result"]["content"] }>(call: CallState, result: R): R {
  const edited = editedArguments(call);
  if (!edited) return result;
  const note = `(It ran with arguments that were changed when it was approved: ${JSON.stringify(edited)})`;
  const { content } = result;
  const told: UserBlock[] | string = typeof content === "string"
    ? `${note}\n${content}`
    : [{ type: "text", text: note }, ...content];
  return { ...result, content: told };
}
