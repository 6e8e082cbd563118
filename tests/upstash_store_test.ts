/** The contract on Upstash Redis, and what it costs there, how long it lives, and whose time counts. */
import assert from "node:assert/strict";
import { upstashStore } from "../src/store/upstash.ts";
import { storeContract, ttlMs } from "./contract/store.ts";
import { completed, everything, expect, result } from "./contract/store_scene.ts";
import { freshPrefix, upstash, upstashTests } from "./support/upstash.ts";

const rest = await upstash();
const test = upstashTests(rest);

storeContract("Upstash", (clock) => {
  const { url, token } = rest!;
  return Promise.resolve(upstashStore({ url, token, clock, ttlMs, prefix: freshPrefix() }));
}, { ignore: rest === undefined });

const call = (run: string, letter = "s") => `${letter}${result(run, "1.0")}`;

test("a turn with one tool call is two round trips and ten commands, however long the thread is", async ({ rest, s }) => {
  const slice = await s.running();
  const turn = async () => {
    await slice.ok({
      change: {
        append: ["assistant", "call"],
        open: { "1.0": call(slice.run) },
        progress: `${rest.requests}`,
      },
      advances: true,
    });
    await slice.ok({
      change: { append: ["result"], close: ["1.0"], progress: `${rest.requests}-` },
      quiet: { append: ["turn"] },
      take: everything,
      advances: true,
    });
  };
  const cost = async () => {
    const before = [rest.requests, await rest.commands(), rest.bytes.in + rest.bytes.out] as const;
    await turn();
    const [requests, commands, bytes] = before;
    return {
      requests: rest.requests - requests,
      commands: await rest.commands() - commands,
      bytes: rest.bytes.in + rest.bytes.out - bytes,
    };
  };
  await turn();
  const early = await cost();
  assert.deepEqual([early.requests, early.commands], [2, 10]);
  for (let i = 0; i < 5; i++) {
    await slice.ok({ change: { append: Array.from({ length: 400 }, () => "x".repeat(500)) } });
  }
  const late = await cost();
  assert.deepEqual([late.requests, late.commands], [2, 10]);
  assert.ok(late.bytes - early.bytes < 100, `${early.bytes} bytes early, ${late.bytes} late`);
});

test("every verb is one round trip", async ({ rest, s }) => {
  const trips: Record<string, number> = {};
  const count = async <T>(verb: string, body: () => Promise<T>) => {
    const before = rest.requests;
    const answer = await body();
    trips[verb] = rest.requests - before;
    return answer;
  };
  // Scripts are known after their first use.
  for (let i = 0; i < 2; i++) {
    const submission = s.submission();
    const { publish } = expect(await count("submit", () => s.store.submit(submission)), "ok");
    await count("withdraw", () => s.store.withdraw(s.submission()));
    const slice = await count("claim", () => s.slice(publish!));
    await count("commit", () => slice.ok({ take: everything }));
    await count("renew", () => s.store.renew(slice.lease, 1000));
    await count("stream", () => s.store.stream(slice.lease, ["a"], true));
    await count("read", () => s.store.read(s.thread, { from: 0 }));
    await count("put", () => s.store.put(s.thread, "h", "v"));
    await count("get", () => s.store.get(s.thread, "h"));
    await count("cancel", () => s.store.cancel(s.thread, slice.run, "{}"));
    await count("delete", () => s.store.delete(s.thread));
  }
  for (const [verb, requests] of Object.entries(trips)) assert.equal(requests, 1, verb);
});

test("a script that the server has forgotten is sent again, and the verb works", async ({ rest, s }) => {
  const slice = await s.running();
  await rest.redis.script("FLUSH");
  await slice.ok({ change: { append: ["a"] } });
  await rest.redis.script("FLUSH");
  const { publish } = await slice.ok({ change: { leave: { status: "queued" } } });
  await rest.redis.script("FLUSH");
  await s.slice(publish!);
  await rest.redis.script("FLUSH");
  assert.equal((await s.store.overdue(Number.MAX_SAFE_INTEGER, 1, 10)).length, 1);
  assert.equal((await s.log()).at(-1), "a");
});

