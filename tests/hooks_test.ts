/** What a deployment lets happen before and after every call: it may say no, change, and fail, and the run goes on. */
import assert from "node:assert/strict";
import * as z from "zod";
import { createPawl, type HookedCall, type Hooks } from "../src/mod.ts";
import { textOf, type ToolMessage } from "../src/message.ts";
import { agenticFunction, defineTool, type Tool } from "../src/tool.ts";
import { type Harness, harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said, scriptedModel } from "./support/scripted_model.ts";

const hour = 3_600_000;

/** A tool that keeps what it was given. */
function recorder(more: Partial<Tool> = {}) {
  const got: unknown[] = [];
  const pay: Tool = {
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string(), amount: z.number().default(1) }),
    execute: (args) => (got.push(args), `paid ${args.to}`),
    ...more,
  };
  return { got, pay };
}

async function results(h: Harness, run: string): Promise<ToolMessage[]> {
  return (await h.messages(run)).filter((message) => message.role === "tool");
}

/** Runs to the end, and answers what the model was told of its calls. */
async function told(script: Said[], options: HarnessOptions) {
  const h = harness(script, options), { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.equal(view.status, "completed");
  return { h, run, texts: (await results(h, run)).map((m) => [m.isError, textOf(m.content)]) };
}

Deno.test("a hook that blocks a call gives the model its reason, and the tool does not run", async () => {
  const { got, pay } = recorder(), seen: Partial<HookedCall>[] = [];
  const { texts, h, run } = await told(
    [calls(["pay", { to: "bob" }], ["pay", { to: "ann" }], ["pay", { to: "eve" }]), "ok"],
    {
      tools: [pay],
      beforeToolCall: ({ signal: _, ...call }) => {
        seen.push(call);
        if (call.arguments.to === "bob") return { block: true, reason: "bob is on the list" };
        if (call.arguments.to === "eve") return { block: true };
      },
    },
  );
  assert.deepEqual(got, [{ to: "ann", amount: 1 }]);
  assert.deepEqual(texts.map(([isError]) => isError), [true, false, true]);
  assert.match(texts[0]![1] as string, /Not run: blocked: bob is on the list/);
  assert.match(texts[2]![1] as string, /Not run: blocked: no reason/);
  const [message] = await results(h, run);
  assert.deepEqual(seen[0], {
    toolName: "pay",
    toolCallId: message!.toolCallId,
    arguments: { to: "bob" },
    run,
    thread: run.split("~")[0],
  });
});

Deno.test("a hook is asked once about each call, and only about those that can run", async () => {
  const { pay } = recorder(), asked: unknown[] = [];
  await told(
    [
      calls(["nothing"], ["pay", { to: 1, amount: {} }], ["pay", { to: "ann" }]),
      calls(["pay", { to: "b" }]),
      "ok",
    ],
    { tools: [pay], beforeToolCall: (call) => void asked.push(call.arguments) },
  );
  assert.deepEqual(asked, [{ to: "ann" }, { to: "b" }]);
});

Deno.test("a hook may give other arguments: they are checked, the tool gets them, the transcript keeps the model's", async () => {
  const { got, pay } = recorder();
  const { h, run } = await told([calls(["pay", { to: "bob" }]), "ok"], {
    tools: [pay],
    beforeToolCall: (call) => {
      // What it does with its copy changes nothing.
      call.arguments.to = "nobody";
      return { arguments: { to: "ann", amount: "7" } };
    },
  });
  assert.deepEqual(got, [{ to: "ann", amount: 7 }]);
  const said = (await h.messages(run)).find((message) => message.role === "assistant")!;
  assert.deepEqual((said.content as any)[0].arguments, { to: "bob" });
});

Deno.test("other arguments that do not suit the tool are an error that names path and problem", async () => {
  for (const wrong of [{ to: 1, amount: {} }, null, "ann", { to: "ann", amount: NaN }]) {
    const { got, pay } = recorder();
    const { texts: [first] } = await told([calls(["pay", { to: "bob" }]), "ok"], {
      tools: [pay],
      beforeToolCall: () => ({ arguments: wrong as any }),
    });
    assert.deepEqual(got, []);
    assert.equal(first![0], true);
    assert.match(first![1] as string, /hook changed its arguments[^]*Invalid arguments for tool "pay"/);
  }
});

Deno.test("a hook that fails, or does not answer, is an error of its call; the tool does not run and the run goes on", async () => {
  const cycle: any = {};
  cycle.cycle = cycle;
  const failing: [Hooks["beforeToolCall"], RegExp][] = [
    [() => {
      throw new Error("no policy");
    }, /hook failed: no policy/],
    [() => Promise.reject("just text"), /hook failed: just text/],
    [() => new Promise(() => {}), /did not answer within 30 s/],
    [() => ({ arguments: cycle }), /hook failed: /],
    [() => ({ arguments: { to: 12n } as any }), /hook failed: /],
  ];
  for (const [beforeToolCall, expected] of failing) {
    const { got, pay } = recorder();
    const { texts: [first] } = await told([calls(["pay", { to: "bob" }]), "ok"], {
      tools: [pay],
      beforeToolCall,
    });
    assert.deepEqual(got, []);
    assert.equal(first![0], true);
    assert.match(first![1] as string, expected);
  }
});

Deno.test("a hook after a call may change what the model is told", async () => {
  const { pay } = recorder();
  const changes: [Awaited<ReturnType<NonNullable<Hooks["afterToolCall"]>>>, [boolean, string]][] = [
    [undefined, [false, "paid bob"]],
    [{}, [false, "paid bob"]],
    [{ content: "paid [name removed]" }, [false, "paid [name removed]"]],
    [{ isError: true }, [true, "paid bob"]],
    [{ content: [{ type: "text", text: "in blocks" }], isError: undefined }, [false, "in blocks"]],
    [{ content: { any: "value" } as any }, [false, '{"any":"value"}']],
  ];
  for (const [change, expected] of changes) {
    const { texts } = await told([calls(["pay", { to: "bob" }]), "ok"], {
      tools: [pay],
      afterToolCall: (call, result) => {
        assert.deepEqual([call.arguments, result.content], [{ to: "bob" }, "paid bob"]);
        result.content = "what it does with its copy changes nothing";
        return change;
      },
    });
    assert.deepEqual(texts, [expected]);
  }
});

Deno.test("a hook after a call sees all of a long result, and errors too; what it leaves is cut to the tool's length", async () => {
  const { pay } = recorder({ maxResultLength: 10, execute: () => "x".repeat(50) + "secret" });
  const bad = defineTool({
    name: "bad",
    description: "",
    parameters: z.object({}),
    execute: () => {
      throw new Error("the disk is full");
    },
  });
  const { texts } = await told([calls(["pay", { to: "bob" }], ["bad"]), "ok"], {
    tools: [pay, bad],
    afterToolCall: (_, { content, isError }) =>
      isError ? { content: `explained: ${content}` } : { content: String(content).replace("secret", "") },
  });
  assert.deepEqual(texts, [
    [false, "xxxxxxx\n[… 40 characters left out …]\nxxx"],
    [true, "explained: the disk is full"],
  ]);
});

Deno.test("a hook after a call that fails hides the result, says that it ran, and what it did is not done again", async () => {
  for (const key of [undefined, () => "order 7"]) {
    const { got, pay } = recorder({ key, execute: () => (got.push(1), "secret") });
    const { texts } = await told([calls(["pay", { to: "a" }]), calls(["pay", { to: "a" }]), "ok"], {
      tools: [pay],
      afterToolCall: (call) => {
        if (call.toolCallId.endsWith("1-0")) throw new Error("no redactor");
      },
    });
    assert.match(texts[0]![1] as string, /^It ran, but its result cannot be shown: .*no redactor/);
    assert.equal(texts[0]![0], true);
    // An effect that has a key of its own is refused; otherwise the same idempotency key tells.
    assert.equal(got.length, key ? 1 : 2);
  }
});

Deno.test("a hook after a call that hangs, while the run is cancelled: the run is cancelled", async () => {
  const { pay } = recorder();
  const h = harness([calls(["pay", { to: "bob" }])], {
    tools: [pay],
    afterToolCall: () => new Promise(() => {}),
  });
  const { run } = await h.start("Go");
  await h.time.pass(5_000);
  await h.time.until(h.pawl.cancel("local", run));
  assert.equal((await h.ended(run)).status, "cancelled");
  const [result] = await results(h, run);
  assert.match(textOf(result!.content), /what it did is unknown/);
});

/** Runs until the call has begun, lets the function die, and the same message come again. */
async function killedInCall(h: Harness) {
  h.loseDeliveries();
  const { run } = await h.start("Go"), { renew } = h.store;
  h.store.renew = () => new Promise(() => {});
  h.deliver(h.published[0]!, "the message");
  await h.time.pass(10_000);
  h.store.renew = renew;
  h.deliver(h.published[0]!, "the message");
  h.loseDeliveries(false);
  await h.ended(run);
  return run;
}

Deno.test("a call that began before a crash goes on with the arguments it began with; no hook is asked again", async () => {
  let asked = 0;
  const got: unknown[] = [];
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string() }),
    replay: "safe",
    execute: (args) => got.push(args) === 1 ? new Promise(() => {}) : "paid",
  });
  const h = harness([calls(["pay", { to: "bob" }]), "ok"], {
    tools: [pay],
    beforeToolCall: () => ({ arguments: { to: `ann ${++asked}` } }),
  });
  await killedInCall(h);
  assert.deepEqual(got, [{ to: "ann 1" }, { to: "ann 1" }]);
  assert.equal(asked, 1);
});

