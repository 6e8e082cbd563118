/** What stands in the next request to a strict vendor, after cancels, steering and odd answers; end to end (CASES A). */
import assert from "node:assert/strict";
import { eventClient } from "./support/event_client.ts";
import { type Asked, calls } from "./support/model_server.ts";
import { scene } from "./support/scene.ts";
import { until } from "./support/service.ts";

/** Roles, and what results say, in the order in which the vendor gets them. */
function told({ turns }: Asked): string[] {
  return turns.map(({ role, text, isError }) =>
    role === "tool" ? `${isError ? "failed" : "ok"}: ${text}` : role
  );
}

Deno.test("A01 a call that was cancelled is answered once, right after it, before what the user says next", async () => {
  await using it = await scene("openai", [calls(["work", { s: "x" }]), "Carrying on"]);
  it.effects.hold("work");
  const { id, thread } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  const cancelled = await it.service.request("POST", `/runs/${id}/cancel`);
  assert.deepEqual([cancelled.status, cancelled.json.status], [202, "cancelled"]);
  const next = await it.service.start({ content: "carry on", thread });
  assert.equal((await it.service.ended(next.id)).text, "Carrying on");
  const { turns } = it.model.requests[1]!;
  assert.deepEqual(turns.map(({ role }) => role), ["user", "assistant", "tool", "user"]);
  assert.equal(turns[2]!.id, turns[1]!.calls[0]!.id);
  assert.match(turns[2]!.text, /^Error: Cancelled/);
  assert.equal(turns[3]!.text, "carry on");
});

Deno.test("A02 of a batch that is cancelled all calls are answered together: what was done, and what was not", async () => {
  await using it = await scene("anthropic", [calls(["look"], ["pay"], ["work"]), "Understood"]);
  it.effects.hold("pay");
  const { id, thread } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 2);
  await it.service.request("POST", `/runs/${id}/cancel`);
  const next = await it.service.start({ content: "and?", thread });
  await it.service.ended(next.id);
  const [, , ...after] = told(it.model.requests[1]!);
  assert.deepEqual([after.length, after[0], after[3]], [4, "ok: look done", "user"]);
  assert.match(after[1]!, /^failed: Cancelled.*unknown/);
  assert.match(after[2]!, /^failed: Cancelled.*not run/);
  assert.equal(it.effects.effects.length, 2);
});

Deno.test("A02 of a batch that runs at once, what is done when it is cancelled is kept", async () => {
  await using it = await scene("openai-chat", [
    calls(["fast", { n: 1 }], ["fast", { n: 2 }], ["fast", { n: 3 }]),
    "ok",
  ]);
  it.effects.hold("fast", ({ n }) => n !== 1);
  const { id, thread } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 3);
  await until(async () => (await it.service.messages(id)).some(({ role }) => role === "tool"));
  await it.service.request("POST", `/runs/${id}/cancel`);
  await it.service.ended((await it.service.start({ content: "and?", thread })).id);
  const results = it.model.requests[1]!.results;
  assert.equal(results[0]!.text, "fast done");
  for (const { text } of results.slice(1)) assert.match(text, /^Error: Cancelled.*unknown/);
});

Deno.test("A04 a tool that gives up at its signal is told as a failure whose effect is not known", async () => {
  await using it = await scene("anthropic", [calls(["polite"]), "I cannot say"]);
  const { id, thread } = await it.service.start({ content: "Go" });
  using events = eventClient(`${it.service.url}/runs/${id}/events`);
  await until(() => events.got.some(({ event }) => event === "tool_execution_start"));
  await it.service.request("POST", `/runs/${id}/cancel`);
  await it.service.ended((await it.service.start({ content: "did it work?", thread })).id);
  const [result] = it.model.requests[1]!.results;
  assert.ok(result!.isError);
  assert.match(result!.text, /unknown|unverified/);
});

Deno.test("A05 a tool that ignores its signal cannot keep its run, and what it does later changes nothing", async () => {
  await using it = await scene("openai-chat", [calls(["forever"]), "Next"]);
  const hold = it.effects.hold("forever");
  const { id, thread } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  const began = Date.now();
  await it.service.request("POST", `/runs/${id}/cancel`);
  assert.equal((await it.service.ended(id)).status, "cancelled");
  assert.ok(Date.now() - began < 5_000);
  const before = await it.service.messages(id);
  const next = await it.service.start({ content: "Next", thread });
  assert.equal((await it.service.ended(next.id)).text, "Next");
  hold.release();
  // Something that comes after the release has to have passed through the process.
  await it.service.ended((await it.service.start({ content: "Another" })).id);
  assert.deepEqual(await it.service.messages(id), before);
  assert.equal((await it.service.request("GET", `/runs/${id}`)).json.status, "cancelled");
});

for (
  const [steering, wire, what, second] of [
    [
      undefined,
      "openai",
      "lets the call that runs end and skips those that have not begun",
      "failed: Error: Skipped due to queued user message",
    ],
    ["after_batch", "anthropic", "that may wait lets the whole batch run", "ok: look done"],
  ] as const
) {
  Deno.test(`A08 steering ${what}`, async () => {
    await using it = await scene(
      wire,
      ({ last }, n) => n === 1 ? calls(["work"], ["look"]) : `Heard ${last}`,
    );
    const hold = it.effects.hold("work");
    const { id } = await it.service.start({ content: "Go", steering });
    await until(() => it.effects.effects.length === 1);
    await it.service.request("POST", `/runs/${id}/steering`, { content: "stop" });
    hold.release();
    assert.equal((await it.service.ended(id)).text, "Heard stop");
    assert.deepEqual(told(it.model.requests[1]!), ["user", "assistant", "ok: work done", second, "user"]);
  });
}

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`A10 two calls with one id both run once, and have two ids ever after (${wire})`, async () => {
    const call = (u: number) => ({ id: "http_get", name: "work", args: [`{"u":${u}}`] });
    await using it = await scene(wire, [{ calls: [call(1), call(2)] }, "ok"]);
    const { id } = await it.service.start({ content: "Go" });
    assert.equal((await it.service.ended(id)).text, "ok");
    assert.deepEqual(it.effects.effects.map(({ args }) => args.u), [1, 2]);
    const { turns, results } = it.model.requests[1]!;
    const ids = turns[1]!.calls.map((call) => call.id);
    assert.equal(new Set(ids).size, 2);
    assert.deepEqual(results.map((result) => result.id), ids);
  });
}

Deno.test("A12 calls that came without ids keep those they were given, also after a restart", async () => {
  const call = (q: string) => ({ name: "look", args: [JSON.stringify({ q })] });
  await using it = await scene("openai-chat", [{ calls: [call("a"), call("b")] }, "ok"]);
  const { id, thread } = await it.service.start({ content: "Go" });
  await it.service.ended(id);
  await it.service.kill9();
  await it.service.restart();
  await it.service.ended((await it.service.start({ content: "more", thread })).id);
  const [, before, after] = it.model.requests;
  const ids = before!.turns[1]!.calls.map(({ id, args }) => [id, args.q]);
  assert.deepEqual(ids.map(([, q]) => q), ["a", "b"]);
  assert.notEqual(ids[0]![0], ids[1]![0]);
  assert.ok(ids.every(([id]) => id));
  assert.deepEqual(after!.turns[1]!.calls.map(({ id, args }) => [id, args.q]), ids);
  assert.deepEqual(after!.results.map(({ id }) => id), ids.map(([id]) => id));
});
