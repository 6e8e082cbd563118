/** Runs over QStash: the real SDK, a stand-in for the service behind it, the embedded store. */
import assert from "node:assert/strict";
import * as z from "zod";
import { defineTool } from "../src/mod.ts";
import { qstashQueue } from "../src/queue/qstash.ts";
import { systemClock } from "../src/clock.ts";
import { setUpSchedule } from "../setup_schedule.ts";
import { connection, publicUrl, qstashScene } from "./support/qstash_scene.ts";
import { type Message, qstashServer } from "./support/qstash_server.ts";
import { calls } from "./support/scripted_model.ts";

const echo = defineTool({
  name: "echo",
  description: "Echoes.",
  parameters: z.looseObject({}),
  execute: () => "echo",
});
const said = ({ body }: Message) => JSON.parse(new TextDecoder().decode(body));
const delivery = { thread: "acme~a", incarnation: "i", run: "a~r", ticket: 1, hop: 0 };

Deno.test("a run in two slices is two messages, which hold ids only and forward nothing", async () => {
  await using it = await qstashScene([calls(["echo"]), "Done"], { tools: [echo], budget: { turns: 1 } });
  const { json } = await it.call("POST", "/runs", { content: "a secret", thread: "t:1" }, {
    "x-forwarded-for": "10.0.0.1",
    cookie: "session=1",
  });
  await it.qstash.idle();
  assert.equal(await it.status(json.id), "completed");
  assert.equal(it.qstash.calls.length, 2);
  const seen = new Set<string>();
  it.qstash.calls.forEach(({ method, path, headers, text }, n) => {
    assert.deepEqual([method, path], ["POST", `/v2/publish/${publicUrl}/slices`]);
    const { incarnation, ...body } = JSON.parse(text);
    assert.deepEqual(body, { v: 1, thread: "acme~t:1", run: json.id, ticket: n + 1, hop: 0 });
    assert.match(incarnation, /^\w+$/);
    const sent = Object.fromEntries([...headers].filter(([name]) => name.startsWith("upstash-")));
    // QStash refuses ":" in it.
    assert.match(sent["upstash-deduplication-id"]!, /^[0-9a-f]{64}$/);
    seen.add(sent["upstash-deduplication-id"]!);
    delete sent["upstash-deduplication-id"];
    assert.deepEqual(sent, {
      "upstash-method": "POST",
      "upstash-retries": "3",
      "upstash-retry-delay": "5000 * pow(5, retried)",
      "upstash-failure-callback": `${publicUrl}/slices/failed`,
      "upstash-failure-callback-retries": "3",
      "upstash-flow-control-key": "pawl-acme",
      "upstash-flow-control-value": "parallelism=10",
    });
  });
  assert.equal(seen.size, 2);
});

for (const status of [500, 429, 401]) {
  Deno.test(`F05 QStash answers ${status}: 503, nothing is half done, and the same again is accepted`, async () => {
    await using it = await qstashScene(["Done"]);
    it.qstash.faults.publishStatus = status;
    const key = { "idempotency-key": "one" };
    const refused = await it.call("POST", "/runs", { content: "Go", thread: "t" }, key);
    assert.deepEqual([refused.status, refused.json.error.code], [503, "unavailable"]);
    assert.ok(!JSON.stringify(refused.json).includes(it.qstash.token));
    assert.deepEqual((await it.call("GET", "/runs")).json.runs, []);
    assert.equal((await it.call("GET", "/threads/t/messages")).status, 404);
    it.qstash.faults.publishStatus = 0;
    const { status: now, json } = await it.call("POST", "/runs", { content: "Go", thread: "t" }, key);
    await it.qstash.idle();
    assert.deepEqual([now, await it.status(json.id)], [202, "completed"]);
  });
}

Deno.test("F05 QStash cannot be reached: 503 after a few tries, and no run", async () => {
  await using it = await qstashScene([], { queue: { url: "http://127.0.0.1:9" } });
  const { status, json } = await it.call("POST", "/runs", { content: "Go" });
  assert.deepEqual([status, json.error.code], [503, "unavailable"]);
  assert.deepEqual((await it.call("GET", "/runs")).json.runs, []);
});

Deno.test("F05 the hand-over cannot be published: the delivery comes again, and its repeat only publishes", async () => {
  await using it = await qstashScene([() => {
    it.qstash.faults.publishStatus = 500;
    return calls(["echo"]);
  }, "Done"], { tools: [echo], budget: { turns: 1 } });
  const run = await it.start();
  await it.qstash.idle();
  const [first] = it.qstash.messages;
  assert.deepEqual([first!.answers, it.model.requests.length], [[503], 1]);
  it.qstash.faults.publishStatus = 0;
  await it.pass(5_000);
  assert.deepEqual([first!.answers, it.model.requests.length], [[503, 200], 2]);
  assert.equal(await it.status(run), "completed");
});

