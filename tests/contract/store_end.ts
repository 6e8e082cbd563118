/** Ends: finish with a successor, failure, cancel, interrupt, delete. */
import assert from "node:assert/strict";
import { completed, everything, expect, minute, result, Slice, type Test } from "./store_scene.ts";

export function ending(test: Test): void {
  const end = '{"status":"cancelled"}';

  test("how a run ended is kept with it", async (s) => {
    const slice = await s.running();
    const committed = await slice.ok({ change: { progress: "7", append: ["end"], leave: completed } });
    assert.equal(committed.publish, undefined);
    await s.prompt();
    const { run } = (await s.store.read(s.thread, { run: slice.run }))!;
    const { status, progress } = run!;
    assert.deepEqual({ status, progress }, { status: "completed", progress: completed.ending });
  });

  test("a run that ends with mail in the box gets a successor with its settings", async (s) => {
    const slice = await s.running({ settings: '{"v":1,"s":1}' });
    const { message } = await s.send("follow_up");
    const leave = { ...completed, successor: "talk~next" };
    const committed = await slice.ok({ change: { append: ["end"], progress: "7", leave } });
    assert.equal(committed.publish!.run, "talk~next");
    assert.deepEqual(await slice.repeat(), committed);

    const reading = (await s.store.read(s.thread, { run: slice.run }))!;
    assert.equal(reading.run!.successor, "talk~next");
    assert.deepEqual([reading.current, reading.mail.followUps], ["talk~next", 1]);
    const next = await s.slice(committed.publish!);
    const listed = (await s.store.runs("acme~", { limit: 10 })).map((r) => r.run).sort();
    assert.deepEqual(listed, [slice.run, "talk~next"].sort());
    const { settings, progress, attempts, claims } = next.claimed;
    const fresh = { settings: '{"v":1,"s":1}', progress: "", attempts: 1, claims: 1 };
    assert.deepEqual({ settings, progress, attempts, claims }, fresh);
    await next.ok({ take: everything });
    assert.equal((await s.taken()).at(-1), message);
    assert.equal((await s.store.read(s.thread, { run: "talk~next" }))!.run!.first, reading.length);
  });

  test("a run that ends with an empty box gets no successor", async (s) => {
    const slice = await s.running();
    const { message } = await s.send("steering");
    const leave = { ...completed, successor: "talk~next" };
    const committed = await slice.ok({ change: {}, take: everything });
    assert.ok(committed.entries.at(-1)!.includes(` ${message}\n`));
    assert.equal((await slice.ok({ change: { leave } })).publish, undefined);
    assert.equal((await s.store.read(s.thread, { run: "talk~next" }))!.run, undefined);
    assert.equal((await s.store.read(s.thread, {}))!.run!.successor, undefined);
  });

  test("a successor stays while mail is left for it, and was never there when all of it is withdrawn", async (s) => {
    const slice = await s.running();
    const mail = [0, 1].map(() => s.submission({ like: slice.run, settings: undefined }));
    for (const submission of mail) expect(await s.store.submit(submission), "ok");
    await slice.ok({ change: { leave: { ...completed, successor: "talk~next" } } });
    assert.equal(await s.store.withdraw(mail[0]!), true);
    assert.equal(await s.status("talk~next"), "queued");
    assert.equal(await s.store.withdraw(mail[1]!), true);
    const { current, run } = (await s.store.read(s.thread, {}))!;
    assert.deepEqual([current, run!.status, run!.successor], [slice.run, "completed", undefined]);
  });

  test("a run that ends leaves no open call to the next", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `p${result(slice.run, "1.0")}` }, leave: completed } });
    assert.deepEqual((await s.slice((await s.prompt()).publish)).claimed.open, {});
  });

  test("after a failure mail waits for the next prompt and is taken before it", async (s) => {
    const slice = await s.running();
    const left = await s.send("follow_up");
    const leave = { status: "failed" as const, ending: '{"error":1}', successor: "talk~next" };
    assert.equal((await slice.ok({ change: { leave } })).publish, undefined);
    assert.equal(await s.status(slice.run), "failed");
    const next = await s.prompt();
    await (await s.slice(next.publish)).ok({ take: everything });
    assert.deepEqual((await s.taken()).slice(1), [left.message, next.message]);
  });

  test("cancel of a queued run", async (s) => {
    const { run, publish } = await s.prompt();
    assert.equal(await s.store.cancel(s.thread, run, end), "ok");
    assert.equal(await s.status(run), "cancelled");
    assert.deepEqual(await s.log(), [`end ${run} . 0 -\n${end}`]);
    assert.deepEqual(await s.claim(publish), { is: "nothing" });
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, s.clock.now(), 10), []);
  });

  test("cancel of a running run ends its open calls and its slice", async (s) => {
    const slice = await s.running();
    const open = { "1.0": `s${result(slice.run, "1.0")}`, "1.1": `p${result(slice.run, "1.1")}` };
    await slice.ok({ change: { open, progress: '{"iterations":1}' } });
    assert.equal(await s.store.cancel(s.thread, slice.run, end), "ok");
    const log = await s.log();
    assert.deepEqual(log.slice(1, 3).sort(), [result(slice.run, "1.0"), result(slice.run, "1.1")]);
    assert.deepEqual(log.slice(3), [`end ${slice.run} . 0 -\n${end}`]);

    expect(await slice.commit({ change: { append: ["late"] } }), "lost");
    expect(await slice.repeat(), "lost");
    expect(await s.store.renew(slice.lease, minute), "lost");
    assert.equal(await s.store.stream(slice.lease, ["late"], true), false);
    const { run } = (await s.store.read(s.thread, { run: slice.run }))!;
    assert.deepEqual([run!.status, run!.progress], ["cancelled", '{"iterations":1}']);
    assert.equal((await s.log()).length, 4);
    const next = await s.slice((await s.prompt()).publish);
    assert.deepEqual(next.claimed.open, {});
  });

  test("cancel of a waiting run", async (s) => {
    const { run, publish } = await s.waiting();
    assert.equal(await s.store.cancel(s.thread, run, end), "ok");
    assert.deepEqual((await s.log()).slice(-2), [result(run, "1.0"), `end ${run} . 0 -\n${end}`]);
    await s.clock.advance(60 * minute);
    assert.deepEqual(await s.claim(publish), { is: "nothing" });
    expect(await s.answer(run, "1.0"), "closed");
  });

  test("cancel again, of a run that ended otherwise, and of none", async (s) => {
    const { run } = await s.prompt();
    await s.store.cancel(s.thread, run, end);
    assert.equal(await s.store.cancel(s.thread, run, end), "repeat");
    assert.equal((await s.log()).length, 1);
    const slice = await s.running();
    await slice.ok({ change: { leave: completed } });
    assert.equal(await s.store.cancel(s.thread, slice.run, end), "ended");
    assert.equal(await s.store.cancel(s.thread, run, end), "repeat");
    assert.equal(await s.store.cancel(s.thread, "talk~nobody", end), "unknown");
    assert.equal(await s.store.cancel("acme~gone", run, end), "unknown");
    assert.equal(await s.status(slice.run), "completed");
  });

  test("after a cancel mail waits for the next prompt and is taken before it", async (s) => {
    const { run, message } = await s.prompt();
    await s.store.cancel(s.thread, run, end);
    const next = await s.prompt();
    await (await s.slice(next.publish)).ok({ take: everything });
    assert.deepEqual(await s.taken(), [message, next.message]);
  });

  test("a cancel and a finish at once: one of them wins", async (s) => {
    for (let i = 0; i < 20; i++) {
      const slice = await s.running();
      const finish = () => slice.commit({ change: { append: ["end"], leave: completed } }).then((c) => c.is);
      const cancel = () => s.store.cancel(s.thread, slice.run, end);
      const both = i % 2 ? [finish(), cancel()] : [cancel(), finish()];
      const answers = (await Promise.all<string>(both)).sort();
      const status = await s.status(slice.run);
      assert.deepEqual(answers, status === "cancelled" ? ["lost", "ok"] : ["ended", "ok"]);
    }
  });

  test("interrupt cancels the active run and starts another in one", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `s${result(slice.run, "1.0")}` } } });
    const next = await s.prompt({ ifBusy: "interrupt", endBody: end });
    assert.equal(await s.status(slice.run), "cancelled");
    assert.deepEqual((await s.log()).slice(1), [result(slice.run, "1.0"), `end ${slice.run} . 0 -\n${end}`]);
    expect(await slice.commit(), "lost");
    const after = await s.slice(next.publish);
    assert.deepEqual([after.run, after.claimed.open], [next.run, {}]);
  });

  test("an interrupt that is withdrawn leaves the cancelled run", async (s) => {
    const slice = await s.running();
    const submission = s.submission({ ifBusy: "interrupt" });
    expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), true);
    const { current, run, mail } = (await s.store.read(s.thread, {}))!;
    assert.deepEqual([current, run!.status, mail.steering], [slice.run, "cancelled", 0]);
  });

  test("a thread deleted is gone with its run, keys and values", async (s) => {
    const slice = await s.running({ key: { name: "k", hash: "h" } });
    await s.store.put(s.thread, "hash", "value");
    assert.equal(await s.store.delete(s.thread), true);
    assert.equal(await s.store.delete(s.thread), false);
    assert.equal(await s.store.read(s.thread, {}), undefined);
    assert.equal(await s.store.get(s.thread, "hash"), undefined);
    assert.deepEqual(await s.store.runs("acme~", { limit: 10 }), []);
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, s.clock.now(), 10), []);
    expect(await slice.commit({ change: { append: ["late"] } }), "lost");
    assert.equal(await s.store.read(s.thread, {}), undefined);
    expect(await s.submit({ key: { name: "k", hash: "other" } }), "ok");
    assert.equal(await s.store.get(s.thread, "hash"), undefined);
  });

  test("a thread made again is another: a zombie's commit, an old delivery and warm entries do nothing to it", async (s) => {
    const { publish } = await s.prompt();
    const zombie = await s.slice(publish);
    await zombie.ok({ change: { append: ["old", "old"] } });
    await s.store.delete(s.thread);
    const again = await s.prompt({ incarnation: "i2", run: zombie.run });
    expect(await zombie.commit({ change: { append: ["late"] } }), "lost");
    expect(await zombie.repeat(), "lost");
    expect(await s.store.renew(zombie.lease, minute), "lost");
    assert.equal(await s.store.stream(zombie.lease, ["late"], true), false);
    assert.deepEqual(await s.claim(publish), { is: "nothing" });

    const slice = new Slice(
      s,
      expect(await s.claim(again.publish, { known: 2, incarnation: "i1" }), "claimed"),
    );
    assert.equal(slice.lease.token, zombie.lease.token);
    assert.deepEqual([slice.claimed.from, slice.claimed.entries], [0, []]);
    expect(await zombie.commit({ change: { append: ["late"] } }), "lost");
    await slice.ok({ change: { append: ["new"] } });
    assert.deepEqual(await s.log(), ["new"]);
  });
}