Deno.test("what became of a call that was cut off is asked by the arguments it began with", async () => {
  const asked: unknown[] = [];
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string() }),
    reconcile: (_key, args) => (asked.push(args), { is: "done", result: "was paid" }),
    execute: () => new Promise(() => {}),
  });
  const h = harness([calls(["pay", { to: "bob" }]), "ok"], {
    tools: [pay],
    beforeToolCall: () => ({ arguments: { to: "ann" } }),
    afterToolCall: (_, { content }) => ({ content: `${content}, says the hook` }),
  });
  const run = await killedInCall(h);
  assert.deepEqual(asked, [{ to: "ann" }]);
  assert.deepEqual((await results(h, run)).map((m) => m.content), ["was paid, says the hook"]);
});

Deno.test("a crash while a hook is asked, or a slice that ends then: it is asked again, and nothing has run", async () => {
  const { got, pay } = recorder();
  let asked = 0;
  const h = harness([calls(["pay", { to: "bob" }]), "ok"], {
    tools: [pay],
    beforeToolCall: () => ++asked === 1 ? new Promise<undefined>(() => {}) : undefined,
  });
  const run = await killedInCall(h);
  assert.deepEqual([asked, got.length], [2, 1]);
  assert.deepEqual((await results(h, run)).map((m) => m.isError), [false]);
});

