/** What becomes of an effect when the function dies in the middle of it (DESIGN rule 5). */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf, type ToolMessage } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { agenticFunction, defineTool, type Reconciled, type Tool } from "../src/tool.ts";
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

/** Charges, by order number; counts how often its body ran, under which keys. */
function charge(
  body: (args: { order: string; amount: number }, n: number) => unknown = () => "charged",
  more: Partial<Tool> = {},
) {
  const ran: string[] = [];
  const tool = defineTool({
    name: "charge",
    description: "",
    parameters: z.object({ order: z.string(), amount: z.number() }),
    key: ({ order }) => order,
    execute: async (args, { idempotencyKey }) => {
      ran.push(idempotencyKey);
      return await body(args, ran.length);
    },
  });
  return { tool: { ...tool, ...more }, ran };
}

const order = (amount = 5, name = "7"): [string, { order: string; amount: number }] => [
  "charge",
  { order: name, amount },
];

async function resultsOf(h: Harness, run: string): Promise<[boolean, string][]> {
  await h.ended(run);
  return (await h.messages(run)).flatMap((message) =>
    message.role === "tool" ? [[message.isError, textOf(message.content)] as [boolean, string]] : []
  );
}

Deno.test("an effect that was had is answered again without being had again, also in a later run of the thread", async () => {
  const { tool, ran } = charge((_args, n) => `receipt ${n}`);
  const h = harness([calls(order()), calls(order()), "done", calls(order()), "done"], { tools: [tool] });
  const first = await h.start("Charge", {}, { thread: "t" });
  assert.deepEqual(await resultsOf(h, first.run), [[false, "receipt 1"], [false, "receipt 1"]]);
  const second = await h.start("Charge", { toolChoice: "required" }, { thread: "t" });
  assert.deepEqual(await resultsOf(h, second.run), [[false, "receipt 1"]]);
  assert.equal(ran.length, 1);
  assert.equal(h.model.requests.at(-1)!.toolChoice, "auto", "a forced choice is satisfied by it");
});

Deno.test("another thread has effects of its own", async () => {
  const { tool, ran } = charge();
  const h = harness([calls(order()), "done", calls(order()), "done"], { tools: [tool] });
  for (const thread of ["a", "b"]) await h.ended((await h.start("Charge", {}, { thread })).run);
  assert.equal(new Set(ran).size, 2);
});

Deno.test("an effect that was had is refused with other arguments", async () => {
  const { tool, ran } = charge();
  const h = harness([calls(order(5)), calls(order(6)), calls(order(6, "8")), "done"], { tools: [tool] });
  const { run } = await h.start("Charge");
  const [, second, third] = await resultsOf(h, run);
  assert.ok(second![0] && /other arguments.*"amount":5.*"amount":6/.test(second![1]));
  assert.deepEqual(third, [false, "charged"]);
  assert.equal(ran.length, 2);
});

Deno.test("an effect that failed may be tried again: under its key, or with other arguments under another", async () => {
  const { tool, ran } = charge(({ amount }) => {
    if (amount < 9) throw new Error("declined");
    return "charged";
  });
  const h = harness([calls(order(5)), calls(order(5)), calls(order(9)), "done"], { tools: [tool] });
  const { run } = await h.start("Charge");
  const results = await resultsOf(h, run);
  assert.deepEqual(results, [[true, "declined"], [true, "declined"], [false, "charged"]]);
  assert.equal(ran[0], ran[1]);
  assert.notEqual(ran[1], ran[2]);
});

Deno.test("calls side by side with the same effect have it once", async () => {
  const { tool, ran } = charge((_args, n) => `receipt ${n}`, { parallel: true });
  const h = harness([calls(order(), order(5, "8"), order()), "done"], { tools: [tool] });
  const { run } = await h.start("Charge");
  assert.deepEqual(await resultsOf(h, run), [[false, "receipt 1"], [false, "receipt 2"], [
    false,
    "receipt 1",
  ]]);
  assert.equal(ran.length, 2);
});

Deno.test("nested loops side by side have the same effect once", async () => {
  const { tool, ran } = charge(() => "charged");
  const both = agenticFunction({
    name: "both",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec }) =>
      await Promise.all(["a", "b"].map((key) => exec("Charge", { key, tools: ["charge"] }))),
  });
  const h = harness(
    (request: ModelRequest) => {
      const said = request.messages.at(-1)!;
      if (request.messages[0]!.content === "Go") return said.role === "tool" ? "done" : calls(["both"]);
      return said.role === "tool" ? "ok" : calls(order());
    },
    { tools: [tool, both] },
  );
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "done");
  assert.equal(ran.length, 1);
});

