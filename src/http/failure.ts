/** What went wrong, as an answer: `{"error":{"code","message","details?"}}`. */
import { FatalError, InputError, RetryableError } from "../errors.ts";

export interface Failure {
  error: { code: string; message: string; details?: unknown };
}

/** The answer to anything that was thrown. What is no fault of the caller is "internal" and says nothing of the inside. */
export function failed(thrown: unknown): Response {
  if (thrown instanceof InputError) {
    const { code, message, details, status } = thrown;
    const headers: Record<string, string> = status === 401
      ? { "www-authenticate": "Bearer" }
      : status === 503 || status === 429
      ? { "retry-after": "1" }
      : {};
    return failure(status, { code, message, details }, headers);
  }
  if (thrown instanceof RetryableError) {
    const seconds = Math.max(1, Math.ceil((thrown.retryAfterMs ?? 1000) / 1000));
    return failure(503, { code: "unavailable", message: "The service cannot do this now; try again" }, {
      "retry-after": String(seconds),
    });
  }
  // Bodies of what another version wrote may be anything, so only that it is so is told.
  const message = thrown instanceof FatalError && thrown.code === "schema"
    ? "Another version of Pawl wrote this, and it is not guessed at. Run that version, or a newer one"
    : "The service failed; its operator finds the reason in its log";
  return failure(500, { code: "internal", message });
}

/** Whether an operator should hear of it. */
export function isUnexpected(thrown: unknown): boolean {
  return !(thrown instanceof InputError);
}

export function failure(status: number, error: Failure["error"], headers?: Record<string, string>): Response {
  return Response.json({ error } satisfies Failure, {
    status,
    headers: { "cache-control": "no-store", ...headers },
  });
}