Deno.test("a publish whose answer is lost is sent again and is one message", async () => {
  await using it = await qstashScene(["Done"]);
  it.qstash.faults.dropPublishAnswers = 2;
  const run = await it.start();
  await it.qstash.idle();
  assert.deepEqual([it.qstash.calls.length, it.qstash.messages.length], [3, 1]);
  assert.equal(await it.status(run), "completed");
});

Deno.test("a publish that QStash does not answer fails in time", async () => {
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, () => new Promise(() => {}));
  const queue = qstashQueue({
    ...connection({
      url: `http://127.0.0.1:${server.addr.port}`,
      token: "t",
      keys: { current: "a", next: "b" },
    }),
    timeoutMs: 50,
  });
  await assert.rejects(queue.publish(delivery), {
    name: "RetryableError",
    message: /no answer within 0.05 s/,
  });
  server.shutdown();
});

Deno.test("F19 two publishes of one ticket collapse; another hop, ticket or lease to wait for does not", async () => {
  await using qstash = await qstashServer({ fetch: () => Promise.resolve(new Response()) });
  const queue = qstashQueue(connection(qstash));
  for (const more of [{}, {}, { hop: 1 }, { ticket: 2 }, { behind: 7 }, { incarnation: "j" }]) {
    await queue.publish({ ...delivery, ...more });
  }
  assert.deepEqual([qstash.calls.length, qstash.messages.length], [6, 5]);
});

Deno.test("F19 what failed all its tries is published once more, under another id, and goes on", async () => {
  await using it = await qstashScene(["Done"]);
  let down = true;
  it.before = (request) =>
    down && request.url.endsWith("/slices") ? new Response(null, { status: 502 }) : undefined;
  const run = await it.start();
  await it.pass(154_000);
  const [first] = it.qstash.messages;
  assert.deepEqual(first!.answers, [502, 502, 502]);
  await it.pass(1_000);
  assert.deepEqual([first!.state, it.qstash.inside.dead.length], ["FAILED", 1]);
  const [, callback, again] = it.qstash.messages;
  assert.deepEqual([callback!.destination, callback!.answers], [`${publicUrl}/slices/failed`, [200]]);
  assert.deepEqual(said(again!), { ...said(first!), hop: 1 });
  assert.notEqual(again!.deduplicationId, first!.deduplicationId);
  down = false;
  await it.pass(59_000);
  assert.equal(await it.status(run), "queued");
  await it.pass(1_000);
  assert.equal(await it.status(run), "completed");
  // An operator tries the dead one again: there is nothing left to do.
  await fetch(`${it.qstash.url}/v2/dlq/retry`, {
    method: "POST",
    headers: { authorization: `Bearer ${it.qstash.token}` },
  }).then((answer) => answer.body?.cancel());
  await it.qstash.idle();
  assert.deepEqual([it.qstash.messages.at(-1)!.answers, it.model.requests.length], [[200], 1]);
});

Deno.test("a run whose functions all die is given up after five claims, and says so", async () => {
  let claims = 0;
  await using it = await qstashScene([], {
    verbs: (store) => ({
      async claim(...asked) {
        const claimed = await store.claim(...asked);
        if (claimed.is === "claimed" && ++claims <= 5) throw new Error("killed");
        return claimed;
      },
    }),
  });
  const run = await it.start();
  await it.pass(155_000);
  assert.deepEqual([claims, it.qstash.messages[0]!.state], [4, "FAILED"]);
  await it.pass(300_000);
  const { json } = await it.call("GET", `/runs/${run}`);
  assert.deepEqual([json.status, json.error.code, claims], ["failed", "attempts", 6]);
  assert.ok(it.reported.every((error) => /killed/.test(String(error))));
});

Deno.test("a delivery is never early by rounding, nor by a QStash whose clock is fast", async () => {
  await using qstash = await qstashServer({ fetch: () => Promise.resolve(new Response()) });
  const now = Date.now();
  const queue = qstashQueue({ ...connection(qstash), clock: { ...systemClock, now: () => now } });
  qstash.inside.hold();
  let hop = 0;
  for (const ahead of [0, 5_000]) {
    qstash.faults.clockAheadMs = ahead;
    for (
      const [wait, delay] of [[-1000, null], [0, null], [1, "1s"], [1000, "1s"], [1001, "2s"], [
        90_500,
        "91s",
      ]]
    ) {
      await queue.publish({ ...delivery, hop: hop++, at: now + Number(wait) });
      assert.equal(qstash.calls.at(-1)!.headers.get("upstash-delay"), delay);
    }
  }
  assert.equal(qstash.calls.some(({ headers }) => headers.has("upstash-not-before")), false);
});

const sleep = defineTool({
  name: "sleep",
  description: "Waits.",
  parameters: z.object({ ms: z.int() }),
  wait: ({ ms }, now) => ({ for: "time", until: now + ms }),
  execute: () => "slept",
});

