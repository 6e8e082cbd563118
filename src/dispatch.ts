/**
 * A message's tool calls: in source order, one after another; neighbours that are parallel, or that wait, together. Each call gets exactly
 * one result, whatever happens (DESIGN §2).
 *
 * D1. A call's body runs only after a commit said that it begins (rule 5), and only in the slice that committed it, unless its tool is
 *     safe to run again.
 * D2. The start of what comes next rides on the last result, but only if no steering came: it is the commit's `quiet` part.
 * D3. The result that completes a message also writes the turn's boundary, and only there steering is taken: never between results.
 * D4. Of calls that waited together, those whose tools are not parallel run one after another, in the order of their answers.
 */
import { shownAs, toldOf } from "./approval.ts";
import type { Effect } from "./effect.ts";
import { execute, reconcile, unknown } from "./execute.ts";
import { idempotencyKey, signature } from "./fingerprint.ts";
import { argumentsOf, ask, recorded, unasked } from "./gate.ts";
import type { Part, Step } from "./journal.ts";
import { type Loop, merge, nextTurn, unanswered } from "./outcome.ts";
import type { Result } from "./entry.ts";
import { type Tool, ToolPending, type Wait } from "./tool.ts";
import type { CallState, Frame } from "./frame.ts";
import { judge, type Runnable, type Verdict } from "./verdict.ts";

/** Brings a message's open calls one group further. */
export async function dispatch(it: Loop, at: Frame): Promise<void> {
  const { journal } = it;
  const group = firstGroup(it, at);
  if (steered(it) && group.every(({ call }) => call.state === "pending")) return await skip(it, at);
  if (group.some(({ call, verdict }) => call.state === "pending" && "tool" in verdict)) {
    if (journal.spent) return await journal.park();
    const asking = group.flatMap(({ call, verdict }) =>
      asksFirst(it, call, verdict) ? [ask(it, call, verdict.tool, verdict.wait?.for)] : []
    );
    if (asking.length) return void await Promise.all(asking);
    await journal.commit(() => {
      const quiet = steered(it) ? undefined : begin(it, at);
      return quiet && { quiet };
    });
    return;
  }
  const together: Together = new Map(group.map(({ call }) => [call, undefined]));
  await Promise.all(group.map(({ call, verdict }) => settle(it, at, call, verdict, together)));
}

/** Calls that are settled side by side, and the body that runs of each. */
type Together = Map<CallState, Promise<void> | undefined>;

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
  // It may have begun since.
  if (call.wait) return "waits";
  if ("result" in verdict) return "alone";
  if (verdict.wait) return "waits";
  return verdict.tool.parallel ? "parallel" : "alone";
}

/** A hook is asked before a call begins; where it waits for approval, or for a time, once that is over. */
function asksFirst(it: Loop, call: CallState, verdict: Verdict): verdict is Runnable {
  if (call.state !== "pending" || "result" in verdict || !unasked(it, call)) return false;
  return !verdict.wait || verdict.wait.for === "answer";
}

/** The part of a commit that lets the next group begin; undefined if there is none, a hook is asked first, or the slice's budget is spent. */
export function begin(it: Loop, at: Frame): Part | undefined {
  const group = firstGroup(it, at);
  if (it.journal.spent || group.some(({ call, verdict }) => asksFirst(it, call, verdict))) return undefined;
  const parts = group.map(({ call, verdict }): Part => {
    if (call.state !== "pending" || "result" in verdict) return {};
    return verdict.wait
      ? beginWait(it, call, verdict.wait, verdict.args)
      : beginRun(it, call, verdict.effect);
  });
  return parts.some((part) => part.append) ? merge(...parts) : undefined;
}

/** The last that a Date can hold. */
const lastMoment = 8.64e15;

