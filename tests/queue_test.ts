/** The in-process queue: times, lines, retries, duplicates, and its end. */
import assert from "node:assert/strict";
import { RetryableError } from "../src/errors.ts";
import type { Delivery } from "../src/queue.ts";
import { inProcessQueue } from "../src/queue/in_process.ts";
import { manualClock, settle } from "./support/clock.ts";

const delivery = (over: Partial<Delivery> = {}): Delivery => (
  { thread: "acme~a", incarnation: "i", run: "a~r", ticket: 1, hop: 0, ...over }
);

/** A queue whose deliveries are noted as "thread ticket.hop @ms since the start". */
function noted(deliver: (delivery: Delivery) => Promise<void> | void = () => {}) {
  const clock = manualClock();
  const start = clock.now();
  const queue = inProcessQueue(clock);
  const came: string[] = [];
  const messages = new Set<string>();
  queue.attach!(async (d, message) => {
    came.push(`${d.thread} ${d.ticket}.${d.hop} @${clock.now() - start}`);
    messages.add(message);
    await deliver(d);
  });
  return { clock, start, queue, came, messages };
}

Deno.test("in-process queue: delivers at once, under the thread's own message id", async () => {
  const { queue, came, messages } = noted();
  await queue.publish(delivery());
  await settle();
  assert.deepEqual(came, ["acme~a 1.0 @0"]);
  assert.deepEqual([...messages], ["local~acme~a"]);
  await queue.close!();
});

Deno.test("in-process queue: delivers not before the time, however far", async () => {
  const { clock, start, queue, came } = noted();
  const month = 30 * 24 * 3_600_000;
  await queue.publish(delivery({ at: start + month }));
  await queue.publish(delivery({ ticket: 2, at: start + 5000 }));
  await queue.publish(delivery({ ticket: 3, at: start - 5000 }));
  await clock.advance(4999);
  assert.deepEqual(came, ["acme~a 3.0 @0"]);
  await clock.advance(1);
  assert.deepEqual(came.slice(1), ["acme~a 2.0 @5000"]);
  await clock.advance(month);
  assert.deepEqual(came.slice(2), [`acme~a 1.0 @${month}`]);
  await queue.close!();
});

Deno.test("in-process queue: a sleep cut short by the platform brings nothing early", async () => {
  const clock = manualClock();
  const sleep = clock.sleep.bind(clock);
  clock.sleep = (ms, signal) => sleep(Math.min(ms, 1000), signal);
  const queue = inProcessQueue(clock);
  let came = 0;
  queue.attach!(() => Promise.resolve(void came++));
  await queue.publish(delivery({ at: clock.now() + 5500 }));
  await clock.advance(5499);
  assert.equal(came, 0);
  await clock.advance(1);
  assert.equal(came, 1);
  await queue.close!();
});

Deno.test("in-process queue: one delivery at a time for a thread, threads beside each other", async () => {
  let underWay = 0;
  let most = 0;
  const { clock, queue, came } = noted(async (d) => {
    if (d.thread === "acme~b") return;
    most = Math.max(most, ++underWay);
    await clock.sleep(1000);
    underWay--;
  });
  for (let ticket = 1; ticket <= 3; ticket++) await queue.publish(delivery({ ticket }));
  await queue.publish(delivery({ thread: "acme~b" }));
  await settle();
  assert.deepEqual(came, ["acme~a 1.0 @0", "acme~b 1.0 @0"]);
  await clock.advance(3000);
  assert.deepEqual(came.slice(2), ["acme~a 2.0 @1000", "acme~a 3.0 @2000"]);
  assert.equal(most, 1);
  await queue.close!();
});

Deno.test("in-process queue: a duplicate is dropped while the first is pending, not for ever", async () => {
  const { clock, start, queue, came } = noted();
  const at = start + 1000;
  await queue.publish(delivery({ at }));
  await queue.publish(delivery({ at }));
  await queue.publish(delivery({ hop: 1, at }));
  await clock.advance(1000);
  assert.deepEqual(came, ["acme~a 1.0 @1000", "acme~a 1.1 @1000"]);
  await queue.publish(delivery());
  await settle();
  assert.equal(came.length, 3);
  await queue.close!();
});

Deno.test("in-process queue: what throws comes again: 1 s, 2 s, 4 s … 60 s, without end", async () => {
  let failures = 10;
  const { clock, queue, came } = noted(() => {
    if (failures-- > 0) throw new Error("not now");
  });
  await queue.publish(delivery());
  await clock.advance(3_600_000);
  const seconds = came.map((line) => Number(line.split("@")[1]) / 1000);
  assert.deepEqual(seconds, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303]);
  await queue.close!();
});

Deno.test("in-process queue: a RetryableError says when", async () => {
  let failed = false;
  const { clock, queue, came } = noted(() => {
    if (!failed) {
      failed = true;
      throw new RetryableError("busy", 12_345);
    }
  });
  await queue.publish(delivery());
  await clock.advance(3_600_000);
  assert.deepEqual(came, ["acme~a 1.0 @0", "acme~a 1.0 @12345"]);
  await queue.close!();
});

Deno.test("in-process queue: a delivery that waits to be tried again holds up no other", async () => {
  const { clock, queue, came } = noted((d) => {
    if (d.ticket === 1) throw new RetryableError("busy", 60_000);
  });
  await queue.publish(delivery());
  await settle();
  await queue.publish(delivery({ ticket: 2 }));
  await clock.advance(1);
  assert.deepEqual(came, ["acme~a 1.0 @0", "acme~a 2.0 @0"]);
  await queue.close!();
});

Deno.test("in-process queue: a delivery may publish the next one", async () => {
  const { queue, came } = noted(async (d) => {
    if (d.ticket < 5) await queue.publish(delivery({ ticket: d.ticket + 1 }));
  });
  await queue.publish(delivery());
  await settle();
  assert.equal(came.length, 5);
  await queue.close!();
});

Deno.test("in-process queue: what was published before anyone attached is delivered", async () => {
  const queue = inProcessQueue(manualClock());
  await queue.publish(delivery());
  await settle();
  const came: number[] = [];
  queue.attach!((d) => Promise.resolve(void came.push(d.ticket)));
  await settle();
  assert.deepEqual(came, [1]);
  await queue.close!();
});

Deno.test("in-process queue: close waits for what is under way, ends timers, and takes nothing more", async () => {
  let finished = 0;
  const { clock, start, queue, came } = noted(async () => {
    await clock.sleep(1000);
    finished++;
  });
  await queue.publish(delivery());
  await queue.publish(delivery({ ticket: 2 }));
  await queue.publish(delivery({ ticket: 3, at: start + 60_000 }));
  await settle();
  let closed = false;
  const closing = queue.close!().then(() => closed = true);
  await settle();
  assert.deepEqual([closed, clock.sleepers], [false, 1]);
  await clock.advance(1000);
  await closing;
  assert.deepEqual([finished, came.length, clock.sleepers], [1, 1, 0]);
  await assert.rejects(queue.publish(delivery({ ticket: 4 })), RetryableError);
});

Deno.test("in-process queue: close ends the retries of what fails", async () => {
  const { clock, queue, came } = noted(() => {
    throw new Error("never");
  });
  await queue.publish(delivery());
  await settle();
  await queue.close!();
  await clock.advance(3_600_000);
  assert.deepEqual([came.length, clock.sleepers], [1, 0]);
});
