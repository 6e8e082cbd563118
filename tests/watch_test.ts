/** A run's events for listeners that come, go, and come again (DESIGN §4 Events). */
import assert from "node:assert/strict";
import * as z from "zod";
import type { Placed } from "../src/event.ts";
import { ModelError, type ModelOptions } from "../src/model.ts";
import { defineTool } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const work = defineTool({
  name: "work",
  description: "",
  parameters: z.looseObject({}),
  execute: () => "done",
});
const turns = (n: number) => (_request: unknown, nth: number) => nth <= n ? calls(["work"], ["work"]) : "end";

/** Collects events until the stream ends, or until `enough` says so. */
function listen(
  h: Harness,
  run: string,
  after?: string,
  enough: (events: Placed[]) => boolean = () => false,
) {
  const events: Placed[] = [], leave = new AbortController();
  const done = (async () => {
    for await (const event of h.pawl.events("local", run, { after, signal: leave.signal })) {
      events.push(event);
      if (enough(events)) break;
    }
    return events;
  })();
  return { events, done, leave: () => leave.abort() };
}

const ids = (events: Placed[]) => events.map(({ id }) => id);

/** Events by what they say: a message that one listener saw in pieces, another may have seen whole. */
const what = (events: Placed[]) =>
  events.flatMap(({ id, event }) =>
    event.type === "message_update"
      ? []
      : [event.type === "message_start" ? `begins ${event.message.id}` : id]
  );

/** A message of `pieces` pieces, one each second. */
const slowly = (h: () => Harness, pieces: number) => async (_request: unknown, { onDelta }: ModelOptions) => {
  for (let i = 0; i < pieces; i++) {
    await h().time.sleep(1_000);
    onDelta({ type: "text", text: `piece ${i} ` });
  }
  return "all pieces";
};

Deno.test("whoever comes again with the last id gets the rest, each event once (CASES B24)", async () => {
  const h = harness(turns(4), { tools: [work], budget: { turns: 2 } });
  const { run } = await h.start("Go");
  const whole = listen(h, run);
  const first = await h.time.until(listen(h, run, undefined, (events) => events.length === 17).done);
  const rest = await h.time.until(listen(h, run, first.at(-1)!.id).done);
  const all = await h.time.until(whole.done);
  assert.ok(all.length > 40);
  assert.deepEqual([...what(first), ...what(rest)], what(all));
  assert.equal(all.at(-1)!.event.type, "agent_end");
});

Deno.test("from every event on, the rest is the same", async () => {
  const h = harness(turns(2), { tools: [work] });
  const { run } = await h.start("Go");
  await h.ended(run);
  const all = await h.events(run);
  for (const [n, { id }] of all.entries()) {
    if (n === all.length - 1) continue;
    assert.deepEqual(ids(await h.events(run, id)), ids(all).slice(n + 1));
  }
});

Deno.test("an id that cannot be honoured gets one resync with the state, and then what comes (CASES B24)", async () => {
  for (const after of ["rubbish", "99999.0", "-1", "1e9.2", "3.2000"]) {
    const h: Harness = harness([slowly(() => h, 3), "never"]);
    const { run } = await h.start("Go");
    await h.time.pass(500);
    const events = await h.time.until(listen(h, run, after).done);
    const [first] = events;
    assert.equal(first!.event.type, "resync", after);
    assert.ok(
      first!.event.type === "resync" && first!.event.run.status === "running" &&
        first!.event.messages.length === 1,
    );
    assert.equal(events.filter(({ event }) => event.type === "resync").length, 1);
    assert.deepEqual(events.slice(-2).map(({ event }) => event.type), ["turn_end", "agent_end"]);
    assert.ok(!events.some(({ event }) => event.type === "agent_start"));
  }
});

Deno.test("an id of another run of the thread is told so, and the answer's own id ends it (CASES B24)", async () => {
  const h = harness(["one", "two"]);
  const { run, thread } = await h.start("Go");
  await h.ended(run);
  const { run: other } = await h.start("On", {}, { thread });
  await h.ended(other);
  for (const { id } of await h.events(other)) {
    const events = await h.events(run, id);
    assert.deepEqual(events.map(({ event }) => event.type), ["resync"], id);
    assert.deepEqual(await h.events(run, events[0]!.id), []);
  }
  // What came before a run is all before it.
  const last = (await h.events(run)).at(-1)!;
  assert.deepEqual(ids(await h.events(other, last.id)), ids(await h.events(other)));
});

