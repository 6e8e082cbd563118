/** What POST /slices and its neighbours believe, how they answer, and what happens when QStash misbehaves. */
import assert from "node:assert/strict";
import * as z from "zod";
import { systemClock } from "../src/clock.ts";
import { RetryableError } from "../src/errors.ts";
import { deliveries } from "../src/http/deliveries.ts";
import { defineTool } from "../src/mod.ts";
import type { Delivery } from "../src/queue.ts";
import { type QstashOptions, qstashQueue } from "../src/queue/qstash.ts";
import type { Verbs } from "../src/verbs.ts";
import { setUp } from "./support/face.ts";
import { publicUrl, qstashScene } from "./support/qstash_scene.ts";
import { type Message, sign } from "./support/qstash_server.ts";
import type { Claims } from "./support/qstash_wire.ts";
import { calls } from "./support/scripted_model.ts";

const options: QstashOptions = {
  token: "t",
  currentSigningKey: "sig_current",
  nextSigningKey: "sig_next",
  publicUrl,
  clock: systemClock,
};
const delivery = { thread: "acme~a", incarnation: "i", run: "a~r", ticket: 1, hop: 0 };
const good = JSON.stringify({ v: 1, ...delivery });

/** The face over verbs that only note what is delivered. */
function noting(more: Partial<QstashOptions> = {}, deliver: () => Promise<void> = () => Promise.resolve()) {
  const came: unknown[] = [];
  const verbs = {
    deliver: (...asked: unknown[]) => (came.push(asked), deliver()),
    failed: (given: Delivery) => Promise.resolve(void came.push(given)),
    sweep: () => Promise.resolve(3),
  } as unknown as Verbs;
  const { call, reported } = setUp({ deliveries: deliveries(verbs, qstashQueue({ ...options, ...more })) });
  const post = async (
    body: string | Uint8Array<ArrayBuffer>,
    { path = "/slices", key = "sig_current", url = publicUrl + path, signature, over, headers = {} }: {
      path?: string;
      key?: string;
      url?: string;
      signature?: string;
      over?: Claims;
      headers?: Record<string, string>;
    } = {},
  ) =>
    await call("POST", path, body, {
      "upstash-signature": signature ?? await sign(key, { url, body, over }),
      "upstash-message-id": "msg_1",
      "upstash-retried": "2",
      ...headers,
    });
  return { came, post, call, reported };
}

Deno.test("F17 F26 the bytes that came are what is verified, with the current or the next key, and read once", async () => {
  const { came, post } = noting();
  const odd =
    '{ "v" : 1.0, "ticket":1,"hop":0e0, "thread":"acme\\u007ea",\n "incarnation":"i", "run":"a~r", "x":"\u00e9" }\n';
  for (const key of ["sig_current", "sig_next"]) {
    const answer = await post(odd, { key });
    assert.deepEqual([answer.status, answer.json], [200, { ok: true }]);
  }
  assert.deepEqual(came, [[delivery, "msg_1", 2], [delivery, "msg_1", 2]]);
});

Deno.test("F17 H04 what another key, path, service or body was signed for is 401, and so is no signature", async () => {
  const { came, post, call } = noting();
  const refused = [
    await post(good, { key: "sig_other" }),
    await post(good, { url: `${publicUrl}/sweep` }),
    await post(good, { url: `${publicUrl}/slices/` }),
    await post(good, { url: "https://other.example/slices" }),
    await post(good, {
      signature: await sign("sig_current", { url: `${publicUrl}/slices`, body: `${good} ` }),
    }),
    await post(good, { over: { body: undefined } }),
    await post(good, { over: { iss: "Other" } }),
    await post(good, { over: { exp: 1 } }),
    await post(good, { headers: { "upstash-message-id": "" } }),
    await post(new Uint8Array([0xff, 0xfe])),
    await call("POST", "/slices", good),
    await call("POST", "/sweep", "{}"),
    await call("POST", "/slices/failed", "{}"),
  ];
  assert.deepEqual(refused.map(({ status }) => status), refused.map(() => 401));
  assert.equal(new Set(refused.map(({ text }) => text)).size, 1);
  assert.deepEqual(came, []);
});

Deno.test("F18 a token from five seconds ahead or behind is believed, unless no tolerance is set", async () => {
  const now = Math.floor(Date.now() / 1000);
  for (const [clockToleranceS, status] of [[5, 200], [0, 401]]) {
    const { post } = noting({ clockToleranceS });
    const over = { nbf: now + 3, exp: now - 3 };
    assert.equal((await post(good, { over })).status, status);
    assert.equal((await post(good, { over: { nbf: now - 2, exp: now + 9 } })).status, 200);
  }
});

