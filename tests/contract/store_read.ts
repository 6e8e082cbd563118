/** Reading, watching, large values, lifetimes, listings. */
import assert from "node:assert/strict";
import { completed, eventually, everything, expect, minute, type Test, ttlMs } from "./store_scene.ts";

const texts = [
  "null",
  "007",
  '{"a":1}',
  '"x"',
  "[]",
  "{}",
  "12345678901234567890",
  '{"empty":[],"big":9007199254740993,"exp":1e400}',
  '"\\ud800 lone, \\u0000 nul"',
  '"😀 — ü\u2028"',
  "  spaced\r\n\ttext  ",
  "",
];

export function reading(test: Test): void {
  test("bytes out are bytes in", async (s) => {
    for (const [i, text] of texts.entries()) {
      const thread = `acme~text${i}`;
      const mail = { kind: "steering" as const, id: "m", body: text, note: text };
      const { publish } = await s.prompt({ thread, settings: text, mail });
      const slice = await s.slice(publish);
      const open = { "1.0": `p${text}` };
      await slice.ok({ change: { append: [text], progress: text, open }, take: everything });
      const again = await s.slice(publish);
      const { entries, settings, progress } = again.claimed;
      assert.deepEqual({ entries, settings, progress, open: again.claimed.open }, {
        entries: [text, `user ${slice.run} . 0 m\n${text}`],
        settings: text,
        progress: text,
        open,
      });
      await s.store.put(thread, "hash", text);
      assert.equal(await s.store.get(thread, "hash"), text);
      await s.store.cancel(thread, slice.run, text);
      const log = (await s.store.read(thread, { from: 2 }))!.entries;
      assert.deepEqual(log, [text, `end ${slice.run} . 0 -\n${text}`]);
    }
  });

  test("a thread of 20 MB is read in pages", async (s) => {
    const slice = await s.running();
    for (let i = 0; i < 80; i++) await slice.ok({ change: { append: [`${i} `.padEnd(250_000, "é")] } });
    const { publish } = await slice.ok({ change: { leave: { status: "queued" } } });
    const { claimed } = await s.slice(publish!);
    assert.equal(claimed.length, 81);
    const entries = [...claimed.entries];
    let pages = 1;
    for (; entries.length < claimed.length; pages++) {
      const page = (await s.store.read(s.thread, { from: entries.length }))!.entries;
      assert.ok(page.length > 0 && page.join("").length <= 2_000_000);
      entries.push(...page);
    }
    assert.ok(pages >= 10, `${pages} pages`);
    assert.deepEqual(
      entries.slice(1).map((e) => Number(e.split(" ")[0])),
      Array.from({ length: 80 }, (_, i) => i),
    );
    assert.deepEqual((await s.store.read(s.thread, { from: 81 }))!.entries, []);
  });

  test("an entry larger than a page is still read", async (s) => {
    const slice = await s.running();
    const large = "x".repeat(3_000_000);
    await slice.ok({ change: { append: [large, "next"] } });
    assert.deepEqual((await s.store.read(s.thread, { from: 1 }))!.entries, [large]);
    assert.deepEqual((await s.store.read(s.thread, { from: 2 }))!.entries, ["next"]);
  });

  test("reading gives entries only from where it is asked to", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { append: ["a", "b"] } });
    assert.deepEqual((await s.store.read(s.thread, {}))!.entries, []);
    assert.deepEqual((await s.store.read(s.thread, { from: 2 }))!.entries, ["b"]);
    const reading = (await s.store.read(s.thread, { run: "talk~nobody" }))!;
    assert.deepEqual([reading.run, reading.current], [undefined, slice.run]);
    assert.equal(await s.store.read("acme~gone", {}), undefined);
  });

  test("large values come back by their hash, within their thread", async (s) => {
    await s.prompt();
    const value = "é\u0000".repeat(1_000_000);
    await s.store.put(s.thread, "h1", value);
    await s.store.put(s.thread, "h1", value);
    assert.equal(await s.store.get(s.thread, "h1"), value);
    assert.equal(await s.store.get(s.thread, "h2"), undefined);
    assert.equal(await s.store.get("acme~other", "h1"), undefined);
    await assert.rejects(s.store.put("acme~other", "h1", value));
  });

  test("runs are listed newest first, in pages", async (s) => {
    for (let i = 1; i <= 5; i++) await s.prompt({ thread: `acme~${i}`, run: `${i}~r` });
    const list = async (options: { limit: number; after?: string }) =>
      (await s.store.runs("acme~", options)).map((r) => r.run);
    assert.deepEqual(await s.store.runs("acme~", { limit: 1 }), [{ thread: "acme~5", run: "5~r" }]);
    assert.deepEqual(await list({ limit: 10 }), ["5~r", "4~r", "3~r", "2~r", "1~r"]);
    assert.deepEqual(await list({ limit: 2, after: "4~r" }), ["3~r", "2~r"]);
    assert.deepEqual(await list({ limit: 10, after: "1~r" }), []);
  });

  test("runs are listed by their status", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { leave: completed } });
    const { run } = await s.prompt();
    const list = async (status: "queued" | "completed" | "failed") =>
      (await s.store.runs("acme~", { status, limit: 10 })).map((r) => r.run);
    assert.deepEqual(await list("queued"), [run]);
    assert.deepEqual(await list("completed"), [slice.run]);
    assert.deepEqual(await list("failed"), []);
  });

  test("a tenant's prefix is taken literally", async (s) => {
    for (const thread of ["a%~1", "ab~1", "a_~1", "A%~1", "a%b~1", "a*~1"]) {
      await s.prompt({ thread, run: `${thread}~r` });
    }
    const list = async (prefix: string) => (await s.store.runs(prefix, { limit: 10 })).map((r) => r.thread);
    assert.deepEqual(await list("a%~"), ["a%~1"]);
    assert.deepEqual(await list("a_~"), ["a_~1"]);
    assert.deepEqual(await list("a*~"), ["a*~1"]);
    assert.deepEqual(await list("a~"), []);
  });

  test("names that resemble each other are other threads", async (s) => {
    for (const thread of ["acme~a", "acme~a:log", "acme~a:*", "acme~{a}", "ac~me~a", "acme~A"]) {
      await s.prompt({ thread, run: "r" });
      const slice = await s.slice({ thread, incarnation: "i1", run: "r", ticket: 1, hop: 0 });
      await slice.ok({ change: { append: [thread] } });
    }
    assert.deepEqual((await s.store.read("acme~a", { from: 0 }))!.entries, ["acme~a"]);
    await s.store.delete("acme~a");
    assert.deepEqual((await s.store.read("acme~a:log", { from: 0 }))!.entries, ["acme~a:log"]);
  });

  test("watchers are woken by what they could see, and slices know of them", async (s) => {
    const slice = await s.running();
    let woken = 0;
    const unwatch = s.store.watch(s.thread, () => woken++, { live: true });
    const unwatchOther = s.store.watch(s.thread, () => {
      throw new Error("a listener that throws");
    });
    await eventually(
      async () => expect(await s.store.renew(slice.lease, minute), "ok").watched,
      "it is watched",
    );
    assert.equal((await slice.ok()).watched, true);
    const acts = {
      commit: () => slice.ok({ change: { append: ["a"] } }),
      stream: () => s.store.stream(slice.lease, ["delta"], true),
      mail: () => s.send("steering"),
      cancel: () => s.store.cancel(s.thread, slice.run, "{}"),
    };
    for (const [what, act] of Object.entries(acts)) {
      woken = 0;
      await act();
      await eventually(() => woken > 0, `${what} wakes`);
    }
    unwatch();
    unwatchOther();
    const next = await s.slice((await s.prompt()).publish);
    await eventually(
      async () => !expect(await s.store.renew(next.lease, minute), "ok").watched,
      "nobody watches",
    );
    woken = 0;
    await next.ok({ change: { append: ["b"] } });
    assert.equal(woken, 0);
  });

  test("a partial is read with its place, which no other item ever has", async (s) => {
    const slice = await s.running();
    const live = async () => (await s.store.read(s.thread, {}))!.live;
    assert.equal(await live(), undefined);
    assert.equal(await s.store.stream(slice.lease, ["a"], true), true);
    await s.store.stream(slice.lease, ["b", "c"], false);
    assert.deepEqual(await live(), { base: 1, skip: 0, items: ["a", "b", "c"] });
    // A message tried again: positions go on.
    await s.store.stream(slice.lease, ["d"], true);
    await s.store.stream(slice.lease, ["e"], false);
    assert.deepEqual(await live(), { base: 1, skip: 3, items: ["d", "e"] });
    // Mail does not end a partial.
    await s.send("steering");
    await s.store.stream(slice.lease, ["f"], false);
    assert.deepEqual(await live(), { base: 1, skip: 3, items: ["d", "e", "f"] });
    // What it becomes does.
    await slice.ok({ change: { append: ["message"] } });
    assert.equal(await live(), undefined);
    await s.store.stream(slice.lease, ["g"], true);
    assert.deepEqual(await live(), { base: 3, skip: 0, items: ["g"] });
  });

  test("the partial of a slice that died is not shown as the next one's", async (s) => {
    const { publish } = await s.prompt();
    const dead = await s.slice(publish);
    await s.store.stream(dead.lease, ["a", "b"], true);
    const next = await s.slice(publish);
    assert.equal((await s.store.read(s.thread, {}))!.live, undefined);
    await s.store.stream(next.lease, ["c"], true);
    assert.deepEqual((await s.store.read(s.thread, {}))!.live, { base: 0, skip: 2, items: ["c"] });
  });

  test("a thread left alone is gone as a whole at the end of its life", async (s) => {
    const slice = await s.running({ key: { name: "k", hash: "h" } });
    await s.store.put(s.thread, "hash", "value");
    await slice.ok({ change: { append: ["a"], leave: { status: "queued" } } });
    await s.clock.advance(ttlMs * 0.89);
    assert.equal((await s.log()).length, 2);
    await s.clock.advance(ttlMs * 0.12);
    assert.equal(await s.store.read(s.thread, {}), undefined);
    assert.equal(await s.store.get(s.thread, "hash"), undefined);
    assert.equal(await s.store.cancel(s.thread, slice.run, "{}"), "unknown");
    expect(await slice.commit({ change: { append: ["late"] } }), "lost");
    assert.deepEqual(await s.store.runs("acme~", { limit: 10 }), []);
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, s.clock.now(), 10), []);
    expect(await s.submit({ key: { name: "k", hash: "other" }, incarnation: "i2" }), "ok");
    assert.equal((await s.store.read(s.thread, { from: 0 }))!.incarnation, "i2");
    assert.deepEqual(await s.log(), []);
  });

  test("a thread in use lives on", async (s) => {
    let slice = await s.running();
    for (let i = 0; i < 10; i++) {
      await s.clock.advance(ttlMs / 2);
      const { publish } = await slice.ok({ change: { append: ["a"], leave: { status: "queued" } } });
      slice = await s.slice(publish!);
    }
    assert.equal((await s.log()).length, 11);
  });

  test("a wait longer than a thread's life is not cut short by it, nor is what comes after", async (s) => {
    const slice = await s.running();
    const wakeAt = s.clock.now() + 2 * ttlMs;
    const { publish } = await slice.ok({
      change: { leave: { status: "waiting", wakeAt } },
      due: wakeAt + minute,
    });
    await s.clock.advance(2 * ttlMs);
    const woken = await s.slice(publish!);
    await s.clock.advance(ttlMs * 0.9);
    await woken.ok({ change: { append: ["a"] } });
    assert.equal((await s.log()).length, 2);
  });
}
