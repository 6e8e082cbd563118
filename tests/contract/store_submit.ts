/** Starting runs, mail, idempotency keys, and taking back. */
import assert from "node:assert/strict";
import { completed, everything, expect, type Test } from "./store_scene.ts";

const key = (name = "k1", hash = "h1") => ({ name, hash });

export function submitting(test: Test): void {
  test("a prompt starts a queued run and names its delivery", async (s) => {
    const { run, message, status, publish } = await s.prompt();
    assert.deepEqual({ run, message, status }, { run: "talk~r1", message: "m1", status: "queued" });
    assert.deepEqual(publish, { thread: s.thread, incarnation: "i1", run, ticket: 1, hop: 0 });
    const reading = await s.store.read(s.thread, { run });
    assert.deepEqual(reading, {
      incarnation: "i1",
      length: 0,
      current: run,
      run: { id: run, status: "queued", settings: '{"v":1}', progress: "", first: 0 },
      mail: { steering: 1, followUps: 0 },
      entries: [],
    });
  });

  test("the same key again answers the same ids and publishes the unclaimed ticket again", async (s) => {
    const first = await s.prompt({ key: key() });
    const again = expect(await s.submit({ key: key() }), "repeat");
    assert.deepEqual([again.run, again.message, again.status], [first.run, first.message, "queued"]);
    assert.deepEqual(again.publish, first.publish);
    assert.equal((await s.store.read(s.thread, {}))!.mail.steering, 1);
  });

  test("the same key with another body is a conflict", async (s) => {
    await s.prompt({ key: key("k1", "one") });
    expect(await s.submit({ key: key("k1", "two") }), "conflict");
    assert.equal((await s.store.read(s.thread, {}))!.mail.steering, 1);
  });

  test("two prompts with one key at once start one run", async (s) => {
    const answers = await Promise.all([s.submit({ key: key() }), s.submit({ key: key() })]);
    assert.deepEqual(answers.map((a) => a.is).sort(), ["ok", "repeat"]);
    assert.equal((await s.store.runs("acme~", { limit: 10 })).length, 1);
  });

  test("a repeat answers the present status, and publishes nothing that is held or ended", async (s) => {
    const first = await s.prompt({ key: key() });
    const slice = await s.slice(first.publish);
    const during = expect(await s.submit({ key: key() }), "repeat");
    assert.deepEqual([during.status, during.publish], ["running", undefined]);
    await slice.ok({ take: everything });
    await slice.ok({ change: { leave: completed } });
    await s.prompt();
    const after = expect(await s.submit({ key: key() }), "repeat");
    assert.deepEqual([after.run, after.status, after.publish], [first.run, "completed", undefined]);
  });

  test("a repeat publishes again when the claimant's lease has ended", async (s) => {
    const first = await s.prompt({ key: key() });
    await s.slice(first.publish, { leaseMs: 1000 });
    await s.clock.advance(2000);
    assert.equal(expect(await s.submit({ key: key() }), "repeat").publish?.ticket, first.publish.ticket);
  });

  test("the last 1,000 keys are remembered", async (s) => {
    await s.prompt({ key: key("k0") });
    for (let i = 1; i <= 1000; i++) {
      const send = s.submission({ settings: undefined, like: "talk~r1", key: key(`k${i}`) });
      expect(await s.store.submit(send), "ok");
      // Taking it back would free its key, so the box is emptied by a slice.
      if (i % 60 === 0) {
        const publish = { thread: s.thread, incarnation: "i1", run: "talk~r1", ticket: 1, hop: 0 };
        await (await s.slice(publish)).ok({ take: everything });
      }
    }
    expect(await s.submit({ key: key("k1"), like: "talk~r1" }), "repeat");
    expect(await s.submit({ key: key("k1000"), like: "talk~r1" }), "repeat");
    expect(await s.submit({ key: key("k0", "other"), ifBusy: "reject" }), "busy");
  });

  test("a busy thread refuses a prompt that asks for it", async (s) => {
    await s.prompt();
    expect(await s.submit({ ifBusy: "reject" }), "busy");
    assert.equal((await s.store.read(s.thread, {}))!.mail.steering, 1);
  });

  test("mail for an unknown run or thread changes nothing", async (s) => {
    expect(await s.submit({ like: "talk~nobody", settings: undefined }), "unknown");
    assert.equal(await s.store.read(s.thread, {}), undefined);
    await s.prompt();
    expect(await s.submit({ like: "talk~nobody", settings: undefined }), "unknown");
  });

  test("mail for an active run waits, and the log says so", async (s) => {
    const slice = await s.running();
    const sent = await s.send("steering");
    assert.deepEqual([sent.run, sent.status, sent.started, sent.publish], [
      slice.run,
      "running",
      false,
      undefined,
    ]);
    const reading = (await s.store.read(s.thread, { from: 0 }))!;
    assert.deepEqual(reading.mail, { steering: 1, followUps: 0 });
    assert.equal(reading.entries.at(-1), `queued ${sent.run} . 0 ${sent.message}\n{"kind":"steering"}`);
  });

  test("mail for a queued run publishes the ticket that nobody claimed again", async (s) => {
    const { publish } = await s.prompt();
    assert.deepEqual((await s.send("follow_up")).publish, publish);
  });

  test("mail for a run that ended starts another with its settings", async (s) => {
    const slice = await s.running({ settings: '{"v":1,"settings":{"model":"a"}}' });
    await slice.ok({ change: { leave: completed } });
    const submitted = expect(await s.submit({ like: slice.run, settings: undefined }), "ok");
    assert.deepEqual([submitted.run, submitted.started], ["talk~r2", true]);
    const { run } = (await s.store.read(s.thread, { run: submitted.run }))!;
    assert.deepEqual([run!.settings, run!.first], ['{"v":1,"settings":{"model":"a"}}', 1]);
  });

  test("at most 64 messages wait", async (s) => {
    await s.prompt();
    for (let i = 1; i < 64; i++) await s.send("follow_up");
    expect(await s.submit({ like: "talk~r1" }), "full");
    assert.equal((await s.log()).length, 63);
  });

  test("at most 1 MB of messages waits", async (s) => {
    await s.prompt();
    for (let i = 0; i < 3; i++) await s.send("follow_up", { mail: s.mail("follow_up", "x".repeat(300_000)) });
    expect(await s.submit({ like: "talk~r1", mail: s.mail("steering", "x".repeat(300_000)) }), "full");
    await s.send("steering");
  });

  test("a prompt may start a run although a cancelled one left the box full", async (s) => {
    await s.prompt();
    for (let i = 1; i < 64; i++) await s.send("follow_up");
    await s.store.cancel(s.thread, "talk~r1", "{}");
    const { publish } = await s.prompt();
    await (await s.slice(publish)).ok({ take: everything });
    assert.deepEqual(
      await s.taken(),
      Array.from({ length: 65 }, (_, i) => `m${i + 1}`).filter((id) => id !== "m65").concat(
        (await s.taken()).slice(64),
      ),
    );
  });

  test("a start that is withdrawn was never there, and its key is free", async (s) => {
    const submission = s.submission({ key: key() });
    const { publish } = expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), true);
    assert.equal(await s.store.read(s.thread, {}), undefined);
    assert.deepEqual(await s.store.runs("acme~", { limit: 10 }), []);
    assert.deepEqual(await s.claim(publish!), { is: "nothing" });
    expect(await s.submit({ key: key("k1", "other") }), "ok");
  });

  test("a start that was claimed is not withdrawn", async (s) => {
    const submission = s.submission();
    const { publish } = expect(await s.store.submit(submission), "ok");
    const slice = await s.slice(publish!);
    assert.equal(await s.store.withdraw(submission), false);
    await slice.ok({ take: everything });
    assert.equal(await s.store.withdraw(submission), false);
    assert.deepEqual(await s.taken(), [submission.mail!.id]);
  });

  test("a start withdrawn in a thread with a past leaves the past", async (s) => {
    const slice = await s.running();
    await slice.ok({ change: { append: ["a"], leave: completed } });
    const submission = s.submission();
    expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), true);
    const reading = (await s.store.read(s.thread, {}))!;
    assert.deepEqual([reading.current, reading.run!.status, reading.length], [slice.run, "completed", 2]);
    assert.deepEqual(await s.store.overdue(Number.MAX_SAFE_INTEGER, s.clock.now(), 10), []);
    await s.prompt();
  });

  test("a start is not undone under mail that another sent to it", async (s) => {
    const submission = s.submission({ key: key() });
    const { publish, run } = expect(await s.store.submit(submission), "ok");
    const other = await s.send("follow_up");
    assert.equal(await s.store.withdraw(submission), true);
    assert.equal(await s.status(run), "queued");
    await (await s.slice(publish!)).ok({ take: everything });
    assert.deepEqual(await s.taken(), [other.message]);
  });

  test("waiting mail is withdrawn with a word in the log, unless it was taken", async (s) => {
    const slice = await s.running();
    const submission = s.submission({ like: slice.run, settings: undefined, key: key() });
    expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), true);
    assert.equal(await s.store.withdraw(submission), false);
    assert.equal((await s.log()).at(-1), `withdrawn ${slice.run} . 0 ${submission.mail!.id}\n{}`);
    assert.equal(await s.status(slice.run), "running");

    expect(await s.store.submit(submission), "ok");
    await slice.ok({ take: everything });
    assert.equal(await s.store.withdraw(submission), false);
  });

  test("steering that woke a wait may be withdrawn; the run stays", async (s) => {
    const { run } = await s.waiting();
    const submission = s.submission({ like: run, settings: undefined });
    const { publish } = expect(await s.store.submit(submission), "ok");
    assert.equal(await s.store.withdraw(submission), true);
    assert.equal(await s.status(run), "queued");
    await s.slice(publish!);
  });
}
