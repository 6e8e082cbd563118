/** Limits, choices and cancels that hold across slices and processes; end to end (CASES D04, D06, F08, F10, F11). */
import assert from "node:assert/strict";
import { dialect } from "./support/dialect.ts";
import { calls } from "./support/model_server.ts";
import { gate, scene } from "./support/scene.ts";
import { until } from "./support/service.ts";

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`D04 a run without tools sends neither tools, nor a choice, nor a word on parallel calls (${wire})`, async () => {
    await using it = await scene(wire, ["ok"]);
    for (const none of [{ tools: [] }, { tools: ["look"], tools_deny: ["look"] }, { toolset: "none" }]) {
      const { id } = await it.service.start({
        content: "Go",
        parallel_tool_calls: false,
        tool_choice: "auto",
        ...none,
      });
      assert.equal((await it.service.ended(id)).text, "ok");
    }
    assert.equal(it.model.requests.length, 3);
    for (const { body } of it.model.requests) {
      for (const field of ["tools", "tool_choice", "parallel_tool_calls"]) assert.ok(!(field in body), field);
    }
  });

  Deno.test(`D06 without parallel calls the vendor is told so, and of two that come all the same one runs (${wire})`, async () => {
    await using it = await scene(wire, [calls(["work", { n: 1 }], ["work", { n: 2 }]), "ok"]);
    const { id } = await it.service.start({ content: "Go", parallel_tool_calls: false });
    assert.equal((await it.service.ended(id)).text, "ok");
    for (const { body } of it.model.requests) assert.equal(dialect(wire).single(body), true);
    const [first, second] = it.model.requests[1]!.results;
    assert.equal(first!.text, "work done");
    assert.ok(second!.isError);
    assert.match(second!.text, /one tool call per turn/);
    assert.deepEqual(it.effects.effects.map(({ args }) => args.n), [1]);
  });
}

Deno.test("F08 steering that comes in the last turn is the first thing that the next run hears", async () => {
  await using it = await scene("openai-chat", ({ last }, n) => n === 1 ? calls(["work"]) : `Heard ${last}`);
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Go", max_iterations: 1, metadata: { of: "test" } });
  await until(() => it.effects.effects.length === 1);
  const steered = await it.service.request("POST", `/runs/${id}/steering`, { content: "use EUR" });
  assert.deepEqual([steered.status, steered.json.run], [202, id]);
  hold.release();
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.finish_reason, run.iterations], ["completed", "max_iterations", 1]);
  const next = await it.service.ended(run.successor);
  assert.deepEqual([next.text, next.metadata], ["Heard use EUR", { of: "test" }]);
  const roles = it.model.requests[1]!.turns.map(({ role }) => role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "user"]);
});

Deno.test("F10 a run's turns are counted over its slices, its crashes and whatever its caller asks for", async () => {
  await using it = await scene("anthropic", (_, n) => calls(["look", { n }]), { PAWL_SLICE_TURNS: "2" });
  const { id } = await it.service.start({ content: "Go", max_iterations: 5 });
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.finish_reason, run.iterations, run.slices], [
    "completed",
    "max_iterations",
    5,
    3,
  ]);
  assert.equal(it.model.requests.length, 5);
  assert.deepEqual([run.usage.input, run.usage.output], [5 * 12, 5 * 7]);
  const { id: greedy } = await it.service.start({ content: "Go", max_iterations: 1000 });
  assert.equal((await it.service.ended(greedy)).iterations, 50);
  assert.equal(it.model.requests.length, 55);
});

Deno.test("F11 a run that is cancelled at once, in its first moments or at its end stays cancelled, and says so once", async () => {
  const open = gate();
  await using it = await scene("openai", ({ last }) => {
    return last === "late" ? { text: ["a", "b"], hold: open.promise } : calls(["look"]);
  }, { PAWL_SLICE_TURNS: "1" });
  const ids: string[] = [];
  for (let n = 0; n < 12; n++) {
    const { id } = await it.service.start({ content: "early" });
    // Each a little later in its run than the one before.
    for (let looks = 0; looks < n; looks++) await it.service.request("GET", `/runs/${id}`);
    const { status, text } = await it.service.request("POST", `/runs/${id}/cancel`);
    assert.equal(status, 202, text);
    ids.push(id);
  }
  const { id: late } = await it.service.start({ content: "late" });
  await until(() => it.model.requests.at(-1)?.last === "late");
  const [cancelled] = await Promise.all([it.service.request("POST", `/runs/${late}/cancel`), open.resolve()]);
  ids.push(late);
  // Its last write may have been the first: then it is told that it came too late.
  const final = cancelled.status === 202 ? "cancelled" : "completed";
  assert.ok(cancelled.status === 202 || cancelled.status === 409);

  const other = async () => {
    await it.service.ended((await it.service.start({ content: "other", max_iterations: 3 })).id);
    return it.model.requests.length;
  };
  // What was on its way when it was cancelled has arrived after this.
  const asked = await other();
  assert.equal(await other(), asked + 3, "none of them asks again");
  await it.service.kill9();
  await it.service.restart();
  assert.equal(await other(), asked + 6, "not even after a restart");
  for (const id of ids) {
    const { json } = await it.service.request("GET", `/runs/${id}`);
    assert.equal(json.status, id === late ? final : "cancelled");
    const { text } = await it.service.request("GET", `/runs/${id}/events`);
    assert.equal(text.match(/^event: agent_end$/gm)?.length, 1);
    const again = await it.service.request("POST", `/runs/${id}/cancel`);
    assert.equal(again.status, id === late ? cancelled.status : 202);
  }
});
