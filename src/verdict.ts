/** Whether a call may run, and what it waits for before: decided from the log and the tool alone, as often as it is looked at. */
import { firstOf, shownAs } from "./approval.ts";
import { type Effect, judgeEffect } from "./effect.ts";
import type { Result } from "./entry.ts";
import { messageOf } from "./errors.ts";
import { argumentsOf, known, unasked } from "./gate.ts";
import { choiceOf, type Loop } from "./outcome.ts";
import type { Tool, Wait } from "./tool.ts";
import { signature } from "./fingerprint.ts";
import type { CallState, Frame } from "./frame.ts";
import { check } from "./validate.ts";

/** It may run; or its result, without running. */
export type Runnable = { tool: Tool; args: unknown; wait?: Wait; effect?: Effect };
export type Verdict = Runnable | { result: Result };

/** How deep an agentic function may be nested in itself, and calls in each other. */
const deepestOfName = 5;
const deepest = 10;

/** Its result says what to do instead; what is refused does not begin. */
export function judge(it: Loop, at: Frame, of: CallState): Verdict {
  const { call, path, state, answer } = of, { journal, menu, settings } = it, choice = choiceOf(settings, at);
  // What has begun was allowed to; only what became of its tool since then matters.
  if (state === "pending") {
    const failed = at.failures.get(signature(call));
    if (failed && failed.times >= 2) {
      return refused(
        `this call has failed ${failed.times} times in a row with the same arguments and the same error. ` +
          "Change the arguments, try another way, or say what stands in the way",
        "stopped",
      );
    }
    if (at.message?.stopReason === "length") {
      return refused(
        "the message reached the output limit, so its arguments may be cut off. Send a shorter call",
      );
    }
    if (choice === "none") return refused("no tool may be called now. Answer in text");
    if (typeof choice === "object" && choice.name !== call.name) {
      return refused(`only "${choice.name}" may be called now`);
    }
    const around = journal.transcript.around(path).map((outer) => outer.call.name);
    const same = around.filter((name) => name === call.name).length;
    if (same >= deepestOfName || around.length >= deepest) {
      return refused(
        `"${call.name}" would be nested ${same + 1} times in itself, ${
          around.length + 1
        } calls deep: at most ` +
          `${deepestOfName} and ${deepest} are allowed. Do it without calling it again`,
      );
    }
    const first = at.calls.find(({ call }) => typeof choice !== "object" || choice.name === call.name);
    if (settings.parallelToolCalls === false && path !== first!.path) {
      return refused("one tool call per turn is allowed. Ask for it again in the next turn");
    }
  }
  // The whole menu: what the model has not found yet it may still know.
  const tool = menu.tools.find((tool) => tool.name === call.name);
  if (!tool) {
    const names = menu.tools.map(({ name }) => name).join(", ") || "none";
    return wrong(`There is no tool "${call.name}". The tools are: ${names}`);
  }
  if (call.invalid !== undefined) return wrong(`Invalid arguments for tool "${call.name}": ${call.invalid}`);
  const checked = check(tool, argumentsOf(it, of));
  if (!checked.ok) return wrong(checked.message);
  const { args } = checked, said = it.asked.get(path), shown = answer && of.wait?.shown;
  if (state === "begun") return { tool, args };
  if (said && "refuse" in said) return refused(said.refuse);
  if (shown !== undefined && !of.edited && shown !== shownAs(args)) {
    return refused("its tool has changed since it was to be approved. Ask for it again");
  }
  try {
    const first = state === "pending"
      ? firstOf(tool, args, journal.transcript.always, journal.now())
      : undefined;
    if (first === "refused") {
      return refused(`"${tool.name}" was refused for all of this conversation. Do it without it`);
    }
    // An answer that comes now is not lost to a refusal.
    const begins = state === "pending" || answer || of.wait?.for === "time";
    if (!begins || unasked(it, of)) return { tool, args, wait: first };
    const effect = effectOf(it, tool, args);
    if (effect && "result" in effect) return effect;
    const result = state === "waiting" || first ? undefined : known(it, of, tool);
    return result ? { result } : { tool, args, wait: first, effect };
  } catch (error) {
    return wrong(messageOf(error));
  }
}

/** The effect that a call is about to have; a refusal if it is not to be had (again). */
function effectOf(
  { journal }: Loop,
  tool: Tool,
  args: unknown,
): Effect | { result: Result } | undefined {
  if (typeof tool.key !== "function") return undefined;
  const judged = judgeEffect(journal.transcript.effects, tool, args);
  if ("known" in judged) return { result: { ...judged.known, isError: false, ran: true } };
  if ("broken" in judged) return { result: { content: judged.broken, isError: true } };
  return "refuse" in judged ? refused(judged.refuse) : judged;
}

/** The loop decided not to run it; that is no failure of the tool. */
function refused(why: string, notRun: Result["notRun"] = "refused"): { result: Result } {
  return { result: { content: `Not run: ${why}`, isError: true, notRun } };
}

/** The call itself is at fault. */
function wrong(content: string): { result: Result } {
  return { result: { content, isError: true } };
}
