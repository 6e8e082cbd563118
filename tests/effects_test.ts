/** What becomes of an effect when the function dies in the middle of it (DESIGN rule 5). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf, type ToolMessage } from "../src/message.ts";
import { defineTool, type Reconciled } from "../src/tool.ts";
import { type Harness, harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

/** A payment whose first run never returns: the function died in it. */
function payment(keys: string[], reconcile?: (key: string) => Reconciled) {
  return defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ order: z.string() }),
    ...(reconcile && { reconcile }),
    execute: (_args, { idempotencyKey }) => {
      keys.push(idempotencyKey);
      return keys.length === 1 ? new Promise(() => {}) : "paid";
    },
  });
}

/** Runs until the payment has begun, lets the function die, and the same message come again. */
async function killedWhilePaying(pay: unknown): Promise<{ h: Harness; result: ToolMessage }> {
  const h = harness([calls(["pay", { order: "7" }]), "done"], { tools: [pay] });
  h.loseDeliveries();
  const { run } = await h.start("Pay order 7");
  const [delivery] = h.published;
  const { renew } = h.store;
  h.store.renew = () => new Promise(() => {});
  h.deliver(delivery!, "the message");
  await h.time.pass(10_000);
  h.store.renew = renew;
  h.deliver(delivery!, "the message");
  assert.equal((await h.ended(run)).text, "done");
  return { h, result: (await h.messages(run)).find((message) => message.role === "tool")! };
}

Deno.test("without more to go by, the model is told that the outcome is unknown", async () => {
  const keys: string[] = [];
  const { result } = await killedWhilePaying(payment(keys));
  assert.equal(keys.length, 1);
  assert.ok(result.isError && /unknown/.test(textOf(result.content)));
});

Deno.test("a tool that can say that it was done gives the model the result, and does nothing again", async () => {
  const keys: string[] = [], asked: string[] = [];
  const { result } = await killedWhilePaying(payment(keys, (key) => {
    asked.push(key);
    return { is: "done", result: { receipt: 12 } };
  }));
  assert.deepEqual(asked, keys);
  assert.deepEqual([result.isError, result.content], [false, '{"receipt":12}']);
});

Deno.test("a tool that can say that nothing was done runs, under the same key", async () => {
  const keys: string[] = [];
  const { result } = await killedWhilePaying(payment(keys, () => ({ is: "not_done" })));
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.deepEqual([result.isError, result.content], [false, "paid"]);
});

Deno.test("a tool that does not know, or fails to find out, leaves the outcome unknown", async () => {
  const ways: (() => Reconciled)[] = [() => ({ is: "unknown" }), () => {
    throw new Error("the bank is closed");
  }];
  for (const way of ways) {
    const keys: string[] = [];
    const { result } = await killedWhilePaying(payment(keys, way));
    assert.equal(keys.length, 1);
    assert.ok(result.isError && /unknown/.test(textOf(result.content)));
  }
});
