/** A slice's budget of subrequests: platforms count all that an invocation asks of the world, and so does Pawl (CASES F23). */
import assert from "node:assert/strict";
import * as z from "zod";
import type { Placed } from "../src/event.ts";
import type { Store } from "../src/store.ts";
import type { ModelRequest } from "../src/model.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { defineTool } from "../src/tool.ts";
import { harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said, scriptedModel } from "./support/scripted_model.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const most = 30;
const ofSlices = new Set<string>(["claim", "commit", "renew", "stream"]);

/** Counts the requests of each slice to store, model and queue; those of people are let out. */
function counted(
  script: Said[] | ((request: ModelRequest, n: number) => Said),
  options: HarnessOptions = {},
) {
  const time = new VirtualTime(), whole = sqliteStore(":memory:", { clock: time }), slices: number[] = [];
  const count = () => void (slices[slices.length - 1]! += 1);
  const store = new Proxy(whole, {
    get(_, name: keyof Store) {
      const value = whole[name];
      if (typeof value !== "function") return value;
      return (...given: any[]) => {
        if (name === "claim") slices.push(0);
        if (slices.length && ofSlices.has(name)) count();
        return (value as (...given: any[]) => unknown).apply(whole, given);
      };
    },
  });
  const model = scriptedModel(script), reply = model.reply.bind(model);
  model.reply = (...given) => (count(), reply(...given));
  const h = harness(model, { time, store, budget: { subrequests: most }, ...options });
  const publish = h.queue.publish.bind(h.queue);
  h.queue.publish = (delivery) => (slices.length && count(), publish(delivery));
  return { ...h, slices, count };
}

const nap = defineTool({
  name: "nap",
  description: "Naps.",
  parameters: z.object({}),
  execute: () => "rested",
});

Deno.test("F23 a run of 30 steps takes as many slices as its budget of subrequests makes necessary", async () => {
  const h = counted((_, n) => n < 30 ? calls(["nap"]) : "Done", { tools: [nap] });
  const { run } = await h.start("Go", { maxIterations: 50 });
  assert.deepEqual([(await h.ended(run)).text, h.failures], ["Done", []]);
  assert.ok(Math.max(...h.slices) <= most, `most: ${h.slices}`);
  assert.ok(h.slices.length >= 3 && h.slices.length <= 8, `slices: ${h.slices}`);
});

Deno.test("F23 watchers of a long message see less of it, rather than that the slice asks too much", async () => {
  const h = counted([async (_, { onDelta }) => {
    for (const end = h.time.now() + 20_000; h.time.now() < end;) {
      onDelta({ type: "text", text: "." });
      await h.time.sleep(300);
    }
    return "Done";
  }]);
  const { run } = await h.start("Go"), seen: Placed[] = [];
  const watching = (async () => {
    const { signal } = new AbortController();
    for await (const event of h.pawl.events("local", run, { signal })) seen.push(event);
  })();
  assert.equal((await h.ended(run)).text, "Done");
  await h.time.until(watching);
  assert.ok(seen.some(({ event }) => event.type === "message_update"), "pieces were seen");
  assert.equal(seen.at(-1)!.event.type, "agent_end");
  assert.ok(Math.max(...h.slices) <= most, `most: ${h.slices}`);
});

Deno.test("F23 a tool that asks too much is told so, and the slice still ends in good order", async () => {
  const crawl = defineTool({
    name: "crawl",
    description: "Asks 40 times.",
    parameters: z.object({}),
    execute: async (_, { fetch }) => {
      for (let n = 0; n < 40; n++) await fetch("http://pages.example");
    },
  });
  const h = counted([calls(["crawl"]), "Done"], { tools: [crawl] }), { fetch } = globalThis;
  globalThis.fetch = () => (h.count(), Promise.resolve(new Response()));
  try {
    const { run } = await h.start("Go");
    assert.equal((await h.ended(run)).text, "Done");
    assert.match(JSON.stringify((await h.messages(run))[2]), /limit of requests at once/);
  } finally {
    globalThis.fetch = fetch;
  }
  assert.ok(Math.max(...h.slices) <= most, `most: ${h.slices}`);
});

Deno.test("F23 a call whose lease costs more than a slice may ask is cut, and in the end the run fails", async () => {
  const h = counted(() => (_, { signal }) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)))
  );
  const { run } = await h.start("Go"), { status, error } = await h.ended(run);
  assert.deepEqual([status, error?.code], ["failed", "attempts"]);
  assert.ok(Math.max(...h.slices) <= most, `most: ${h.slices}`);
});
