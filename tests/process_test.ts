/** Processes that are killed at the worst moments: what they had accepted goes on by itself after a restart (CASES F05, F06, F25). */
import assert from "node:assert/strict";
import { calls } from "./support/model_server.ts";
import { gate, type Scene, scene } from "./support/scene.ts";
import { until } from "./support/service.ts";
import type { Wire } from "./support/strict.ts";

const never = new Promise(() => {});

async function dieAndComeBack({ service }: Scene): Promise<void> {
  await service.kill9();
  await service.restart();
}

/** Roles, and the texts of results, of a run's messages. */
async function told({ service }: Scene, run: string): Promise<string[]> {
  return (await service.messages(run)).map(({ role, content }) => role === "tool" ? content : role);
}

Deno.test("killed in the middle of a model's message, a run makes that turn again", async () => {
  await using it = await scene("anthropic", [{ text: ["Half", " of it"], hold: never }, "All"]);
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.model.requests.length === 1);
  await dieAndComeBack(it);
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.text, run.iterations], ["completed", "All", 1]);
  assert.deepEqual(await told(it, id), ["user", "assistant"]);
  assert.equal(it.model.requests.length, 2);
});

for (const wire of ["openai-chat", "openai", "anthropic"] as Wire[]) {
  Deno.test(`killed while a tool runs that must not run twice, the model hears that nobody knows (${wire})`, async () => {
    await using it = await scene(wire, [calls(["pay", { eur: 5 }]), calls(["pay", { eur: 5 }]), "Checked"]);
    const hold = it.effects.hold("pay");
    const { id } = await it.service.start({ content: "Pay" });
    await until(() => it.effects.effects.length === 1);
    await it.service.kill9();
    hold.release();
    await it.service.restart();
    const run = await it.service.ended(id);
    assert.deepEqual([run.status, run.text], ["completed", "Checked"]);
    const [unknown] = it.model.requests[1]!.results;
    assert.ok(unknown!.isError);
    assert.match(unknown!.text, /outcome is unknown/);
    // Only because the model asked again, and then as the same effect.
    assert.equal(it.effects.effects.length, 2);
    assert.equal(it.effects.effects[1]!.key, it.effects.effects[0]!.key);
  });
}

Deno.test("a tool that must not run twice has one effect if the model does not ask again", async () => {
  await using it = await scene("openai", [calls(["pay"], ["look"]), "Done"]);
  it.effects.hold("pay");
  const { id } = await it.service.start({ content: "Pay" });
  await until(() => it.effects.effects.length === 1);
  await dieAndComeBack(it);
  assert.equal((await it.service.ended(id)).status, "completed");
  assert.deepEqual(it.effects.effects.map(({ tool }) => tool), ["pay", "look"]);
});

Deno.test("killed while a tool runs that is safe to repeat, it runs again under the same key", async () => {
  await using it = await scene("openai-chat", [calls(["look", { at: "x" }]), "Seen"]);
  const hold = it.effects.hold("look");
  const { id } = await it.service.start({ content: "Look" });
  await until(() => it.effects.effects.length === 1);
  await it.service.kill9();
  hold.release();
  await it.service.restart();
  assert.equal((await it.service.ended(id)).text, "Seen");
  const [first, second, ...more] = it.effects.effects;
  assert.deepEqual([second, more], [first, []]);
  assert.deepEqual(await told(it, id), ["user", "assistant", "look done", "assistant"]);
});

Deno.test("killed at every hand-over, a run loses no turn and repeats no result", async () => {
  const script = [...Array.from({ length: 4 }, (_, n) => calls(["look", { n }])), "Done"];
  await using it = await scene("anthropic", ({ results }) => script[results.length]!, {
    PAWL_SLICE_TURNS: "1",
  });
  const { id } = await it.service.start({ content: "Work" });
  let ended = 0;
  for (let after = "";;) {
    const seen = await sliceEnd(it, id, after);
    if (seen === undefined) break;
    ended++;
    after = seen;
    await dieAndComeBack(it);
  }
  assert.ok(ended >= 4, `${ended} slices ended`);
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.text, run.iterations], ["completed", "Done", 5]);
  assert.equal(new Set(it.effects.effects.map(({ key }) => key)).size, 4);
  assert.deepEqual((await told(it, id)).filter((text) => text === "look done").length, 4);
});

/** Reads the run's events up to the next end of a slice; answers its id, or undefined if the run ended first. */
async function sliceEnd({ service }: Scene, run: string, after: string): Promise<string | undefined> {
  const answer = await fetch(`${service.url}/runs/${run}/events`, { headers: { "last-event-id": after } });
  let text = "";
  for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const end = /^id: (\S+)\nevent: slice_end$/m.exec(text);
    if (end) return end[1];
  }
  return undefined;
}

Deno.test("killed while a run waits for time, it goes on when the time has come", async () => {
  await using it = await scene("openai", [calls(["wait", { seconds: 1.5 }]), "Rested"]);
  const { id } = await it.service.start({ content: "Wait" });
  const { waiting_for: [waits] } = await it.service.reaches(id, "waiting");
  assert.equal(waits.for, "time");
  await dieAndComeBack(it);
  assert.equal((await it.service.ended(id)).text, "Rested");
  assert.ok(Date.now() >= waits.until, "it waited to the end");
  assert.equal(it.model.requests.length, 2);
});

