/** Arguments from the model to the tool, on each vendor's wire: what is shown, put right, filled in, refused and kept. */
import assert from "node:assert/strict";
import * as z from "zod";
import { modelFromEnv } from "../providers/mod.ts";
import { createPawl, type Hooks } from "../src/mod.ts";
import type { Settings } from "../src/run.ts";
import { defineTool } from "../src/tool.ts";
import { dialects } from "./support/dialect.ts";
import { type Asked, calls, modelServer, type Reply } from "./support/model_server.ts";

/** Runs to the end over a strict vendor, and answers its requests and the run's messages. */
async function over(
  wire: (typeof dialects)[number]["wire"],
  script: Reply[],
  tools: unknown[],
  settings: Settings & Hooks = {},
) {
  const { beforeToolCall, ...rest } = settings;
  await using vendor = modelServer(wire, (_, n) => script[n - 1]!);
  const pawl = createPawl({ tools, models: modelFromEnv(vendor.env), beforeToolCall });
  try {
    const { run } = await pawl.start("Go", rest);
    const seen: unknown[] = [];
    for await (const { event } of pawl.watch(run)) {
      if (event.type === "tool_execution_start") seen.push([event.toolName, event.args]);
    }
    const { status, error, messages } = await pawl.read(run);
    assert.equal(status, "completed", JSON.stringify(error));
    return { requests: vendor.requests, messages, seen };
  } finally {
    await pawl.close();
  }
}

/** Names and schemas as the vendor is shown them. */
function shown(wire: string, { body }: Asked): { [name: string]: any } {
  const listed = wire === "gemini"
    ? body.tools[0].functionDeclarations
    : wire === "bedrock"
    ? body.toolConfig.tools.map((tool: any) => tool.toolSpec)
    : body.tools.map((tool: any) => tool.function ?? tool);
  const list = listed.map((tool: any): [string, unknown] => [
    tool.name,
    tool.parametersJsonSchema ?? tool.parameters ?? tool.input_schema ?? tool.inputSchema.json,
  ]);
  return Object.fromEntries(list);
}

const results = ({ results }: Asked) => results.map(({ text, isError }) => [isError, text]);