Deno.test("H03 whatever stands in the place of a signature is 401 with one and the same body", async () => {
  const { came, post } = noting();
  const whole = await sign("sig_current", { url: `${publicUrl}/slices`, body: good });
  const [head, claims, mac] = whole.split(".");
  const none = btoa('{"alg":"none"}').replace(/=+$/, "");
  const signatures = [
    ..."|sha256=|sha256=zz|.|..|...|null|Bearer x|\u00e9\u00ff.x.y".split("|"),
    "A".repeat(44),
    "a".repeat(10_000),
    `${whole}, ${whole}`,
    `${none}.${claims}.`,
    `${head}.${claims}`,
    `${head}.${claims}.${mac!.slice(0, -1)}`,
    `${head}.${btoa("[]")}.${mac}`,
  ];
  const bodies = new Set<string>();
  for (const signature of signatures) {
    const { status, text } = await post(good, { signature });
    assert.equal(status, 401, signature);
    bodies.add(text);
  }
  assert.equal(bodies.size, 1);
  assert.deepEqual(came, []);
});

Deno.test("H04 without its keys there is no queue, and keys that everybody knows are no keys", async () => {
  for (const name of ["token", "currentSigningKey", "nextSigningKey", "publicUrl"]) {
    assert.throws(() => qstashQueue({ ...options, [name]: "" }), { name: "FatalError" });
  }
  Deno.env.set("QSTASH_DEV", "true");
  try {
    const { post, came } = noting();
    assert.equal((await post(good, { key: "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r" })).status, 401);
    assert.equal((await post(good)).status, 200);
    assert.equal(came.length, 1);
  } finally {
    Deno.env.delete("QSTASH_DEV");
  }
});

Deno.test("F20 what means nothing is 489, which is not tried again", async () => {
  const { came, post } = noting();
  const strange = [
    "",
    "{",
    "null",
    "[]",
    good.replace('"v":1', '"v":2'),
    good.replace('"ticket":1', '"ticket":"1"'),
    good.replace('"thread":"acme~a",', ""),
  ];
  for (const body of strange) {
    const { status, headers } = await post(body);
    assert.deepEqual([status, headers.get("upstash-nonretryable-error")], [489, "true"], body);
  }
  for (const body of ["{}", '{"sourceBody":"%"}', `{"sourceBody":"${btoa("{}")}"}`]) {
    assert.equal((await post(body, { path: "/slices/failed" })).status, 489);
  }
  assert.deepEqual(came, []);
});

Deno.test("a body that no delivery has is refused before it is read to its end", async () => {
  const { post, came } = noting();
  const large = good.replace("}", `,"x":"${"x".repeat(70_000)}"}`);
  assert.equal((await post(large)).status, 413);
  const failure = { status: 502, body: "x".repeat(100_000), sourceBody: btoa(good) };
  assert.equal((await post(JSON.stringify(failure), { path: "/slices/failed" })).status, 200);
  assert.deepEqual(came, [delivery]);
});

Deno.test("F20 an outage is 503 and asks for more time with each try; what is asked for more exactly is asked", async () => {
  for (
    const [error, retried, seconds] of [
      [new Error("x"), "0", "5"],
      [new RetryableError("x"), "1", "25"],
      [new RetryableError("x", 90_000), "1", "90"],
      ["x", "2", "125"],
    ] as const
  ) {
    const { post } = noting({}, () => Promise.reject(error));
    const { status, headers, text } = await post(good, { headers: { "upstash-retried": retried } });
    assert.deepEqual([status, headers.get("retry-after")], [503, seconds]);
    assert.ok(!text.includes('"x"'));
  }
});

Deno.test("F20 a deleted run's delivery is done; one of an unknown schema is hopeless and left to the sweep", async () => {
  let strange = false;
  await using it = await qstashScene(["Done"], {
    verbs: (store) => ({
      async claim(...asked) {
        const claimed = await store.claim(...asked);
        return strange && claimed.is === "claimed" ? { ...claimed, settings: '{"v":2}' } : claimed;
      },
    }),
  });
  it.qstash.inside.hold();
  const gone = await it.start({ thread: "gone" });
  await it.call("DELETE", "/threads/gone").catch(() => {});
  it.qstash.inside.release();
  await it.qstash.idle();
  assert.deepEqual(it.qstash.messages[0]!.answers, [200]);
  assert.equal((await it.call("GET", `/runs/${gone}`)).status, 404);

  strange = true;
  const run = await it.start();
  await it.pass(120_000);
  assert.deepEqual(it.qstash.messages[1]!.answers, [489]);
  assert.deepEqual([it.qstash.messages.length, it.qstash.inside.dead.length, it.reported.length], [3, 1, 1]);
  assert.equal(it.model.requests.length, 0);
  // The code that knows it is deployed.
  strange = false;
  await it.clock.advance(900_000);
  await it.pawl.sweep();
  await it.qstash.idle();
  assert.equal(await it.status(run), "completed");
});

