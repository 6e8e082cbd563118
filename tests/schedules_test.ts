/** Schedules that broke designs like this one, each played as it was written down (relatives H1 to H22). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { InputError } from "../src/errors.ts";
import type { ModelRequest } from "../src/model.ts";
import { agenticFunction, defineTool, type Tool } from "../src/tool.ts";
import { calls } from "./support/scripted_model.ts";
import { hour, minute, tenant } from "./support/simulation/world.ts";
import { Stage } from "./support/stage.ts";

const anything = z.looseObject({});

const wait = (ms: number): Tool =>
  defineTool({
    name: "wait",
    description: "",
    parameters: anything,
    replay: "safe",
    wait: (_args, now) => ({ for: "time", until: now + ms }),
    execute: () => "waited",
  });

const plain = (name: string, execute: Tool["execute"], more: Partial<Tool> = {}): Tool =>
  defineTool({
    name,
    description: "",
    parameters: anything,
    ...more,
    execute: execute as () => unknown,
  }) as Tool;

const ask = { name: "ask", description: "", parameters: { type: "object" } };

Deno.test("H1a: steering that wakes a run is not swallowed by the delivery that was to end its wait", async () => {
  const stage = new Stage([calls(["wait"]), "steered"], { tools: [wait(6 * hour)] });
  const { run } = await stage.start("Go");
  assert.equal(await stage.deliver(), "done");
  const later = stage.queued.at(-1)!;
  assert.equal(later.at, (await stage.view(run)).waitingFor![0]!.until);

  await stage.time.pass(minute);
  await stage.ask((pawl) => pawl.send(tenant, run, "steering", "Hurry"));
  assert.deepEqual(stage.swallowed, []);
  assert.equal(await stage.deliver(), "done");
  assert.equal((await stage.view(run)).text, "steered");

  await stage.until(later.at!);
  assert.equal(await stage.deliver(later), "done");
  assert.equal(stage.model.requests.length, 2);
});

Deno.test("H1b: a delivery that waits for a lease and comes too early waits again", async () => {
  let dies = true;
  const stage: Stage = new Stage([() => dies ? stage.die() : "there", "there"]);
  const { run } = await stage.start("Go");
  const first = stage.queued[0]!;
  assert.equal(await stage.deliver(first), "died");
  dies = false;

  await stage.time.pass(12_000);
  assert.equal(await stage.deliver(first, { message: "another" }), "done");
  const behind = stage.queued.at(-1)!;
  assert.equal(stage.queued.length, 2);
  await stage.until(behind.at! - 5_000);
  assert.equal(await stage.deliver(behind), "done");
  const again = stage.queued.at(-1)!;
  assert.notEqual(again, behind, "it was published anew");
  assert.deepEqual(stage.swallowed, []);

  await stage.until(again.at!);
  await stage.deliver(again);
  assert.equal((await stage.view(run)).text, "there");
});

Deno.test("H1b: the retry of a message whose function died takes over at once", async () => {
  let dies = true;
  const stage: Stage = new Stage([() => dies ? stage.die() : "there", "there"]);
  const { run } = await stage.start("Go");
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "died");
  dies = false;
  await stage.time.pass(12_000);
  await stage.deliver(stage.queued[0], { message: "q" });
  assert.equal((await stage.view(run)).text, "there");
});

Deno.test("H1c: a wait whose delivery was never published is published by the retry, also if that comes early", async () => {
  const stage = new Stage([calls(["wait"]), "waited"], { tools: [wait(6 * hour)] });
  const { run } = await stage.start("Go");
  stage.commitMeets("killed after", '"status":"waiting"');
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "died");
  assert.equal((await stage.view(run)).status, "waiting");
  assert.equal(stage.queued.length, 1);

  await stage.time.pass(12_000);
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "done");
  const later = stage.queued.at(-1)!;
  assert.ok(later.at! > stage.time.now() + 5 * hour);
  await stage.until(later.at! - 5_000);
  assert.equal(await stage.deliver(later), "done");
  const again = stage.queued.at(-1)!;
  assert.deepEqual([again.at, again.hop > later.hop, stage.swallowed], [later.at, true, []]);
  await stage.until(again.at!);
  await stage.deliver(again);
  assert.equal((await stage.view(run)).text, "waited");
});

Deno.test("H2: an answer that was stored but not published is published by its repeat", async () => {
  for (const fate of ["killed after", "killed before"] as const) {
    const stage = new Stage([calls(["ask"]), "thanks"]);
    const { run } = await stage.start("Go", { tools: [ask] });
    await stage.deliver();
    const { toolCallId } = (await stage.view(run)).waitingFor![0]!;
    const answer = (at = stage.door) =>
      stage.ask((pawl) => pawl.resolve(tenant, run, toolCallId, { content: "blue" }), at);

    stage.meets(fate === "killed after" ? "submit" : "publish", fate);
    await assert.rejects(answer(stage.world.isolate("dying door")), /No answer/);
    assert.equal((await stage.view(run)).status, "queued");
    assert.equal((await answer()).repeat, true);
    await stage.play(run);
    assert.deepEqual(await stage.transcript(), [
      "user: Go",
      "assistant: ask()",
      "tool: blue",
      "assistant: thanks",
    ]);
  }
});

Deno.test("H2: an answer that cannot be published is not acknowledged", async () => {
  const stage = new Stage([calls(["ask"]), "thanks"]);
  const { run } = await stage.start("Go", { tools: [ask] });
  await stage.deliver();
  const { toolCallId } = (await stage.view(run)).waitingFor![0]!;
  const answer = () => stage.ask((pawl) => pawl.resolve(tenant, run, toolCallId, { content: "blue" }));
  stage.meets("publish", "dropped");
  await assert.rejects(answer(), (error: InputError) => error.code === "unavailable");
  assert.equal((await answer()).repeat, true);
  await stage.play(run);
  assert.equal((await stage.view(run)).text, "thanks");
});

Deno.test("H2: steering that woke a run but was not published is published by the repeat of its key", async () => {
  const stage = new Stage([calls(["wait"]), "steered"], { tools: [wait(6 * hour)] });
  const { run } = await stage.start("Go");
  await stage.deliver();
  const key = { name: "k", hash: "h" };
  const steer = (at = stage.door) =>
    stage.ask((pawl) => pawl.send(tenant, run, "steering", "Hurry", key), at);
  stage.meets("submit", "killed after");
  await assert.rejects(steer(stage.world.isolate("dying door")), /No answer/);
  const { messageId } = await steer();
  await stage.deliver();
  const log = await stage.log();
  assert.deepEqual(log.filter(({ kind, n }) => kind === "user" && n > 1).map(({ id }) => id), [messageId]);
  assert.equal((await stage.view(run)).text, "steered");
});

Deno.test("H3: branches that finish at the same time commit one after another, and a lost answer loses none of them", async () => {
  const fan = agenticFunction({
    name: "fan",
    description: "",
    parameters: anything,
    execute: async (_args, { exec }) =>
      (await Promise.all(["a", "b", "c"].map((key) => exec(`Say ${key}`, { key })))).join(""),
  });
  const say = ({ messages }: ModelRequest) => textOf(messages.at(-1)!.content).at(-1)!;
  const stage = new Stage([calls(["fan"]), say, say, say, "done"], { tools: [fan] });
  const { run } = await stage.start("Go");
  let underWay = 0, most = 0;
  const sequences: number[] = [], { commit } = stage.world.store;
  stage.meets("commit", "lost", ([, { sequence }]) => sequence === 7);
  const worker = stage.world.isolate("worker");
  stage.world.store.commit = async (lease, change) => {
    sequences.push(change.sequence);
    most = Math.max(most, ++underWay);
    return await commit(lease, change).finally(() => underWay--);
  };
  assert.equal(await stage.deliver(stage.queued[0], { on: worker }), "done");
  assert.deepEqual([most, stage.met, sequences.filter((n) => n === 7).length], [1, true, 2]);
  assert.deepEqual([...new Set(sequences)], Array.from(new Set(sequences), (_, i) => i + 1));
  assert.deepEqual(await stage.transcript(), [
    "user: Go",
    "assistant: fan()",
    "tool: abc",
    "assistant: done",
  ]);
  assert.equal((await stage.view(run)).status, "completed");
});

Deno.test("H4: mail that was taken by a commit whose answer was lost is in the next request", async () => {
  const stage: Stage = new Stage([calls(["look"]), "In euros"], {
    tools: [plain("look", async () => {
      await stage.door.pawl.send(tenant, run, "steering", "Use EUR");
      return "100";
    })],
  });
  const { run } = await stage.start("Price?");
  stage.commitMeets("lost", '"take":[{"kinds":["steering"],');
  await stage.deliver();
  assert.ok(stage.met);
  assert.deepEqual(stage.model.requests[1]!.messages.map(({ role }) => role), [
    "user",
    "assistant",
    "tool",
    "user",
  ]);
  assert.equal(textOf(stage.model.requests[1]!.messages.at(-1)!.content), "Use EUR");
});

Deno.test("H5: a call that the model repeats after an unknown outcome has the key of the first, also in a later run", async () => {
  const keys: string[] = [];
  const refund = calls(["refund", { order: 7 }]);
  const stage: Stage = new Stage([refund, refund, refund, "Refunded", refund, "Other"], {
    tools: [plain("refund", (_args, { idempotencyKey }) => {
      keys.push(idempotencyKey);
      return keys.length <= 2 ? stage.die() : "done";
    })],
  });
  const { run } = await stage.start("Refund");
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "died");
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "died");
  await stage.ask((pawl) => pawl.cancel(tenant, run));
  const next = await stage.start("Refund, please");
  await stage.deliver();
  assert.equal((await stage.view(next.run)).text, "Refunded");
  // The outcome is known now: to refund once more is another effect.
  await stage.start("And another one");
  await stage.deliver();
  assert.equal(new Set(keys.slice(0, 3)).size, 1);
  assert.deepEqual([keys.length, keys[3] !== keys[0]], [4, true]);
  const first = await stage.transcript();
  assert.match(first[2]!, /outcome is unknown.*check/i);
});

Deno.test("H6: two open calls with one key are an error that names both", async () => {
  const pair = agenticFunction({
    name: "pair",
    description: "",
    parameters: anything,
    execute: (_args, { step }) => Promise.all([step("save", () => "a"), step("save", () => "b")]),
  });
  const stage = new Stage([calls(["pair"]), "sorry"], { tools: [pair] });
  await stage.start("Go");
  await stage.deliver();
  const [, , result] = await stage.transcript();
  assert.match(result!, /open at the same time.*"save".*pair/);
});

Deno.test("H6: branches find their own steps again, whichever is faster this time", async () => {
  let slice = 0;
  const stage: Stage = new Stage([calls(["both"]), "done"], {
    tools: [agenticFunction({
      name: "both",
      description: "",
      parameters: anything,
      execute: async (_args, { step }) => {
        const first = ++slice === 1;
        const branch = async (name: string, ms: number) => {
          await stage.time.sleep(ms);
          return await step(name, () => {
            if (first && name === "b") return stage.die();
            return `id of ${name} from slice ${slice}`;
          });
        };
        return (await Promise.all([branch("a", first ? 10 : 500), branch("b", first ? 500 : 10)])).join(", ");
      },
    })],
  });
  await stage.start("Go");
  assert.equal(await stage.deliver(stage.queued[0], { message: "q" }), "died");
  await stage.deliver(stage.queued[0], { message: "q" });
  assert.equal((await stage.transcript())[2], "tool: id of a from slice 1, id of b from slice 2");
});

Deno.test("H6: a step that is under way when a branch is out of budget is recorded before the slice ends", async () => {
  let charges = 0;
  const stage: Stage = new Stage([calls(["both"]), "nested", "done"], {
    budget: { turns: 1 },
    tools: [agenticFunction({
      name: "both",
      description: "",
      parameters: anything,
      execute: async (_args, { exec, step }) =>
        (await Promise.all([
          exec("Nested", { key: "nested" }),
          step("charge", async () => {
            charges++;
            await stage.time.sleep(20_000);
            return "charged";
          }),
        ])).join(" "),
    })],
  });
  const { run } = await stage.start("Go");
  await stage.play(run);
  assert.equal(charges, 1);
  assert.equal((await stage.transcript())[2], "tool: nested charged");
});
