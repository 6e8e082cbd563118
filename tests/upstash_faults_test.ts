/** The store on Upstash Redis when requests fail, answers are lost, processes race and watchers die. */
import assert from "node:assert/strict";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { eventually, everything, expect, type Scene } from "./contract/store_scene.ts";
import { manualClock } from "./support/clock.ts";
import { upstash, upstashTests } from "./support/upstash.ts";

const test = upstashTests(await upstash());

// Failures

const secret = "SEKRIT-value";

test("errors say what to do, and never what was sent", async ({ rest, s, other }) => {
  const slice = await s.running();
  const seen: string[] = [];
  const fails = async (body: () => Promise<unknown>, name: string, message: RegExp) => {
    await assert.rejects(body, (error: Error) => {
      assert.equal(error.name, name);
      assert.match(error.message, message);
      seen.push(Deno.inspect(error, { depth: 10 }), error.stack!, error.message);
      return true;
    });
  };
  const write = (scene = s) => () =>
    scene.store.commit(slice.lease, { sequence: 2, known: 1, change: { append: [secret] }, due: 0 });
  const submit = () => s.submit({ settings: secret, mail: s.mail("steering", secret) });
  const faults = [
    [
      { status: 400, error: `ERR unknown command, with args beginning with: '${secret}'` },
      /Upstash Redis: ERR unknown command$/,
    ],
    [{ status: 400, error: `ERR no such thing as '${secret}'` }, /Upstash Redis: ERR no such thing as …$/],
    [
      { status: 429, error: "ERR max daily request limit exceeded. Limit: 10000" },
      /max daily request limit exceeded/,
    ],
    ["drop request", /cannot be reached/],
    ["drop response", /cannot be reached/],
  ] as const;
  for (const [fault, message] of faults) {
    rest.fault = () => fault;
    await fails(write(), "RetryableError", message);
    await fails(submit, "RetryableError", message);
  }
  rest.fault = () => ({ delayMs: 100 });
  await fails(
    write(other({ timeoutMs: 50 })),
    "RetryableError",
    /did not answer within 50 ms, so nobody knows/,
  );
  await fails(write(other({ token: "SEKRIT-token" })), "FatalError", /refuses the token/);
  const proxy = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen() {} },
    () => new Response(`<p>${secret}`),
  );
  await fails(
    write(other({ url: `http://127.0.0.1:${proxy.addr.port}` })),
    "RetryableError",
    /answered no JSON/,
  );
  await proxy.shutdown();
  await fails(
    write(other({ url: `http://127.0.0.1:${proxy.addr.port}` })),
    "RetryableError",
    /cannot be reached/,
  );
  for (const text of seen) assert.ok(!text.includes("SEKRIT"), text);
});

test("a commit or prompt whose answer was lost is sent again, and was made once", async ({ rest, s }) => {
  const submission = s.submission({ key: { name: "k", hash: "h" } });
  rest.fault = () => "drop response";
  await assert.rejects(s.store.submit(submission));
  rest.fault = undefined;
  const { publish } = expect(await s.store.submit(submission), "repeat");
  const slice = await s.slice(publish!);
  rest.fault = () => "drop response";
  const commit = { sequence: 1, change: { append: ["a"] }, take: everything };
  await assert.rejects(slice.commit(commit));
  rest.fault = undefined;
  const { entries } = await slice.ok(commit);
  assert.deepEqual(entries.map((entry) => entry.split("\n")[0]), ["a", `user ${slice.run} . 0 m1`]);
  assert.equal((await s.log()).length, 2);
});

