/** Tools' schemas as they go over the wires that take JSON Schema (CASES, part C). */
import assert from "node:assert/strict";
import * as z from "zod";
import type { Json } from "../src/message.ts";
import { mismatches, schemaOf } from "../src/validate.ts";
import { user } from "./contract/model.ts";
import { faultOf, type Wire } from "./support/strict.ts";
import { sent } from "./support/transcript.ts";

type Schema = { [key: string]: Json };
const wires: Wire[] = ["openai", "openai-chat", "anthropic", "bedrock"];

/** The schema as each wire sends it, which the vendor takes. */
function taken(parameters: z.ZodType | Schema): Schema {
  const schemas = wires.map((wire) => {
    const body = sent(wire, [user("go")], {
      tools: [{ name: "t", description: "", parameters: schemaOf(parameters) }],
    });
    assert.equal(faultOf(wire, body), undefined);
    const [tool] = body.tools ?? body.toolConfig.tools;
    if (wire === "openai") assert.equal(tool.strict, false);
    if (wire === "openai-chat") assert.ok(!tool.function.strict);
    return tool.parameters ?? tool.function?.parameters ?? tool.input_schema ??
      tool.toolSpec.inputSchema.json;
  });
  for (const schema of schemas) assert.deepEqual(schema, schemas[0]);
  return schemas[0];
}

/** Each local reference leads somewhere. */
function refsHold(root: Schema): void {
  JSON.stringify(root, (key, value) => {
    if (key === "$ref" && typeof value === "string") {
      const steps = value.slice(1).split("/").slice(1).map((step) =>
        decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")
      );
      assert.ok(value[0] === "#" && steps.reduce((at: any, step) => at?.[step], root), value);
    }
    return value;
  });
}

Deno.test("unions in unions, intersections and references at the root, beside a type and properties (CASES C03)", () => {
  const a = { type: "object", properties: { a: { type: "string" } }, required: ["a", "k"] };
  const b = { properties: { b: { type: "number" }, k: { enum: [1, 2] } }, required: ["b", "k"] };
  const own = { type: "object", properties: { k: { enum: [1, 3] } }, required: ["k"] };
  const roots: [Schema, string[], string[]][] = [
    [{ ...own, anyOf: [a, b] }, ["k", "a", "b"], ["k"]],
    [{ ...own, oneOf: [a, { anyOf: [b, { $ref: "#/$defs/a" }] }], $defs: { a } }, ["k", "a", "b"], ["k"]],
    [{ ...own, allOf: [a, b] }, ["k", "a", "b"], ["k", "a", "b"]],
    [{ $ref: "#/$defs/a~1b~0%20c", $defs: { "a/b~ c": b } }, ["b", "k"], ["b", "k"]],
    [
      { ...own, anyOf: [{ required: ["k"] }, { not: { required: ["k"] } }], not: { required: ["z"] } },
      ["k"],
      ["k"],
    ],
    [{ ...own, anyOf: [false, a] }, ["k", "a"], ["k", "a"]],
    [{ ...own, anyOf: [] }, ["k"], ["k"]],
    [{ ...own, additionalProperties: false, anyOf: [a, true] }, ["k", "a"], ["k"]],
  ];
  for (const [root, properties, required] of roots) {
    const shown = taken(root);
    const { properties: shownNames, required: shownRequired = [] } = shown as { [key: string]: any };
    assert.deepEqual([Object.keys(shownNames).sort(), shownRequired.sort()], [
      properties.sort(),
      required.sort(),
    ]);
    refsHold(shown);
    for (const value of [{ a: "x", k: 1 }, { b: 1, k: 1 }, { a: "x", b: 1, k: 1 }]) {
      if (!mismatches(schemaOf(root), value, "").length) assert.deepEqual(mismatches(shown, value, ""), []);
    }
  }
});

Deno.test("references stay local and lead somewhere, also in recursion and under odd names (CASES C07)", () => {
  interface Tree {
    name: string;
    children: Tree[];
  }
  const tree: z.ZodType<Tree> = z.object({
    name: z.string().describe("Of the node"),
    get children() {
      return z.array(tree).describe("Below it");
    },
  });
  const odd = z.object({ x: z.string() }).meta({ id: "a/b~c d" });
  const schemas = [
    tree,
    z.object({ tree: tree.describe("The whole"), other: tree }),
    z.object({ one: odd, two: odd }),
    z.union([z.object({ tree }), z.object({ odd })]),
  ];
  for (const schema of schemas) {
    const shown = taken(schema);
    assert.match(JSON.stringify(shown), /\$ref|"x"/);
    refsHold(shown);
  }
});

Deno.test("parameters named like keywords are parameters, and a tool may have none (CASES C08)", () => {
  const names = [
    "type",
    "properties",
    "$ref",
    "required",
    "enum",
    "anyOf",
    "oneOf",
    "const",
    "additionalProperties",
    "$defs",
  ];
  const properties = Object.fromEntries(names.map((name) => [name, { type: "string" }]));
  const plain = { type: "object", properties, required: names };
  assert.deepEqual(taken(plain), plain);
  const union = taken({
    oneOf: [plain, { type: "object", properties: { more: { type: "string" } }, required: ["more"] }],
  });
  assert.deepEqual(Object.keys(union.properties as Schema), [...names, "more"]);
  for (const none of [{}, { type: "object" }, z.object({})]) {
    assert.deepEqual(taken(none as Schema), { type: "object", properties: {} });
  }
  assert.deepEqual(taken(z.record(z.string(), z.number())).additionalProperties, { type: "number" });
});
