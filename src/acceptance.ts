/** How something is accepted: into the store, then published; or neither, and the caller is told so (DESIGN rules 2 and 4). */
import { InputError } from "./errors.ts";
import type { Queue } from "./queue.ts";
import type { Store, Submission, Submitted } from "./store.ts";

export type Acceptance = Extract<Submitted, { is: "ok" | "repeat" }>;

const refusals: { [is in Exclude<Submitted["is"], "ok" | "repeat">]: InputError } = {
  conflict: new InputError(
    "conflict",
    "Idempotency-Key: it came before with another request. Use a new key for a new request",
  ),
  busy: new InputError(
    "conflict",
    "The thread has an active run. Wait for its end, or choose another if_busy",
  ),
  closed: new InputError("conflict", "The call waits for no answer any more"),
  full: new InputError(
    "too_many",
    "64 messages or 1 MB wait on this thread. Try again when the run has taken some",
  ),
  unknown: new InputError("not_found", "There is no such run"),
};

/**
 * Throws InputError: what the store refused, or "unavailable" when it or the queue did not answer. `busy` says why the thread must not be
 * busy, where that is not the caller's own if_busy.
 */
export async function accept(
  store: Store,
  queue: Queue,
  submission: Submission,
  busy?: string,
): Promise<Acceptance> {
  const answer = await store.submit(submission).catch((error) => {
    throw unavailable("The store did not answer", error);
  });
  if (answer.is === "busy" && busy) throw new InputError("conflict", busy);
  if (answer.is !== "ok" && answer.is !== "repeat") throw refusal(answer.is);
  if (answer.publish) {
    await queue.publish(answer.publish).catch(async (error) => {
      // Mail that cannot be withdrawn has been seen: then it was delivered after all. An answer to a call stays where it is; its repeat
      // publishes again.
      const seen = answer.is === "ok" && submission.mail &&
        !await store.withdraw(submission).catch(() => true);
      if (!seen) throw unavailable("The queue did not take it", error);
    });
  }
  return answer;
}

/** Made anew each time, for its stack. */
export function refusal(is: keyof typeof refusals): InputError {
  const { code, message } = refusals[is];
  return new InputError(code, message);
}

function unavailable(what: string, cause: unknown): InputError {
  const error = new InputError(
    "unavailable",
    `${what}; nothing was accepted. Repeat the same request, with the same Idempotency-Key if it had one`,
  );
  error.cause = cause;
  return error;
}