test("what one request cannot carry is refused before it is sent (CASES F15)", async ({ rest, s }) => {
  const slice = await s.running();
  const before = rest.requests;
  for (
    const write of [
      () => slice.commit({ change: { append: ["x".repeat(10_500_000)] } }),
      () => slice.commit({ change: { append: Array.from({ length: 7 }, () => "\u0001".repeat(300_000)) } }),
      () => s.store.put(s.thread, "hash", "é".repeat(5_500_000)),
    ]
  ) {
    await assert.rejects(write, {
      name: "FatalError",
      code: "too_large",
      message: /\d+\.\d MB at once.*Nothing was written$/,
    });
  }
  assert.equal(rest.requests, before);
  // What the port allows passes: 2,000 entries, 1 MB, and a value of 8 MB.
  await slice.ok({ change: { append: Array.from({ length: 2000 }, () => "x".repeat(500)) } });
  await s.store.put(s.thread, "hash", "é".repeat(4_000_000));
  assert.equal((await s.store.get(s.thread, "hash"))!.length, 4_000_000);
});

test("thousands of entries, calls and items pass through a script", async ({ s }) => {
  const slice = await s.running();
  const many = (count: number) => Array.from({ length: count }, (_, i) => `${i}`);
  const open = Object.fromEntries(many(9000).map((i) => [i, `s${i}`]));
  await slice.ok({ change: { append: many(20_000), open } });
  assert.equal(await s.store.stream(slice.lease, many(9000), true), true);
  assert.equal((await s.store.read(s.thread, {}))!.live!.items.length, 9000);
  const again = await s.slice({ thread: s.thread, incarnation: "i1", run: slice.run, ticket: 1, hop: 0 });
  assert.deepEqual([again.claimed.length, Object.keys(again.claimed.open).length], [20_001, 9000]);
  await again.ok({ change: { close: many(8999) } });
  assert.equal(await s.store.cancel(s.thread, slice.run, "{}"), "ok");
  assert.equal((await s.store.read(s.thread, {}))!.length, 20_003);
});

test("a byte order mark comes back", async ({ s }) => {
  await s.prompt();
  await s.store.put(s.thread, "hash", "\ufeffvalue");
  assert.equal(await s.store.get(s.thread, "hash"), "\ufeffvalue");
});

test("50 messages over a slow line while two drain: each once, in order (CASES F09)", async ({ rest, s, other }) => {
  let n = 0;
  rest.fault = () => ({ delayMs: (n++ * 7) % 20 });
  const { publish } = await s.prompt();
  const sent: string[] = [];
  let sending = true;
  const send = async () => {
    for (let i = 0; i < 50; i++) {
      const { message } = expect(await s.submit({ like: "talk~r1", settings: undefined }), "ok");
      sent.push(message);
    }
    sending = false;
  };
  const drain = async (scene: Scene, message: string) => {
    while (sending || (await scene.store.read(scene.thread, {}))!.mail.steering > 0) {
      const claimed = await scene.claim(publish, { message, leaseMs: 0 });
      if (claimed.is !== "claimed") continue;
      const { lease, length: known } = claimed;
      await scene.store.commit(lease, {
        sequence: 1,
        known,
        change: {},
        take: [{ kinds: ["steering"], all: false }],
        due: 0,
      });
    }
  };
  await Promise.all([send(), drain(s, "a"), drain(other(), "b")]);
  assert.deepEqual(await s.taken(), ["m1", ...sent]);
});

// Hints

test("a run is found overdue although its start's answer was lost, or an index could not be written", async ({ rest, s }) => {
  rest.fault = () => "drop response";
  await assert.rejects(s.submit());
  rest.fault = undefined;
  assert.equal((await s.store.overdue(Number.MAX_SAFE_INTEGER, 1, 10)).length, 1);
  // Mail that starts a run is listed in a second request.
  await s.store.cancel(s.thread, "talk~r1", "{}");
  rest.fault = (_, commands) =>
    commands[0]![0] === "zadd" && commands.length === 3 ? "drop request" : undefined;
  const { run, publish } = expect(await s.submit({ like: "talk~r1", settings: undefined }), "ok");
  rest.fault = undefined;
  await s.slice(publish!);
  const listed = (await s.store.runs("acme~", { limit: 10 })).map((r) => r.run);
  assert.deepEqual(listed.sort(), ["talk~r1", run].sort());
});

