/** Who may advance a run, when, and for how long. */
import assert from "node:assert/strict";
import { completed, everything, expect, minute, type Test } from "./store_scene.ts";

export function claiming(test: Test): void {
  test("a claim answers what a slice needs", async (s) => {
    const { run, publish } = await s.prompt();
    const claimed = expect(await s.claim(publish), "claimed");
    assert.deepEqual(claimed, {
      is: "claimed",
      lease: { thread: s.thread, incarnation: "i1", token: claimed.lease.token },
      run,
      settings: '{"v":1}',
      progress: "",
      attempts: 1,
      claims: 1,
      open: {},
      mail: { steering: 1, followUps: 0 },
      watched: false,
      from: 0,
      length: 0,
      entries: [],
    });
    assert.equal(await s.status(run), "running");
  });

  test("of two claims at once one wins, the other is told when to come again", async (s) => {
    const { publish } = await s.prompt();
    const claims = await Promise.all([
      s.claim(publish, { message: "a" }),
      s.claim(publish, { message: "b" }),
    ]);
    assert.deepEqual(claims.map((c) => c.is).sort(), ["busy", "claimed"]);
    const winner = claims.find((c) => c.is === "claimed")!;
    assert.deepEqual(claims.find((c) => c.is === "busy"), {
      is: "busy",
      publish: {
        ...publish,
        hop: 1,
        at: s.clock.now() + minute + 1000,
        behind: winner.is === "claimed" ? winner.lease.token : NaN,
      },
    });
  });

  test("a later try of the message that holds a lease takes over at once; a duplicate of that try is busy", async (s) => {
    const { publish } = await s.prompt();
    const first = await s.slice(publish, { message: "a", retried: 0 });
    expect(await s.claim(publish, { message: "a", retried: 0 }), "busy");
    expect(await s.claim(publish, { message: "b", retried: 9 }), "busy");
    const second = await s.slice(publish, { message: "a", retried: 1 });
    assert.equal(second.lease.token, first.lease.token + 1);
    expect(await s.claim(publish, { message: "a", retried: 0 }), "busy");
    expect(await s.store.renew(first.lease, 1000), "lost");
  });

  test("without a count of tries, the same message takes a lease over at once, and what held it is lost", async (s) => {
    const { publish } = await s.prompt();
    const dead = await s.slice(publish, { message: "a" });
    const next = await s.slice(publish, { message: "a" });
    assert.ok(next.lease.token > dead.lease.token);
    expect(await dead.commit({ change: { append: ["late"] } }), "lost");
    expect(await s.store.renew(dead.lease, minute), "lost");
    assert.equal(await s.store.stream(dead.lease, ["late"], true), false);
    await next.ok({ change: { append: ["good"] } });
    assert.deepEqual(await s.log(), ["good"]);
  });

  test("a lease that has ended is taken over by anyone, and is good until then", async (s) => {
    const { publish } = await s.prompt();
    const slow = await s.slice(publish, { message: "a", leaseMs: 1000 });
    await s.clock.advance(1001);
    await slow.ok({ change: { append: ["slow"] } });
    const next = await s.slice(publish, { message: "b" });
    assert.deepEqual(next.claimed.entries, ["slow"]);
    expect(await slow.commit({ change: { append: ["late"] } }), "lost");
  });

  test("renew prolongs a lease", async (s) => {
    const { publish } = await s.prompt();
    const slice = await s.slice(publish, { message: "a", leaseMs: 1000 });
    await s.clock.advance(900);
    assert.deepEqual(await s.store.renew(slice.lease, 1000), {
      is: "ok",
      mail: { steering: 1, followUps: 0 },
      watched: false,
    });
    await s.clock.advance(900);
    const busy = expect(await s.claim(publish, { message: "b" }), "busy");
    assert.equal(busy.publish.at, s.clock.now() + 100 + 1000);
  });

  test("a slice that has ended renews nothing", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { leave: { status: "queued" } } });
    expect(await s.store.renew(slice.lease, minute), "lost");
    assert.equal(await s.store.stream(slice.lease, ["late"], true), false);
  });

  test("a delivery with an older ticket publishes the current one if nobody holds it", async (s) => {
    const { publish } = await s.prompt();
    const slice = await s.slice(publish);
    const { publish: second } = await slice.ok({ change: { leave: { status: "queued" } } });
    assert.ok(second!.ticket > publish.ticket);
    assert.deepEqual(await s.claim({ ...publish, hop: 4 }), {
      is: "nothing",
      publish: { ...second, hop: 5 },
    });

    await s.slice(second!, { leaseMs: 1000 });
    assert.deepEqual(await s.claim(publish), { is: "nothing" });
    await s.clock.advance(1001);
    assert.deepEqual(await s.claim(publish), { is: "nothing", publish: { ...second, hop: 1 } });
  });

  test("a delivery before its time publishes itself for its time", async (s) => {
    const slice = await s.running();
    const wakeAt = s.clock.now() + 60 * minute;
    const { publish } = await slice.ok({ change: { leave: { status: "waiting", wakeAt } } });
    assert.equal(publish!.at, wakeAt);
    await s.clock.advance(59 * minute);
    assert.deepEqual(await s.claim(publish!), { is: "nothing", publish: { ...publish, hop: 1 } });
    await s.clock.advance(minute);
    await s.slice({ ...publish!, hop: 1 }, { leaseMs: 1000 });
    // Once begun, it has no time any more.
    await s.clock.advance(1001);
    const { thread, incarnation, run, ticket } = publish!;
    const again = { thread, incarnation, run, ticket, hop: 1 };
    assert.deepEqual(await s.claim({ ...publish!, ticket: 1 }), { is: "nothing", publish: again });
  });

  test("a delayed hand-over is not begun before its time", async (s) => {
    const slice = await s.running();
    const wakeAt = s.clock.now() + minute;
    const { publish } = await slice.ok({ change: { leave: { status: "queued", wakeAt } } });
    assert.deepEqual(await s.claim(publish!), { is: "nothing", publish: { ...publish, hop: 1, at: wakeAt } });
    await s.clock.advance(minute);
    await s.slice(publish!);
  });

  test("a delivery for what has ended, is unknown or is another's does nothing", async (s) => {
    const slice = await s.running();
    const delivery = { thread: s.thread, incarnation: "i1", run: slice.run, ticket: 1, hop: 0 };
    assert.deepEqual(await s.claim({ ...delivery, thread: "acme~gone" }), { is: "nothing" });
    assert.deepEqual(await s.claim({ ...delivery, incarnation: "i0" }), { is: "nothing" });
    assert.deepEqual(await s.claim({ ...delivery, run: "talk~other" }), { is: "nothing" });
    await slice.ok({ change: { leave: completed } });
    assert.deepEqual(await s.claim(delivery), { is: "nothing" });
    const { publish } = await s.prompt();
    assert.deepEqual(await s.claim(delivery), { is: "nothing", publish: { ...publish, hop: 1 } });
  });

  test("a warm slice gets only the entries it lacks", async (s) => {
    const slice = await s.running();
    const { publish } = await slice.ok({ change: { append: ["a", "b"], leave: { status: "queued" } } });
    const warm = expect(await s.claim(publish!, { known: 2, incarnation: "i1" }), "claimed");
    assert.deepEqual([warm.from, warm.length, warm.entries], [2, 3, ["b"]]);
    const other = expect(await s.claim(publish!, { known: 2, incarnation: "i0" }), "claimed");
    assert.deepEqual([other.from, other.length, other.entries.length], [0, 3, 3]);
    const all = expect(await s.claim(publish!, { known: 3, incarnation: "i1" }), "claimed");
    assert.deepEqual([all.from, all.length, all.entries], [3, 3, []]);
  });

  test("attempts are counted since the last commit that advanced, claims of the run in all", async (s) => {
    const { publish } = await s.prompt();
    await s.slice(publish);
    await s.slice(publish);
    const third = await s.slice(publish);
    assert.deepEqual([third.claimed.attempts, third.claimed.claims], [3, 3]);
    await third.ok({ take: everything });
    const fourth = await s.slice(publish);
    assert.deepEqual([fourth.claimed.attempts, fourth.claimed.claims], [4, 4]);
    await fourth.ok({ change: { append: ["message"] }, advances: true });
    const fifth = await s.slice(publish);
    assert.deepEqual([fifth.claimed.attempts, fifth.claimed.claims], [1, 5]);
  });

  test("a claim that ends in a wait is not counted", async (s) => {
    let { publish } = await s.prompt();
    for (let i = 0; i < 10; i++) {
      const slice = await s.slice(publish);
      assert.deepEqual([slice.claimed.attempts, slice.claimed.claims], [1, 1]);
      const wakeAt = s.clock.now() + minute;
      publish = (await slice.ok({ change: { leave: { status: "waiting", wakeAt } } })).publish!;
      await s.clock.advance(minute);
    }
  });

  test("a new run counts from the start", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { progress: '{"iterations":7}', leave: completed } });
    const next = await s.slice((await s.prompt()).publish);
    const { attempts, claims, progress } = next.claimed;
    assert.deepEqual({ attempts, claims, progress }, { attempts: 1, claims: 1, progress: "" });
  });

  test("what is overdue is given out once, as a delivery that was not published before", async (s) => {
    const due = s.clock.now() + minute;
    const { publish } = await s.prompt({ due });
    const next = due + 15 * minute;
    assert.deepEqual(await s.store.overdue(due, next, 10), []);
    const [delivery, ...rest] = await s.store.overdue(due + 1, next, 10);
    assert.deepEqual(rest, []);
    assert.notEqual(delivery!.hop, publish.hop);
    assert.deepEqual({ ...delivery, hop: 0 }, publish);
    assert.deepEqual(await s.store.overdue(due + 1, next, 10), []);
    const [later] = await s.store.overdue(next + 1, next + minute, 10);
    assert.notEqual(later!.hop, delivery!.hop);
    const slice = await s.slice(later!);
    await slice.ok({ change: { leave: completed } });
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, next, 10), []);
  });

  test("a hand-over and a wait set when they are due", async (s) => {
    const slice = await s.running();
    const due = s.clock.now() + 24 * 60 * minute;
    const wakeAt = due - minute;
    const { publish } = await slice.ok({ change: { leave: { status: "waiting", wakeAt } }, due });
    assert.deepEqual(await s.store.overdue(due, due, 10), []);
    await s.clock.advance(24 * 60 * minute + 1);
    const [delivery] = await s.store.overdue(due + 1, due + minute, 10);
    assert.deepEqual({ ...delivery, hop: 0 }, publish);
  });

  test("overdue deliveries come in pages", async (s) => {
    for (let i = 0; i < 5; i++) await s.prompt({ thread: `acme~${i}`, incarnation: `i${i}` });
    const before = s.clock.now() + 60 * minute;
    const found = new Set<string>();
    for (let page = 0; page < 3; page++) {
      const deliveries = await s.store.overdue(before, before + minute, 2);
      assert.equal(deliveries.length, page < 2 ? 2 : 1);
      for (const delivery of deliveries) found.add(delivery.thread);
    }
    assert.equal(found.size, 5);
  });
}