test("scripts ask for their own keys alone, and touch no other", async ({ rest, s }) => {
  const scripts: string[] = [];
  rest.fault = (_, commands) =>
    void scripts.push(...commands.filter(([name]) => name === "eval").map((c) => c[1]!));
  await rest.redis.script("FLUSH");
  await s.running();
  assert.equal(scripts.length, 3);
  for (const script of scripts) assert.match(script, /^#!lua flags=allow-key-locking\n/);
  const strange = "#!lua flags=allow-key-locking\nreturn redis.call('GET', 'other')";
  const response = await fetch(rest.url, {
    method: "POST",
    headers: { authorization: `Bearer ${rest.token}` },
    body: JSON.stringify(["EVAL", strange, 1, "own"]),
  });
  assert.match((await response.json()).error, /touches a key that the script was not given/);
});

test("a server that is not Upstash is spared what it would refuse", async ({ rest, s }) => {
  const scripts: string[] = [];
  rest.fault = (_, commands) =>
    void scripts.push(...commands.filter(([name]) => name === "eval").map((c) => c[1]!));
  await s.running();
  assert.ok(scripts.length > 0 && scripts.every((script) => !script.includes("#!")));
}, { keyLocking: false });

// Lifetimes (CASES F16)

test(
  "all keys of a thread end at the same moment, whenever they came and whatever was emptied",
  async ({ rest, s, keys }) => {
    const ends = async () => {
      const found = await keys(), times: Record<string, number> = {};
      for (const [name, key] of Object.entries(found)) {
        // These two have their own.
        if (name !== "lease" && name !== "live") {
          times[name] = Number(
            await rest.redis.call("PEXPIRETIME", key),
          );
        }
      }
      assert.equal(new Set(Object.values(times)).size, 1, JSON.stringify(times));
      assert.ok(times.meta! > 0);
      return { names: Object.keys(times).sort().join(" "), end: times.meta! };
    };
    const { publish } = await s.prompt();
    assert.equal((await ends()).names, "mail meta open runs");
    const slice = await s.slice(publish);
    await slice.ok({ take: everything, change: { open: { "1.0": call(slice.run) } } });
    await s.send("steering", { key: { name: "k", hash: "h" } });
    await s.store.put(s.thread, "hash", "value");
    const all = await ends();
    assert.equal(all.names, "blobs log mail meta open runs seen");
    await slice.ok({ take: everything, change: { close: ["1.0"] } });
    assert.equal((await ends()).names, all.names);
    assert.equal((await ends()).end, all.end, "not each commit moves it");

    const wakeAt = Date.now() + 50_000;
    const wait = await slice.ok({ change: { leave: { status: "waiting", wakeAt } } });
    assert.equal((await ends()).end, wakeAt + 60_000);
    expect(await s.claim(wait.publish!), "nothing");
    const woken = await s.slice((await s.send("steering")).publish!);
    await woken.ok({ take: everything, change: { append: ["a"], leave: completed } });
    assert.equal((await ends()).end, wakeAt + 60_000, "it only moves outwards");
  },
  { ttlMs: 60_000 },
);

test(
  "a thread's end moves on once a tenth of its life has passed, and then it is gone as a whole",
  async ({ rest, s, keys }) => {
    const slice = await s.running();
    await s.store.put(s.thread, "hash", "value");
    const end = async () => Number(await rest.redis.call("PEXPIRETIME", (await keys()).log!));
    const before = await end();
    await s.clock.advance(120);
    await slice.ok({ change: { append: ["a"] } });
    assert.ok(await end() >= before + 100);
    await s.clock.advance(1100);
    assert.deepEqual(Object.keys(await keys()), ["lease"]);
    assert.equal(await s.store.read(s.thread, {}), undefined);
    expect(await slice.commit({ change: { append: ["late"] } }), "lost");
    expect(await s.store.renew(slice.lease, 1000), "lost");
    assert.equal(await s.store.stream(slice.lease, ["late"], true), false);
    assert.deepEqual(await s.store.runs("acme~", { limit: 10 }), []);
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, 1, 10), []);
    assert.deepEqual(Object.keys(await keys()), ["lease"]);
  },
  { ttlMs: 1000 },
);

// Time is Redis's

test("a worker that stalls past its lease is refused what it writes late (CASES F04)", async ({ rest, s, other }) => {
  const { publish } = await s.prompt();
  const a = await s.slice(publish, { message: "a", leaseMs: 150 });
  await a.ok({ take: everything });
  rest.fault = () => ({ status: 503, error: "ERR unavailable" });
  await assert.rejects(s.store.renew(a.lease, 150), { name: "RetryableError" });
  rest.fault = undefined;
  const b = other();
  const busy = expect(await b.claim(publish, { message: "b" }), "busy");
  const left = busy.publish.at! - 1000 - Date.now();
  assert.ok(left > -50 && left <= 150, `${left} ms`);
  await s.clock.advance(200);
  const taken = await b.slice(publish, { message: "b" });
  await taken.ok({ change: { append: ["end"], leave: completed } });
  expect(await a.commit({ change: { append: ["end"], leave: completed } }), "lost");
  expect(await s.store.renew(a.lease, 150), "lost");
  assert.equal((await s.log()).filter((entry) => entry === "end").length, 1);
});

test("a wait is over when Redis says so", async ({ s }) => {
  const slice = await s.running();
  const { publish } = await slice.ok({ change: { leave: { status: "waiting", wakeAt: Date.now() + 150 } } });
  assert.deepEqual(await s.claim(publish!), { is: "nothing", publish: { ...publish!, hop: 1 } });
  await s.clock.advance(160);
  await s.slice(publish!);
});
