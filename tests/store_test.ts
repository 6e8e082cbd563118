/** The contract on SQLite, in memory and in a file, and what only a file can show. */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { FatalError } from "../src/errors.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { storeContract, ttlMs } from "./contract/store.ts";
import { completed, expect, Scene } from "./contract/store_scene.ts";
import { manualClock } from "./support/clock.ts";

async function withFile(body: (path: string) => Promise<void> | void): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await body(`${folder}/pawl.db`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

storeContract("SQLite in memory", (clock) => Promise.resolve(sqliteStore(":memory:", { clock, ttlMs })));

storeContract("SQLite in a file", async (clock) => {
  const folder = await Deno.makeTempDir();
  const store = sqliteStore(`${folder}/pawl.db`, { clock, ttlMs });
  const close = store.close.bind(store);
  store.close = async () => {
    await close();
    await Deno.remove(folder, { recursive: true });
  };
  return store;
});

Deno.test("SQLite: a file opened again has everything", () =>
  withFile(async (path) => {
    const clock = manualClock();
    const before = new Scene(sqliteStore(path, { clock }), clock);
    const slice = await before.running({ key: { name: "k", hash: "h" } });
    await before.send("follow_up");
    const { publish } = await slice.ok({
      change: { append: ["a"], open: { "1.0": "pz" }, progress: "7", leave: { status: "queued" } },
    });
    await before.store.put(before.thread, "hash", "value");
    const reading = await before.store.read(before.thread, { from: 0 });
    await before.store.close();

    const after = new Scene(sqliteStore(path, { clock }), clock);
    assert.deepEqual(await after.store.read(after.thread, { from: 0 }), reading);
    assert.equal(await after.store.get(after.thread, "hash"), "value");
    expect(await after.submit({ key: { name: "k", hash: "h" } }), "repeat");
    const next = await after.slice(publish!);
    const { open, progress, mail } = next.claimed;
    assert.deepEqual({ open, progress, mail }, {
      open: { "1.0": "pz" },
      progress: "7",
      mail: { steering: 0, followUps: 1 },
    });
    await next.ok({ change: { leave: completed } });
    await after.store.close();
  }));

Deno.test("SQLite: what was answered survives the death of the process, without a close", () =>
  withFile(async (path) => {
    const script = `
      import { sqliteStore } from "${new URL("../src/store/sqlite.ts", import.meta.url)}";
      import { systemClock } from "${new URL("../src/clock.ts", import.meta.url)}";
      const store = sqliteStore(${JSON.stringify(path)}, { clock: systemClock });
      await store.submit({ thread: "a~t", incarnation: "i", run: "t~r", settings: "{}", due: 1,
        mail: { kind: "steering", id: "m1", body: "{}", note: "" } });
      Deno.kill(Deno.pid, "SIGKILL");`;
    const child = new Deno.Command(Deno.execPath(), { args: ["eval", script], env: { NO_COLOR: "1" } });
    const { signal } = await child.output();
    assert.equal(signal, "SIGKILL");
    const store = sqliteStore(path, { clock: manualClock(Date.now()) });
    const reading = (await store.read("a~t", {}))!;
    assert.deepEqual([reading.run!.status, reading.mail.steering], ["queued", 1]);
    await store.close();
  }));

Deno.test("SQLite: two stores on one file fence each other", () =>
  withFile(async (path) => {
    const clock = manualClock();
    const one = new Scene(sqliteStore(path, { clock }), clock);
    const other = new Scene(sqliteStore(path, { clock }), clock);
    const { publish } = await one.prompt();
    const zombie = await one.slice(publish);
    expect(await other.claim(publish, { message: "another" }), "busy");
    const slice = await other.slice(publish);
    expect(await zombie.commit({ change: { append: ["late"] } }), "lost");
    await slice.ok({ change: { append: ["good"] } });
    assert.deepEqual(await one.log(), ["good"]);
    await one.store.close();
    await other.store.close();
  }));

Deno.test("SQLite: what a commit writes does not grow with the thread", () =>
  withFile(async (path) => {
    const clock = manualClock();
    const s = new Scene(sqliteStore(path, { clock }), clock);
    const slice = await s.running({ settings: JSON.stringify({ system: "x".repeat(100_000) }) });
    const grow = async (commits: number) => {
      const before = (await Deno.stat(`${path}-wal`)).size;
      for (let i = 0; i < commits; i++) {
        await slice.ok({ change: { append: ["x".repeat(500)], progress: `${i}` } });
      }
      return (await Deno.stat(`${path}-wal`)).size - before;
    };
    const early = await grow(30);
    // Past a thousand pages the log file is begun anew, and would then seem not to grow at all.
    await slice.ok({ change: { append: Array.from({ length: 1000 }, () => "x".repeat(500)) } });
    const late = await grow(30);
    assert.ok(late < early * 1.5, `${early} bytes early, ${late} late`);
    // Three pages: of the thread, of the log and of its index.
    assert.ok(early / 30 < 26_000, `${early / 30} bytes a commit`);
    await s.store.close();
  }));

Deno.test("SQLite: a file of a newer version is refused in one clear line", () =>
  withFile((path) => {
    const db = new DatabaseSync(path);
    db.exec("pragma user_version = 99");
    db.close();
    assert.throws(() => sqliteStore(path, { clock: manualClock() }), (error) => {
      assert.ok(error instanceof FatalError);
      assert.equal(error.code, "schema");
      assert.match(error.message, /schema version 99.*reads \d+.*Run a newer Pawl/);
      assert.ok(!error.message.includes("\n"));
      return true;
    });
  }));

Deno.test("SQLite: another program's database is refused and left as it was", () =>
  withFile((path) => {
    const db = new DatabaseSync(path);
    db.exec("create table thread (x)");
    assert.throws(() => sqliteStore(path, { clock: manualClock() }), { name: "FatalError", code: "schema" });
    assert.deepEqual(db.prepare("select name from sqlite_schema").all().map((row) => row.name), ["thread"]);
    assert.equal(db.prepare("pragma journal_mode").get()!.journal_mode, "delete");
    db.close();
  }));

Deno.test("SQLite: a file that cannot be opened is named", () => {
  assert.throws(() => sqliteStore("/nowhere/at/all/pawl.db", { clock: manualClock() }), {
    name: "FatalError",
    message: /\/nowhere\/at\/all\/pawl\.db.*folder must exist/,
  });
});