Deno.test("hooks hold in nested loops, and do not ask again about a function whose body is run again", async () => {
  const { got, pay } = recorder(), asked: string[] = [];
  const report = agenticFunction({
    name: "report",
    description: "",
    parameters: z.object({ on: z.string() }),
    execute: async ({ on }, { exec }) => await exec(`pay ${on}`) + await exec("and again"),
  });
  const h = harness((request) => {
    const last = request.messages.at(-1)!;
    if (last.role === "tool") return "done";
    return textOf(last.content) === "Go"
      ? calls(["report", { on: "x" }])
      : calls(["pay", { to: textOf(last.content) }]);
  }, {
    tools: [report, pay],
    budget: { turns: 1 },
    beforeToolCall: ({ toolName, arguments: args }) => {
      asked.push(toolName);
      if (toolName === "report") return { arguments: { on: `y${asked.length}` } };
      if (args.to === "and again") return { block: true, reason: "once is enough" };
    },
  });
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.equal(view.status, "completed");
  assert.ok(view.slices > 2);
  assert.deepEqual(asked, ["report", "pay", "pay"]);
  assert.deepEqual(got, [{ to: "pay y1", amount: 1 }]);
});

Deno.test("parallel calls are asked about together; those that may run overlap", async () => {
  let running = 0, most = 0;
  const look = defineTool({
    name: "look",
    description: "",
    parameters: z.object({ n: z.number() }),
    parallel: true,
    execute: async () => {
      most = Math.max(most, ++running);
      await h.time.sleep(100);
      running--;
    },
  });
  const h = harness([calls(["look", { n: 1 }], ["look", { n: 2 }], ["look", { n: 3 }]), "ok"], {
    tools: [look],
    beforeToolCall: async ({ arguments: { n } }) => {
      await h.time.sleep(1_000 * Number(n));
      return n === 2 ? { block: true } : undefined;
    },
  });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  assert.deepEqual((await results(h, run)).map((m) => m.isError), [false, true, false]);
  assert.ok(most <= 2);
});

