/**
 * One turn: one model call, folded into one assistant message and committed. A call that fails is tried again in the same turn; how often is
 * counted in the log, so that a crash does not give it a fresh start (DESIGN rule 7).
 */
import { allowed, inputBound } from "./allowance.ts";
import { contextOf, notSummarised, outgrown, shortened, shortens, summarised } from "./compaction.ts";
import { asksForMore, instruction } from "./decision.ts";
import { offered } from "./deferred.ts";
import { callPath, publicId, turnPath } from "./entry.ts";
import { InputError, messageOf } from "./errors.ts";
import { begin } from "./dispatch.ts";
import { hashOf } from "./fingerprint.ts";
import type { Booking, Part, Step } from "./journal.ts";
import {
  choiceOf,
  conclude,
  fail,
  finish,
  type Loop,
  mailGoesFirst,
  merge,
  modelOf,
  spent,
  unanswered,
} from "./outcome.ts";
import { type AssistantMessage, callsOf, type Message, type UserMessage } from "./message.ts";
import { type Model, ModelError, type ModelReply, type ModelRequest } from "./model.ts";
import { ask } from "./patience.ts";
import type { CallState, Frame } from "./frame.ts";
import { schemaOf } from "./validate.ts";

/** Tries of one turn's model call after the first. */
const maxRetries = 4;
/** The longest that a vendor may ask us to wait; beyond it the run fails rather than sleeps for days (CASES E04). */
const longestWaitMs = 3_600_000;
/** How often to look whether loops beside this one have left something of the run's limits. */
const neighboursMs = 250;

export async function turn(it: Loop, at: Frame): Promise<void> {
  const { journal } = it;
  if (journal.spent) return await journal.park();
  const pause = at.retryAt - journal.now();
  if (pause > 0) {
    return await (pause < journal.leftMs
      ? journal.work(() => journal.sleep(pause))
      : journal.park(at.retryAt));
  }

  const id = publicId(journal.run, turnPath(at.path, at.turn)), first = outgrown(it, at);
  let heard = false;
  try {
    const model = it.models.get(modelOf(it).name), asked = first ? shortened(at) : request(it, at, model);
    const room = await booked(it, at, asked);
    if (room === "not_yet") return;
    const { output: maxOutputTokens, limit } = room ?? {};
    const wanted = room ? { ...asked, maxOutputTokens } : asked;
    journal.countTurn();
    if (first) {
      const reply = await journal.work(() => ask(it, model, wanted));
      const step = summarised(it, at, model.name, reply);
      return void await journal.commit(() => step);
    }
    const menu = hashOf(JSON.stringify(asked.tools));
    if (at.menu !== undefined && at.menu !== menu && !at.retries) {
      journal.warn(
        "menu_changed",
        "The model is shown other tools than before, so its vendor's cache begins anew",
      );
    }
    journal.show(at.path, { message: id, begins: true });
    const reply = await journal.work(async () => {
      const reply = await ask(it, model, wanted, (delta) => {
        heard = true;
        journal.show(at.path, { message: id, delta });
      });
      // Who watches gets the last pieces before the whole.
      await journal.shown();
      return reply;
    });
    const message = {
      role: "assistant",
      id,
      model: model.name,
      at: journal.now(),
      ...withIds(it, at, reply),
    } as const;
    await accept(it, at, message, { limit, menu });
  } catch (error) {
    if (journal.cut) return await journal.park();
    await journal.commit(() => refused(it, at, id, error, { compacting: first, heard }));
  } finally {
    journal.show(at.path, { message: id, ends: true });
  }
}

/** A1. What is booked for a call; undefined: the run has no limits; "not_yet": look again, with what has changed. */
async function booked(it: Loop, at: Frame, asked: ModelRequest): Promise<Booking | undefined | "not_yet"> {
  const { journal } = it, model = modelOf(it).name;
  if (!journal.settings.limits) return undefined;
  const input = inputBound(asked, at, model), already = journal.booking(at.path);
  if (already && already.tokens - already.output >= input) return already;
  let waits = false;
  await journal.commit(() => {
    const answer = allowed(it, at, model, input);
    if (!("code" in answer)) return { change: { count: { book: { frame: at.path, booking: answer } } } };
    // What is booked for loops beside this one may turn out to be too much.
    waits = journal.sharing(at.path);
    return waits ? undefined : fail(journal, answer.code, answer.message);
  });
  if (waits) await journal.work(() => journal.sleep(neighboursMs));
  return "not_yet";
}

function request({ menu, settings }: Loop, at: Frame, model: Model): ModelRequest {
  const { responseFormat } = settings, format = responseFormat && schemaOf(responseFormat);
  const tools = offered(menu, at.loaded).map(({ name, description, parameters }) => ({
    name,
    description,
    parameters: schemaOf(parameters),
  }));
  const native = format !== undefined && model.formats?.(format, tools);
  return {
    system: settings.system,
    messages: native || !asksForMore(settings) ? contextOf(at) : instructed(at, instruction(settings)),
    ...(native ? { responseFormat: format } : {}),
    tools,
    toolChoice: choiceOf(settings, at),
    parallelToolCalls: settings.parallelToolCalls,
  };
}

/**
 * What the run is to end with is said at the end of its prompt, always at the same place, so that vendors' caches go on serving. It is in the
 * settings already, so the log has only what was said.
 */
