/** Deliveries of QStash to a service on Upstash Redis: refused, doubled, early, hopeless, given up, swept; each leads to one run's one end. */
import assert from "node:assert/strict";
import * as z from "zod";
import { defineTool } from "../src/mod.ts";
import { publicUrl } from "./support/qstash_scene.ts";
import { type Message, sign } from "./support/qstash_server.ts";
import { calls } from "./support/scripted_model.ts";
import { type UpstashScene, upstashSceneTests } from "./support/upstash_scene.ts";

const test = await upstashSceneTests();

const wait = defineTool({
  name: "wait",
  description: "Waits a minute.",
  parameters: z.looseObject({}),
  wait: (_args, now) => ({ for: "time", until: now + 60_000 }),
  execute: () => "waited",
});
const look = defineTool({
  name: "look",
  description: "Looks.",
  parameters: z.looseObject({}),
  execute: () => "seen",
});

const said = ({ body }: Message) => JSON.parse(new TextDecoder().decode(body));
const answers = ({ qstash }: UpstashScene) => qstash.messages.map((message) => message.answers);

/** All that is stored, to be compared. */
async function dump({ rest: { redis }, prefix }: UpstashScene): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const key of await redis.keys(`${prefix}{*`)) values[key] = await redis.dumpBuffer(key);
  return values;
}

async function post(it: UpstashScene, body: unknown, key?: string): Promise<number> {
  const text = JSON.stringify(body), url = `${publicUrl}/slices`;
  const signature = key && { "upstash-signature": await sign(key, { url, body: text }) };
  return (await it.call("POST", "/slices", text, { "upstash-message-id": "msg_x", ...signature })).status;
}

test("H04 what is not signed is 401, and what names another tenant, run or incarnation finds nothing there", async (open) => {
  await using it = await open(() => "Done");
  it.qstash.inside.hold();
  const run = await it.start({ thread: "t" });
  const others = await it.call("POST", "/runs", { content: "Go", thread: "t" }, {
    authorization: "Bearer key-beta",
  });
  assert.equal(others.status, 202);
  const [mine, theirs] = it.qstash.messages.map(said), before = await dump(it);
  const { current } = it.qstash.keys;
  assert.equal(await post(it, mine), 401);
  assert.equal(await post(it, mine, "sig_other"), 401);
  for (
    const wrong of [
      { ...mine, thread: theirs.thread },
      { ...mine, run: theirs.run },
      { ...theirs, thread: mine.thread },
      { ...mine, incarnation: theirs.incarnation },
      { ...mine, thread: "acme~none" },
      { ...mine, thread: "acme~t}:meta{" },
    ]
  ) assert.equal(await post(it, wrong, current), 200);
  assert.deepEqual(await dump(it), before);
  assert.equal(it.model.requests.length, 0);
  it.qstash.inside.release();
  await it.qstash.idle();
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["completed", 2]);
});

test("a start while QStash cannot be reached is 503, and leaves nothing in Redis", async (open) => {
  await using it = await open(["Done"], { queue: { url: "http://127.0.0.1:9" } });
  const { status, json } = await it.call("POST", "/runs", { content: "Go", thread: "t" }, {
    "idempotency-key": "k",
  });
  assert.deepEqual([status, json.error.code], [503, "unavailable"]);
  assert.deepEqual(await dump(it), {});
  assert.deepEqual((await it.call("GET", "/runs")).json.runs, []);
  assert.equal((await it.call("GET", "/threads/t/messages")).status, 404);
});

test("a start that QStash refuses in a thread with a past leaves that past, and mail to a run leaves the run", async (open) => {
  const hold = Promise.withResolvers<void>();
  await using it = await open(["Done", async () => (await hold.promise, "Done again")]);
  await it.start({ thread: "t" });
  await it.qstash.idle();
  const before = await it.call("GET", "/threads/t/messages");
  it.qstash.faults.publishStatus = 500;
  assert.equal((await it.call("POST", "/runs", { content: "More", thread: "t" })).status, 503);
  assert.deepEqual((await it.call("GET", "/threads/t/messages")).json, before.json);
  assert.equal((await it.call("GET", "/runs")).json.runs.length, 1);
  it.qstash.faults.publishStatus = 0;
  const run = await it.start({ thread: "t" });
  await it.passUntil(() => it.model.requests.length === 2);
  // Mail to a run that works needs no delivery.
  it.qstash.faults.publishStatus = 500;
  assert.equal((await it.call("POST", `/runs/${run}/follow_ups`, { content: "And?" })).status, 202);
  hold.resolve();
  await it.qstash.idle();
  assert.equal(it.model.requests.length, 3);
});

