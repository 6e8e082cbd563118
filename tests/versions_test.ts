/** Stores that another version wrote: what an older one left is read and goes on; what a newer one wrote is refused, never guessed. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { decode } from "../src/entry.ts";
import { failed } from "../src/http/failure.ts";
import { textOf } from "../src/message.ts";
import type { Store } from "../src/store.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { type Fixture, loadRedis, loadSqlite, thread, tools } from "./support/fixture.ts";
import { harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";
import { freshPrefix, upstash } from "./support/upstash.ts";
import { upstashWorlds } from "./support/upstash_world.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const folder = new URL("fixtures/", import.meta.url);
const fixtures: [string, Fixture][] = [];
for (const { name } of Deno.readDirSync(folder)) {
  fixtures.push([name.replace(/\.json$/, ""), JSON.parse(Deno.readTextFileSync(new URL(name, folder)))]);
}

const rest = await upstash(), worlds = rest && upstashWorlds(rest);

/** A store with what the fixture holds, some hours later. */
async function inSqlite(fixture: Fixture, body: (store: Store, time: VirtualTime) => Promise<void>) {
  const path = await Deno.makeTempFile({ suffix: ".db" }), time = new VirtualTime(7, fixture.at + 3_600_000);
  await Deno.remove(path);
  loadSqlite(path, fixture.sqlite);
  const store = sqliteStore(path, { clock: time });
  await body(store, time);
  await store.close();
  await Deno.remove(path);
}

async function inRedis(
  fixture: Fixture,
  body: (store: Store, time: VirtualTime, prefix: string) => Promise<void>,
) {
  const time = new VirtualTime(7, fixture.at + 3_600_000), prefix = freshPrefix();
  const store = worlds!(time, undefined, prefix);
  await loadRedis(rest!.redis, prefix, fixture.redis);
  await body(store, time, prefix);
  await store.close();
}

/** The thread is readable, and its run goes on to its end. */
async function goesOn(fixture: Fixture, store: Store, time: VirtualTime): Promise<void> {
  const ran: string[] = [], { ended, waiting, toolCallId } = fixture.run;
  const h = harness([calls(["charge", { order: 7, amount: 5 }]), "All charged", "And more"], {
    tools: tools(ran),
    store,
    time,
  });
  const before = await time.until(h.pawl.run("local", ended));
  assert.deepEqual([before.status, before.text, before.metadata], ["completed", "So far", { é: "🎉" }]);
  const messages = await time.until(h.messages(ended));
  assert.equal(textOf(messages[0]!.content), "Begin é🎉");
  assert.ok(messages.some((m) => textOf(m.content) === 'charged 7 é🎉 {"a":[]}'));
  assert.ok(messages.some((m) => textOf(m.content) === '"yes" {"saved":[]}'));

  const mail = ["And then?", "Never accepted"].map((said) =>
    messages.some((m) => textOf(m.content) === said)
  );
  assert.deepEqual(mail, [true, false]);

  await time.until(h.pawl.resolve("local", waiting, toolCallId, { approve: true }));
  const view = await h.ended(waiting);
  assert.deepEqual([view.status, view.text], ["completed", "All charged"]);
  assert.deepEqual(ran, ["charge 8"], "order 7 was charged before, and is answered from the log");
  const [request] = h.model.requests;
  assert.match(
    textOf(request!.messages[0]!.content),
    /They charged order 7/,
    "its summary is what the model gets",
  );
  const next = await h.start("More", {}, { thread });
  assert.equal((await h.ended(next.run)).text, "And more");
  const repeat = await time.until(
    h.pawl.start("local", "Begin é🎉", { metadata: { é: "🎉" } }, {
      thread,
      key: { name: "once", hash: "h" },
    }),
  );
  assert.equal(repeat.run, ended, "its idempotency keys hold");
}

for (const [version, fixture] of fixtures) {
  Deno.test(`what version ${version} left in SQLite is read, and its run goes on`, () =>
    inSqlite(fixture, (store, time) => goesOn(fixture, store, time)));

  Deno.test({
    name: `what version ${version} left in Redis is read, and its run goes on`,
    ignore: !rest,
    fn: () => inRedis(fixture, (store, time) => goesOn(fixture, store, time)),
  });
}

