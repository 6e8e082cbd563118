/** What a loop writes when something is over: a turn, a frame, the run, a call that nobody ran. Pure: each answers parts of a commit. */
import { bookedAhead } from "./allowance.ts";
import { asksForMore, codeOf, type Fault, judge, missing, reminder } from "./decision.ts";
import { callPath, publicId, root, turnPath } from "./entry.ts";
import type { Hooks } from "./hook.ts";
import type { Counts, Journal, Part, Step } from "./journal.ts";
import { textOf, type ToolCall, type Usage } from "./message.ts";
import { modelNames, type Models, type Price } from "./model.ts";
import type { Patience } from "./patience.ts";
import type { Registry } from "./registry.ts";
import { type Ending, type FinishReason, maxIterations, type Settings, type ToolChoice } from "./run.ts";
import type { Take } from "./store.ts";
import type { AgenticContext, Menu } from "./tool.ts";
import type { CallState, Frame } from "./frame.ts";

/** What a hook said of a call that has not begun: it may run, with these arguments if there are any; or why it does not. */
export type Asked = { arguments?: ToolCall["arguments"] } | { refuse: string };

/** One loop: the run's own, or one that an agentic function opened. */
export interface Loop {
  frame: string;
  journal: Journal;
  models: Models;
  settings: Settings;
  menu: Menu;
  /** How long a call waits that does not say until when. */
  longestWaitMs: number;
  /** From so many tokens on, older messages are summarised before the model is asked again. */
  compactTokens: number;
  /** How long a model may send nothing. */
  patience: Patience;
  /** What models cost; absent where the run has no limit in money. */
  prices?: (name: string) => Price | undefined;
  /** What a nested loop's own policy leaves of a menu. */
  narrow: Registry["narrow"];
  hooks: Hooks;
  /** What they said in this slice, by the call's path; one for all loops of the slice. */
  asked: Map<string, Asked>;
  /** What an agentic function's body gets to open loops of its own. */
  nested(call: CallState, loop: Loop): Pick<AgenticContext, "exec" | "step">;
}

/** What comes once the last result of a message is there: the end if all ask for it, the next turn, which takes steering, or the limit. */
export function nextTurn(it: Loop, at: Frame): Step {
  if (terminates(at)) return mailGoesFirst(it, at) ? {} : { quiet: conclude(it, at) };
  if (at.turn >= maxIterations(it.settings)) return { change: limit(it, at) };
  return {
    change: boundary(it, at),
    take: [steering(it.settings)],
    into: { frame: it.frame, turn: at.turn + 1 },
  };
}

/** The turn after this one begins. */
export function boundary(it: Loop, at: Frame): Part {
  const { journal, frame } = it;
  const count = { ...(frame === root ? { iterations: 1 } : {}), ...bookedAhead(it, at, modelOf(it).name) };
  return {
    append: [journal.entry("turn", frame, { ended: ended(journal, at) }, { n: at.turn + 1 })],
    ...(Object.keys(count).length ? { count } : {}),
  };
}

/** What a model call came to, in place of what was booked for it. */
export function spent({ journal, frame, prices }: Loop, model: string, usage: Usage): Counts {
  const price = prices?.(model), { limits } = journal.settings;
  return { usage, ...(price ? { usd: price(usage) } : {}), ...(limits ? { settle: frame } : {}) };
}

/** The name of the model that the loop asks, and whether another one can be asked in its place. */
export function modelOf(
  { settings, models, journal, frame }: Pick<Loop, "settings" | "models" | "journal" | "frame">,
): { name: string; isLast: boolean } {
  const names = modelNames(settings.model ?? models.default);
  const passed = Math.min(journal.transcript.frame(frame)?.passed ?? 0, names.length - 1);
  return { name: names[passed]!, isLast: passed === names.length - 1 };
}

/** The results of a message's calls say that the loop ends with them. One that does not, an error for example, keeps it going. */
function terminates({ calls }: Frame): boolean {
  return calls.length > 0 && calls.every(({ result }) => result?.terminate);
}

/**
 * What a message comes to after which nothing is left to do: the end of its loop, or, where an answer of a certain form is wanted, once more
 * the question.
 */
export function conclude(it: Loop, at: Frame): Part {
  if (terminates(at)) return finish(it, at, "terminated");
  const { settings } = it, reason = finishReason(at);
  const again = !at.reasked && at.turn < maxIterations(settings);
  const forced = reason === "stop" && again ? forcedTool(it, at) : undefined;
  if (forced) return reask(it, at, `Before you answer, call ${forced}.`);
  if (reason === "refusal" || !asksForMore(settings)) return finish(it, at, reason);
  const judged = judge(settings, textOf(at.message!.content), reason === "length");
  if (!("fault" in judged)) return finish(it, at, "choice" in judged ? "choice" : "stop", judged);
  const { fault } = judged;
  if (again) return reask(it, at, reminder(settings, fault));
  return unanswerable(it, at, { ...fault, message: `The model's answer cannot be used: ${fault.message}` });
}

/** No turn is left: a normal end, but not where an answer of a certain form was wanted and has not come. */
export function limit(it: Loop, at: Frame): Part {
  const { settings } = it;
  if (!asksForMore(settings)) return finish(it, at, "max_iterations");
  if (!at.calls.length) return conclude(it, at);
  return unanswerable(it, at, missing(settings, `The model gave no answer in its ${at.turn} turns`));
}