for (const { wire } of dialects) {
  Deno.test(`${wire}: a tool without parameters, in whatever form it says so, is taken and called (CASES C08)`, async () => {
    const got: unknown[] = [];
    const execute = (args: unknown) => (got.push(args), "ok");
    const tools = [
      defineTool({ name: "empty", description: "", parameters: z.object({}), execute }),
      { spec: { name: "none" }, execute },
      { spec: { name: "bare", parameters: { type: "object" } }, execute },
      defineTool({ name: "record", description: "", parameters: z.record(z.string(), z.number()), execute }),
    ];
    const { requests } = await over(wire, [
      calls(["empty"], ["none"], ["bare"], ["record", { a: "1", b: 2 }]),
      "ok",
    ], tools);
    assert.deepEqual(got, [{}, {}, {}, { a: 1, b: 2 }]);
    const { record, ...others } = shown(wire, requests[0]!);
    for (const [name, schema] of Object.entries(others)) {
      assert.equal(schema.type, "object", name);
      assert.deepEqual(schema.properties ?? {}, {}, name);
    }
    assert.deepEqual(record.additionalProperties, { type: "number" }, "what it takes is said");
  });

  Deno.test(`${wire}: the longest and oddest names that there may be go out and come back as they are (CASES C09)`, async () => {
    const names = ["n".repeat(64), "a1-Z_9", "_", "cal_add", "cal-add", "CAL_ADD"], ran: string[] = [];
    const tools = names.map((name) =>
      defineTool({ name, description: "", parameters: z.object({}), execute: () => void ran.push(name) })
    );
    const asked: string[] = [];
    const script = [calls(...names.map((name): [string] => [name])), "ok"];
    const { requests, seen } = await over(wire, script, tools, {
      beforeToolCall: ({ toolName }) => void asked.push(toolName),
    });
    assert.deepEqual(Object.keys(shown(wire, requests[0]!)).sort(), [...names].sort());
    assert.deepEqual([ran, asked, seen], [names, names, names.map((name) => [name, {}])]);
  });

  Deno.test(`${wire}: an array or object that came as JSON text is decoded where the schema wants one; text stays text (CASES C10)`, async () => {
    const got: unknown[] = [];
    const edit = defineTool({
      name: "edit",
      description: "",
      parameters: z.object({
        edits: z.array(z.object({ a: z.number() })),
        note: z.string(),
        at: z.object({ line: z.number() }).optional(),
      }),
      execute: (args) => void got.push(args),
    });
    const note = '{"keep":1}';
    const raw: object[] = [
      { edits: '[{"a":1}]', note, at: '{"line":"7"}' },
      { edits: '[{"a":"1"}]', note },
      { edits: [{ a: 1 }], note: "[1]" },
      // Cut off, decoded to what does not fit, and wrapped twice.
      { edits: '[{"a":1', note },
      { edits: '[{"b":1}]', note },
      { edits: '"[{\\"a\\":1}]"', note },
    ];
    const { requests, messages, seen } = await over(wire, [
      calls(...raw.map((args): [string, object] => ["edit", args])),
      "ok",
    ], [edit]);
    assert.deepEqual(got, [
      { edits: [{ a: 1 }], note, at: { line: 7 } },
      { edits: [{ a: 1 }], note },
      { edits: [{ a: 1 }], note: "[1]" },
    ]);
    const told = results(requests[1]!);
    assert.deepEqual(told.map(([isError]) => isError), [false, false, false, true, true, true]);
    for (const [, text] of told.slice(3)) {
      assert.match(text as string, /Invalid arguments for tool "edit":\n- edits/);
    }
    // What the model said is what is kept, shown and sent again.
    const said = (messages.find(({ role }) => role === "assistant")!.content as any[]).map((b) =>
      b.arguments
    );
    assert.deepEqual(said, raw);
    assert.deepEqual(seen, raw.map((args) => ["edit", args]));
    const again = requests[1]!.turns.find(({ calls }) => calls.length)!;
    assert.deepEqual(again.calls.map(({ args }) => args), raw);
  });

  Deno.test(`${wire}: scalars are put right, defaults filled in, unknown keys treated as the schema says (CASES C02, C12)`, async () => {
    const got: { [tool: string]: unknown } = {};
    const take = (name: string, parameters: z.ZodType) =>
      defineTool({ name, description: "", parameters, execute: (args) => void (got[name] = args) });
    const a = z.string();
    const tools = [
      take(
        "scalars",
        z.object({ n: z.number(), yes: z.boolean(), s: z.string(), maybe: z.int().nullable() }),
      ),
      take("defaults", z.object({ topics: z.array(z.string()), max: z.number().default(10) })),
      take("plain", z.object({ a })),
      take("strict", z.strictObject({ a })),
      take("loose", z.looseObject({ a })),
    ];
    const extra = { a: "x", extra: 1 };
    const script = calls(
      ["scalars", { n: "7", yes: "true", s: 12, maybe: null }],
      ["defaults", { topics: ["a"] }],
      ["plain", extra],
      ["strict", extra],
      ["loose", extra],
    );
    const { requests } = await over(wire, [script, "ok"], tools);
    assert.deepEqual(got, {
      scalars: { n: 7, yes: true, s: "12", maybe: null },
      defaults: { topics: ["a"], max: 10 },
      plain: { a: "x" },
      loose: extra,
    });
    const [isError, text] = results(requests[1]!)[3]!;
    assert.equal(isError, true);
    assert.match(text as string, /Invalid arguments for tool "strict":\n- extra: is not a known argument$/);
    const { defaults, strict, loose } = shown(wire, requests[0]!);
    assert.deepEqual(defaults.required, ["topics"]);
    assert.equal(strict.additionalProperties, false);
    assert.notEqual(loose.additionalProperties, false);
  });

  Deno.test(`${wire}: of two calls that come although one is allowed, one runs, and both are answered (CASES D06)`, async () => {
    const ran: unknown[] = [];
    const work = defineTool({
      name: "work",
      description: "",
      parameters: z.object({ n: z.number() }),
      parallel: true,
      execute: ({ n }) => void ran.push(n),
    });
    const { requests } = await over(wire, [calls(["work", { n: 1 }], ["work", { n: 2 }]), "ok"], [work], {
      parallelToolCalls: false,
    });
    assert.deepEqual(ran, [1]);
    assert.deepEqual(results(requests[1]!).map(([isError]) => isError), [false, true]);
  });

  Deno.test(`${wire}: no cut and no tool makes half a character that goes out (CASES A27)`, async () => {
    const tell = (name: string, text: string) =>
      defineTool({
        name,
        description: "",
        parameters: z.object({}),
        maxResultLength: 100,
        execute: () => text,
      });
    const tools = [
      tell("fits", "a".repeat(99) + "\u{1F600}"),
      tell("half", "x\uDE00y"),
      tell("long", "\u{1F600}".repeat(101)),
      tell("halves", "\uD83D".repeat(101)),
    ];
    const { requests } = await over(wire, [calls(["fits"], ["half"], ["long"], ["halves"]), "ok"], tools);
    const [fits, half, long, halves] = requests[1]!.results.map(({ text }) => text);
    assert.equal(fits, "a".repeat(99) + "\u{1F600}");
    assert.match(half!, /^x\ufffd?y$/);
    assert.equal(long, "\u{1F600}".repeat(70) + "\n[… 1 characters left out …]\n" + "\u{1F600}".repeat(30));
    assert.ok(halves!.isWellFormed() && /1 characters left out/.test(halves!));
  });
}
