/** One thread that goes from vendor to vendor, with tools and thinking: each takes what all the others said (DESIGN rule 9). */
import assert from "node:assert/strict";
import * as z from "zod";
import { modelFromEnv } from "../providers/mod.ts";
import { createPawl, defineTool } from "../src/mod.ts";
import { dialects } from "./support/dialect.ts";
import { calls, modelServer } from "./support/model_server.ts";

const thinks: readonly string[] = dialects.filter(({ thoughts }) => thoughts).map(({ wire }) => wire);
const names = dialects.map(({ wire }) => wire);

for (const order of [names, names.toReversed()]) {
  Deno.test(`a thread goes from vendor to vendor and back: ${order.join(", ")} (CASES A13, A16)`, async () => {
    await using servers = new AsyncDisposableStack();
    const vendors = new Map(order.map((wire) => {
      const server = servers.use(modelServer(wire, ({ turns }) => {
        if (turns.at(-1)?.role === "tool") return `${wire} has added.`;
        const called = calls(["add", { a: 1 }], ["add", { a: 2 }]);
        return thinks.includes(wire) ? { ...called, thinking: "c2ln" } : called;
      }));
      return [wire, server];
    }));
    const parameters = z.object({ a: z.number() });
    const add = defineTool({ name: "add", description: "", parameters, execute: ({ a }) => `sum ${a}` });
    const models = {
      default: "openai/m",
      get: (name: string) => modelFromEnv(vendors.get(name.split("/")[0] as any)!.env).get(name),
    };
    const pawl = createPawl({ tools: [add], models });
    for (const wire of [...order, ...order]) {
      const model = `${wire}/m`;
      assert.equal(await pawl.exec(`Ask ${wire}`, { thread: "switching", model }), `${wire} has added.`);
    }
    await pawl.close();
    for (const [wire, { requests }] of vendors) {
      assert.equal(requests.length, 4);
      const { turns } = requests.at(-1)!;
      const said = turns.map(({ text }) => text).join("\n");
      // All that was said to and by the others is there, with a result for each call.
      for (const other of order.slice(0, order.indexOf(wire))) {
        assert.match(said, new RegExp(`${other} has added`));
      }
      const asked = turns.flatMap(({ calls }) => calls.length ? calls : []);
      assert.equal(asked.length, turns.filter(({ role }) => role === "tool").length);
      assert.equal(asked.length, 2 * (order.length + order.indexOf(wire) + 1));
    }
  });
}