test("F20 a deleted run's delivery is done, one of an unknown schema is hopeless, an outage is tried again", async (open) => {
  await using it = await open(["Done", "Done"]);
  it.qstash.inside.hold();
  const gone = await it.start({ thread: "gone" }), strange = await it.start({ thread: "strange" });
  assert.equal((await it.call("DELETE", "/threads/gone")).status, 204);
  const runs = `${it.prefix}{acme~strange}:runs`, field = `settings:${strange}`;
  const settings = (await it.rest.redis.hget(runs, field))!;
  await it.rest.redis.hset(runs, field, settings.replace('"v":1', '"v":2'));
  it.qstash.inside.release();
  await it.qstash.idle();
  assert.deepEqual(answers(it).slice(0, 2), [[200], [489]]);
  await it.pass(120_000);
  assert.deepEqual([answers(it), it.model.requests.length], [[[200], [489], [200]], 0], "and its callback");
  assert.equal((await it.call("GET", `/runs/${gone}`)).status, 404);
  // The version that knows it comes, and the sweep finds it.
  await it.rest.redis.hset(runs, field, settings);
  await it.clock.advance(900_000);
  await it.process.pawl.sweep();
  await it.qstash.idle();
  assert.equal((await it.view(strange)).status, "completed");

  it.qstash.inside.hold();
  const run = await it.start({ thread: "out" }), message = it.qstash.messages.at(-1)!;
  it.rest.fault = () => ({ status: 503, error: "ERR unavailable" });
  it.qstash.inside.release();
  await it.passUntil(() => message.answers.length === 2);
  it.rest.fault = undefined;
  await it.passUntil(() => message.state === "DELIVERED");
  assert.deepEqual([message.answers, (await it.view(run)).status], [[503, 503, 200], "completed"]);
});

test("F19 a hand-over that is never delivered is published by the sweep under an id that is not remembered", async (open) => {
  await using it = await open([calls(["look"]), calls(["look"]), "Done"], {
    tools: [look],
    budget: { turns: 1 },
  });
  const run = await it.start({ thread: "t" });
  // From the third slice on nothing arrives, nor that it did not.
  let arrives = false;
  it.before = ({ url }) => {
    const lost = url.endsWith("/failed") || (!arrives && it.model.requests.length >= 2);
    return lost ? new Response(null, { status: 502 }) : undefined;
  };
  await it.passUntil(() => it.qstash.messages[2]?.state === "FAILED");
  const third = it.qstash.messages[2]!;
  assert.deepEqual([third.state, said(third).ticket, it.model.requests.length], ["FAILED", 3, 2]);
  arrives = true;
  await it.clock.advance(900_000);
  await it.qstash.idle();
  assert.equal((await it.view(run)).status, "queued");
  assert.equal(await it.process.pawl.sweep(), 1);
  await it.qstash.idle();
  const again = it.qstash.messages.at(-1)!;
  assert.deepEqual([said(again).ticket, again.answers], [3, [200]]);
  assert.equal(said(again).hop > 0, true);
  assert.equal((await it.view(run)).status, "completed");
  const ids = it.qstash.messages.map(({ deduplicationId }) => deduplicationId).filter(Boolean);
  assert.equal(new Set(ids).size, ids.length);
  assert.equal(await it.process.pawl.sweep(), 0, "nothing is overdue any more");
});

test("what QStash gave up on is published once more, a minute later, and then the run goes on", async (open) => {
  await using it = await open(["Done"]);
  let down = true;
  it.before = (request) =>
    down && request.url.endsWith("/slices") ? new Response(null, { status: 502 }) : undefined;
  const run = await it.start();
  await it.passUntil(() => it.qstash.inside.dead.length === 1);
  down = false;
  await it.passUntil(() => it.qstash.messages.length === 3);
  const [, callback, again] = it.qstash.messages;
  assert.ok(again!.notBefore - callback!.createdAt >= 60_000);
  assert.equal((await it.view(run)).status, "queued");
  await it.passUntil(() => again!.state === "DELIVERED");
  assert.deepEqual(answers(it), [[502, 502, 502, 502], [200], [200]]);
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["completed", 1]);
});