Deno.test("a key that cannot be told is an error of the call, and nothing runs", async () => {
  const keys: (() => string)[] = [() => "", () => 7 as unknown as string, () => {
    throw new Error("no order");
  }];
  for (const key of keys) {
    const { tool, ran } = charge(undefined, { key });
    const h = harness([calls(order()), "done"], { tools: [tool] });
    const { run } = await h.start("Charge");
    assert.equal((await resultsOf(h, run))[0]![0], true);
    assert.equal(ran.length, 0);
  }
});

for (
  const [what, reconciled, ends] of [
    ["is refused where nobody can tell", undefined, { error: true, ran: 1, text: /outcome is unknown/ }],
    ["is reconciled: done", { is: "done", result: "receipt" }, { error: false, ran: 1, text: /receipt/ }],
    ["is reconciled: not done, and runs under its key", { is: "not_done" }, {
      error: false,
      ran: 2,
      text: /charged/,
    }],
    ["is reconciled: still unknown", { is: "unknown" }, { error: true, ran: 1, text: /unknown/ }],
  ] as [string, Reconciled | undefined, { error: boolean; ran: number; text: RegExp }][]
) {
  Deno.test(`an effect whose outcome is unknown ${what}`, async () => {
    const { tool, ran } = charge((_args, n) => n === 1 ? new Promise(() => {}) : "charged", {
      ...(reconciled && { reconcile: () => reconciled }),
    });
    const h = harness([calls(order()), calls(order()), "done"], { tools: [tool] });
    const first = await h.start("Charge", {}, { thread: "t" });
    await h.time.pass(1_000);
    await h.time.until(h.pawl.cancel("local", first.run));
    const second = await h.start("Again", {}, { thread: "t" });
    const [result] = await resultsOf(h, second.run);
    assert.equal(result![0], ends.error);
    assert.match(result![1], ends.text);
    assert.equal(ran.length, ends.ran);
    assert.equal(new Set(ran).size, 1);
  });
}

Deno.test("an approved call whose effect was had meanwhile does not have it again", async () => {
  const wait: Tool["wait"] = (_args, now) => ({ for: "time", until: now + 1_000 });
  const { tool, ran } = charge(undefined, { wait });
  const h = harness([calls(order(), order()), "done"], { tools: [tool] });
  const { run } = await h.start("Charge");
  assert.deepEqual(await resultsOf(h, run), [[false, "charged"], [false, "charged"]]);
  assert.equal(ran.length, 1);
});

Deno.test("a call that breaks off while it waits for an answer may have had its effect; one that says that it failed has not", async () => {
  for (const name of ["AbortError", "TimeoutError"]) {
    const { tool, ran } = charge(() => {
      throw new DOMException("no answer", name);
    });
    const h = harness([calls(order(5)), calls(order(5)), calls(order(9)), "done"], { tools: [tool] });
    const { run } = await h.start("Charge");
    const [first, again, other] = await resultsOf(h, run);
    assert.match(first![1], /unverified/);
    assert.match(again![1], /outcome is unknown/);
    assert.match(other![1], /other arguments/);
    assert.equal(ran.length, 1, name);
  }
});

Deno.test("a success that a hook shows as an error is not had again, with whatever arguments", async () => {
  const { tool, ran } = charge();
  const h = harness([calls(order(5)), calls(order(5)), calls(order(9)), "done"], {
    tools: [tool],
    afterToolCall: () => ({ content: "hidden", isError: true }),
  });
  const { run } = await h.start("Charge");
  assert.deepEqual((await resultsOf(h, run)).map(([isError]) => isError), [true, true, true]);
  assert.equal(ran.length, 1);
});

Deno.test("a key that comes as a promise is an error of the call, also if that fails", async () => {
  const ways = [() => Promise.resolve("7"), () => Promise.reject(new Error("no order"))];
  for (const key of ways as (() => any)[]) {
    const { tool, ran } = charge(undefined, { key });
    const h = harness([calls(order()), "done"], { tools: [tool] });
    const { run } = await h.start("Charge");
    assert.match((await resultsOf(h, run))[0]![1], /key.*promise/);
    assert.equal(ran.length, 0);
  }
});

Deno.test("a repeat of an unknown call has its key, also from a nested loop and in a later run", async () => {
  const keys: string[] = [];
  const pay = payment(keys);
  const agent = agenticFunction({
    name: "agent",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec }) => await exec("Nested", { tools: ["pay"] }),
  });
  const again = calls(["pay", { order: "7" }]);
  const h = harness([again, calls(["agent"]), again, "nested", "done", again, "done"], {
    tools: [pay, agent],
  });
  const first = await h.start("Pay", {}, { thread: "t" });
  await h.time.pass(1_000);
  await h.time.until(h.pawl.cancel("local", first.run));
  for (const prompt of ["Again", "Once more"]) {
    await h.ended((await h.start(prompt, {}, { thread: "t" })).run);
  }
  assert.equal(keys.length, 3);
  assert.equal(keys[1], keys[0]);
  assert.notEqual(keys[2], keys[1], "the outcome was known by then");
});
