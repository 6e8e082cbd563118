/**
 * Failures, sorted by who must act. What is not here is not an error: a tool that fails is a result for the model;
 * waiting, running out of budget and being cancelled are outcomes.
 */

/** What was wrong with a request; the HTTP face answers it with the status beside it. */
const statusOf = {
  bad_input: 400,
  unauthorized: 401,
  not_found: 404,
  conflict: 409,
  too_large: 413,
  too_many: 429,
  unavailable: 503,
} as const;

export type InputCode = keyof typeof statusOf;

/** The caller must act: the input is wrong, or the state does not allow it. Nothing was changed. */
export class InputError extends Error {
  override name = "InputError";
  readonly status: (typeof statusOf)[InputCode];
  constructor(readonly code: InputCode, message: string, readonly details?: unknown) {
    super(message);
    this.status = statusOf[code];
  }
}

/** The queue must act: bring the delivery again. Nothing is lost by it. */
export class RetryableError extends Error {
  override name = "RetryableError";
  constructor(message: string, readonly retryAfterMs?: number, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The operator must act: a setting, a schema version or the code is wrong. */
export class FatalError extends Error {
  override name = "FatalError";
  constructor(readonly code: string, message: string, options?: ErrorOptions) {
    super(message, options);
  }
}

/** Nobody must act: another slice advances the run now, or it was cancelled or deleted. Whoever gets this stops at once. */
export class LeaseLostError extends Error {
  override name = "LeaseLostError";
  constructor() {
    super("The lease on this run is lost");
  }
}

/** The author of an agentic function must act: its body did not ask for the same things in the same way as last time. */
export class ReplayError extends Error {
  override name = "ReplayError";
}

/** Whoever called `exec` must act: the run ended without a result. `code` is the run's: auth, attempts, cancelled, … */
export class RunFailedError extends Error {
  override name = "RunFailedError";
  constructor(readonly code: string, message: string, readonly run: string) {
    super(message);
  }
}

/** The text of anything that was thrown; never empty. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message || thrown.name;
  return String(thrown) || "unknown error";
}