function approvedTool() {
  const { got, pay } = recorder({
    wait: (_args: unknown, now: number) => ({ for: "approval", until: now + hour }),
  });
  return { got, pay };
}

async function approve(h: Harness, run: string) {
  const view = await h.settled(run);
  const { toolCallId } = view.waitingFor![0]!;
  await h.time.until(h.pawl.resolve("local", run, toolCallId, { approve: true }));
  await h.ended(run);
  return (await results(h, run)).map((m) => [m.isError, textOf(m.content)]);
}

Deno.test("what was approved runs with what was approved: a hook, asked then, may block it but not change it (CASES F13)", async () => {
  const answers: [Hooks["beforeToolCall"], RegExp, number][] = [
    [() => undefined, /^paid ann$/, 1],
    [() => ({ arguments: { to: "ann" } }), /^paid ann$/, 1],
    [
      () => ({ arguments: { to: "bob" } }),
      /Not run: it was approved with these arguments.*hook wants others/,
      0,
    ],
    [() => ({ block: true, reason: "too late" }), /Not run: blocked: too late/, 0],
  ];
  for (const [beforeToolCall, expected, ran] of answers) {
    const { got, pay } = approvedTool();
    let asked = 0;
    const h = harness([calls(["pay", { to: "ann" }]), "ok"], {
      tools: [pay],
      beforeToolCall: (call) => (asked++, beforeToolCall!(call)),
    });
    const { run } = await h.start("Go");
    await h.settled(run);
    assert.equal(asked, 0, "what nobody has approved is not asked about");
    const [[, text]] = await approve(h, run) as [[boolean, string]];
    assert.match(text, expected);
    assert.equal(got.length, ran);
  }
});

Deno.test("a client's tool is asked about before the client is, and its result passes the hook", async () => {
  const ask = { name: "ask", description: "", parameters: { type: "object", properties: {} } };
  const h = harness([calls(["ask", { q: 1 }], ["ask", { q: 2 }], ["ask", { q: 3 }]), "ok"], {
    beforeToolCall: ({ arguments: { q } }) =>
      q === 1 ? { block: true } : q === 2 ? { arguments: { q: 9 } } : undefined,
    afterToolCall: (_, { content }) => ({ content: `${content}!` }),
  });
  const { run } = await h.start("Go", { tools: [ask] });
  const view = await h.settled(run);
  assert.equal(view.waitingFor?.length, 1);
  const answer = { content: "yes" };
  await h.time.until(h.pawl.resolve("local", run, view.waitingFor![0]!.toolCallId, answer));
  await h.ended(run);
  const texts = (await results(h, run)).map((m) => textOf(m.content));
  assert.match(texts[0]!, /blocked/);
  assert.match(texts[1]!, /runs elsewhere/);
  assert.equal(texts[2], "yes!");
});

Deno.test("steering that comes while a hook is asked skips the call", async () => {
  const { got, pay } = recorder();
  const h = harness([calls(["pay", { to: "bob" }]), "ok"], {
    tools: [pay],
    beforeToolCall: async () => {
      await h.pawl.send("local", run, "steering", "wait");
      // The next commit, or the lease's renewal, tells of it.
      await h.time.sleep(10_000);
    },
  });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "ok");
  assert.deepEqual(got, []);
  assert.deepEqual((await results(h, run)).map((m) => m.content), ["Skipped due to queued user message"]);
});

Deno.test("createPawl takes the hooks", async () => {
  const { got, pay } = recorder();
  const models = scriptedModel([calls(["pay", { to: "bob" }]), "ok"]);
  const pawl = createPawl({
    tools: [pay],
    models,
    beforeToolCall: () => ({ arguments: { to: "ann" } }),
    afterToolCall: () => ({ content: "changed" }),
  });
  assert.equal(await pawl.exec("Go"), "ok");
  assert.deepEqual(got, [{ to: "ann", amount: 1 }]);
  assert.equal(textOf(models.requests[1]!.messages.at(-1)!.content), "changed");
  await pawl.close();
});
