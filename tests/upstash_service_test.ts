/** Runs on Upstash Redis and QStash when functions die, stall and overlap: what is kept, what is refused, what happens once. */
import assert from "node:assert/strict";
import * as z from "zod";
import { defineTool, ModelError } from "../src/mod.ts";
import { textOf } from "../src/message.ts";
import { calls, type Said } from "./support/scripted_model.ts";
import { type UpstashScene, upstashSceneTests } from "./support/upstash_scene.ts";

const test = await upstashSceneTests();

/** A tool that counts its effects; `body` makes it take longer. */
function effect(name: string, done: string[], body: () => unknown = () => `${name} done`, replay?: "safe") {
  return defineTool({
    name,
    description: `Does ${name}.`,
    parameters: z.looseObject({}),
    replay,
    execute: (_args, { idempotencyKey }) => {
      done.push(idempotencyKey);
      return body();
    },
  });
}

/** A model that never answers; it gives up when it is told to. */
const hangs: Said = (_request, { signal }) =>
  new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new ModelError("aborted", "aborted")));
  });

const roles = (messages: { role: string }[]) => messages.map(({ role }) => role).join(" ");
const ends = async (it: UpstashScene, thread: string) =>
  (await it.log(thread)).filter(({ kind }) => kind === "end").length;

test("F03 a turn that fits no slice is cut, tried a bounded number of times and told; what has run is kept", async (open) => {
  const mails: string[] = [];
  await using it = await open((_, n) => n === 1 ? calls(["mail"]) : hangs, {
    tools: [effect("mail", mails)],
    budget: { softMs: 8_000, hardMs: 10_000 },
  });
  const run = await it.start({ thread: "t" });
  await it.passUntil(async () => (await it.view(run)).status === "failed");
  const { error, iterations } = await it.view(run);
  assert.deepEqual([mails.length, error.code, iterations], [1, "attempts", 2]);
  assert.match(error.message, /Gave up after 5 attempts that did not bring the run further/);
  assert.equal(
    it.model.requests.length,
    7,
    "once in the mail's own slice, then five times, after the mail's",
  );
  assert.equal(roles(await it.messages(run)), "user assistant tool");
  assert.deepEqual([await ends(it, "t"), it.qstash.inside.dead.length], [1, 0]);
});

test("F03 F19 functions that die with their turn: the retries, one more message a minute later, then a clear end", async (open) => {
  const mails: string[] = [];
  await using it = await open((_, n) => {
    if (n > 1) it.process.kill();
    return n === 1 ? calls(["mail"]) : hangs;
  }, { tools: [effect("mail", mails)] });
  const run = await it.start({ thread: "t" });
  await it.passUntil(async () => (await it.view(run)).status === "failed");
  const [first, callback, again] = it.qstash.messages;
  assert.deepEqual([first!.answers, first!.state], [[0, 0, 0, 0], "FAILED"]);
  assert.match(callback!.destination, /\/slices\/failed$/);
  assert.ok(again!.notBefore - callback!.createdAt >= 60_000);
  assert.notEqual(again!.deduplicationId, first!.deduplicationId);
  assert.deepEqual([it.qstash.messages.length, mails.length], [3, 1]);
  assert.equal((await it.view(run)).error.code, "attempts");
  assert.equal(roles(await it.messages(run)), "user assistant tool");
});