function beginWait({ journal, longestWaitMs }: Loop, call: CallState, wait: Wait, args?: unknown): Part {
  const letter = wait.for === "time" ? "s" : "w";
  const until = Math.min(wait.until ?? journal.now() + longestWaitMs, lastMoment);
  const shown = wait.for === "approval" ? { shown: shownAs(args) } : {};
  return {
    append: [journal.entry("wait", call.path, { ...wait, until, ...shown })],
    open: { [call.path]: letter + unanswered(journal, call, "Cancelled while it waited") },
  };
}

function beginRun(it: Loop, call: CallState, effect?: Effect): Part {
  const { journal } = it, given = argumentsOf(it, call);
  // A repeat of a call whose outcome is unknown is the same effect, so it gets the same key (rule 5).
  const same = effect ? effect.key : journal.transcript.unknown.get(signature(call.call, given));
  const key = same ?? idempotencyKey(journal.run, call.path);
  const remembered = effect && { effect: { id: effect.id, args: effect.args } };
  return {
    append: [journal.entry("call", call.path, {
      key,
      ...remembered,
      ...(given === call.call.arguments ? {} : { arguments: given }),
      at: journal.now(),
    })],
    open: { [call.path]: "s" + unanswered(journal, { ...call, state: "begun" }, "Cancelled") },
  };
}

/** Brings one call to its result, or stands still. */
async function settle(
  it: Loop,
  at: Frame,
  call: CallState,
  verdict: Verdict,
  together: Together,
): Promise<void> {
  for (; call.state !== "done"; verdict = judge(it, at, call)) {
    const tool = "tool" in verdict ? verdict.tool : undefined;
    // The tool itself is not needed for an answer from elsewhere.
    if (call.state === "waiting" && (tool || call.wait!.for === "answer")) {
      await waited(it, at, call, together, tool);
    } else if (call.state === "pending" && tool) return;
    else {
      const body = run(it, at, call, verdict);
      together.set(call, body);
      await body;
    }
  }
}

/** What has begun, or never will. */
async function run(it: Loop, at: Frame, call: CallState, verdict: Verdict): Promise<void> {
  const cutOff = call.state === "begun" && (interrupted(it, call) || call.doubtful);
  if ("result" in verdict) return await record(it, at, call, cutOff ? unknown : verdict.result);
  const { tool, args } = verdict;
  const became = cutOff ? await reconcile(it, call, tool, args) : "not_done";
  const result = became === "not_done" ? await execute(it, call, tool, args) : became;
  if (result instanceof ToolPending) await goesOnElsewhere(it, call, result.wait);
  else if (result) await finished(it, at, call, result, tool);
  else await it.journal.park();
}

/** D4. The call beside this one whose body must end before this one's begins. */
function before(it: Loop, call: CallState, together: Together): CallState | undefined {
  const parallel = (one: CallState) =>
    it.menu.tools.find((tool) => tool.name === one.call.name)?.parallel ?? false;
  return [...together.keys()].find((other) =>
    other !== call && other.state === "begun" && !(parallel(call) && parallel(other))
  );
}

/** D1. An earlier slice let it begin, and nobody knows how far it came. */
function interrupted({ journal, menu }: Loop, { path, call }: CallState): boolean {
  const tool = menu.tools.find((tool) => tool.name === call.name);
  return !journal.permitted(path) && !tool?.agentic && tool?.replay !== "safe";
}

/** What a body has begun ends elsewhere: the call waits for its result. */
async function goesOnElsewhere(it: Loop, call: CallState, wait: Wait): Promise<void> {
  await it.journal.commit(() =>
    call.state === "begun" ? { change: beginWait(it, call, wait), advances: true } : undefined
  );
}

