import assert from "node:assert/strict";
import { systemClock } from "../src/clock.ts";
import { FatalError } from "../src/errors.ts";
import { httpFace } from "../src/http/app.ts";
import { parseApiKeys, same } from "../src/http/auth.ts";
import { FakeVerbs } from "./support/fake_verbs.ts";

Deno.test("PAWL_API_KEYS holds tenant:key pairs; several keys of a tenant are fine", () => {
  assert.deepEqual(parseApiKeys(undefined), []);
  assert.deepEqual(parseApiKeys(""), []);
  assert.deepEqual(parseApiKeys("a.b-C_1:k:1, a.b-C_1:k2,c:k3"), [
    { tenant: "a.b-C_1", key: "k:1" },
    { tenant: "a.b-C_1", key: "k2" },
    { tenant: "c", key: "k3" },
  ]);
});

Deno.test("a PAWL_API_KEYS that cannot be read is one line that names the variable and quotes no key", () => {
  for (
    const text of [
      "hunter2",
      ":hunter2",
      "a:",
      "a:hunter2,",
      "a~b:hunter2",
      `${"x".repeat(65)}:hunter2`,
      "a:hunter2 x",
      "a:hunter2,b:hunter2",
    ]
  ) {
    assert.throws(() => parseApiKeys(text), (error: unknown) => {
      assert.ok(error instanceof FatalError);
      assert.match(error.message, /^PAWL_API_KEYS: .+$/);
      assert.ok(!error.message.includes("hunter2"));
      return true;
    }, text);
  }
});

Deno.test("H11 secrets are compared by their digests, whatever their lengths", async () => {
  assert.equal(await same("secret", "secret"), true);
  for (const other of ["", "secre", "secret ", "Secret", "x".repeat(10_000)]) {
    assert.equal(await same("secret", other), false);
  }
});

Deno.test("a key names its tenant; no key, another scheme or an unknown key is 401", async () => {
  const verbs = new FakeVerbs();
  const app = httpFace(verbs, { tenants: parseApiKeys("a:one,b:two,b:three"), clock: systemClock });
  const ask = async (authorization?: string) => {
    const answer = await app.request("/runs", { headers: authorization ? { authorization } : {} });
    const { error } = await answer.json();
    return [answer.status, error?.code, answer.headers.get("www-authenticate")];
  };
  for (const given of ["Bearer one", "bearer two", "Bearer three"]) assert.equal((await ask(given))[0], 200);
  assert.deepEqual(verbs.calls.map(({ tenant }) => tenant), ["a", "b", "b"]);
  for (
    const given of [
      undefined,
      "one",
      "Basic one",
      "Bearer",
      "Bearer ",
      "Bearer On",
      "Bearer one two",
      "Bearer onex",
    ]
  ) {
    assert.deepEqual(await ask(given), [401, "unauthorized", "Bearer"], `${given}`);
  }
});

Deno.test("without keys only a client on this machine is served, under a loopback name, for no page from elsewhere", async () => {
  const verbs = new FakeVerbs();
  const app = httpFace(verbs, { tenants: [], clock: systemClock });
  const ask = async (
    remoteAddress?: string,
    { url = "http://localhost:8000", ...headers }: Record<string, string> = {},
  ) => {
    const from = remoteAddress === undefined ? undefined : { remoteAddress };
    const answer = await app.fetch(new Request(`${url}/runs`, { headers }), from as never);
    await answer.body?.cancel();
    return answer.status;
  };
  for (const address of ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"]) {
    assert.equal(await ask(address), 200, address);
  }
  for (
    const address of [undefined, "", "10.0.0.1", "0.0.0.0", "::2", "::ffff:10.0.0.1", "127.0.0.1.evil.com"]
  ) {
    assert.equal(await ask(address), 401, `${address}`);
  }
  for (const url of ["http://127.0.0.1:8000", "http://[::1]:8000", "http://pawl.localhost"]) {
    assert.equal(await ask("::1", { url }), 200, url);
  }
  for (const url of ["http://evil.com", "http://127.0.0.1.evil.com", "http://localhost.evil.com"]) {
    assert.equal(await ask("::1", { url }), 401, url);
  }
  for (const host of ["evil.com:8000", "localhost@evil.com", ""]) {
    assert.equal(await ask("::1", { host }), 401, host);
  }
  for (const origin of ["https://evil.com", "null", "http://localhost.evil.com"]) {
    assert.equal(await ask("::1", { origin }), 401, origin);
  }
  assert.equal(await ask("::1", { host: "localhost:8000", origin: "http://localhost:3000" }), 200);
  assert.deepEqual([...new Set(verbs.calls.map(({ tenant }) => tenant))], ["local"]);
});
