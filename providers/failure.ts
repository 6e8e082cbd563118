/**
 * Sorts everything that can go wrong with a model call into the codes of ModelError: whatever an SDK throws, and errors that come inside
 * a stream which began with 200. It knows no SDK class, only their common shape, so a vendor's file need not load another's SDK.
 */
import { systemClock } from "../src/clock.ts";
import { messageOf } from "../src/errors.ts";
import { ModelError, type ModelErrorCode } from "../src/model.ts";

export interface Caller {
  /** "vendor/model", to say whose error it is. */
  name: string;
  /** What no message may hold. */
  apiKey: string | readonly string[];
  signal?: AbortSignal;
}

/** What the errors of both SDKs have in common. `error` is the body, or its `error` member. */
interface Thrown {
  status?: number;
  headers?: Headers;
  error?: unknown;
}

/** HTML pages of gateways come here too; a run's error is no place for them. */
const longestMessage = 1000;

/** Never throws, and never lets the API key into the message (CASES H06); for that reason it keeps no `cause`. */
export function failure(thrown: unknown, { name, apiKey, signal }: Caller): ModelError {
  if (signal?.aborted) return new ModelError("aborted", `${name}: aborted`);
  if (thrown instanceof ModelError) {
    return new ModelError(thrown.code, say(thrown.message), thrown.retryAfterMs);
  }
  const { status, headers, error } = (thrown ?? {}) as Thrown;
  const text = textOf(thrown);
  const code = codeOf(status, error, text), now = systemClock.now();
  let wait = code === "quota" || !headers ? undefined : retryAfterMs(headers, now);
  if (code === "rate_limit") wait ??= (headers && resetMs(headers, now)) ?? toldMs(error, text);
  return new ModelError(code, say(text), wait);

  function say(text: string): string {
    const safe = [apiKey].flat().filter(Boolean).reduce(
      (text, key) => text.replaceAll(key, "***").replaceAll(encodeURIComponent(key), "***"),
      text,
    );
    const short = safe.length > longestMessage ? safe.slice(0, longestMessage).toWellFormed() + "…" : safe;
    return short.startsWith(`${name}: `) ? short : `${name}: ${short}`;
  }
}

/** The vendor's message, else what the error and its causes say: the SDKs say "Connection error." and hide what happened below. */
function textOf(thrown: unknown): string {
  const { status, error } = (thrown ?? {}) as Thrown;
  const { message, error: inner } = (error ?? {}) as { message?: unknown; error?: { message?: unknown } };
  const said = inner?.message ?? message;
  if (typeof said === "string" && said) return status ? `${status} ${said}` : said;
  const texts = new Set<string>();
  for (let at = thrown, depth = 0; at !== undefined && depth < 4; depth++) {
    texts.add(messageOf(at));
    at = at instanceof Error ? at.cause : undefined;
  }
  return [...texts].join(": ");
}

/** The vendor's own words for an error: type, code, status and reasons, wherever the body holds them. */
function wordsOf(body: unknown): string[] {
  const outer = (body ?? {}) as Record<string, unknown>;
  const inner = (outer.error ?? {}) as Record<string, unknown>;
  const reasons = detailsOf(body).map(({ reason }) => reason);
  return [inner.code, inner.type, outer.code, outer.type, inner.status, outer.status, ...reasons]
    .filter((word) => typeof word === "string" || typeof word === "number").map(String);
}

/** What Google says of an error besides: https://cloud.google.com/apis/design/errors#error_details */
interface Detail {
  reason?: unknown;
  violations?: { quotaId?: unknown }[];
}

function detailsOf(body: unknown): Detail[] {
  const { details, error } = (body ?? {}) as { details?: unknown; error?: { details?: unknown } };
  const given = details ?? error?.details;
  return Array.isArray(given) ? given.filter((detail) => typeof detail === "object" && detail !== null) : [];
}

/** A quota that is not filled up again within the hour: one of the day, or one of nothing. */
function spent(body: unknown, message: string): boolean {
  return detailsOf(body).some(({ violations }) =>
    Array.isArray(violations) && violations.some((violation) => /PerDay/.test(String(violation?.quotaId)))
  ) || /quota exceeded.*\blimit: 0\b|credits are depleted/is.test(message);
}

/**
 * Only words that a vendor documents are matched, and texts only where there is no word: "token" or "context" alone would send
 * "invalid token context" of a 401 down the way of compaction (CASES E06).
 * https://platform.openai.com/docs/guides/error-codes, https://platform.claude.com/docs/en/api/errors,
 * https://ai.google.dev/gemini-api/docs/troubleshooting,
 * https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html#API_runtime_ConverseStream_Errors
 */
function codeOf(status: number | undefined, error: unknown, message: string): ModelErrorCode {
  const words = wordsOf(error);
  const said = (...known: string[]) => words.some((word) => known.includes(word));
  // Days, not seconds: a quota looks like a rate limit but is not worth waiting for (CASES E04).
  if (
    said("insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error") ||
    said("BILLING_DISABLED", "ServiceQuotaExceededException") ||
    (said("RESOURCE_EXHAUSTED") && spent(error, message)) ||
    (said("ThrottlingException") && /per day/i.test(message))
  ) {
    return "quota";
  }
  // Comes with status 400.
  if (said("API_KEY_INVALID", "ExpiredTokenException")) return "auth";
  if (said("content_policy_violation", "content_filter")) return "content_policy";
  if (said("context_length_exceeded", "request_too_large", "exceed_context_size_error")) {
    return "context_overflow";
  }
  if (status === undefined) {
    for (const [code, known] of wordsInStream) {
      if (said(...known)) return code === "bad_request" ? refusedFor(message) : code;
    }
    status = words.map(Number).find((number) => number >= 400 && number < 600);
  }
  if (status === undefined) {
    if (words.some((word) => word.startsWith("invalid_"))) return refusedFor(message);
    return error === undefined ? "network" : "server";
  }
  if (status === 401 || status === 403) return "auth";
  if (status === 402) return "quota";
  if (status === 413) return "context_overflow";
  if (status === 429) return "rate_limit";
  if (status === 503 || status === 529) return "overloaded";
  // 424: a model of Bedrock's failed.
  if ([408, 409, 424, 499].includes(status) || status >= 500) return "server";
  return refusedFor(message);
}

