/** Runs that go on after a deployment has changed its tools (CASES F12). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import { defineTool, type Tool } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const searching = (name: string, parameters: z.ZodObject): Tool =>
  defineTool({
    name,
    description: "",
    parameters,
    wait: (_args, now) => ({ for: "approval", until: now + 3_600_000 }),
    execute: () => "found",
  });
const query = z.object({ q: z.number() });

/** A run that waits for an approval on one version of the deployment, and what comes of it on another. */
async function redeployed(before: Tool[], after: Tool[], tools?: string[]) {
  const old: Harness = harness([calls(["old_search", { q: 1 }])], { tools: before });
  const { run, thread } = await old.start("Go", { tools });
  const id = (await old.settled(run)).waitingFor![0]!.toolCallId;
  const { store, time } = old;
  old.loseDeliveries();
  const now = harness(["Without it, then", "Still here"], { tools: after, store, time });
  await time.until(now.pawl.resolve("local", run, id, { approve: true }));
  const view = await now.ended(run);
  const result = (await now.messages(run)).find((message) => message.role === "tool")!;
  return { now, run, thread, view, text: textOf(result.content), isError: result.isError };
}

for (const named of [false, true]) {
  Deno.test(`a call to a tool that is gone gets an error result, and the run goes on with those there are${named ? ", also where it named its tools" : ""}`, async () => {
    const search = searching("search", query);
    const tools = named ? ["old_search", "search"] : undefined;
    const { now, run, thread, view, text, isError } = await redeployed(
      [searching("old_search", query), search],
      [search],
      tools,
    );
    assert.deepEqual([view.status, view.text], ["completed", "Without it, then"]);
    assert.ok(isError && /no tool "old_search".*search/.test(text), text);
    assert.deepEqual(now.model.requests[0]!.tools.map(({ name }) => name), ["search"]);
    const warned = (await now.events(run)).some(({ event }) =>
      event.type === "warning" && event.code === "tool_gone"
    );
    assert.equal(warned, named);
    // What was said with the old name is part of the thread for ever.
    const next = await now.start("And?", {}, { thread });
    assert.equal((await now.ended(next.run)).text, "Still here");
  });
}

Deno.test("a call whose tool now wants more gets an error result that names what is missing", async () => {
  const wantsMore = searching("old_search", z.object({ q: z.number(), site: z.string() }));
  const { view, text, isError } = await redeployed([searching("old_search", query)], [wantsMore]);
  assert.equal(view.status, "completed");
  assert.ok(isError && /site/.test(text), text);
});