Deno.test("pieces are streamed to those who watch; the message is begun once and ends whole", async () => {
  const h: Harness = harness([slowly(() => h, 5)]);
  const { run } = await h.start("Go");
  const events = await h.time.until(listen(h, run).done);
  const texts = events.flatMap(({ event }) =>
    event.type === "message_update" && event.delta.type === "text" ? [event.delta.text] : []
  );
  assert.deepEqual(texts.join(""), "piece 0 piece 1 piece 2 piece 3 piece 4 all pieces");
  const begun = events.filter(({ event }) =>
    event.type === "message_start" && event.message.role === "assistant"
  );
  assert.equal(begun.length, 1);
  assert.equal(new Set(ids(events)).size, events.length, "ids are unique");
});

Deno.test("nobody watching: nothing is streamed", async () => {
  const h: Harness = harness([slowly(() => h, 5)]);
  let streamed = 0;
  const { stream } = h.store;
  h.store.stream = (...args) => (streamed++, stream.apply(h.store, args));
  await h.ended((await h.start("Go")).run);
  assert.equal(streamed, 0);
});

Deno.test("a listener that leaves in the middle of a message and comes back continues with the next piece", async () => {
  const h: Harness = harness([slowly(() => h, 20)]);
  const { run } = await h.start("Go");
  const pieces = (events: Placed[]) => events.filter(({ event }) => event.type === "message_update").length;
  const other = listen(h, run);
  const first = await h.time.until(listen(h, run, undefined, (events) => pieces(events) === 3).done);
  const rest = await h.time.until(listen(h, run, first.at(-1)!.id).done);
  await h.time.until(other.done);
  assert.deepEqual([...ids(first), ...ids(rest)], ids(other.events));
  assert.ok(!rest.some(({ event }) => event.type === "message_start"));
});

Deno.test("one that comes back with a piece of a message that is done by then gets a resync", async () => {
  const h: Harness = harness([slowly(() => h, 4), "more"]);
  const { run } = await h.start("Go");
  const first = await h.time.until(
    listen(h, run, undefined, (events) => events.some(({ event }) => event.type === "message_update")).done,
  );
  await h.ended(run);
  const rest = await h.events(run, first.at(-1)!.id);
  assert.deepEqual(rest.map(({ event }) => event.type), ["resync"]);
});

Deno.test("a message whose first try broke is announced as void, so that the listener ends with the right text", async () => {
  const h: Harness = harness([
    async (_request, { onDelta }) => {
      await h.time.sleep(1_000);
      onDelta({ type: "text", text: "The thr" });
      await h.time.sleep(1_000);
      return new ModelError("overloaded", "busy");
    },
    slowly(() => h, 1),
  ]);
  const { run } = await h.start("Go");
  const events = await h.time.until(listen(h, run).done);
  let text = "";
  for (const { event } of events) {
    if (event.type === "message_retry") text = "";
    if (event.type === "message_update" && event.delta.type === "text") text += event.delta.text;
  }
  assert.equal(text, "piece 0 all pieces");
});

Deno.test("listeners that are slow, leave or throw change nothing of the run (rule 10)", async () => {
  const quiet = harness(turns(3), { tools: [work] });
  const a = await quiet.start("Go");
  await quiet.ended(a.run);

  const h = harness(turns(3), { tools: [work] });
  const { watch } = h.store;
  h.store.watch = (thread, wake, options) =>
    watch.call(h.store, thread, () => {
      wake();
      throw new Error("a listener's fault");
    }, options);
  const b = await h.start("Go");
  const slow = h.pawl.events("local", b.run, { signal: new AbortController().signal })
    [Symbol.asyncIterator]();
  const first = slow.next();
  const gone = listen(h, b.run);
  await h.time.step();
  gone.leave();
  await h.ended(b.run);
  await first;
  const shape = (events: Placed[]) => events.map(({ event }) => event.type);
  assert.deepEqual(shape(await h.events(b.run)), shape(await quiet.events(a.run)));
});

Deno.test("a stream closes after some minutes with the run going on, and continues by its last id", async () => {
  const h: Harness = harness([slowly(() => h, 500)], { budget: { softMs: 600_000, hardMs: 900_000 } });
  const { run } = await h.start("Go");
  const first = await h.time.until(listen(h, run).done);
  assert.notEqual(first.at(-1)!.event.type, "agent_end");
  const rest = await h.time.until(listen(h, run, first.at(-1)!.id).done);
  assert.equal(rest.at(-1)!.event.type, "agent_end");
  const updates = [...first, ...rest].filter(({ event }) => event.type === "message_update");
  assert.equal(updates.length, 501);
});