/** What is wrong with a request, where only the vendor's text tells. */
function refusedFor(message: string): ModelErrorCode {
  if (/credit balance is too low/i.test(message)) return "quota";
  return tooLong.test(message) ? "context_overflow" : "bad_request";
}

/** In the words of Anthropic, OpenAI and its kin, llama.cpp, Gemini and Bedrock. */
const tooLong = new RegExp(
  [
    "prompt is too long|input is too long for requested model|reduce the length of the (messages|prompt|input)",
    "maximum context length|exceeds? the (available )?context (window|size)|context window exceeded",
    "exceed context limit|input token count \\(?\\d+\\)? exceeds the maximum",
    "number of input tokens exceeds maximum length",
  ].join("|"),
  "i",
);

/** Errors inside a stream have no status of their own (CASES B11, B12). */
const wordsInStream: [ModelErrorCode, string[]][] = [
  ["overloaded", [
    "overloaded_error",
    "server_is_overloaded",
    "slow_down",
    "UNAVAILABLE",
    "ServiceUnavailableException",
  ]],
  ["rate_limit", ["rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "ThrottlingException"]],
  ["auth", [
    "authentication_error",
    "permission_error",
    "invalid_api_key",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "AccessDeniedException",
    "UnrecognizedClientException",
  ]],
  ["bad_request", [
    "invalid_request_error",
    "not_found_error",
    "invalid_prompt",
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "NOT_FOUND",
    "ValidationException",
    "ResourceNotFoundException",
  ]],
  ["server", ["api_error", "server_error", "timeout_error"]],
];

/**
 * How long the vendor asks us to wait: `retry-after-ms`, else `retry-after` as seconds or as an HTTP date. What is neither is ignored,
 * as if nothing had been asked (CASES E02).
 */
export function retryAfterMs(headers: Headers, now: number): number | undefined {
  const ms = number(headers.get("retry-after-ms"));
  if (ms !== undefined) return Math.ceil(ms);
  const after = headers.get("retry-after")?.trim();
  const seconds = number(after);
  if (seconds !== undefined) return Math.ceil(seconds * 1000);
  const date = dated(after);
  return date === undefined ? undefined : Math.max(0, date - now);
}

function number(text: string | null | undefined): number | undefined {
  return text && /^\d+(\.\d+)?$/.test(text.trim()) ? Number(text) : undefined;
}

/** The three forms of HTTP, and that of RFC 3339. Date.parse alone takes "-3" and "1.5" for years. */
function dated(text: string | null | undefined): number | undefined {
  if (!text || !/^([A-Z][a-z]+, |[A-Z][a-z]{2} [A-Z]|\d{4}-\d\d-\d\dT)/.test(text)) return undefined;
  const date = Date.parse(/^[A-Z][a-z]{2} /.test(text) ? `${text} GMT` : text);
  return Number.isNaN(date) ? undefined : date;
}

/**
 * When a limit that is used up begins anew, from headers that come with answers of every kind; so they are asked only where a limit was hit,
 * and only of those that have nothing left. The longest counts.
 * https://platform.openai.com/docs/guides/rate-limits, https://platform.claude.com/docs/en/api/rate-limits
 */
function resetMs(headers: Headers, now: number): number | undefined {
  const waits: number[] = [];
  for (const [name, text] of headers) {
    if (!/ratelimit-(.*-)?reset/.test(name)) continue;
    const left = headers.get(name.replace("reset", "remaining"));
    const wait = left === null || Number(left) === 0 ? untilReset(text.trim(), now) : undefined;
    if (wait !== undefined && wait > 0) waits.push(Math.ceil(wait));
  }
  return waits.length ? Math.max(...waits) : undefined;
}

/** As a date, a duration, seconds from now, or as Unix time in seconds or milliseconds. */
function untilReset(text: string, now: number): number | undefined {
  const date = dated(text), count = number(text);
  if (date !== undefined) return date - now;
  if (count === undefined) return durationMs(text);
  return count > 1e11 ? count - now : count > 1e8 ? count * 1000 - now : count * 1000;
}

/** "20ms", "1.5s", "6m0s", "1h2m" */
function durationMs(text: string): number | undefined {
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined;
  const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  return [...text.matchAll(/([\d.]+)(ms|s|m|h|d)/g)]
    .reduce((sum, [, count, unit]) => sum + Number(count) * units[unit as keyof typeof units], 0);
}

/** Gemini says it in the body, OpenAI in its text too, which is all that there is inside a stream. */
function toldMs(error: unknown, text: string): number | undefined {
  const delay = /"retryDelay":"([^"]{1,40})"/.exec(JSON.stringify(error ?? null))?.[1] ??
    /try again in ((?:[\d.]{1,12}(?:ms|s|m|h|d))+)/i.exec(text)?.[1];
  const wait = delay === undefined ? undefined : durationMs(delay);
  return wait === undefined ? undefined : Math.ceil(wait);
}