test("a busy lease: the other delivery is done at once and comes again when the lease ends, to find nothing", async (open) => {
  const hold = Promise.withResolvers<void>();
  await using it = await open([async () => (await hold.promise, "Done")], { leaseMs: 20_000 });
  const run = await it.start();
  await it.passUntil(() => it.model.requests.length === 1);
  const ends = it.clock.now() + 20_000;
  await it.again(it.qstash.messages[0]!);
  await it.again(it.qstash.messages[0]!);
  // Both wait for one and the same lease.
  assert.deepEqual(answers(it), [[], [200], [], [200]]);
  const later = it.qstash.messages[2];
  assert.ok(later!.notBefore >= ends - 1000 && later!.notBefore <= ends + 3000, `${later!.notBefore - ends}`);
  hold.resolve();
  await it.pass(30_000);
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["completed", 1]);
  assert.equal(it.qstash.messages.length, 4);
});

test("a function dies: the next try of its message goes on at once; a duplicate of the first try would not", async (open) => {
  await using it = await open([() => new Promise(() => {}), "Done"], { leaseMs: 60_000 });
  const run = await it.start({ thread: "t" });
  await it.passUntil(() => it.model.requests.length === 1);
  const [message] = it.qstash.messages, began = it.clock.now();
  const duplicate = async () => {
    const text = new TextDecoder().decode(message!.body), url = `${publicUrl}/slices`;
    const headers = {
      "upstash-signature": await sign(it.qstash.keys.current, { url, body: text }),
      "upstash-message-id": message!.id,
      "upstash-retried": "0",
    };
    return (await it.call("POST", "/slices", text, headers)).status;
  };
  assert.deepEqual([await duplicate(), it.model.requests.length], [200, 1]);
  it.process.kill();
  assert.deepEqual([await duplicate(), it.model.requests.length], [200, 1], "nobody knows that it died");
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.ok(it.clock.now() - began < 10_000, "long before the lease has ended");
  assert.deepEqual(message!.answers, [0, 200]);
  assert.equal((await it.log("t")).filter(({ kind }) => kind === "end").length, 1);
});

test("a delivery before its time changes nothing, and comes again for its time", async (open) => {
  await using it = await open([calls(["wait"]), "Done"], { tools: [wait] });
  const run = await it.start();
  await it.qstash.idle();
  const until = it.qstash.messages[1]!.notBefore;
  await it.pass(10_000);
  await it.again(it.qstash.messages[1]!);
  const early = it.qstash.messages.at(-1)!;
  assert.deepEqual([said(early).ticket, said(early).hop], [2, 1]);
  assert.ok(early.notBefore >= until - 1000);
  await it.pass(45_000);
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["waiting", 1]);
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.deepEqual([(await it.view(run)).status, it.model.requests.length], ["completed", 2]);
});

test("the sweep publishes stranded runs page after page, and a second one at once shares the work", async (open) => {
  await using it = await open(() => "Done");
  // QStash believes that it has delivered; the service has seen nothing.
  it.before = (request) => request.url.endsWith("/slices") ? new Response() : undefined;
  const runs: string[] = [];
  for (let n = 0; n < 60; n++) runs.push(await it.start());
  await it.qstash.idle();
  it.before = () => undefined;
  await it.clock.advance(901_000);
  const sweep = { destination: `${publicUrl}/sweep`, method: "POST", headers: {}, retries: 0, notBefore: 0 };
  const body = new TextEncoder().encode("{}");
  for (let n = 0; n < 2; n++) it.qstash.inside.accept({ ...sweep, body });
  await it.qstash.idle();
  const batches = it.qstash.calls.filter(({ path }) => path === "/v2/batch").map(({ text }) =>
    JSON.parse(text)
  );
  assert.equal(batches.reduce((sum, batch) => sum + batch.length, 0), 60);
  assert.ok(batches.every((batch) => batch.length <= 50));
  for (const run of runs) assert.equal((await it.view(run)).status, "completed");
  assert.equal(it.model.requests.length, 60);
});
