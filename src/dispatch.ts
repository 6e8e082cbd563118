/**
 * A message's tool calls: in source order, one after another; neighbours that are parallel, or that wait, together. Each call gets exactly
 * one result, whatever happens (DESIGN §2).
 *
 * D1. A call's body runs only after a commit said that it begins (rule 5), and only in the slice that committed it, unless its tool is
 *     safe to run again.
 * D2. The start of what comes next rides on the last result, but only if no steering came: it is the commit's `quiet` part.
 * D3. The result that completes a message also writes the turn's boundary, and only there steering is taken: never between results.
 */
import { type Effect, judgeEffect } from "./effect.ts";
import { messageOf } from "./errors.ts";
import { execute, reconcile, unknown } from "./execute.ts";
import { idempotencyKey, signature } from "./fingerprint.ts";
import type { Part, Step } from "./journal.ts";
import { choiceOf, type Loop, merge, nextTurn, unanswered } from "./outcome.ts";
import type { Bodies } from "./entry.ts";
import type { Tool, Wait } from "./tool.ts";
import type { CallState, Frame } from "./frame.ts";
import { check } from "./validate.ts";

type Result = Omit<Bodies["result"], "toolName" | "at">;
type Verdict = { tool: Tool; args: unknown; wait?: Wait; effect?: Effect } | { refuse: Result };

/** How deep an agentic function may be nested in itself, and calls in each other. */
const deepestOfName = 5;
const deepest = 10;

/** Brings a message's open calls one group further. */
export async function dispatch(it: Loop, at: Frame): Promise<void> {
  const { journal } = it;
  const group = firstGroup(it, at);
  if (steered(it) && group.every(({ call }) => call.state === "pending")) return await skip(it, at);
  if (group.some(({ call, verdict }) => call.state === "pending" && "tool" in verdict)) {
    if (journal.spent) return await journal.park();
    await journal.commit(() => {
      const quiet = steered(it) ? undefined : begin(it, at);
      return quiet && { quiet };
    });
    return;
  }
  await Promise.all(group.map(({ call, verdict }) => settle(it, at, call, verdict)));
}

/** Steering that makes the calls not yet begun be skipped. */
function steered({ journal, settings }: Loop): boolean {
  return journal.mail.steering > 0 && settings.steering !== "after_batch";
}

/** The first call without a result, with the neighbours that go together with it. */
function firstGroup(it: Loop, at: Frame): { call: CallState; verdict: Verdict }[] {
  const group: { call: CallState; verdict: Verdict }[] = [];
  let first: string | undefined;
  for (const call of at.calls) {
    if (call.state === "done") continue;
    const verdict = judge(it, at, call), kind = kindOf(call, verdict);
    if (first !== undefined && (first === "alone" || kind !== first)) break;
    first = kind;
    // One effect after the other: the second may then be answered by what became of the first.
    if (group.some((one) => sameEffect(one.verdict, verdict))) break;
    group.push({ call, verdict });
  }
  return group;
}

function sameEffect(a: Verdict, b: Verdict): boolean {
  return "tool" in a && "tool" in b && a.effect !== undefined && a.effect.id === b.effect?.id;
}

function kindOf(call: CallState, verdict: Verdict): "alone" | "waits" | "parallel" {
  if ("refuse" in verdict) return "alone";
  if (call.state === "waiting" || verdict.wait) return "waits";
  return verdict.tool.parallel ? "parallel" : "alone";
}

/** The part of a commit that lets the next group begin; undefined if there is none, or the slice's budget is spent. */
export function begin(it: Loop, at: Frame): Part | undefined {
  if (it.journal.spent) return undefined;
  const parts = firstGroup(it, at).map(({ call, verdict }): Part => {
    if (call.state !== "pending" || "refuse" in verdict) return {};
    return verdict.wait ? beginWait(it, call, verdict.wait) : beginRun(it, call, verdict.effect);
  });
  return parts.some((part) => part.append) ? merge(...parts) : undefined;
}

function beginWait({ journal }: Loop, call: CallState, wait: Wait): Part {
  const letter = wait.for === "time" ? "s" : "w";
  return {
    append: [journal.entry("wait", call.path, wait)],
    open: { [call.path]: letter + unanswered(journal, call, "Cancelled while it waited") },
  };
}

function beginRun({ journal }: Loop, call: CallState, effect?: Effect): Part {
  // A repeat of a call whose outcome is unknown is the same effect, so it gets the same key (rule 5).
  const same = effect ? effect.key : journal.transcript.unknown.get(signature(call.call));
  const key = same ?? idempotencyKey(journal.run, call.path);
  const remembered = effect && { effect: { id: effect.id, args: effect.args } };
  return {
    append: [journal.entry("call", call.path, { key, ...remembered, at: journal.now() })],
    open: { [call.path]: "s" + unanswered(journal, { ...call, state: "begun" }, "Cancelled") },
  };
}

