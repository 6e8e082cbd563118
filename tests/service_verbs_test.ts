/** What can be done to runs over HTTP, end to end: answers of clients, busy threads, repeats, deletion, pages. */
import assert from "node:assert/strict";
import { calls } from "./support/model_server.ts";
import { gate, type Scene, scene } from "./support/scene.ts";
import { until } from "./support/service.ts";

const ask = {
  name: "ask_user",
  description: "Asks the user.",
  parameters: { type: "object", properties: { q: { type: "string" } }, required: ["q"] },
};

const codeOf = ({ status, json }: { status: number; json: any }) => [status, json.error?.code];

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`a run waits for its client's answers: 202, again 200, unknown 404, of no client's 409 (${wire})`, async () => {
    await using it = await scene(wire, [
      calls(["ask_user", { q: "a" }], ["look"], ["ask_user", { q: "b" }]),
      "ok",
    ]);
    const { id } = await it.service.start({ content: "Go", tools: [ask, "look"] });
    const first = await it.service.reaches(id, "waiting");
    assert.deepEqual(first.waiting_for.map((call: any) => [call.name, call.for]), [["ask_user", "answer"]]);
    const answer = (body: object) => it.service.request("POST", `/runs/${id}/tool_results`, body);
    const [{ tool_call_id: a }] = first.waiting_for;
    assert.deepEqual(codeOf(await answer({ tool_call_id: a.replace(/.$/, "9"), content: "x" })), [
      404,
      "not_found",
    ]);
    assert.deepEqual(codeOf(await answer({ tool_call_id: a, approve: true })), [400, "bad_input"]);
    assert.equal((await answer({ tool_call_id: a, content: "A" })).status, 202);
    assert.equal((await answer({ tool_call_id: a, content: "other" })).status, 200);

    const second = await until(async () => {
      const { json } = await it.service.request("GET", `/runs/${id}`);
      return json.status === "waiting" && json.waiting_for[0].tool_call_id !== a && json;
    });
    const [{ tool_call_id: b }] = second.waiting_for;
    assert.equal((await answer({ tool_call_id: b, content: "no", is_error: true })).status, 202);
    assert.equal((await it.service.ended(id)).text, "ok");
    assert.equal((await answer({ tool_call_id: b, content: "late" })).status, 200);
    assert.equal((await it.service.messages(id)).length, 6);
    const results = it.model.requests[1]!.results;
    assert.deepEqual(results.map(({ isError }) => isError), [false, false, true]);
    assert.deepEqual(results.map(({ text }) => text.replace("Error: ", "")), ["A", "look done", "no"]);
    // One that no client was ever asked for.
    const look = it.model.requests[1]!.turns[1]!.calls[1]!.id;
    assert.deepEqual(codeOf(await answer({ tool_call_id: look, content: "x" })), [409, "conflict"]);
  });
}

Deno.test("a client's answer that comes after its call was closed is told so, by steering as by a cancel", async () => {
  await using it = await scene(
    "openai",
    ({ last }) => last === "Go" ? calls(["ask_user", { q: "a" }]) : "ok",
  );
  for (const close of ["steering", "cancel"]) {
    const { id } = await it.service.start({ content: "Go", tools: [ask] });
    const { waiting_for: [{ tool_call_id }] } = await it.service.reaches(id, "waiting");
    await it.service.request(
      "POST",
      `/runs/${id}/${close}`,
      close === "steering" ? { content: "never mind" } : {},
    );
    await it.service.ended(id);
    const late = await it.service.request("POST", `/runs/${id}/tool_results`, { tool_call_id, content: "A" });
    assert.deepEqual(codeOf(late), [409, "conflict"], close);
  }
});

Deno.test("a client's answer that two send at once counts once", async () => {
  await using it = await scene("openai", [calls(["ask_user", { q: "a" }]), "ok"]);
  const { id } = await it.service.start({ content: "Go", tools: [ask] });
  const { waiting_for: [{ tool_call_id }] } = await it.service.reaches(id, "waiting");
  const statuses = await Promise.all(
    ["one", "two", "three"].map(async (content) =>
      (await it.service.request("POST", `/runs/${id}/tool_results`, { tool_call_id, content })).status
    ),
  );
  assert.equal(statuses.filter((status) => status === 202).length, 1, statuses.join());
  assert.ok(statuses.every((status) => [202, 200, 409].includes(status)));
  await it.service.ended(id);
  assert.equal(it.model.requests[1]!.results.length, 1);
});

