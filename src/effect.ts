/**
 * What a tool's own key of an effect means: the same effect is not had twice, however often and by whichever call of the thread it is asked
 * for (DESIGN rule 5). A success is remembered and answered again; a failure is not, and may be tried again under the same idempotency key.
 */
import { messageOf } from "./errors.ts";
import { canonical, fingerprintOf } from "./fingerprint.ts";
import { settled, type Tool } from "./tool.ts";
import type { Remembered } from "./frame.ts";

/** An effect that a call is about to have. `args` tells arguments apart; `key` is the idempotency key it goes under, if it had one before. */
export interface Effect {
  id: string;
  args: string;
  key?: string;
}

/** `known`: what to answer instead. `refuse`: why it is not had; `broken`: the tool cannot say which it is. */
export type Judged = Effect | { known: NonNullable<Remembered["result"]> } | { refuse: string } | {
  broken: string;
};

export function judgeEffect(effects: ReadonlyMap<string, Remembered>, tool: Tool, args: unknown): Judged {
  let key: unknown;
  try {
    key = settled(tool.key!(args), "key");
  } catch (error) {
    return { broken: messageOf(error) };
  }
  if (typeof key !== "string" || !key) {
    return { broken: `Tool "${tool.name}": its key() must give a text, and gave ${JSON.stringify(key)}` };
  }
  const effect = { id: `${tool.name} ${key}`, args: fingerprintOf(canonical(args)) };
  const before = effects.get(effect.id);
  if (!before) return effect;
  const same = before.args === effect.args;
  if (before.state === "failed") return same ? { ...effect, key: before.key } : effect;
  if (!same) {
    return {
      refuse: `"${key}" was asked for before with other arguments (${before.args}, now ${effect.args}). ` +
        "If something else is meant, it needs another key; if it is to be changed, use a tool that changes it",
    };
  }
  if (before.state === "done") return { known: before.result! };
  if (before.state === "begun") {
    return { refuse: `"${key}" is under way in another call. Its result will be there later` };
  }
  if (tool.reconcile) return { ...effect, key: before.key };
  return {
    refuse: `"${key}" was asked for before and interrupted: its outcome is unknown. Check what it did`,
  };
}