const present = JSON.parse(Deno.readTextFileSync(new URL("../deno.json", import.meta.url))).version;
const newest = fixtures.find(([version]) => version === present)?.[1] as Fixture;

Deno.test("there is a fixture of the present version", () => {
  assert.ok(newest, `Run deno task fixture before ${present} is released`);
});

Deno.test("a file that a newer version wrote is refused, and left as it is", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });
  await Deno.remove(path);
  loadSqlite(path, { ...newest.sqlite, version: 99 });
  assert.throws(() => sqliteStore(path, { clock: new VirtualTime() }), {
    name: "FatalError",
    message: /schema version 99.*reads \d+/,
  });
  const db = new DatabaseSync(path);
  assert.equal(db.prepare("pragma user_version").get()!.user_version, 99);
  db.close();
  await Deno.remove(path);
});

Deno.test({
  name: "a thread in Redis that a newer version wrote is refused by every verb, and left as it is",
  ignore: !rest,
  fn: () =>
    inRedis(newest, async (store, time, prefix) => {
      const { redis } = rest!, meta = `${prefix}{local~t}:meta`;
      await redis.hset(meta, "version", 2);
      const before = await redis.hgetall(meta);
      const h = harness([], { tools: tools([]), store, time });
      const refused = { message: /version 2, this version of Pawl reads 1/ };
      const { waiting, toolCallId } = newest.run;
      await assert.rejects(time.until(h.pawl.run("local", waiting)), refused);
      await assert.rejects(time.until(h.pawl.deliver(newest.delivery, "m")), {
        name: "FatalError",
        ...refused,
      });
      await assert.rejects(time.until(h.pawl.cancel("local", waiting)), refused);
      await assert.rejects(
        time.until(h.pawl.resolve("local", waiting, toolCallId, { approve: true })),
        refused,
      );
      await assert.rejects(h.start("More", {}, { thread }));
      assert.equal(await time.until(h.pawl.sweep()), 0, "the others in the store are swept");
      assert.deepEqual(await redis.hgetall(meta), before);
    }),
});

Deno.test("an entry, and settings, of a newer version are refused", async () => {
  assert.throws(() => decode("dream t~r . 0 -\n{}"), { name: "FatalError", message: /"dream"/ });
  assert.throws(() => decode("toString t~r . 0 -\n{}"), { name: "FatalError" });
  const rows = structuredClone(newest.sqlite.rows);
  for (const run of rows.run!) run.settings = String(run.settings).replace('"v":1', '"v":2');
  await inSqlite({ ...newest, sqlite: { ...newest.sqlite, rows } }, async (store, time) => {
    const h = harness([], { tools: tools([]), store, time });
    const refused = { name: "FatalError", message: /expected version 1, found 2/ };
    await assert.rejects(time.until(h.pawl.run("local", newest.run.waiting)), refused);
    await time.pass(newest.delivery.at! - time.now());
    await assert.rejects(time.until(h.pawl.deliver(newest.delivery, "m")), refused);
  });
});

Deno.test("a log that a newer version has written to is refused by deliveries and reads, and left as it is", async () => {
  const rows = structuredClone(newest.sqlite.rows);
  const last = rows.log!.at(-1)!, dream = String(last.entry).replace(/^\S+/, "dream");
  last.entry = dream;
  await inSqlite({ ...newest, sqlite: { ...newest.sqlite, rows } }, async (store, time) => {
    const h = harness([], { tools: tools([]), store, time }), { waiting } = newest.run;
    const refused = { name: "FatalError", message: /"dream".*another version/ };
    await time.pass(newest.delivery.at! - time.now());
    await assert.rejects(time.until(h.pawl.deliver(newest.delivery, "m")), refused);
    await assert.rejects(h.messages(waiting), refused);
    await assert.rejects(h.events(waiting), refused);
    const { entries } = (await store.read(`local~${thread}`, { from: rows.log!.length - 1 }))!;
    assert.equal(entries.at(-1), dream);
    const answer = failed(await h.messages(waiting).catch((error) => error));
    assert.equal(answer.status, 500);
    assert.match((await answer.json()).error.message, /Another version/);
  });
});
