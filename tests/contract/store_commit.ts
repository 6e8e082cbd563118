/** Commits: fenced, numbered, conditional, and what they take from the mailbox. */
import assert from "node:assert/strict";
import { completed, everything, expect, result, type Slice, type Test } from "./store_scene.ts";

export function committing(test: Test): void {
  test("a commit answers everything its sender has not seen, its own entries last", async (s) => {
    const slice = await s.running();
    const { message } = await s.send("steering");
    const committed = await slice.ok({ change: { append: ["a", "b"] } });
    assert.deepEqual(committed, {
      is: "ok",
      quiet: false,
      mail: { steering: 1, followUps: 0 },
      watched: false,
      entries: [`queued ${slice.run} . 0 ${message}\n{"kind":"steering"}`, "a", "b"],
    });
  });

  test("a commit with a stale token writes nothing", async (s) => {
    const { publish } = await s.prompt();
    const stale = await s.slice(publish);
    const slice = await s.slice(publish);
    const change = { append: ["late"], open: { "1.0": "plate" }, progress: "late", leave: completed };
    expect(await stale.commit({ change, take: everything }), "lost");
    const reading = (await s.store.read(s.thread, { from: 0 }))!;
    assert.deepEqual([reading.entries, reading.mail.steering], [[], 1]);
    assert.deepEqual([reading.run!.status, reading.run!.progress], ["running", ""]);
    await slice.ok();
  });

  test("a commit repeated changes nothing and answers the same, mail included", async (s) => {
    const { publish, message } = await s.prompt();
    const slice = await s.slice(publish);
    const first = await slice.ok({ change: { append: ["a"], progress: "1" }, take: everything });
    assert.deepEqual(first.entries, ["a", `user ${slice.run} . 0 ${message}\n{"content":"text 1"}`]);
    assert.deepEqual(await slice.repeat(), first);
    await slice.ok({ change: { append: ["b"] } });
    assert.equal((await s.log()).length, 3);
  });

  test("a repeat answers whether quiet applied, also when things have changed since", async (s) => {
    const slice = await s.running();
    assert.equal((await slice.ok({ change: {}, quiet: { append: ["a"] } })).quiet, true);
    await s.send("steering");
    assert.equal(expect(await slice.repeat(), "ok").quiet, true);
  });

  test("a slice's final commit is repeated alike: hand-over, wait, finish", async (s) => {
    for (const status of ["queued", "waiting"] as const) {
      const slice = await s.running({ ifBusy: "interrupt" });
      const wakeAt = status === "waiting" ? s.clock.now() + 1000 : undefined;
      const first = await slice.ok({ change: { append: ["a"], leave: { status, wakeAt } } });
      assert.equal(first.publish!.at, wakeAt);
      assert.deepEqual(await slice.repeat(), first);
    }
    const slice = await s.running({ ifBusy: "interrupt" });
    const first = await slice.ok({ change: {}, quiet: { append: ["end"], leave: completed } });
    assert.deepEqual(await slice.repeat(), first);
  });

  test("a final commit is not repeated over another's claim", async (s) => {
    const slice = await s.running();
    const { publish } = await slice.ok({ change: { leave: { status: "queued" } } });
    await s.slice(publish!);
    expect(await slice.repeat(), "lost");
  });

  test("a commit out of sequence is an error and writes nothing", async (s) => {
    const slice = await s.running();
    for (const sequence of [0, 3, 17]) {
      await assert.rejects(slice.commit({ sequence, change: { append: ["x"] } }));
    }
    assert.equal((await s.log()).length, 1);
    await slice.ok({ change: { leave: { status: "queued" } } });
    await assert.rejects(slice.commit({ change: { append: ["x"] } }));
    assert.equal((await s.log()).length, 1);
  });

  test("each claim numbers its commits from 1", async (s) => {
    const slice = await s.running();
    await slice.ok();
    const { publish } = await slice.ok({ change: { leave: { status: "queued" } } });
    const next = await s.slice(publish!);
    await assert.rejects(next.commit({ sequence: 0 }));
    await next.ok({ change: { append: ["a"] } });
  });

  test("open calls and progress are kept for the next claim", async (s) => {
    const slice = await s.running();
    const open = Object.fromEntries(
      ["1.0", "1.1", "1.10"].map((path) => [path, `p${result(slice.run, path)}`]),
    );
    await slice.ok({ change: { open, progress: '{"iterations":1}' } });
    await slice.ok({ change: { open: { "1.1": `s${result(slice.run, "1.1")}` }, close: ["1.0"] } });
    const { publish } = await slice.ok({ change: { leave: { status: "queued" } } });
    const { claimed } = await s.slice(publish!);
    assert.deepEqual(claimed.open, {
      "1.1": `s${result(slice.run, "1.1")}`,
      "1.10": `p${result(slice.run, "1.10")}`,
    });
    assert.equal(claimed.progress, '{"iterations":1}');
  });

  test("quiet applies when the sender knew everything, and not otherwise", async (s) => {
    const slice = await s.running();
    const quiet = { append: ["call"], open: { "1.0": `s${result(slice.run, "1.0")}` }, progress: "quiet" };
    const first = await slice.ok({ change: { append: ["result"] }, quiet });
    assert.deepEqual([first.quiet, first.entries], [true, ["result", "call"]]);
    const { message } = await s.send("follow_up");
    const second = await slice.ok({ change: { append: ["result"] }, quiet });
    assert.equal(second.quiet, false);
    assert.deepEqual(second.entries, [`queued ${slice.run} . 0 ${message}\n{"kind":"follow_up"}`, "result"]);
    // What it learned of does not stand in the way again.
    assert.equal((await slice.ok({ change: {}, quiet })).quiet, true);
  });

  test("mail before a finish keeps the run going", async (s) => {
    const slice = await s.running();
    const { run, message } = await s.send("steering");
    const finish = { change: {}, quiet: { append: ["end"], leave: completed } };
    assert.equal((await slice.ok(finish)).quiet, false);
    assert.equal(await s.status(run), "running");
    await slice.ok({ take: everything });
    assert.equal((await s.taken()).at(-1), message);
    assert.equal((await slice.ok(finish)).quiet, true);
  });

  test("mail after a finish starts another run", async (s) => {
    const slice = await s.running();
    assert.equal((await slice.ok({ change: {}, quiet: { leave: completed } })).quiet, true);
    const sent = await s.send("steering");
    assert.deepEqual([sent.started, sent.status], [true, "queued"]);
    assert.equal(await s.status(slice.run), "completed");
    await (await s.slice(sent.publish!)).ok({ take: everything });
    assert.equal((await s.taken()).at(-1), sent.message);
  });

  test("mail and a finish at once: one of them wins", async (s) => {
    let slice = await s.running();
    for (let i = 0; i < 20; i++) {
      const submission = s.submission({ like: slice.run, settings: undefined });
      const finish = () => slice.ok({ change: {}, quiet: { leave: completed } });
      const mail = async () => expect(await s.store.submit(submission), "ok");
      // Whoever is called first reaches the store first, or may.
      const first = i % 2 ? mail() : finish();
      const second = i % 2 ? finish() : mail();
      const [sent, ended] = await Promise.all(i % 2 ? [first, second] : [second, first]) as [
        Awaited<ReturnType<typeof mail>>,
        Awaited<ReturnType<typeof finish>>,
      ];
      assert.equal(sent.started, ended.quiet);
      if (sent.started) slice = await s.slice(sent.publish!);
      await slice.ok({ take: everything });
      assert.equal((await s.taken()).at(-1), sent.message);
    }
  });

  test("take moves the first kind of which there is any", async (s) => {
    const slice = await s.running();
    const ids: string[] = [];
    for (const kind of ["follow_up", "steering", "follow_up", "steering"] as const) {
      ids.push((await s.send(kind)).message);
    }
    const [f1, s1, f2, s2] = ids;
    const one = { all: false };
    const groups = [{ kinds: ["steering" as const], ...one }, { kinds: ["follow_up" as const], ...one }];
    const order = [[s1], [s2], [f1], [f2], []];
    for (const expected of order) {
      const before = (await s.taken()).length;
      await slice.ok({ take: groups });
      assert.deepEqual((await s.taken()).slice(before), expected);
    }
  });

  test("take moves all of a kind, or all kinds in the order in which they came", async (s) => {
    const slice = await s.running();
    const send = async () => {
      const ids = [];
      for (const kind of ["follow_up", "steering", "follow_up"] as const) {
        ids.push((await s.send(kind)).message);
      }
      return ids;
    };
    const [f1, s1, f2] = await send();
    const taken = async () => (await s.taken()).slice(1);
    await slice.ok({ take: [{ kinds: ["follow_up"], all: true }] });
    assert.deepEqual(await taken(), [f1, f2]);
    await slice.ok({ take: [{ kinds: ["follow_up"], all: true }, { kinds: ["steering"], all: true }] });
    assert.deepEqual(await taken(), [f1, f2, s1]);
    const mixed = await send();
    await slice.ok({ take: [{ kinds: ["steering", "follow_up"], all: false }] });
    await slice.ok({ take: everything });
    assert.deepEqual((await taken()).slice(3), mixed);
  });

  test("nothing is taken when quiet did not apply; otherwise mail comes after it", async (s) => {
    const slice = await s.running();
    const { message } = await s.send("steering");
    await slice.ok({ change: {}, quiet: { append: ["turn"] }, take: everything });
    assert.equal((await s.taken()).length, 1);
    const committed = await slice.ok({
      change: { append: ["result"] },
      quiet: { append: ["turn"] },
      take: everything,
    });
    assert.deepEqual(committed.entries.map((e) => e.split("\n")[0]), [
      "result",
      "turn",
      `user ${slice.run} . 0 ${message}`,
    ]);
    assert.deepEqual(committed.mail, { steering: 0, followUps: 0 });
  });

  test("50 messages sent at random while two drain: each once, in order", async (s) => {
    const { publish } = await s.prompt();
    const sent: string[] = [];
    let sending = true;
    const send = async () => {
      for (let i = 0; i < 50;) {
        const answer = await s.submit({ like: "talk~r1", settings: undefined });
        if (answer.is === "ok") sent.push(answer.message), i++;
        for (let pause = (i * 7) % 5; pause > 0; pause--) await Promise.resolve();
      }
      sending = false;
    };
    // Their leases end at once, so they take the run from each other all the time.
    const drain = async (message: string) => {
      let slice: Slice | undefined;
      while (sending || (await s.store.read(s.thread, {}))!.mail.steering > 0) {
        slice ??= await s.slice(publish, { message, leaseMs: 0 });
        const committed = await slice.commit({ take: [{ kinds: ["steering"], all: false }] });
        if (committed.is === "lost") slice = undefined;
      }
    };
    await Promise.all([send(), drain("a"), drain("b")]);
    assert.deepEqual(await s.taken(), ["m1", ...sent]);
  });
}
