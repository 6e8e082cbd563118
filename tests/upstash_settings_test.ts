/** Settings of Upstash and QStash: complete or absent, and never a start with half of them. */
import assert from "node:assert/strict";
import { deploymentFrom } from "../src/environment.ts";
import { command } from "./support/service.ts";

const whole = {
  UPSTASH_REDIS_REST_URL: "https://redis.example",
  UPSTASH_REDIS_REST_TOKEN: "redis-secret",
  QSTASH_URL: "https://qstash-us-east-1.upstash.io/",
  QSTASH_TOKEN: "qstash-secret",
  QSTASH_CURRENT_SIGNING_KEY: "sig-secret-1",
  QSTASH_NEXT_SIGNING_KEY: "sig-secret-2",
  PAWL_PUBLIC_URL: "https://pawl.example/",
  PAWL_API_KEYS: "acme:key",
};

Deno.test("all settings of Upstash and QStash make one choice, none make the other", () => {
  assert.deepEqual(deploymentFrom(whole).upstash, {
    redis: { url: "https://redis.example", token: "redis-secret" },
    qstash: {
      token: "qstash-secret",
      url: "https://qstash-us-east-1.upstash.io",
      currentSigningKey: "sig-secret-1",
      nextSigningKey: "sig-secret-2",
      publicUrl: "https://pawl.example",
    },
  });
  assert.equal(deploymentFrom({ ...whole, QSTASH_URL: "" }).upstash!.qstash.url, undefined);
  assert.ok(!("upstash" in deploymentFrom({ PAWL_API_KEYS: "acme:key", QSTASH_TOKEN: "" })));
});

/** Refused with one line that names the setting, and no value. */
function refused(env: Record<string, string | undefined>, name: string): void {
  assert.throws(() => deploymentFrom(env), (error: Error) => {
    assert.equal(error.name, "FatalError");
    assert.match(error.message, new RegExp(`^${name}: [^\n]+$`));
    assert.doesNotMatch(error.message, /secret|example/);
    return true;
  });
}

Deno.test("whichever is missing is named", () => {
  for (const name of Object.keys(whole)) {
    if (name !== "QSTASH_URL") refused({ ...whole, [name]: "" }, name);
  }
  const { PAWL_PUBLIC_URL, QSTASH_URL, UPSTASH_REDIS_REST_TOKEN } = whole;
  refused({ PAWL_PUBLIC_URL }, "QSTASH_TOKEN");
  refused({ QSTASH_URL }, "QSTASH_TOKEN");
  refused({ UPSTASH_REDIS_REST_TOKEN }, "UPSTASH_REDIS_REST_URL");
});

Deno.test("Upstash Redis without QStash is refused, and QStash without Upstash Redis", () => {
  const { UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN, ...qstash } = whole;
  refused(qstash, "UPSTASH_REDIS_REST_URL");
  refused({ UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN, PAWL_API_KEYS: "acme:key" }, "QSTASH_TOKEN");
});

Deno.test("addresses must keep secrets, and what was pasted must be whole", () => {
  for (
    const url of [
      "http://pawl.example",
      "pawl.example",
      "https://a:b@pawl.example",
      "https://pawl.example/?x=1",
      "ftp://127.0.0.1",
    ]
  ) refused({ ...whole, PAWL_PUBLIC_URL: url }, "PAWL_PUBLIC_URL");
  refused({ ...whole, QSTASH_URL: "http://qstash.example" }, "QSTASH_URL");
  refused({ ...whole, UPSTASH_REDIS_REST_URL: "redis://redis.example" }, "UPSTASH_REDIS_REST_URL");
  refused({ ...whole, QSTASH_TOKEN: "qstash-secret\n" }, "QSTASH_TOKEN");
});

Deno.test("http is good enough on this machine", () => {
  for (const url of ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"]) {
    assert.equal(deploymentFrom({ ...whole, PAWL_PUBLIC_URL: url }).upstash!.qstash.publicUrl, url);
  }
});

for (const main of ["main.ts", "setup_schedule.ts"]) {
  Deno.test(`${main} ends with the one line, and code 1`, async () => {
    const { code, stdout, stderr } = await command(main, {
      QSTASH_TOKEN: "qstash-secret",
      PAWL_DB: ":memory:",
    })
      .output();
    const decoder = new TextDecoder();
    assert.deepEqual([code, decoder.decode(stdout)], [1, ""]);
    assert.match(decoder.decode(stderr), /^QSTASH_CURRENT_SIGNING_KEY: [^\n]+\n$/);
  });
}