test("F04 a worker that stalls past its lease is refused what it writes late: the end is the other's, once", async (open) => {
  const done: string[] = [], begun = Promise.withResolvers<void>(), stalled = Promise.withResolvers<void>();
  const slow = effect("slow", done, async () => {
    begun.resolve();
    await stalled.promise;
    return "late";
  });
  await using it = await open([calls(["slow"]), "The other's"], { tools: [slow], leaseMs: 1000 });
  const run = await it.start({ thread: "t" });
  await begun.promise;
  // It cannot prolong its lease, as Redis is out just then.
  it.rest.fault = () => ({ status: 503, error: "ERR unavailable" });
  await it.pass(3_000);
  it.rest.fault = undefined;
  it.another();
  await it.again(it.qstash.messages[0]!);
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  const before = it.rest.requests;
  stalled.resolve();
  await it.qstash.idle();
  assert.ok(it.rest.requests > before, "it tried");
  assert.deepEqual(it.qstash.messages.map(({ answers }) => answers), [[200], [200]]);
  assert.deepEqual([(await it.view(run)).text, await ends(it, "t"), done.length], ["The other's", 1, 1]);
  const result = (await it.messages(run)).find(({ role }) => role === "tool");
  assert.match(result.content, /outcome is unknown/);
  assert.deepEqual(it.reported, []);
});

test("F05 Redis is out when a run is to start: 503, and nothing is there; out only for the answer: the repeat has it", async (open) => {
  await using it = await open(["Done"]);
  const key = { "idempotency-key": "k" }, prompt = { content: "Go", thread: "t" };
  it.rest.fault = () => "drop request";
  const refused = await it.call("POST", "/runs", prompt, key);
  assert.deepEqual([refused.status, refused.json.error.code], [503, "unavailable"]);
  assert.deepEqual([await it.keys(), it.qstash.calls.length], [[], 0]);
  it.rest.fault = () => "drop response";
  assert.equal((await it.call("POST", "/runs", prompt, key)).status, 503);
  it.rest.fault = undefined;
  const [one, two] = [
    await it.call("POST", "/runs", prompt, key),
    await it.call("POST", "/runs", prompt, key),
  ];
  assert.deepEqual([one.status, two.status, one.json.id], [202, 202, two.json.id]);
  await it.qstash.idle();
  assert.equal((await it.view(one.json.id)).status, "completed");
  assert.deepEqual([it.model.requests.length, (await it.call("GET", "/runs")).json.runs.length], [1, 1]);
});

test("F05 a hand-over that cannot be published: 503, and the message's next try only publishes", async (open) => {
  await using it = await open([() => {
    it.qstash.faults.publishStatus = 500;
    return calls(["look"]);
  }, "Done"], { tools: [effect("look", [])], budget: { turns: 1 } });
  const run = await it.start();
  await it.qstash.idle();
  assert.deepEqual([it.qstash.messages[0]!.answers, it.model.requests.length], [[503], 1]);
  it.qstash.faults.publishStatus = 0;
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.deepEqual(it.qstash.messages.map(({ answers }) => answers), [[503, 200], [200]]);
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["completed", 2]);
});

test("F06 steering that a commit has taken when its process dies is in the next request, once", async (open) => {
  const done: string[] = [];
  let dies = true;
  await using it = await open([calls(["look"], ["pay"]), "Done"], {
    tools: [
      effect("look", done, async () => {
        const [{ id }] = (await it.call("GET", "/runs")).json.runs;
        assert.equal((await it.call("POST", `/runs/${id}/steering`, { content: "use EUR" })).status, 202);
        return "seen";
      }),
      effect("pay", done),
    ],
    verbs: (store) => ({
      async commit(...asked) {
        const answer = await store.commit(...asked);
        const taken = answer.is === "ok" && answer.entries.some((entry) => /^user .*use EUR/s.test(entry));
        if (dies && taken) {
          dies = false;
          it.process.kill();
        }
        return answer;
      },
    }),
  });
  const run = await it.start();
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.deepEqual(it.qstash.messages[0]!.answers, [0, 200]);
  assert.deepEqual([it.model.requests.length, (await it.view(run)).status], [2, "completed"]);
  const heard = it.model.requests[1]!.messages.map(({ content }) => textOf(content));
  assert.equal(heard.filter((text) => text === "use EUR").length, 1);
  assert.equal(done.length, 1, "what it skipped did not begin");
});

