/** `exec` with choices or a response format, at the top and in the body of an agentic function; and the same over HTTP. */
import assert from "node:assert/strict";
import * as z from "zod";
import {
  agenticFunction,
  createPawl,
  DecisionError,
  defineChoice,
  type Pawl,
  RunFailedError,
} from "../src/mod.ts";
import { type Message, textOf } from "../src/message.ts";
import { harness } from "./support/harness.ts";
import { calls, type Said, scriptedModel } from "./support/scripted_model.ts";

async function withPawl<T>(script: Said[], body: (pawl: Pawl) => Promise<T>): Promise<T> {
  const pawl = createPawl({ models: scriptedModel(script) });
  try {
    return await body(pawl);
  } finally {
    await pawl.close();
  }
}

const call = (name: string, args?: unknown) => JSON.stringify({ call: name, args });

Deno.test("exec answers the name, the value, what the function returns, or what was filled in", async () => {
  const options = {
    choices: {
      seven: 7,
      nothing: { description: "An object as a value", value: { nothing: true } },
      plain: ({ x }: { x: number }) => x + 1,
      late: defineChoice({ parameters: z.object({ at: z.coerce.date() }), run: async ({ at }) => await at }),
      form: z.object({ size: z.enum(["s", "m"]).default("m"), text: z.string() }).describe("A form"),
      json: { type: "object", properties: { a: { type: "number" } } },
    },
  } as const;
  const table: [string, unknown][] = [
    [call("seven"), 7],
    [call("nothing"), { nothing: true }],
    [call("plain", { x: 1 }), 2],
    [call("late", { at: "2026-01-31T12:00:00Z" }), new Date("2026-01-31T12:00:00Z")],
    [call("form", { text: "t" }), { name: "form", args: { size: "m", text: "t" } }],
    [call("json", { a: 1, b: 2 }), { name: "json", args: { a: 1, b: 2 } }],
  ];
  for (const [said, answer] of table) {
    await withPawl([said], async (pawl) => assert.deepEqual(await pawl.exec("Go", options), answer));
  }
  await withPawl(["b"], async (pawl) => assert.equal(await pawl.exec("Go", { choices: ["a", "b"] }), "b"));
  const day = z.object({ day: z.date() });
  const asked = withPawl(
    ['{"day": "2026-01-31T12:00:00Z"}'],
    (pawl) => pawl.exec("When?", { responseFormat: day }),
  );
  assert.deepEqual(await asked, { day: new Date("2026-01-31T12:00:00Z") });
});

Deno.test("exec throws DecisionError with kind, path and position, which is a RunFailedError of the run", async () => {
  const options = { choices: { form: z.object({ n: z.int() }) } };
  await withPawl(["Hm", `Oh: ${call("form", { n: "1" })}`], async (pawl) => {
    const error = await pawl.exec("Go", options).catch((error) => error);
    assert.ok(error instanceof DecisionError && error instanceof RunFailedError);
    assert.deepEqual([error.code, error.kind, error.path, error.position], [
      "decision",
      "type_mismatch",
      "args.n",
      4,
    ]);
    assert.deepEqual((await pawl.read(error.run)).status, "failed");
  });
  const refused = { content: [{ type: "text" as const, text: "No" }], stopReason: "refusal" as const };
  await withPawl([refused], (pawl) => assert.rejects(pawl.exec("Go", options), { code: "refusal" }));
});

Deno.test("what JSON Schema cannot say is checked when the run has ended", async () => {
  const even = z.object({ n: z.int().refine((n) => n % 2 === 0, "must be even") });
  await withPawl(['{"n": 3}'], async (pawl) => {
    const error = await pawl.exec("Go", { responseFormat: even }).catch((error) => error);
    assert.deepEqual([error.code, error.kind, error.message], [
      "structured_output",
      "bad_value",
      "- n: must be even",
    ]);
    assert.deepEqual((await pawl.read(error.run)).output, { n: 3 });
  });
});

