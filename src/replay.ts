/**
 * What the body of an agentic function stands on: `exec` and `step`, found in the log by path when the body runs again from its start.
 *
 * R1. A key names one thing: what is open at the same time needs different keys, since position means nothing there (H6).
 * R2. What is in the log is never done again; the first thing that is not goes on.
 * R3. A body that asks for something else than last time gets a ReplayError, which becomes its call's result.
 */
import { resultOf, settingsOf, type Wanted } from "./asking.ts";
import type { Asked } from "./decision.ts";
import { publicId, type Returned } from "./entry.ts";
import { ReplayError } from "./errors.ts";
import { aborted } from "./execute.ts";
import { canonical, fingerprintOf } from "./fingerprint.ts";
import type { Journal } from "./journal.ts";
import { loop } from "./loop.ts";
import type { UserBlock } from "./message.ts";
import { withPossibleChoice } from "./offer.ts";
import type { Loop } from "./outcome.ts";
import type { AgenticContext, ExecOptions } from "./tool.ts";
import type { CallState } from "./frame.ts";

type Content = string | UserBlock[];

/** Results of steps are kept in the log; larger ones belong elsewhere. */
const maxStepLength = 256 * 1024;

export function nested(call: CallState, outer: Loop): Pick<AgenticContext, "exec" | "step"> {
  const { journal } = outer;
  const names = new Names(call);
  return {
    exec: (async (content: Content, options: ExecOptions & Wanted = {}) => {
      const key = names.take("exec", options.key);
      const frame = `${call.path}/${key}`;
      let returned: Returned;
      try {
        const asked = settingsOf(options), inner = narrowed(outer, asked, frame);
        await enter(journal, frame, fingerprintOf(canonical({ content, ...asked })), content);
        returned = await loop({ ...outer, ...inner, frame });
      } finally {
        names.give(key);
      }
      return await resultOf(options, returned, journal.run);
    }) as AgenticContext["exec"],
    step: async (name, body) => {
      const key = names.take("step", name);
      try {
        return await step(journal, `${call.path}/${key}`, body);
      } finally {
        names.give(key);
      }
    },
  };
}

async function enter(
  journal: Journal,
  frame: string,
  fingerprint: string,
  content: Content,
): Promise<void> {
  const known = journal.transcript.frame(frame);
  if (known && known.fingerprint !== fingerprint) {
    throw new ReplayError(
      `Replay "${frame}": the function asked for ${fingerprint}, but last time for ${known.fingerprint}. ` +
        `Its body must ask for the same things each time; what changes belongs into a step`,
    );
  }
  if (known) return;
  const id = `${publicId(journal.run, frame)}-prompt`;
  await journal.commit(() => ({
    change: {
      append: [
        journal.entry("enter", frame, { fingerprint }),
        journal.entry("turn", frame, {}, { n: 1 }),
        journal.entry("user", frame, { content, at: journal.now() }, { n: 1, id }),
      ],
    },
  }));
}

async function step<T>(journal: Journal, path: string, body: () => Promise<T> | T): Promise<T> {
  const known = journal.transcript.steps.get(path);
  if (known) return known.value as T;
  if (journal.spent) await stopHere(journal);
  // A step that never ends may not keep the slice from ending.
  const over = new AbortController(), givenUp = aborted(journal.signal, over.signal).then(() => over);
  const value = await journal.work(() => Promise.race([(async () => await body())(), givenUp]))
    .finally(() => over.abort(null));
  if (value === over) return await stopHere(journal);
  const text = JSON.stringify(value);
  if (text && text.length > maxStepLength) {
    throw new ReplayError(
      `Step "${path}": its value has ${text.length} characters, more than ${maxStepLength}. Return a reference to it`,
    );
  }
  await journal.commit(() => ({
    change: { append: [journal.entry("step", path, { value })] },
    advances: true,
  }));
  // What a later slice will see is what this one sees: the value after its way through JSON.
  return (text === undefined ? undefined : JSON.parse(text)) as T;
}

async function stopHere(journal: Journal): Promise<never> {
  for (;;) await journal.park();
}

/** A nested loop inherits all but how the outer one chooses tools; its menu only narrows. */
function narrowed(
  { journal, settings, menu: outer, narrow }: Loop,
  { key: _key, ...options }: ExecOptions & Asked,
  frame: string,
): Pick<Loop, "settings" | "menu"> {
  const menu = narrow(outer, options, () => journal.transcript.frame(frame)!.loaded);
  const { model, system, parallelToolCalls, steering, steeringMode } = settings;
  const own = { model, system, parallelToolCalls, steering, steeringMode, ...options };
  return { menu, settings: withPossibleChoice(own, menu.tools) };
}

/** R1. Keys of one call's body: those in use, and how often each was used one after another. */
class Names {
  readonly #open = new Set<string>();
  readonly #used = new Map<string, number>();
  constructor(readonly call: CallState) {}

  take(kind: "exec" | "step", wanted?: string): string {
    // Spelled so that it holds neither "/" nor "#", which stand for more.
    const base = encodeURIComponent(wanted ?? kind);
    if ([...this.#open].some((key) => key === base || key.startsWith(`${base}#`))) {
      throw new ReplayError(
        `Two calls of ${kind} are open at the same time under the key "${base}" in "${this.call.call.name}" (${this.call.path}). ` +
          `Give each its own: ${kind === "exec" ? "exec(…, { key })" : "step(name, …)"}`,
      );
    }
    const n = (this.#used.get(base) ?? 0) + 1;
    this.#used.set(base, n);
    const key = n === 1 ? base : `${base}#${n}`;
    this.#open.add(key);
    return key;
  }

  give(key: string): void {
    this.#open.delete(key);
  }
}
