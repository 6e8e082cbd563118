/** Runs that wait, and answers to the calls they wait for. */
import assert from "node:assert/strict";
import { everything, expect, minute, result, type Test } from "./store_scene.ts";

export function waiting(test: Test): void {
  test("an answer goes to the log and wakes the run under a new ticket", async (s) => {
    const { run, publish } = await s.waiting();
    const answered = expect(await s.answer(run, "1.0"), "ok");
    assert.deepEqual([answered.run, answered.status, answered.started], [run, "queued", false]);
    assert.ok(answered.publish!.ticket > publish.ticket);
    assert.equal(answered.publish!.at, undefined);
    const slice = await s.slice(answered.publish!);
    assert.deepEqual(slice.claimed.open, { "1.0": `a${result(run, "1.0")}` });
    assert.equal(slice.claimed.entries.at(-1), `answer ${run} 1.0 0 -\n{"content":"yes"}`);
  });

  test("a second answer to a call is a repeat and changes nothing", async (s) => {
    const { run } = await s.waiting();
    const first = expect(await s.answer(run, "1.0"), "ok");
    const length = (await s.log()).length;
    const again = expect(await s.answer(run, "1.0", "other"), "repeat");
    assert.deepEqual([again.run, again.status, again.publish], [run, "queued", first.publish]);
    assert.equal((await s.log()).length, length);
  });

  test("an answer under a key is repeated by it, also when the call is closed", async (s) => {
    const { run } = await s.waiting();
    const over = {
      like: run,
      settings: undefined,
      mail: undefined,
      answer: { path: "1.0", entry: "answer" },
      key: { name: "k", hash: "h" },
    };
    const first = expect(await s.submit(over), "ok");
    const slice = await s.slice(first.publish!);
    await slice.ok({ change: { close: ["1.0"] } });
    const again = expect(await s.submit(over), "repeat");
    assert.deepEqual([again.run, again.message, again.status], [run, first.message, "running"]);
    expect(await s.submit({ ...over, key: { name: "k", hash: "other" } }), "conflict");
  });

  test("an answer for a call that does not wait is refused", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `s${result(slice.run, "1.0")}` } } });
    expect(await s.answer(slice.run, "1.0"), "closed");
    expect(await s.answer(slice.run, "9.9"), "closed");
    expect(await s.answer("talk~nobody", "1.0"), "unknown");
    await s.store.cancel(s.thread, slice.run, "{}");
    expect(await s.answer(slice.run, "1.0"), "closed");
  });

  test("an answer for an earlier run's call is not given to the call of this one at the same place", async (s) => {
    const { run } = await s.waiting();
    await s.store.cancel(s.thread, run, "{}");
    const now = await s.waiting();
    expect(await s.answer(run, "1.0"), "closed");
    assert.equal(await s.status(now.run), "waiting");
  });

  test("an answer before the wait: the run does not wait", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `w${result(slice.run, "1.0")}` } } });
    const answered = expect(await s.answer(slice.run, "1.0"), "ok");
    assert.deepEqual([answered.status, answered.publish], ["running", undefined]);
    const wait = { leave: { status: "waiting" as const, wakeAt: s.clock.now() + minute } };
    const committed = await slice.ok({ change: {}, quiet: wait });
    assert.equal(committed.quiet, false);
    assert.deepEqual(committed.entries, [`answer ${slice.run} 1.0 0 -\n{"content":"yes"}`]);
    assert.equal(await s.status(slice.run), "running");
  });

  test("an answer after the wait: the run is woken", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `w${result(slice.run, "1.0")}` } } });
    const wait = { leave: { status: "waiting" as const, wakeAt: s.clock.now() + minute } };
    assert.equal((await slice.ok({ change: {}, quiet: wait })).quiet, true);
    assert.equal(expect(await s.answer(slice.run, "1.0"), "ok").status, "queued");
  });

  test("an answer before the skip of its call: the skip does not apply", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `w${result(slice.run, "1.0")}` } } });
    expect(await s.answer(slice.run, "1.0"), "ok");
    const committed = await slice.ok({
      change: {},
      quiet: { append: ["skipped"], close: ["1.0"] },
      take: everything,
    });
    assert.equal(committed.quiet, false);
    expect(await s.answer(slice.run, "1.0"), "repeat");
  });

  test("an answer after the skip of its call is refused", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { open: { "1.0": `w${result(slice.run, "1.0")}` } } });
    const committed = await slice.ok({ change: {}, quiet: { append: ["skipped"], close: ["1.0"] } });
    assert.equal(committed.quiet, true);
    expect(await s.answer(slice.run, "1.0"), "closed");
    assert.equal((await s.log()).at(-1), "skipped");
  });

  test("an answer is not withdrawn: the log has it", async (s) => {
    const { run } = await s.waiting();
    const submission = s.submission({
      like: run,
      settings: undefined,
      mail: undefined,
      answer: { path: "1.0", entry: "answer" },
    });
    expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), false);
    assert.equal((await s.log()).at(-1), "answer");
  });

  test("steering wakes a wait, for now and under a new ticket", async (s) => {
    const { run, publish } = await s.waiting();
    const sent = await s.send("steering");
    assert.deepEqual([sent.run, sent.status, sent.publish!.at], [run, "queued", undefined]);
    assert.ok(sent.publish!.ticket > publish.ticket);
    assert.deepEqual(await s.claim(publish), { is: "nothing", publish: { ...sent.publish!, hop: 1 } });
    const slice = await s.slice(sent.publish!);
    assert.equal(slice.claimed.mail.steering, 1);
  });

  test("a follow-up does not wake a wait", async (s) => {
    const { run, publish } = await s.waiting();
    const sent = await s.send("follow_up");
    assert.deepEqual([sent.status, sent.publish], ["waiting", undefined]);
    await s.clock.advance(60 * minute);
    const slice = await s.slice(publish);
    assert.equal(slice.run, run);
    assert.equal(slice.claimed.mail.followUps, 1);
  });
}