Deno.test("what cannot be asked for is refused before a run begins", async () => {
  await withPawl([], async (pawl) => {
    for (const choices of [[], {}, { x: undefined }, { x: z.string() }]) {
      const asked = pawl.exec("Go", { choices: choices as string[] });
      await assert.rejects(asked, { code: "bad_input", message: /^choices/ });
    }
    const both = { choices: ["a"], responseFormat: {} };
    await assert.rejects(pawl.exec("Go", both), { code: "bad_input" });
  });
});

Deno.test("a nested loop ends with a choice, over slices of one turn; what it leads to is part of the body", async () => {
  const paid: number[] = [];
  const decide = agenticFunction({
    name: "decide",
    description: "",
    parameters: z.object({}),
    execute: async (_args, { exec, step }) => {
      const paidNow = await exec("pay?", {
        choices: {
          pay: defineChoice({
            parameters: z.object({ cents: z.int() }),
            run: ({ cents }) => step("pay", () => paid.push(cents) && `paid ${cents}`),
          }),
          leave: "left",
        },
      });
      const { seats } = await exec("how many?", { responseFormat: z.object({ seats: z.int() }) });
      const kind = await exec("or not?", { choices: ["yes", "no"] }).catch((error) => {
        if (!(error instanceof DecisionError)) throw error;
        return `${error.code} ${error.kind}`;
      });
      return `${paidNow}, ${seats} seats, ${kind}`;
    },
  });
  const answers: Record<string, string[]> = {
    "pay?": ["Hm", call("pay", { cents: 5 })],
    "how many?": ["two", '{"seats": 2}'],
    "or not?": ["perhaps", "perhaps"],
  };
  const says = (messages: Message[]): Said => {
    const first = textOf(messages[0]!.content), turn = messages.filter((m) => m.role === "assistant").length;
    if (first === "Go") return turn ? textOf(messages.at(-1)!.content) : calls(["decide"]);
    return answers[first.split("\n")[0]!]![turn]!;
  };
  const h = harness((request) => says(request.messages), { tools: [decide], budget: { turns: 1 } });
  const { run } = await h.start("Go");
  const view = await h.ended(run);
  assert.equal(view.text, "paid 5, 2 seats, decision no_action");
  assert.ok(view.slices >= 8);
  assert.deepEqual(paid, [5]);
  const frames = await Promise.all(["exec", "exec#2"].map((key) => h.messages(run, `1.0/${key}`)));
  assert.deepEqual(frames.map((messages) => messages.length), [4, 4]);
});

Deno.test("over HTTP choices are names or JSON Schemas, and choice or output is the result", async () => {
  const script = [
    "b",
    call("fill", { n: 1 }),
    '{"n": 2}',
    "Hm",
    '{"n": "2"}',
  ];
  await withPawl(script, async (pawl) => {
    const ask = async (method: string, path: string, body?: unknown) => {
      const headers = { "content-type": "application/json" };
      const request = new Request(`http://localhost${path}`, { method, headers, body: JSON.stringify(body) });
      const answer = await pawl.fetch(request, { remoteAddress: "127.0.0.1" });
      return { status: answer.status, json: await answer.json() };
    };
    const ended = async (settings: object) => {
      const { json: { id } } = await ask("POST", "/runs", { content: "Go", ...settings });
      return (await ask("GET", `/runs/${id}?wait=20`)).json;
    };
    const format = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] };
    const named = await ended({ choices: ["a", "b"] });
    assert.deepEqual([named.finish_reason, named.choice, named.text], ["choice", { name: "b" }, "b"]);
    assert.deepEqual((await ended({ choices: { fill: format } })).choice, { name: "fill", args: { n: 1 } });
    const valued = await ended({ response_format: format });
    assert.deepEqual([valued.finish_reason, valued.output], ["stop", { n: 2 }]);
    const { status, error } = await ended({ response_format: format });
    assert.deepEqual([status, error.code, error.details], ["failed", "structured_output", {
      kind: "type_mismatch",
      path: "value.n",
      position: 0,
    }]);
    for (const choices of [[], {}, "a", [1], { a: 1 }, { a: { type: "array" } }, ["a", "a"]]) {
      const { status, json } = await ask("POST", "/runs", { content: "Go", choices });
      assert.deepEqual([status, json.error.code], [400, "bad_input"], JSON.stringify(choices));
      assert.match(json.error.message, /choices/);
    }
  });
});