Deno.test("a wait longer than QStash allows is chained by hop until it is over", async () => {
  await using it = await qstashScene([calls(["sleep", { ms: 25_000 }]), "Done"], {
    tools: [sleep],
    queue: { maxDelayMs: 10_000 },
    server: { limits: { maxDelayMs: 10_000 } },
  });
  const run = await it.start();
  await it.pass(24_000);
  assert.equal(await it.status(run), "waiting");
  await it.pass(2_000);
  assert.equal(await it.status(run), "completed");
  const told = it.qstash.messages.slice(1).map((message) => [said(message).ticket, said(message).hop]);
  assert.deepEqual(told, [[2, 0], [2, 1], [2, 2]]);
});

Deno.test("one tenant's runs are limited beside each other; another's do not wait for them", async () => {
  const hold = Promise.withResolvers<void>();
  await using it = await qstashScene(
    async ({ messages }) => {
      if (JSON.stringify(messages).includes("slow")) await hold.promise;
      return "Done";
    },
    { queue: { parallelism: 2 } },
  );
  const runs = [];
  for (let n = 0; n < 5; n++) runs.push(await it.start({ content: "slow" }));
  const other = await it.call("POST", "/runs", { content: "quick" }, { authorization: "Bearer key-beta" });
  for (let waits = 0; it.qstash.messages[5]!.state !== "DELIVERED" && waits < 500; waits++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(other.status, 202);
  assert.equal(it.qstash.messages[5]!.state, "DELIVERED");
  assert.equal(it.model.requests.length, 3);
  hold.resolve();
  await it.qstash.idle();
  for (const run of runs) assert.equal(await it.status(run), "completed");
  assert.deepEqual(Object.fromEntries(it.qstash.inside.most), { "pawl-acme": 2, "pawl-beta": 1 });
});

Deno.test("the sweep publishes a page in one batch and goes on as another message", async () => {
  await using it = await qstashScene(() => "Done");
  // The queue believes that it has delivered; the service has seen nothing.
  it.before = (request) => request.url.endsWith("/slices") ? new Response() : undefined;
  const runs: string[] = [];
  for (let n = 0; n < 60; n++) runs.push(await it.start());
  await it.qstash.idle();
  it.before = () => undefined;
  assert.match(
    await setUpSchedule(settings(it.qstash)),
    /^Created schedule pawl-sweep-\w{12}: POST .*\/sweep at/,
  );
  const [schedule] = it.qstash.schedules.keys();
  it.qstash.fire(schedule!);
  await it.qstash.idle();
  const batches = () => it.qstash.calls.filter(({ path }) => path === "/v2/batch");
  assert.equal(batches().length, 0, "nothing is overdue yet");
  await it.clock.advance(901_000);
  it.qstash.fire(schedule!);
  await it.qstash.idle();
  assert.deepEqual(batches().map(({ text }) => JSON.parse(text).length), [50, 10]);
  for (const run of runs) assert.equal(await it.status(run), "completed");
  assert.equal(it.qstash.messages.filter(({ destination }) => destination.endsWith("/sweep")).length, 3);
});

Deno.test("what QStash refuses of a batch keeps nothing back, and is told", async () => {
  await using qstash = await qstashServer({ fetch: () => Promise.resolve(new Response()) });
  const queue = qstashQueue(connection(qstash));
  const odd = { ...delivery, thread: "no tenant~a" };
  await assert.rejects(queue.publishAll!([odd, delivery]), {
    name: "RetryableError",
    message: "Publish to QStash: it refused 1 of 2",
  });
  assert.deepEqual(qstash.messages.map((message) => said(message).thread), ["acme~a"]);
  await queue.publishAll!([]);
  assert.equal(qstash.calls.length, 1);
});

Deno.test("the schedule is made once, and put right if it was changed", async () => {
  await using qstash = await qstashServer();
  const env = settings(qstash);
  assert.match(await setUpSchedule(env), /^Created/);
  assert.match(await setUpSchedule(env), /^Found/);
  const [schedule] = qstash.schedules.values();
  schedule!.cron = "0 0 * * *";
  assert.match(await setUpSchedule(env), /^Changed/);
  assert.equal([...qstash.schedules.values()].map(({ cron }) => cron).join(), "*/15 * * * *");
  await setUpSchedule({ ...env, PAWL_PUBLIC_URL: "https://staging.example" });
  assert.equal(qstash.schedules.size, 2);
  await assert.rejects(setUpSchedule({ ...env, QSTASH_TOKEN: "wrong" }), /QStash answered 401$/);
});

function settings(
  { url, token, keys }: { url: string; token: string; keys: { current: string; next: string } },
) {
  return {
    QSTASH_URL: url,
    QSTASH_TOKEN: token,
    QSTASH_CURRENT_SIGNING_KEY: keys.current,
    QSTASH_NEXT_SIGNING_KEY: keys.next,
    PAWL_PUBLIC_URL: `${publicUrl}/`,
  };
}