/** Whether a call may run, and what it waits for before. What is refused does not begin; its result says what to do instead. */
function judge(it: Loop, at: Frame, { call, path, state, answer, wait }: CallState): Verdict {
  const { journal, menu, settings } = it, choice = choiceOf(settings, at);
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
    if (choice === "none") return refused("no tool may be called in this run. Answer in text");
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
    if (settings.parallelToolCalls === false && path !== at.calls[0]!.path) {
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
  const checked = check(tool, call.arguments);
  if (!checked.ok) return wrong(checked.message);
  try {
    // An answer that comes now is not lost to a refusal.
    const begins = state === "pending" || (state === "waiting" && (answer || wait?.for === "time"));
    const effect = begins ? effectOf(it, tool, checked.args) : undefined;
    if (effect && "refuse" in effect) return effect;
    return {
      tool,
      args: checked.args,
      effect,
      wait: state === "pending" ? tool.wait?.(checked.args, journal.now()) : undefined,
    };
  } catch (error) {
    return wrong(messageOf(error));
  }
}

/** The effect that a call is about to have; a refusal if it is not to be had (again). */
function effectOf(
  { journal }: Loop,
  tool: Tool,
  args: unknown,
): Effect | { refuse: Result } | undefined {
  if (typeof tool.key !== "function") return undefined;
  const judged = judgeEffect(journal.transcript.effects, tool, args);
  if ("known" in judged) return { refuse: { ...judged.known, isError: false, ran: true } };
  if ("broken" in judged) return { refuse: { content: judged.broken, isError: true } };
  return "refuse" in judged ? refused(judged.refuse) : judged;
}

/** The loop decided not to run it; that is no failure of the tool. */
function refused(why: string, notRun: Result["notRun"] = "refused"): { refuse: Result } {
  return { refuse: { content: `Not run: ${why}`, isError: true, notRun } };
}

/** The call itself is at fault. */
function wrong(content: string): { refuse: Result } {
  return { refuse: { content, isError: true } };
}

/** Brings one call to its result, or stands still. */
async function settle(it: Loop, at: Frame, call: CallState, verdict: Verdict): Promise<void> {
  for (; call.state !== "done"; verdict = judge(it, at, call)) {
    const cutOff = call.state === "begun" && (interrupted(it, call) || call.doubtful);
    if ("refuse" in verdict) await record(it, at, call, cutOff ? unknown : verdict.refuse);
    else if (call.state === "waiting") await waited(it, at, call);
    else if (call.state === "pending") return;
    else {
      const { tool, args } = verdict;
      let result = cutOff ? await reconcile(it, call, tool, args) : "not_done";
      if (result === "not_done") result = await execute(it, call, tool, args);
      if (result) await record(it, at, call, result);
      else await it.journal.park();
    }
  }
}

/** D1. An earlier slice let it begin, and nobody knows how far it came. */
function interrupted({ journal, menu }: Loop, { path, call }: CallState): boolean {
  const tool = menu.tools.find((tool) => tool.name === call.name);
  return !journal.permitted(path) && !tool?.agentic && tool?.replay !== "safe";
}

/** A waiting call: its answer, the end of its time, steering, or more waiting. */
async function waited(it: Loop, at: Frame, call: CallState): Promise<void> {
  const { journal } = it, { answer } = call, { for: what, until } = call.wait!;
  if (answer && "content" in answer) {
    return await record(it, at, call, {
      content: answer.content,
      isError: answer.isError ?? false,
      ran: true,
    });
  }
  if (answer && !answer.approve) {
    const content = `The call was not approved${answer.reason ? `: ${answer.reason}` : ""}. It was not run`;
    return await record(it, at, call, { content, isError: true, notRun: "refused" });
  }
  if (!answer && steered(it)) return await skip(it, at);
  const over = journal.now() >= until;
  if (!answer && over && what !== "time") {
    const content = "No answer came in time: expired. It was not run";
    await journal.commit(() =>
      call.answer
        ? undefined
        : unlessAnswered(close(it, at, [{ call, result: { content, isError: true, notRun: "refused" } }]))
    );
    return;
  }
  if (!answer && !over) return await journal.park(until);
  if (journal.spent) return await journal.park();
  await journal.commit(() => {
    // Another call may have had its effect meanwhile.
    const verdict = judge(it, at, call);
    if (call.state !== "waiting" || "refuse" in verdict) return undefined;
    return { change: beginRun(it, call, verdict.effect) };
  });
}

/** Steering came: what has not begun gets its result without being run. */
async function skip(it: Loop, at: Frame): Promise<void> {
  const { journal } = it;
  await journal.commit(() => {
    const skipped = at.calls.filter((call) =>
      call.state === "pending" || (call.state === "waiting" && !call.answer)
    );
    if (!skipped.length) return undefined;
    const results = skipped.map((call) => ({
      call,
      result: { content: "Skipped due to queued user message", isError: true, notRun: "skipped" as const },
    }));
    return unlessAnswered(close(it, at, results));
  });
}

/** A step that applies only if no answer comes in this very moment: that was accepted, and its call gets it. */
function unlessAnswered({ change, ...step }: Step): Step {
  return { ...step, quiet: change };
}

async function record(it: Loop, at: Frame, call: CallState, result: Result): Promise<void> {
  await it.journal.commit(() => call.state === "done" ? undefined : close(it, at, [{ call, result }]));
}

/** Writes results, with what follows from them: the next turn (D3), or the next group's start (D2). */
function close(it: Loop, at: Frame, results: { call: CallState; result: Result }[]): Step {
  const { journal } = it;
  const written: Part = {
    append: results.map(({ call, result }) =>
      journal.entry("result", call.path, { toolName: call.call.name, ...result, at: journal.now() })
    ),
    close: results.map(({ call }) => call.path),
  };
  const now = results.map(({ call }) => call);
  const after: Frame = {
    ...at,
    calls: at.calls.map((call) => now.includes(call) ? { ...call, state: "done" } : call),
  };
  if (after.calls.every((call) => call.state === "done")) {
    const next = nextTurn(it, after);
    return { ...next, change: merge(written, next.change!), advances: true };
  }
  // While neighbours still run, what comes after them has to wait for them.
  const others = after.calls.some((call) => call.state === "begun" || call.state === "waiting");
  const next = others || steered(it) ? undefined : begin(it, after);
  return { change: written, quiet: next, advances: true };
}
