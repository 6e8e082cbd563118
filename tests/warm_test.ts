/** What an isolate holds of threads between slices: it is bounded, and nothing but speed depends on it. */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import { Warm } from "../src/slice.ts";
import type { Store } from "../src/store.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { defineTool } from "../src/tool.ts";
import { Transcript } from "../src/transcript.ts";
import { harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const ofSize = (size: number) => Object.assign(new Transcript("i1"), { size });

Deno.test("no more is held than there is room for; what was used last stays", () => {
  const warm = new Warm(100), [a, b, c] = [ofSize(40), ofSize(40), ofSize(40)];
  warm.keep("a", a);
  warm.keep("b", b);
  warm.keep("a", warm.take("a")!);
  warm.keep("c", c);
  assert.deepEqual([warm.take("b"), warm.take("a"), warm.take("c")], [undefined, a, c]);
  // Who works on one has it alone.
  assert.equal(warm.take("a"), undefined);
});

Deno.test("what is larger than all the room is not held and drives out nothing; what is held again counts once", () => {
  const warm = new Warm(100), small = ofSize(60);
  for (let n = 0; n < 3; n++) warm.keep("small", small);
  assert.equal(warm.take("small"), small);
  warm.keep("small", small);
  warm.keep("large", ofSize(101));
  assert.deepEqual([warm.take("large"), warm.take("small")], [undefined, small]);
});

const look = defineTool({
  name: "look",
  description: "Looks.",
  parameters: z.object({ n: z.number() }),
  execute: ({ n }) => `${n} `.repeat(200),
});

/** Three threads whose slices take turns, each of one turn of the model; what it was asked, and how many entries the claims brought. */
async function talks(room: number) {
  const time = new VirtualTime(), kept = sqliteStore(":memory:", { clock: time });
  let read = 0;
  const store: Store = new Proxy(kept, {
    get(_, name: keyof Store) {
      if (name !== "claim") return typeof kept[name] === "function" ? kept[name].bind(kept) : kept[name];
      return async (...asked: Parameters<Store["claim"]>) => {
        const claimed = await kept.claim(...asked);
        if (claimed.is === "claimed") read += claimed.length - claimed.from;
        return claimed;
      };
    },
  });
  const asked: string[] = [];
  const script = (request: { messages: Parameters<typeof textOf>[0][] | any[] }) => {
    const said = request.messages.map((message: any) => `${message.role}: ${textOf(message.content)}`);
    asked.push(said.join("\n"));
    return said.length < 9 ? calls(["look", { n: said.length }]) : "Seen";
  };
  const h = harness(script, { tools: [look], budget: { turns: 1 }, warm: new Warm(room), store, time });
  const runs = [];
  for (const name of ["a", "b", "c"]) runs.push((await h.start(`This is ${name}`, {}, { thread: name })).run);
  for (const run of runs) assert.equal((await h.ended(run)).text, "Seen");
  return { asked: asked.toSorted(), read };
}

Deno.test("runs ask the same of the model whatever is held: nothing, something, everything", async () => {
  const [nothing, something, everything] = [await talks(0), await talks(6_000), await talks(Infinity)];
  assert.equal(nothing.asked.length, 15);
  assert.deepEqual(something.asked, nothing.asked);
  assert.deepEqual(everything.asked, nothing.asked);
  assert.ok(
    everything.read < something.read && something.read < nothing.read,
    [
      everything.read,
      something.read,
      nothing.read,
    ].join(),
  );
});