/** A turn of its own, in which the model hears what was wrong. */
function reask(it: Loop, at: Frame, content: string): Part {
  const { journal, frame } = it, n = at.turn + 1, next = boundary(it, at);
  const id = `${publicId(journal.run, turnPath(frame, n))}-again`;
  const said = { content, at: journal.now() };
  return { ...next, append: [...next.append!, journal.entry("reask", frame, said, { n, id })] };
}

/** The run fails, with no call open; a nested loop ends without a result, which is for its function's body to take. */
function unanswerable({ journal, frame, settings }: Loop, at: Frame, { message, ...details }: Fault): Part {
  const error = { code: codeOf(settings), message, details: { ...details } }, turnEnded = ended(journal, at);
  if (frame !== root) {
    const body = { text: at.text, finishReason: finishReason(at), error, ended: turnEnded };
    return { append: [journal.entry("return", frame, body)] };
  }
  const body = { status: "failed" as const, error, ended: turnEnded, at: journal.now() };
  return { append: [journal.entry("end", root, body)], end: { status: "failed", ending: { error } } };
}

/** The end of a loop: of the run, or of a nested frame. */
export function finish(
  { journal, frame }: Loop,
  at: Frame,
  finishReason: FinishReason,
  result: Pick<Ending, "choice" | "output"> = {},
): Part {
  // The limit may come after a message that only asked for tools: then the text is what the model said last.
  const text = finishReason === "max_iterations" ? at.text : textOf(at.message?.content ?? "");
  const turnEnded = ended(journal, at);
  if (frame !== root) {
    return { append: [journal.entry("return", frame, { text, finishReason, ...result, ended: turnEnded })] };
  }
  const body = { status: "completed" as const, finishReason, ended: turnEnded, at: journal.now() };
  return {
    append: [journal.entry("end", root, body)],
    end: { status: "completed", ending: { finishReason, text, ...result } },
  };
}

/** The run cannot go on. Open calls, of all frames, get their results. */
export function fail(journal: Journal, code: string, message: string): Step {
  const open = journal.transcript.openCalls();
  const error = { code, message };
  return {
    change: {
      append: [
        ...open.map((call) => unanswered(journal, call, "The run failed before this call ended")),
        journal.entry("end", root, { status: "failed", error, at: journal.now() }),
      ],
      close: open.map((call) => call.path),
      end: { status: "failed", ending: { error } },
    },
  };
}

/** The result of a call that something else ended: `why`, and what that means for its effect. */
export function unanswered(journal: Journal, { path, call, state, key }: CallState, why: string): string {
  // It has begun too if it waits for what it began elsewhere.
  const begun = state === "begun" || key !== undefined;
  const content = begun
    ? `${why}. It had begun: what it did is unknown. Check before you ask for it again`
    : `${why}. It was not run`;
  return journal.entry("result", path, {
    toolName: call.name,
    content,
    isError: true,
    at: journal.now(),
    ...(begun ? { ran: true, unknown: true } : { notRun: "cancelled" as const }),
  });
}

export function steering(settings: Settings): Take {
  return { kinds: ["steering"], all: settings.steeringMode === "all" };
}

/** Whether there is mail that keeps a message without calls from ending its loop. */
export function mailGoesFirst({ journal, frame, settings }: Loop, at: Frame): boolean {
  const reason = finishReason(at);
  const open = reason === "stop" || (reason === "length" && asksForMore(settings));
  return open && (journal.mail.steering > 0 || (frame === root && journal.mail.followUps > 0));
}

/** Why a message without calls ends its loop. */
export function finishReason(at: Frame): FinishReason {
  const { stopReason } = at.message!;
  return stopReason === "length" || stopReason === "refusal" ? stopReason : "stop";
}

function ended(journal: Journal, at: Frame): { message: string; results: string[] } | undefined {
  if (!at.message) return undefined;
  const results = at.calls.map((_, index) => publicId(journal.run, callPath(at.path, at.turn, index)));
  return { message: at.message.id, results };
}

/** A forced choice holds to the end of the turn in which one call has run, so that a run can end; "none" holds for every turn. */
export function choiceOf(settings: Loop["settings"], at: Frame): ToolChoice {
  const { toolChoice = "auto", toolChoiceScope } = settings;
  if (toolChoice === "auto" || toolChoice === "none" || at.turn <= (at.released ?? Infinity)) {
    return toolChoice;
  }
  if (toolChoiceScope !== "every") return "auto";
  // In the last turn nobody would see what a call gives; the model says what it has (CASES D03).
  return at.turn >= maxIterations(settings) ? "none" : toolChoice;
}

/** What the model should have called and did not: some wires have no word for it, and some models do not care (CASES D05). */
function forcedTool({ settings, menu }: Loop, at: Frame): string | undefined {
  const choice = choiceOf(settings, at);
  if (choice === "required" && menu.tools.length) return "one of the tools";
  return typeof choice === "object" ? `the tool "${choice.name}"` : undefined;
}

/** Parts of one commit, joined in order. */
export function merge(...parts: Part[]): Part {
  return {
    append: parts.flatMap((part) => part.append ?? []),
    open: Object.assign({}, ...parts.map((part) => part.open)),
    close: parts.flatMap((part) => part.close ?? []),
    count: Object.assign({}, ...parts.map((part) => part.count)),
    end: parts.find((part) => part.end)?.end,
  };
}