Deno.test("killed while a client's answer is awaited, and again when it was given, the answer counts", async () => {
  await using it = await scene("openai-chat", [calls(["ask", { q: "?" }]), "Thanks"]);
  const ask = { name: "ask", description: "Asks.", parameters: { type: "object", properties: {} } };
  const { id } = await it.service.start({ content: "Ask", tools: [ask] });
  const { waiting_for: [waits] } = await it.service.reaches(id, "waiting");
  await dieAndComeBack(it);
  assert.equal((await it.service.request("GET", `/runs/${id}`)).json.status, "waiting");
  const answer = { tool_call_id: waits.tool_call_id, content: "42" };
  assert.equal((await it.service.request("POST", `/runs/${id}/tool_results`, answer)).status, 202);
  await dieAndComeBack(it);
  assert.equal((await it.service.ended(id)).text, "Thanks");
  assert.deepEqual(await told(it, id), ["user", "assistant", "42", "assistant"]);
});

Deno.test("F05 killed right after it was accepted, a run goes on", async () => {
  await using it = await scene("anthropic", ["Hello"]);
  const ids: string[] = [];
  for (let n = 0; n < 3; n++) {
    ids.push((await it.service.start({ content: `Go ${n}` })).id);
    await dieAndComeBack(it);
  }
  for (const id of ids) assert.equal((await it.service.ended(id)).text, "Hello");
  const { json } = await it.service.request("GET", "/runs");
  assert.deepEqual(json.runs.map(({ id }: { id: string }) => id), ids.reverse());
});

Deno.test("F06 steering taken up by a turn that dies is in the next request, once", async () => {
  const open = gate();
  await using it = await scene("openai", (_, n) => {
    if (n === 1) return calls(["work", { n: 1 }], ["work", { n: 2 }]);
    return n === 2 ? { text: ["…", "…"], hold: open.promise } : "In EUR";
  });
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Work" });
  await until(() => it.effects.effects.length === 1);
  const steered = await it.service.request("POST", `/runs/${id}/steering`, { content: "use EUR" });
  assert.equal(steered.status, 202);
  hold.release();
  await until(() => it.model.requests.length === 2);
  await it.service.kill9();
  open.resolve();
  await it.service.restart();
  assert.equal((await it.service.ended(id)).text, "In EUR");
  for (const { turns } of it.model.requests.slice(1)) {
    assert.deepEqual(turns.map(({ role, text }) => role === "user" || role === "tool" ? text : role), [
      "Work",
      "assistant",
      "work done",
      "Error: Skipped due to queued user message",
      "use EUR",
    ]);
  }
  assert.equal(it.model.requests.length, 3);
  assert.equal(it.effects.effects.length, 1);
});

Deno.test("F06 steering accepted a moment before the process dies is not lost", async () => {
  await using it = await scene("openai-chat", ({ last }, n) => n === 1 ? calls(["look"]) : `Heard ${last}`);
  const hold = it.effects.hold("look");
  const { id } = await it.service.start({ content: "Look" });
  await until(() => it.effects.effects.length === 1);
  await it.service.request("POST", `/runs/${id}/steering`, { content: "use EUR" });
  await it.service.kill9();
  hold.release();
  await it.service.restart();
  assert.equal((await it.service.ended(id)).text, "Heard use EUR");
});

Deno.test("F25 a process that is killed after each of the model's answers brings a run to its end", async () => {
  let free = 0, hanging = 0;
  const script = [
    calls(["work", { n: 0 }]),
    calls(["look"]),
    calls(["calculate", { expression: "6*7" }]),
    "Done",
  ];
  await using it = await scene("anthropic", async ({ results }) => {
    // One answer in each life of the process; what it asks for next is never answered.
    if (free-- <= 0) await new Promise<void>(() => hanging++);
    return script[results.length]!;
  });
  const { id } = await it.service.start({ content: "Go" });
  for (let lives = 1; lives <= 4; lives++) {
    await it.service.kill9();
    [free, hanging] = [1, 0];
    await it.service.restart();
    if (lives < 4) await until(() => hanging > 0);
  }
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.text, run.iterations], ["completed", "Done", 4]);
  assert.deepEqual(it.effects.effects.map(({ tool }) => tool), ["work", "look"]);
  assert.deepEqual((await told(it, id)).filter((_, n) => n % 2 === 0), [
    "user",
    "work done",
    "look done",
    "42",
  ]);
});

Deno.test("A23 a run that has ended is not taken up again, and what follows it ends on the user's words", async () => {
  const open = gate();
  await using it = await scene(
    "openai",
    (_, n) => n === 1 ? { text: ["do", "ne"], hold: open.promise } : "more",
  );
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.model.requests.length === 1);
  assert.equal((await it.service.request("POST", `/runs/${id}/follow_ups`, { content: "and?" })).status, 202);
  open.resolve();
  assert.equal((await it.service.ended(id)).text, "more");
  await dieAndComeBack(it);
  assert.equal((await it.service.request("GET", `/runs/${id}?wait=1`)).json.status, "completed");
  assert.deepEqual(it.model.requests.map(({ turns }) => turns.map(({ text }) => text)), [["Go"], [
    "Go",
    "done",
    "and?",
  ]]);
});
