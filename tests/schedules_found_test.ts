/** Schedules that the simulation found: each broke a rule once. */
import assert from "node:assert/strict";
import * as z from "zod";
import type { Placed } from "../src/event.ts";
import { textOf } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { agenticFunction, defineTool } from "../src/tool.ts";
import { calls } from "./support/scripted_model.ts";
import { tenant } from "./support/simulation/world.ts";
import { Stage } from "./support/stage.ts";

const anything = z.looseObject({});
const client = { name: "ask", description: "", parameters: { type: "object" } };

Deno.test("an answer that is accepted in the moment in which steering skips its call is the call's result", async () => {
  const stage = new Stage([calls(["ask"], ["ask"]), "thanks"]);
  const { run } = await stage.start("Go", { tools: [client] });
  await stage.deliver();
  const { toolCallId } = (await stage.view(run)).waitingFor![0]!;
  const { commit } = stage.world.store;
  let answered = false;
  stage.world.store.commit = async (lease, change) => {
    if (!answered && JSON.stringify(change).includes("Skipped")) {
      answered = true;
      const { repeat } = await stage.door.pawl.resolve(tenant, run, toolCallId, { content: "blue" });
      assert.equal(repeat, false);
    }
    return await commit(lease, change);
  };
  await stage.ask((pawl) => pawl.send(tenant, run, "steering", "Hurry"));
  await stage.deliver();
  assert.equal(answered, true);
  assert.deepEqual(await stage.transcript(), [
    "user: Go",
    "assistant: ask() ask()",
    "tool: blue",
    "tool: Skipped due to queued user message",
    "user: Hurry",
    "assistant: thanks",
  ]);
});

Deno.test("a call that the slice's limit cut off does not begin again beside itself when a neighbour's wait is over", async () => {
  let bodies = 0, slow = 0;
  const side = agenticFunction({
    name: "side",
    description: "",
    parameters: anything,
    execute: async (_args, { exec }) => {
      bodies++;
      return (await Promise.all([exec("wait", { key: "a" }), exec("slow", { key: "b" })])).join(" ");
    },
  });
  const says = ({ messages }: ModelRequest) => calls([textOf(messages[0]!.content)]);
  const stage: Stage = new Stage([calls(["side"]), says, says, "waited", "slowly", "done"], {
    budget: { hardMs: 40_000 },
    tools: [
      side,
      defineTool({
        name: "wait",
        description: "",
        parameters: anything,
        replay: "safe",
        wait: (_args, now) => ({ for: "time", until: now + 30_000 }),
        execute: () => "waited",
      }),
      defineTool({
        name: "slow",
        description: "",
        parameters: anything,
        replay: "safe",
        execute: () => stage.time.sleep(slow++ ? 1_000 : 60_000).then(() => "slow"),
      }),
    ],
  });
  const { run } = await stage.start("Go");
  await stage.play(run);
  assert.deepEqual([bodies, slow], [2, 2], "once in each slice");
  const results = (await stage.log()).filter(({ kind }) => kind === "result").map(({ path }) => path);
  assert.equal(new Set(results).size, results.length);
});

Deno.test("who comes again in the middle of a message to which mail came gets a resync, and nothing twice", async () => {
  const stage: Stage = new Stage([async (_request, { onDelta }) => {
    for (const text of ["one ", "two ", "three"]) {
      await stage.time.sleep(1_000);
      onDelta({ type: "text", text });
    }
    // Time for a batch: the listener is not told of pieces that come together with their message.
    await stage.time.sleep(1_000);
    return "one two three";
  }]);
  const { run } = await stage.start("Go");
  const seen: Placed[] = [], again: Placed[] = [], { signal } = new AbortController();
  const looking = (async () => {
    for await (const placed of stage.door.pawl.events(tenant, run, { signal })) {
      seen.push(placed);
      // It leaves with a piece that came after the mail.
      if (placed.event.type === "message_update" && seen.some(({ event }) => event.type === "mail_queued")) {
        break;
      }
    }
    const after = seen.at(-1)!.id;
    for await (const placed of stage.door.pawl.events(tenant, run, { after, signal })) {
      again.push(placed);
      if (placed.event.type === "message_end") break;
    }
  })();
  await stage.time.pass(200);
  const delivered = stage.deliver();
  await stage.time.pass(1_500);
  await stage.ask((pawl) => pawl.send(tenant, run, "follow_up", "More"));
  await stage.time.until(looking);
  await delivered;
  assert.deepEqual(again.map(({ event }) => event.type), [
    "resync",
    "message_start",
    "message_update",
    "message_update",
    "message_update",
    // The scripted model says all of it once more at its end.
    "message_update",
    "message_end",
  ]);
});