Deno.test("the store is out for seconds: the delivery comes again, and nothing is lost", async () => {
  let out = true;
  await using it = await qstashScene(["Done"], {
    verbs: (store) => ({
      claim: (...asked) => out ? Promise.reject(new Error("no route")) : store.claim(...asked),
    }),
  });
  const run = await it.start();
  await it.pass(6_000);
  assert.deepEqual(it.qstash.messages[0]!.answers, [503, 503]);
  out = false;
  await it.pass(25_000);
  assert.deepEqual(it.qstash.messages[0]!.answers, [503, 503, 200]);
  assert.equal(await it.status(run), "completed");
});

Deno.test("H04 a signed body that names another incarnation or run changes nothing", async () => {
  await using it = await qstashScene(["Done"]);
  it.qstash.inside.hold();
  const run = await it.start();
  const body = JSON.parse(new TextDecoder().decode(it.qstash.messages[0]!.body));
  for (const wrong of [{ incarnation: "other" }, { thread: `beta~${body.thread.slice(5)}` }, { ticket: 9 }]) {
    const text = JSON.stringify({ ...body, ...wrong }), url = `${publicUrl}/slices`;
    const signature = await sign("sig_current", { url, body: text });
    const headers = { "upstash-signature": signature, "upstash-message-id": "msg_x" };
    assert.equal((await it.call("POST", "/slices", text, headers)).status, 200);
  }
  assert.deepEqual([await it.status(run), it.model.requests.length], ["queued", 0]);
});

const counted = (effects: string[]) =>
  defineTool({
    name: "pay",
    description: "Pays.",
    parameters: z.looseObject({}),
    execute: (_args, { idempotencyKey }) => {
      effects.push(idempotencyKey);
      return "paid";
    },
  });

const mischief: Record<string, (it: Awaited<ReturnType<typeof qstashScene>>) => void> = {
  "twice at once": ({ qstash }) => void (qstash.faults.copies = 2),
  "five times at once": ({ qstash }) => void (qstash.faults.copies = 5),
  "again, because the answer was lost": ({ qstash }) => void (qstash.faults.dropDeliveryAnswers = 2),
  "late and out of order": ({ qstash }) => void (qstash.faults.lateMs = () => Math.random() * 20),
  "with a clock that is fast": ({ qstash }) => void (qstash.faults.clockAheadMs = 4_000),
};
for (const [how, begin] of Object.entries(mischief)) {
  Deno.test(`deliveries come ${how}: every run ends once, and pays once`, async () => {
    const effects: string[] = [];
    await using it = await qstashScene(
      ({ messages }) => messages.some(({ role }) => role === "tool") ? "Done" : calls(["pay"]),
      { tools: [counted(effects)], budget: { turns: 1 } },
    );
    begin(it);
    const runs = [];
    for (let n = 0; n < 5; n++) runs.push(await it.start());
    await it.pass(120_000);
    for (const run of runs) {
      assert.equal(await it.status(run), "completed");
      const { json } = await it.call("GET", `/runs/${run}/messages`);
      assert.deepEqual(json.messages.map(({ role }: Message & { role: string }) => role), [
        "user",
        "assistant",
        "tool",
        "assistant",
      ]);
    }
    assert.deepEqual([effects.length, new Set(effects).size], [5, 5]);
    assert.ok(it.qstash.messages.length <= 40, `${it.qstash.messages.length} messages`);
  });
}

Deno.test("keys are rotated while messages are under way", async () => {
  await using it = await qstashScene([calls(["pay"]), "Done"], {
    tools: [counted([])],
    budget: { turns: 1 },
  });
  it.qstash.inside.hold();
  const run = await it.start();
  it.qstash.rotateKeys();
  it.qstash.inside.release();
  await it.qstash.idle();
  assert.equal(await it.status(run), "completed");
  // Again, and no process was told: nothing is believed any more, and nothing is lost.
  it.qstash.rotateKeys();
  const other = await it.start();
  await it.qstash.idle();
  assert.deepEqual([it.qstash.messages.at(-1)!.answers, await it.status(other)], [[401], "queued"]);
});

Deno.test("over a real socket, behind an address that QStash does not know", async () => {
  await using it = await qstashScene([calls(["pay"]), "Done"], {
    tools: [counted([])],
    budget: { turns: 1 },
    server: { fetch: (request) => fetch(new Request(request.url.replace(publicUrl, local), request)) },
  });
  const server = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen() {} },
    (request) => it.pawl.fetch(request),
  );
  const local = `http://127.0.0.1:${server.addr.port}`;
  const run = await it.start();
  await it.qstash.idle();
  assert.equal(await it.status(run), "completed");
  await server.shutdown();
});
