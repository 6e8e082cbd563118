/**
 * The journal of what an agentic function's body opens. It is over when the function's call is, however that came: by its body's end while
 * something inside still ran, or because its time was up. From then on all that is inside stands still and writes nothing, as when the slice
 * is over (S2); its open calls get their results with that of the function.
 */
import type { Journal } from "./journal.ts";

/** `until`: when the function's time is up; nothing inside waits longer. `over` aborts when its call is over. */
export function enclosure(journal: Journal, until: number, over: AbortSignal): Journal {
  const signal = AbortSignal.any([journal.signal, over]);
  const whileOpen = async <T>(what: () => Promise<T>): Promise<T> => {
    const value = over.aborted ? undefined : await what();
    return over.aborted ? await new Promise<never>(() => {}) : value as T;
  };
  const streaming = new Map<string, string>();
  over.addEventListener("abort", () => {
    for (const [message, frame] of streaming) journal.show(frame, { message, ends: true });
  });
  // What is not named here is the journal's own, its present state too.
  return Object.assign(
    Object.create(journal) as Journal,
    {
      signal,
      commit: (decide) => whileOpen(() => journal.commit(() => over.aborted ? undefined : decide())),
      work: (body) => whileOpen(() => journal.work(body)),
      park: (moment) => whileOpen(() => journal.park(moment && Math.min(moment, until))),
      sleep: (ms, other) => journal.sleep(ms, other ? AbortSignal.any([other, over]) : over),
      show: (frame, piece) => {
        if (over.aborted) return;
        if ("begins" in piece) streaming.set(piece.message, frame);
        if ("ends" in piece) streaming.delete(piece.message);
        journal.show(frame, piece);
      },
    } satisfies Partial<Journal>,
  );
}
