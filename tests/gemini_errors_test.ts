/** What Gemini's errors say: in the body alone, whether by status or in a stream. */
import assert from "node:assert/strict";
import { refusal, replyTo } from "./contract/model.ts";
import { dialect } from "./support/dialect.ts";
import { partsChunk } from "./support/gemini_dialect.ts";

const each = dialect("gemini");
const json = { "content-type": "application/json" };
const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`;

const detail = (type: string, more: object) => ({
  "@type": `type.googleapis.com/google.rpc.${type}`,
  ...more,
});
const exceeded = (quotaId: string) => detail("QuotaFailure", { violations: [{ quotaId, quotaValue: "20" }] });
const retry = detail("RetryInfo", { retryDelay: "36.5s" });
const perMinute = exceeded("GenerateRequestsPerMinutePerProjectPerModel-FreeTier");
const perDay = exceeded("GenerateRequestsPerDayPerProjectPerModel-FreeTier");
const boilerplate = "You exceeded your current quota, please check your plan and billing details.";

Deno.test("gemini: what its errors say, by status and in a stream (CASES B11, E02, E04, E06)", async () => {
  const errors = [
    [429, "RESOURCE_EXHAUSTED", boilerplate, [perMinute, retry], "rate_limit", 36500],
    [429, "RESOURCE_EXHAUSTED", boilerplate, [], "rate_limit", undefined],
    [429, "RESOURCE_EXHAUSTED", boilerplate, [perDay, retry], "quota", undefined],
    [
      429,
      "RESOURCE_EXHAUSTED",
      `${boilerplate}\n* Quota exceeded for metric: x, limit: 0`,
      [retry],
      "quota",
      undefined,
    ],
    [429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: x, limit: 20", [retry], "rate_limit", 36500],
    [503, "UNAVAILABLE", "The model is overloaded.", [], "overloaded", undefined],
    [500, "INTERNAL", "An internal error has occurred.", [], "server", undefined],
    [504, "DEADLINE_EXCEEDED", "Deadline expired.", [], "server", undefined],
    [499, "CANCELLED", "The operation was cancelled.", [], "server", undefined],
    [
      400,
      "INVALID_ARGUMENT",
      "API key not valid.",
      [detail("ErrorInfo", { reason: "API_KEY_INVALID" })],
      "auth",
      undefined,
    ],
    [403, "PERMISSION_DENIED", "Not yours.", [], "auth", undefined],
    [
      400,
      "INVALID_ARGUMENT",
      "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
      [],
      "context_overflow",
      undefined,
    ],
    [400, "INVALID_ARGUMENT", "Please ensure that function call turn comes", [], "bad_request", undefined],
    [404, "NOT_FOUND", "models/x is not found", [], "bad_request", undefined],
  ] as const;
  for (const [code, status, message, details, expected, retryAfterMs] of errors) {
    const error = { error: { code, message, status, details } };
    const scripts = [
      { status: code, headers: json, chunks: [JSON.stringify(error)] },
      { status: code, headers: json, chunks: [JSON.stringify([error])] },
      { chunks: [partsChunk(['{"text":"Half"}']), event(error)] },
      { headers: json, chunks: [JSON.stringify(error)] },
    ];
    for (const script of scripts) {
      const refused = await refusal(replyTo(each, script));
      assert.deepEqual([refused.code, refused.retryAfterMs], [expected, retryAfterMs], message);
      assert.ok(refused.message.endsWith(message), refused.message);
    }
  }
});

Deno.test("gemini: an error in a stream that has no number is known by its word", async () => {
  const words = [
    ["UNAVAILABLE", "overloaded"],
    ["RESOURCE_EXHAUSTED", "rate_limit"],
    [
      "UNAUTHENTICATED",
      "auth",
    ],
    ["INVALID_ARGUMENT", "bad_request"],
    ["BRAND_NEW", "server"],
  ] as const;
  for (const [status, expected] of words) {
    const refused = await refusal(
      replyTo(each, { chunks: [event({ error: { status, message: "it broke" } })] }),
    );
    assert.equal(refused.code, expected);
  }
});