/** A run that works until it is let go on. */
async function busy(it: Scene): Promise<{ id: string; thread: string; release(): void }> {
  const hold = it.effects.hold("work");
  const { id, thread } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length > 0);
  return { id, thread, release: hold.release };
}

const worksOnce = ({ last }: { last: string }, n: number) => n === 1 ? calls(["work"]) : `Heard ${last}`;

Deno.test("a prompt for a busy thread steers its run, unless it brings settings that the run does not have", async () => {
  await using it = await scene("anthropic", worksOnce);
  const { id, thread, release } = await busy(it);
  for (
    const other of [{ model: "demo/rules" }, { tools: [] }, { limits: { max_tokens_total: 9 } }, {
      max_iterations: 3,
    }]
  ) {
    const { status, json } = await it.service.request("POST", "/runs", { content: "and", thread, ...other });
    assert.deepEqual([status, json.error.code], [409, "conflict"]);
    assert.ok(json.error.message.includes(Object.keys(other)[0]!));
  }
  const steered = await it.service.start({ content: "hurry", thread });
  assert.equal(steered.id, id);
  release();
  assert.equal((await it.service.ended(id)).text, "Heard hurry");
});

Deno.test("a prompt may follow up, be refused or interrupt where the thread is busy", async () => {
  await using it = await scene("openai-chat", worksOnce);
  const { id, thread, release } = await busy(it);
  const rejected = await it.service.request("POST", "/runs", { content: "no", thread, if_busy: "reject" });
  assert.deepEqual(codeOf(rejected), [409, "conflict"]);
  assert.equal((await it.service.start({ content: "later", thread, if_busy: "follow_up" })).id, id);
  release();
  assert.equal((await it.service.ended(id)).text, "Heard later");

  const hold = it.effects.hold("look");
  const second = await it.service.start({ content: "again", thread, if_busy: "reject" });
  assert.notEqual(second.id, id);
  await it.service.ended(second.id);
  hold.release();
});

Deno.test("an interrupt ends the active run and starts another, in one step", async () => {
  await using it = await scene("openai", worksOnce);
  const { id, thread, release } = await busy(it);
  const next = await it.service.start({ content: "instead", thread, if_busy: "interrupt" });
  assert.notEqual(next.id, id);
  assert.equal((await it.service.request("GET", `/runs/${id}`)).json.status, "cancelled");
  release();
  assert.equal((await it.service.ended(next.id)).text, "Heard instead");
  assert.match(it.model.requests[1]!.results[0]!.text, /Cancelled/);
});

Deno.test("an Idempotency-Key makes a repeat answer the same ids, also at once, later and after a restart", async () => {
  await using it = await scene("anthropic", worksOnce);
  const key = { "idempotency-key": "k-1" };
  const both = await Promise.all([1, 2, 3].map(() => it.service.start({ content: "Go" }, key)));
  const ids = both.map(({ id, thread, message_id }) => [id, thread, message_id].join());
  assert.equal(new Set(ids).size, 1);
  const { id } = both[0]!;
  const other = await it.service.request("POST", "/runs", { content: "Other" }, key);
  assert.deepEqual(codeOf(other), [409, "conflict"]);
  await it.service.ended(id);
  await it.service.kill9();
  await it.service.restart();
  const { id: same, status } = await it.service.request("POST", "/runs", { content: "Go" }, key).then((a) =>
    a.json
  );
  assert.deepEqual([same, status], [id, "completed"]);
  assert.equal(it.effects.effects.length, 1);

  const steer = () =>
    it.service.request("POST", `/runs/${id}/follow_ups`, { content: "more" }, { "idempotency-key": "k-2" });
  const [one, two] = [await steer(), await steer()];
  assert.deepEqual([one.status, two.status, two.json.run], [202, 202, one.json.run]);
  assert.equal(two.json.message_id, one.json.message_id);
  await it.service.ended(one.json.run);
  assert.equal(it.model.requests.at(-1)!.turns.filter(({ text }) => text === "more").length, 1);
});

Deno.test("a keyed prompt's repeat is answered although its thread is busy with another run by now", async () => {
  await using it = await scene("openai", worksOnce);
  const prompt = { content: "early", thread: "t", model: "demo/rules" }, key = { "idempotency-key": "k" };
  const { id, message_id } = await it.service.start(prompt, key);
  await it.service.ended(id);
  const hold = it.effects.hold("work");
  const other = await it.service.start({ content: "Go", thread: "t" });
  await until(() => it.effects.effects.length > 0);
  const repeat = await it.service.start(prompt, key);
  assert.deepEqual([repeat.id, repeat.message_id], [id, message_id]);
  assert.deepEqual(codeOf(await it.service.request("POST", "/runs", prompt)), [409, "conflict"]);
  hold.release();
  assert.equal((await it.service.ended(other.id)).text, "Heard work done");
});