function instructed(at: Frame, text: string): Message[] {
  const messages = contextOf(at), { prompt } = at;
  const index = messages.findLastIndex(({ id }) => id === prompt);
  if (index < 0) return messages;
  const message = messages[index] as UserMessage, { content } = message;
  const added = typeof content === "string"
    ? `${content}\n\n${text}`
    : [...content, { type: "text" as const, text }];
  return messages.with(index, { ...message, content: added });
}

function withIds(
  { journal }: Loop,
  at: Frame,
  reply: ModelReply,
): Omit<AssistantMessage, "role" | "id" | "model" | "at"> {
  let index = 0;
  const content = reply.content.map((block) =>
    block.type === "tool_call"
      ? { ...block, id: publicId(journal.run, callPath(at.path, at.turn, index++)) }
      : block
  );
  const { stopReason, stopDetail, usage } = reply;
  return { content, stopReason, ...(stopDetail ? { stopDetail } : {}), usage };
}

/** Commits the message with what follows from it at once: its first call's start, or the end. */
async function accept(
  it: Loop,
  at: Frame,
  message: AssistantMessage,
  { limit, menu }: { limit: Booking["limit"]; menu: string },
): Promise<void> {
  const { journal } = it;
  const { role: _role, id, ...body } = message;
  const calls: CallState[] = callsOf(message).map((call, index) => ({
    path: callPath(at.path, at.turn, index),
    call,
    state: "pending",
  }));
  const said: Part = {
    append: [
      journal.entry("assistant", at.path, menu === at.menu ? body : { ...body, menu }, { n: at.turn, id }),
    ],
    count: spent(it, message.model, message.usage),
  };
  const after: Frame = { ...at, message, calls };
  await journal.commit(() => {
    const refusal = ending(message, limit);
    if (refusal) {
      const notRun = calls.map((call) => unanswered(journal, call, "The model's message was refused"));
      const end = "fail" in refusal
        ? fail(journal, refusal.code, refusal.fail).change!
        : finish(it, after, refusal.finish);
      return { change: merge(said, { append: notRun }, end), advances: true };
    }
    if (calls.length) {
      return {
        change: merge(said, { open: cancelledIfOpen(it, calls) }, begin(it, after) ?? {}),
        advances: true,
      };
    }
    return {
      change: said,
      ...(mailGoesFirst(it, after) ? {} : { quiet: conclude(it, after) }),
      advances: true,
    };
  });
}

/** Messages after which nothing is executed, whatever they ask for (CASES B19, B21). */
function ending(
  message: AssistantMessage,
  limit: Booking["limit"],
): { finish: "refusal" } | { fail: string; code: string } | undefined {
  if (message.stopReason === "refusal") return { finish: "refusal" };
  if (message.stopReason === "other") {
    return {
      code: "stop_reason",
      fail: `The model stopped for a reason that is not known here: ${message.stopDetail ?? "none given"}`,
    };
  }
  if (message.stopReason === "length" && limit) {
    return { code: limit, fail: "The model's message was cut where it would have passed the run's limit" };
  }
}

/** From the commit of their message on, all calls have the result ready that a cancel would give them. */
function cancelledIfOpen({ journal }: Loop, calls: CallState[]): Record<string, string> {
  return Object.fromEntries(calls.map((call) => [call.path, "p" + unanswered(journal, call, "Cancelled")]));
}

/**
 * Before try n + 1: what the vendor asked for, else ever longer; a vendor that asks for nothing again and again is not believed (CASES E02).
 * Up to a quarter more, so that runs which failed together do not come back together.
 */
function waitMs(n: number, asked: number | undefined, chance: number): number {
  const own = 1000 * 2 ** (n - 1), least = asked === undefined || n > 1 ? own : 0;
  return Math.ceil(Math.max(asked ?? 0, least) * (1 + chance / 4));
}

/** What a failed model call means: another try later, or by another model, or the end of the run. Nothing of the failed message is kept. */
function refused(
  it: Loop,
  at: Frame,
  id: string,
  error: unknown,
  { compacting, heard }: { compacting: boolean; heard: boolean },
): Step {
  const { journal } = it;
  if (error instanceof InputError) return fail(journal, "model", error.message);
  const failure = error instanceof ModelError ? error : new ModelError("bad_request", messageOf(error));
  if (passes(failure) && !heard && !at.heard && !modelOf(it).isLast) {
    const { code, message } = failure;
    const body = { code, message, until: journal.now(), passes: true };
    return {
      change: {
        append: [journal.entry("retry", at.path, body, { id })],
        // What was booked for the one may be too little for the other.
        count: { unaccounted: 1, ...(failure.free ? { settle: at.path } : { forfeit: at.path }) },
      },
    };
  }
  const shorter = failure.code === "context_overflow" && shortens(at);
  const n = at.retries + 1, wait = shorter ? 0 : waitMs(n, failure.retryAfterMs, journal.chance());
  if (!shorter && (!failure.retryable || n > maxRetries || wait > longestWaitMs)) {
    // Only what the vendor has refused cannot go on as it is.
    if (compacting && !at.overflows) return notSummarised(it, at, failure.message);
    return fail(journal, failure.code, failure.message);
  }
  const { code, message } = failure, until = journal.now() + wait;
  const body = { code, message, until, ...(heard ? { heard } : {}) };
  return {
    change: {
      append: [journal.entry("retry", at.path, body, { n, id })],
      count: { unaccounted: 1, ...(failure.free ? {} : { forfeit: at.path }) },
    },
  };
}

/** Another model may do what this one cannot now: but not what is wrong with the request. */
function passes({ code, retryable }: ModelError): boolean {
  return retryable || code === "auth" || code === "quota";
}