test("F09 50 messages sent over a slow line while doubled deliveries drain them: each once, in order", async (open) => {
  await using it = await open(() => "On", { budget: { turns: 3 } });
  it.qstash.faults.copies = 2;
  it.rest.fault = () => ({ delayMs: 3 });
  const run = await it.start({ thread: "t", max_iterations: 50 });
  const sent: string[][] = [[], []];
  await Promise.all(sent.map(async (mine, sender) => {
    for (let n = 1; n <= 25; n++) {
      const text = `${sender} m${n}`;
      const { status } = await it.call("POST", `/runs/${run}/steering`, { content: text });
      if (status === 202) mine.push(text);
    }
  }));
  it.rest.fault = undefined;
  const active = async () =>
    (await it.call("GET", "/runs")).json.runs.filter((one: any) => one.status !== "completed");
  await it.passUntil(async () => (await active()).length === 0);
  const { json } = await it.call("GET", "/threads/t/messages?limit=200");
  const heard = json.messages.filter(({ role }: any) => role === "user").map(({ content }: any) => content);
  assert.equal(heard.length, 51);
  sent.forEach((mine, sender) => {
    assert.equal(mine.length, 25);
    assert.deepEqual(heard.filter((text: string) => text.startsWith(`${sender} `)), mine);
  });
});

test("F11 a run cancelled while queued, at its delivery or at its last write stays cancelled, and ends once", async (open) => {
  await using it = await open(() => "Done");
  const cancel = async (run: string) => {
    const { status } = await it.call("POST", `/runs/${run}/cancel`);
    return [status, it.model.requests.length] as const;
  };
  it.qstash.inside.hold();
  const queued = await it.start({ thread: "queued" });
  assert.equal((await cancel(queued))[0], 202);
  it.qstash.inside.release();
  await it.qstash.idle();
  assert.deepEqual([(await it.view(queued)).status, it.model.requests.length], ["cancelled", 0]);

  for (let ms = 0; ms < 10; ms++) {
    const run = await it.start({ thread: `early${ms}` });
    await new Promise((resolve) => setTimeout(resolve, ms));
    const [status, requests] = await cancel(run);
    await it.qstash.idle();
    assert.equal((await it.view(run)).status, status === 202 ? "cancelled" : "completed");
    if (status === 202) assert.equal(it.model.requests.length, requests, "none begins after the answer");
    assert.equal(await ends(it, `early${ms}`), 1);
  }

  // The commit of the end is under way, and the cancel overtakes it.
  let cancelled: Promise<readonly [number, number]> | undefined;
  it.rest.fault = async (_path, commands) => {
    if (cancelled || !JSON.stringify(commands).includes("finishReason")) return undefined;
    await (cancelled = cancel(late));
  };
  const late = await it.start({ thread: "late" });
  await it.qstash.idle();
  assert.equal((await cancelled!)[0], 202);
  assert.deepEqual([(await it.view(late)).status, await ends(it, "late")], ["cancelled", 1]);
  assert.deepEqual(it.reported, []);
});

test("F25 a run is finished by processes of which each is gone after its one delivery", async (open) => {
  const done: string[] = [];
  await using it = await open(
    [calls(["pay"]), calls(["wait"]), calls(["pay"], ["pay"]), "Done"],
    {
      budget: { turns: 1 },
      tools: [
        effect("pay", done),
        defineTool({
          name: "wait",
          description: "Waits.",
          parameters: z.looseObject({}),
          wait: (_args, now) => ({ for: "time", until: now + 30_000 }),
          execute: () => "waited",
        }),
      ],
    },
  );
  it.before = async (request) => {
    const process = it.another(), answer = await process.pawl.fetch(request);
    const whole = new Response(await answer.text(), answer);
    process.kill();
    return whole;
  };
  const run = await it.start({ thread: "t" });
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.deepEqual([done.length, it.model.requests.length, await ends(it, "t")], [3, 4, 1]);
  assert.equal(
    roles(await it.messages(run)),
    "user assistant tool assistant tool assistant tool tool assistant",
  );
});
