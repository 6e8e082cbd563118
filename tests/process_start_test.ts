/** How the process begins and ends: settings that are wrong, signals, and a vendor's key that is wrong. */
import assert from "node:assert/strict";
import { apiKey, calls } from "./support/model_server.ts";
import { scene } from "./support/scene.ts";
import { command, startService, until } from "./support/service.ts";

/** What a service says that must not start. */
async function refused(env: Record<string, string>): Promise<string> {
  const process = command("main.ts", { PORT: "0", PAWL_DB: ":memory:", ...env }).spawn();
  // One that starts all the same must not be waited for.
  const late = setTimeout(() => process.kill("SIGKILL"), 20_000);
  const { code, stdout, stderr } = await process.output();
  clearTimeout(late);
  const [all, more] = [stderr, stdout].map((bytes) => new TextDecoder().decode(bytes));
  // Deno's own, about a file that can be served in two ways.
  const said = all!.replace(/^warning: Detected export default .*\n/, "");
  assert.deepEqual([code, more], [1, ""], said);
  assert.match(said!, /^[^\n]+\n$/, "one line");
  return said!;
}

const wrong: [name: string, env: Record<string, string>][] = [
  ["PORT", { PORT: "abc" }],
  ["PORT", { PORT: "65536" }],
  ["PAWL_API_KEYS", { PAWL_API_KEYS: "acme" }],
  ["PAWL_API_KEYS", { PAWL_API_KEYS: "a:k1,b:k1" }],
  ["PAWL_API_KEYS", { PAWL_API_KEYS: "a:k1,,b:k2" }],
  ["PAWL_SLICE_MS", { PAWL_SLICE_MS: "9000", PAWL_SLICE_MAX_MS: "8000" }],
  ["PAWL_SLICE_MAX_MS", { PAWL_SLICE_MAX_MS: "8000" }],
  ["PAWL_SLICE_TURNS", { PAWL_SLICE_TURNS: "0" }],
  ["PAWL_LEASE_MS", { PAWL_LEASE_MS: "-1" }],
  ["PAWL_TTL_S", { PAWL_TTL_S: "1e9" }],
  ["PAWL_MODEL", { PAWL_MODEL: "acme/m" }],
  ["PAWL_MODEL", { PAWL_MODEL: "m" }],
  ["PAWL_MODEL", { PAWL_MODEL: "openai/", OPENAI_API_KEY: "k" }],
  ["OPENAI_API_KEY", { PAWL_MODEL: "openai/m" }],
  ["ANTHROPIC_API_KEY", { PAWL_MODEL: "anthropic/m", OPENAI_API_KEY: "k" }],
  ["PAWL_DB", { PAWL_DB: "/nonexistent/folder/pawl.db" }],
  ["OPENAI_BASE_URL", { OPENAI_API_KEY: "k", OPENAI_BASE_URL: "localhost:8080" }],
];

Deno.test("a setting that is wrong ends the process with one line that names it, and code 1", async (t) => {
  for (const [name, env] of wrong) {
    await t.step(JSON.stringify(env), async () => {
      const said = await refused(env);
      assert.ok(said.includes(name), said);
    });
  }
});

Deno.test("a setting that is wrong is told without the secrets in it", async () => {
  assert.ok(!(await refused({ PAWL_API_KEYS: "acme:SEKRIT,acme" })).includes("SEKRIT"));
});

Deno.test("a port that is taken is one line that names it, and code 1", async () => {
  using taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  assert.match(await refused({ PORT: String((taken.addr as Deno.NetAddr).port) }), /PORT/);
});

Deno.test("SIGTERM ends a process that has nothing to do at once and cleanly", async () => {
  await using service = await startService({}, "main.ts");
  const before = service.output;
  const { code, signal } = await service.terminate();
  assert.deepEqual([code, signal], [0, null]);
  assert.equal(service.output, before, "it has nothing to say");
});

Deno.test("SIGTERM ends a process whose run works and is watched; the next one goes on", async () => {
  await using it = await scene("openai-chat", [calls(["look"]), "Done"]);
  const hold = it.effects.hold("look");
  const { id } = await it.service.start({ content: "Look" });
  await until(() => it.effects.effects.length === 1);
  const events = await fetch(`${it.service.url}/runs/${id}/events`);
  const waiting = fetch(`${it.service.url}/runs/${id}?wait=60`).then((answer) => answer.text()).catch(
    () => {},
  );
  const watching = events.text().catch(() => {});
  const began = Date.now();
  assert.deepEqual((await it.service.terminate()).code, 0);
  assert.ok(Date.now() - began < 8_000, `it took ${Date.now() - began} ms`);
  await Promise.all([watching, waiting]);
  hold.release();
  await it.service.restart();
  assert.equal((await it.service.ended(id)).text, "Done");
});

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`H06 a vendor's key that is wrong fails the run at once, and is shown nowhere (${wire})`, async () => {
    const message = `Incorrect API key provided: ${apiKey}. Find yours in your settings`;
    const code = wire === "anthropic" ? "authentication_error" : "invalid_api_key";
    await using it = await scene(wire, [{ status: 401, code, message }]);
    const { id } = await it.service.start({ content: "Go" });
    const run = await it.service.ended(id);
    assert.deepEqual([run.status, run.error.code], ["failed", "auth"]);
    assert.match(run.error.message, /Incorrect API key provided: \*\*\*\. Find yours/);
    assert.equal(it.model.requests.length, 1);
    const sent = it.model.requests[0]!.headers;
    assert.ok([sent.get("authorization"), sent.get("x-api-key")].join().includes(apiKey));

    const shown = [JSON.stringify(it.model.requests[0]!.body)];
    for (const path of ["", "/messages", "/events"]) {
      shown.push((await it.service.request("GET", `/runs/${id}${path}`)).text);
    }
    await it.service.terminate();
    shown.push(it.service.output);
    for (const file of Deno.readDirSync(it.service.database.replace(/[^/]*$/, ""))) {
      const bytes = Deno.readFileSync(it.service.database.replace(/[^/]*$/, file.name));
      shown.push(new TextDecoder("latin1").decode(bytes));
    }
    assert.ok(shown.at(-1)!.includes("Incorrect API key") || shown.join("").includes("Incorrect API key"));
    shown.forEach((text, n) => assert.ok(!text.includes(apiKey), `the key is in part ${n}`));
  });
}