Deno.test("a thread that is deleted is gone with its runs, its active run stops, and its id may be used anew", async () => {
  await using it = await scene("openai-chat", worksOnce);
  const { id, thread, release } = await busy(it);
  using _ = { [Symbol.dispose]: release };
  assert.equal((await it.service.request("DELETE", `/threads/${thread}`)).status, 204);
  for (
    const path of [`/runs/${id}`, `/runs/${id}/messages`, `/runs/${id}/events`, `/threads/${thread}/messages`]
  ) {
    assert.deepEqual(codeOf(await it.service.request("GET", path)), [404, "not_found"], path);
  }
  assert.equal((await it.service.request("DELETE", `/threads/${thread}`)).status, 404);
  assert.deepEqual((await it.service.request("GET", "/runs")).json.runs, []);
  const next = await it.service.start({ content: "new", thread });
  assert.equal((await it.service.ended(next.id)).text, "Heard new");
  assert.deepEqual(it.model.requests.at(-1)!.turns.map(({ text }) => text), ["new"]);
});

Deno.test("runs are listed newest first, in pages that neither repeat nor skip, by status", async () => {
  await using it = await scene(
    "openai",
    ({ last }) => last === "bad" ? { status: 400, code: "x", message: "no" } : "ok",
  );
  const ids: string[] = [];
  for (let n = 0; n < 7; n++) ids.unshift((await it.service.start({ content: n % 3 ? "good" : "bad" })).id);
  for (const id of ids) await it.service.ended(id);
  const pages: string[][] = [];
  for (let after: string | undefined = ""; after !== undefined;) {
    const { json } = await it.service.request(
      "GET",
      `/runs?limit=3${after && `&after=${encodeURIComponent(after)}`}`,
    );
    pages.push(json.runs.map(({ id }: { id: string }) => id));
    after = json.next;
  }
  assert.deepEqual(pages.map((page) => page.length), [3, 3, 1]);
  assert.deepEqual(pages.flat(), ids);
  const failed = (await it.service.request("GET", "/runs?status=failed")).json.runs;
  assert.deepEqual(failed.map(({ id }: { id: string }) => id), [ids[0], ids[3], ids[6]]);
});

Deno.test("a page of runs after one that is gone says so, and does not look like the end of the list", async () => {
  await using it = await scene("openai", () => "ok");
  const runs: { id: string; thread: string }[] = [];
  for (let n = 0; n < 4; n++) runs.push(await it.service.start({ content: "Go" }));
  for (const { id } of runs) await it.service.ended(id);
  const { next } = (await it.service.request("GET", "/runs?limit=2")).json;
  assert.equal(next, runs[2]!.id);
  assert.equal((await it.service.request("DELETE", `/threads/${runs[2]!.thread}`)).status, 204);
  for (const after of [next, "rubbish", "x".repeat(5_000), "__proto__", "%00", "%F0%9F%98%80"]) {
    const { status, json } = await it.service.request("GET", `/runs?after=${after}`);
    assert.deepEqual([status, json.error?.code], [400, "bad_input"], after);
    assert.match(json.error.message, /^after: .{1,200}$/);
  }
});

Deno.test("?wait answers when the run ends or waits, or else when the time is over", async () => {
  const open = gate();
  await using it = await scene("anthropic", async (_, n) => {
    if (n === 2) await open.promise;
    return n === 1 ? calls(["ask_user", { q: "a" }]) : "ok";
  });
  const { id } = await it.service.start({ content: "Go", tools: [ask] });
  const waits = (await it.service.request("GET", `/runs/${id}?wait=20`)).json;
  assert.equal(waits.status, "waiting");
  const { tool_call_id } = waits.waiting_for[0];
  await it.service.request("POST", `/runs/${id}/tool_results`, { tool_call_id, content: "A" });
  const began = Date.now();
  assert.equal((await it.service.request("GET", `/runs/${id}?wait=1`)).json.status, "running");
  assert.ok(Date.now() - began >= 990);
  const ended = it.service.request("GET", `/runs/${id}?wait=20`);
  open.resolve();
  assert.equal((await ended).json.text, "ok");
  assert.ok(Date.now() - began < 10_000);
});
