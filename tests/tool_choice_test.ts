/** What a run says of its choice of tools, on every wire: the vendor takes it, and where its model does not obey, the loop does (CASES, part D). */
import assert from "node:assert/strict";
import { modelFromEnv } from "../providers/mod.ts";
import { createPawl, defineTool, InputError } from "../src/mod.ts";
import { dialects } from "./support/dialect.ts";
import { calls, modelServer } from "./support/model_server.ts";

const ways = {
  auto: "auto",
  required: "required",
  none: "none",
  named: { type: "function", name: "add" },
} as const;
type Way = keyof typeof ways;

/** What runs of these calls, which the model makes whatever it was told. */
function running(names: string[], way: Way, parallel: boolean): string[] {
  const allowed = way === "none" ? [] : way === "named" ? ["add"] : names;
  return parallel ? allowed : allowed.slice(0, 1);
}

for (const each of dialects) {
  for (const way of Object.keys(ways) as Way[]) {
    for (const parallelToolCalls of [true, false]) {
      const settings = { toolChoice: ways[way], parallelToolCalls };
      const told = `tool choice ${way}, ${parallelToolCalls ? "parallel" : "single"}`;

      Deno.test(`${each.wire}: ${told}: taken by the vendor, enforced on its model (CASES D06)`, async () => {
        for (const names of [["add", "look"], ["look", "add"]]) {
          const ran: string[] = [];
          const tools = ["add", "look"].map((name) =>
            defineTool({
              name,
              description: name,
              parameters: { type: "object" },
              execute: () => `${ran.push(name)}`,
            })
          );
          await using vendor = modelServer(
            each.wire,
            (_, n) => n === 1 ? calls(...names.map((name): [string, object] => [name, {}])) : "done",
          );
          const pawl = createPawl({ tools, models: modelFromEnv(vendor.env) });
          assert.equal(await pawl.exec("Go", settings), "done");
          await pawl.close();
          assert.deepEqual(ran, running(names, way, parallelToolCalls));
          const [first, second, ...more] = vendor.requests;
          assert.equal(more.length, 0);
          const choice = each.choices[way];
          if (parallelToolCalls) assert.deepEqual(each.choice(first!.body), choice);
          else if (way === "auto") assert.ok(each.single(first!.body));
          // Both calls have a result, those that did not run a failed one; a choice that was forced is so no longer.
          assert.deepEqual(
            second!.results.map(({ isError }) => !isError),
            names.map((name) => ran.includes(name)),
          );
          if (parallelToolCalls) {
            assert.deepEqual(each.choice(second!.body), each.choices[way === "none" ? "none" : "auto"]);
          }
        }
      });

      Deno.test(`${each.wire}: ${told}, without tools: nothing is sent of it, or it is refused (CASES D04)`, async () => {
        await using vendor = modelServer(each.wire, () => "done");
        const pawl = createPawl({ tools: [], models: modelFromEnv(vendor.env) });
        if (way === "required" || way === "named") {
          await assert.rejects(pawl.exec("Go", settings), InputError);
          assert.equal(vendor.requests.length, 0);
        } else {
          assert.equal(await pawl.exec("Go", settings), "done");
          assert.doesNotMatch(JSON.stringify(vendor.requests[0]!.body), /tool|parallel/i);
        }
        await pawl.close();
      });
    }
  }
}
