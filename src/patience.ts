/** A model call that is given up when nothing comes: a connection can be lost without anybody noticing it. */
import type { Journal } from "./journal.ts";
import { type Delta, type Model, ModelError, type ModelReply, type ModelRequest } from "./model.ts";

/** How long a model may send nothing: before the first sign of it, and between two. */
export interface Patience {
  firstMs: number;
  idleMs: number;
}

/** Models that think for minutes without a word begin their stream at once. */
export const defaultPatience: Patience = { firstMs: 120_000, idleMs: 300_000 };

/**
 * One try. Rejects with a ModelError of the code "timeout" when patience is at its end, and "aborted" when the slice is, also where the model
 * does not listen to its signal. What it says after that is not heard.
 */
export async function ask(
  { journal, patience }: { journal: Journal; patience: Patience },
  model: Model,
  request: ModelRequest,
  onDelta: (delta: Delta) => void = () => {},
): Promise<ModelReply> {
  const over = new AbortController(), begun = new AbortController();
  let heardAt = journal.now();
  const onSign = () => {
    heardAt = journal.now();
    begun.abort(null);
  };
  const reply = model.reply(request, {
    signal: AbortSignal.any([journal.signal, over.signal]),
    onSign,
    onDelta: (delta) => {
      onSign();
      if (!over.signal.aborted) onDelta(delta);
    },
  });
  const watch = async (): Promise<never> => {
    for (;;) {
      const idle = begun.signal.aborted, limit = idle ? patience.idleMs : patience.firstMs;
      const left = heardAt + limit - journal.now();
      if (left <= 0) throw new ModelError("timeout", `${model.name}: it sent nothing for ${limit / 1000} s`);
      await journal.sleep(left, idle ? over.signal : AbortSignal.any([over.signal, begun.signal]));
      if (journal.signal.aborted) throw new ModelError("aborted", `${model.name}: aborted`);
      if (over.signal.aborted) return await new Promise<never>(() => {});
    }
  };
  try {
    return await Promise.race([reply, watch()]);
  } catch (error) {
    if (error instanceof ModelError) error.begun = begun.signal.aborted;
    throw error;
  } finally {
    over.abort(null);
  }
}
