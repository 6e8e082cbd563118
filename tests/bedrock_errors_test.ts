/** What Bedrock's errors say: by a header, in a body, or as an exception in a stream that began with 200. */
import assert from "node:assert/strict";
import { bedrock } from "../providers/bedrock.ts";
import { asking, refusal, replyTo } from "./contract/model.ts";
import { credentials, delta, exception, frame } from "./support/bedrock_dialect.ts";
import { byteServer } from "./support/byte_server.ts";
import { dialect } from "./support/dialect.ts";

const each = dialect("bedrock");
const json = { "content-type": "application/json" };

const errors = [
  [429, "ThrottlingException", "Too many requests, please wait.", "rate_limit"],
  [429, "ThrottlingException", "Too many tokens per day, please wait before trying again.", "quota"],
  [400, "ServiceQuotaExceededException", "Your request exceeds a quota.", "quota"],
  [424, "ModelErrorException", "The model failed.", "server"],
  [424, "ModelStreamErrorException", "The model's stream failed.", "server"],
  [408, "ModelTimeoutException", "The model took too long.", "server"],
  [500, "InternalServerException", "Internal.", "server"],
  [503, "ServiceUnavailableException", "Bedrock is unable to process your request.", "overloaded"],
  [403, "AccessDeniedException", "You don't have access to the model.", "auth"],
  [403, "UnrecognizedClientException", "The security token is invalid.", "auth"],
  [400, "ExpiredTokenException", "The security token is expired.", "auth"],
  [404, "ResourceNotFoundException", "Could not resolve the model.", "bad_request"],
  [400, "ValidationException", "The toolConfig field must be defined.", "bad_request"],
  [400, "ValidationException", "Input is too long for requested model.", "context_overflow"],
  [
    400,
    "ValidationException",
    "The model returned the following errors: prompt is too long: 201000 tokens > 200000 maximum",
    "context_overflow",
  ],
  [
    400,
    "ValidationException",
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
    "context_overflow",
  ],
] as const;

Deno.test("bedrock: what its errors say, by header, body and in a stream (CASES B11, E04, E06)", async () => {
  for (const [status, type, message, expected] of errors) {
    const camel = type[0]!.toLowerCase() + type.slice(1), text = delta(0, { text: "Half" });
    const body = JSON.stringify({ message });
    const scripts = [
      {
        status,
        headers: { ...json, "x-amzn-errortype": `${type}:http://internal.amazon.com/` },
        chunks: [body],
      },
      { status, headers: json, chunks: [JSON.stringify({ __type: `com.amazon.coral#${type}`, message })] },
      {
        status,
        headers: { ...json, "x-amzn-errortype": type },
        chunks: [JSON.stringify({ Message: message })],
      },
      { chunks: [text, exception(camel, { message })] },
      { chunks: [frame({ "message-type": "error", "error-code": type, "error-message": message }, "")] },
    ];
    for (const script of scripts) {
      const refused = await refusal(replyTo(each, script));
      assert.equal(refused.code, expected, `${type}: ${refused.message}`);
      assert.ok(refused.message.endsWith(message), refused.message);
    }
  }
});

Deno.test("bedrock: an error that nobody knows is the vendor's; one without a text is named", async () => {
  const unknown = await refusal(
    replyTo(each, { chunks: [exception("brandNewException", { message: "it broke" })] }),
  );
  assert.deepEqual([unknown.code, unknown.retryable], ["server", true]);
  const mute = await refusal(replyTo(each, { chunks: [exception("internalServerException", {})] }));
  assert.deepEqual([mute.code, mute.message], ["server", "bedrock/m: InternalServerException"]);
  const status = { status: 403, headers: { "x-amzn-errortype": "AccessDeniedException" }, chunks: [] };
  assert.match((await refusal(replyTo(each, status))).message, /AccessDeniedException/);
});

Deno.test("bedrock: neither secret nor session token is in an error that spells out what was signed (CASES H06)", async () => {
  await using server = byteServer();
  const secretAccessKey = "SEKRIT/1+", sessionToken = "SEKRIT/2==";
  const message =
    `The Canonical String should have been 'x-amz-security-token:${sessionToken}' ${secretAccessKey}`;
  server.play({ status: 403, headers: json, chunks: [JSON.stringify({ message })] });
  const options = { ...credentials(""), secretAccessKey, sessionToken, baseURL: server.url };
  const { signal } = new AbortController();
  const error = await refusal(bedrock("bedrock/m", options).reply(asking(), { signal, onDelta() {} }));
  assert.equal(error.code, "auth");
  assert.match(error.message, /security-token:\*\*\*' \*\*\*/);
  assert.doesNotMatch(Deno.inspect(error) + JSON.stringify(error), /SEKRIT/);
});