test("a run that starts while a sweep forgets its thread is not forgotten", async ({ rest, s }) => {
  const { run } = await s.prompt();
  await s.store.cancel(s.thread, run, "{}");
  let started: Promise<unknown> | undefined;
  // The sweep's last word: the thread has nothing due.
  rest.fault = async (_, [command]) => {
    if (!started && command!.at(-1) === s.thread) await (started = s.prompt());
    return undefined;
  };
  const now = Date.now(), next = now + 15 * 60_000;
  assert.deepEqual(await s.store.overdue(now + 1000, next, 10), []);
  assert.ok(started);
  assert.equal((await s.store.overdue(next + 60_000, next + 120_000, 10)).length, 1);
});

test("threads with nothing due do not hide those that have", async ({ s }) => {
  for (let i = 0; i < 7; i++) await s.prompt({ thread: `acme~${i}`, incarnation: `i${i}`, run: `${i}~r` });
  for (let i = 0; i < 5; i++) await s.store.cancel(`acme~${i}`, `${i}~r`, "{}");
  const before = Date.now() + 60 * 60_000;
  const threads = (await s.store.overdue(before, before + 60_000, 2)).map((delivery) => delivery.thread);
  assert.deepEqual(threads.sort(), ["acme~5", "acme~6"]);
});

test("what did not start a run is not listed, and what is gone is listed no more", async ({ rest, s, prefix }) => {
  await s.running();
  await s.submit({ ifBusy: "mail" });
  await s.submit({ ifBusy: "reject" });
  assert.equal((await s.store.runs("acme~", { limit: 10 })).length, 1);
  await s.prompt({ thread: "acme~other", run: "other~r" });
  await s.store.delete(s.thread);
  assert.deepEqual(await s.store.runs("acme~", { limit: 10 }), [{ thread: "acme~other", run: "other~r" }]);
  const [index] = await rest.redis.keys(`${prefix}runs:*`);
  assert.equal(await rest.redis.zcard(index!), 1);
});

// Watching

test("who watches from one process is woken by another, and by nothing once the line is cut", async ({ rest, s, other }) => {
  const slice = await s.running();
  const watcher = other();
  let woken = 0;
  const stop = watcher.store.watch(s.thread, () => woken++);
  await eventually(() => woken > 0, "the subscription stands");
  woken = 0;
  // One that shows no partials is woken too, but nothing is streamed for it.
  assert.equal((await slice.ok({ change: { append: ["a"] } })).watched, false);
  await eventually(() => woken > 0, "a commit wakes");
  stop();
  await eventually(() => rest.subscriptions === 0, "the subscription is given up");
  await watcher.store.close();
  const before = await rest.commands();
  await slice.ok({ change: { append: ["b"] } });
  assert.equal(await rest.commands() - before, 4);
});

test("who watched for long is heard when it leaves, also after memory was collected", async ({ rest, s }) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void, slice = await s.running();
  let woken = 0;
  const stop = s.store.watch(s.thread, () => woken++);
  await eventually(() => woken > 0, "the subscription stands");
  // So many messages later nothing holds on to what would hear the signal.
  for (let n = 0; n < 1000; n++) {
    const before = woken;
    await slice.ok({ change: { append: ["a"] } });
    await eventually(() => woken > before, "a commit wakes");
  }
  for (let n = 0; n < 3; n++) {
    collect();
    await s.clock.advance(20);
  }
  stop();
  await eventually(() => rest.subscriptions === 0, "the subscription is given up");
});

const clock = manualClock(Date.now());
test(
  "a watcher that died without a word counts as one for little more than a minute",
  async ({ s, other }) => {
    const slice = await s.running();
    let woken = 0;
    const dead = other();
    dead.store.watch(s.thread, () => woken++, { live: true });
    await eventually(() => woken > 0, "the subscription stands");
    const watched = async () => expect(await s.store.renew(slice.lease, 1e6), "ok").watched;
    assert.equal(await watched(), true);
    // It says so again every 30 s.
    for (let i = 0; i < 5; i++) {
      await clock.advance(30_000);
      assert.equal(await watched(), true);
    }
  },
  { clock },
);