/** A waiting call: its answer, the end of its time, steering, or more waiting. */
async function waited(
  it: Loop,
  at: Frame,
  call: CallState,
  together: Together,
  tool?: Tool,
): Promise<void> {
  const { journal } = it, { answer } = call, { for: what, until } = call.wait!;
  if (answer && "content" in answer) {
    const { content, isError = false } = answer;
    return await finished(it, at, call, { content, isError, ran: true }, tool);
  }
  if (answer && !answer.approve) {
    const content = `The call was not approved${answer.reason ? `: ${answer.reason}` : ""}. It was not run`;
    return await record(it, at, call, { content, isError: true, notRun: "refused" });
  }
  if (!answer && steered(it)) return await skip(it, at);
  const over = journal.now() >= until;
  if (!answer && over && what !== "time") {
    const content = call.key
      ? `No result came in time: expired. ${unknown.content}`
      : "No answer came in time: expired. It was not run";
    const result = { content, isError: true, ...leftAlone(call, "refused") };
    await journal.commit(() => call.answer ? undefined : unlessAnswered(close(it, at, [{ call, result }])));
    return;
  }
  if (!answer && !over) return await journal.park(until);
  if (journal.spent) return await journal.park();
  const other = before(it, call, together);
  if (other) return await together.get(other);
  if (tool && unasked(it, call)) return await ask(it, call, tool, what);
  await journal.commit(() => {
    if (before(it, call, together)) return undefined;
    // Another call may have had its effect meanwhile.
    const verdict = judge(it, at, call);
    if (call.state !== "waiting" || "result" in verdict) return undefined;
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
      result: {
        content: "Skipped due to queued user message",
        isError: true,
        ...leftAlone(call, "skipped"),
      },
    }));
    return unlessAnswered(close(it, at, results));
  });
}

/** What it means for the effect that a call is not waited for any longer: one that goes on elsewhere may still have it. */
function leftAlone({ key }: CallState, notRun: NonNullable<Result["notRun"]>): Partial<Result> {
  return key === undefined ? { notRun } : { ran: true, unknown: true };
}

/** A step that applies only if no answer comes in this very moment: that was accepted, and its call gets it. */
function unlessAnswered({ change, ...step }: Step): Step {
  return { ...step, quiet: change };
}

/** The tool has done its part: what is recorded of it, unless the slice is cut meanwhile. */
async function finished(it: Loop, at: Frame, call: CallState, result: Result, tool?: Tool): Promise<void> {
  const made = tool ? await recorded(it, call, tool, toldOf(call, result)) : result;
  await (made ? record(it, at, call, made) : it.journal.park());
}

async function record(it: Loop, at: Frame, call: CallState, result: Result): Promise<void> {
  await it.journal.commit(() => call.state === "done" ? undefined : close(it, at, [{ call, result }]));
}

/** Writes results, with what follows from them: the next turn (D3), or the next group's start (D2). */
function close(it: Loop, at: Frame, results: { call: CallState; result: Result }[]): Step {
  const { journal } = it, open = journal.transcript.openCalls();
  const written = merge(...results.map(({ call, result }): Part => {
    // What a function's body left open ends with it.
    const inside = open.filter(({ path }) => path.startsWith(`${call.path}/`));
    return {
      append: [
        ...inside.map((left) => unanswered(journal, left, `"${call.call.name}" ended before this call`)),
        journal.entry("result", call.path, { toolName: call.call.name, ...result, at: journal.now() }),
      ],
      close: [...inside, call].map(({ path }) => path),
    };
  }));
  const now = new Map(results.map(({ call, result }) => [call, result]));
  const after: Frame = {
    ...at,
    calls: at.calls.map((call): CallState => {
      const result = now.get(call);
      const body = result && { ...result, toolName: call.call.name, at: journal.now() };
      return body ? { ...call, state: "done", result: body } : call;
    }),
  };
  if (after.calls.every((call) => call.state === "done")) {
    const next = nextTurn(it, after);
    return { ...next, change: merge(written, next.change ?? {}), advances: true };
  }
  // While neighbours still run, what comes after them has to wait for them.
  const others = after.calls.some((call) => call.state === "begun" || call.state === "waiting");
  // What is answered from the log begins when its answer is there.
  const waits = others || results.some(({ result }) => result.reusable);
  const next = waits || steered(it) ? undefined : begin(it, after);
  return { change: written, quiet: next, advances: true };
}
