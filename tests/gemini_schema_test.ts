/** Tools' schemas in the words that Gemini knows (CASES, part C). */
import assert from "node:assert/strict";
import fc from "fast-check";
import * as z from "zod";
import { geminiSchema } from "../providers/gemini_schema.ts";
import type { Json } from "../src/message.ts";
import { mismatches, schemaOf } from "../src/validate.ts";
import { faultOf } from "./support/strict.ts";
import { sent } from "./support/transcript.ts";
import { user } from "./contract/model.ts";

type Schema = { [key: string]: Json };

/** The schema as it is sent, which Gemini takes. */
function taken(parameters: z.ZodType | Schema): Schema {
  const shown = geminiSchema(schemaOf(parameters));
  const tools = [{ name: "t", description: "", parameters: schemaOf(parameters) }];
  const body = sent("gemini", [user("go")], { tools });
  assert.equal(faultOf("gemini", body), undefined);
  assert.deepEqual(body.tools[0].functionDeclarations[0].parametersJsonSchema, shown);
  return shown;
}

Deno.test("bounds, constants, unions and records take other words (CASES C05)", () => {
  const shown = taken(z.object({
    n: z.int().positive(),
    x: z.number().gt(0.5).lt(9),
    k: z.literal("v"),
    five: z.literal(5),
    yes: z.literal(true),
    tags: z.array(z.string()).min(1).max(5),
    m: z.record(z.string(), z.number()),
    u: z.union([z.string(), z.number()]),
    perhaps: z.string().nullable(),
    choice: z.enum(["a", "b"]).nullable(),
    when: z.iso.datetime(),
    mail: z.email().optional(),
    six: z.int().multipleOf(2).default(6),
  }));
  assert.deepEqual(shown.properties, {
    n: { type: "integer", minimum: 1 },
    x: { type: "number", minimum: 0.5, maximum: 9 },
    k: { type: "string", enum: ["v"] },
    five: { type: "number", enum: [5] },
    yes: { type: "boolean" },
    tags: { type: "array", items: { type: "string" }, minItems: 1, maxItems: 5 },
    m: { type: "object", additionalProperties: { type: "number" } },
    u: { anyOf: [{ type: "string" }, { type: "number" }] },
    perhaps: { type: ["string", "null"] },
    choice: { anyOf: [{ type: "string", enum: ["a", "b"] }, { type: "null" }] },
    when: { type: "string", format: "date-time" },
    mail: { type: "string" },
    six: { type: "integer" },
  });
});

Deno.test("parameters that are named like keywords stay parameters", () => {
  const properties = { $ref: { type: "string" }, enum: { type: "string" }, anyOf: { type: "array" } };
  const shown = taken({ type: "object", properties, required: ["$ref", "gone"] });
  assert.deepEqual(shown, { type: "object", properties, required: ["$ref"] });
});

Deno.test("a union at the root becomes one object that keeps what tells its branches apart (CASES C03)", () => {
  const shown = taken(z.discriminatedUnion("mode", [
    z.object({ mode: z.literal("peek"), id: z.string() }),
    z.object({ mode: z.literal("apply"), id: z.string(), force: z.boolean() }),
    z.object({ mode: z.literal("count"), id: z.number() }),
  ]));
  assert.deepEqual(shown, {
    type: "object",
    properties: {
      mode: { type: "string", enum: ["peek", "apply", "count"] },
      id: { anyOf: [{ type: "string" }, { type: "number" }] },
      force: { type: "boolean" },
    },
    required: ["mode", "id"],
  });
});

Deno.test("both halves of an intersection are there", () => {
  const shown = taken({
    type: "object",
    properties: {
      at: {
        allOf: [
          { type: "object", properties: { x: { type: "number" } }, required: ["x"] },
          { properties: { y: { type: "number" } }, required: ["y"] },
        ],
      },
    },
  });
  assert.deepEqual((shown.properties as Schema).at, {
    type: "object",
    properties: { x: { type: "number" }, y: { type: "number" } },
    required: ["x", "y"],
  });
});

Deno.test("references are written out, as deep as is sensible (CASES C07)", () => {
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
  const shown = taken(z.object({ tree: tree.describe("The whole"), other: tree }));
  const text = JSON.stringify(shown);
  assert.ok(!text.includes("$ref") && text.length < 3000, text);
  assert.equal((shown.properties as any).tree.description, "The whole");
  const below = (node: any) => node.properties.children.items;
  const deepest = below(below(below((shown.properties as any).tree))).properties.children;
  assert.deepEqual(deepest, { type: "array", description: "Below it" });
});

Deno.test("references that lead everywhere are cut before they fill the request", () => {
  const names = Array.from({ length: 12 }, (_, n) => `t${n}`);
  const properties = Object.fromEntries(names.map((name) => [name, { $ref: `#/$defs/${name}` }]));
  const $defs = Object.fromEntries(names.map((name) => [name, { type: "object", properties }]));
  const schema = { type: "object", properties, $defs };
  const shown = geminiSchema(schema);
  assert.ok(JSON.stringify(shown).length < 100_000);
  assert.deepEqual(Object.keys(shown.properties as Schema), names);
});

Deno.test("pointers are unescaped, and what they lead to may be said more of", () => {
  const shown = taken({
    type: "object",
    properties: { a: { $ref: "#/$defs/x~1y~0%20z", description: "Mine" } },
    $defs: { "x/y~ z": { type: "string", description: "Theirs" } },
  });
  assert.deepEqual((shown.properties as Schema).a, { type: "string", description: "Mine" });
});

/** Schemas with all that JSON Schema has, and values that some of them take. */
const schemas = fc.letrec<{ schema: Schema }>((tie) => ({
  schema: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom<Schema>(
      {},
      { type: "string", pattern: "a" },
      { type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 3.5 },
      { type: "number", exclusiveMinimum: 1.5, minimum: 0 },
      { enum: ["a", "", null] },
      { enum: ["a", 1, true, null] },
      { const: { a: 1 } },
      { type: ["string", "null"], enum: ["a", null] },
      { $ref: "#/$defs/leaf", description: "d" },
      { not: { type: "string" } },
    ),
    fc.record({
      type: fc.constant("object"),
      properties: fc.dictionary(fc.constantFrom("a", "b", "const"), tie("schema")),
      required: fc.subarray(["a", "b"]),
      additionalProperties: fc.oneof(fc.boolean(), tie("schema")),
    }, { requiredKeys: ["type"] }) as fc.Arbitrary<Schema>,
    fc.record({ type: fc.constant("array"), items: tie("schema"), uniqueItems: fc.constant(true) }),
    fc.array(tie("schema"), { minLength: 1, maxLength: 3 }).chain((list) =>
      fc.constantFrom("anyOf", "oneOf", "allOf").map((word): Schema => ({ [word]: list }))
    ),
  ),
}));
const values: fc.Arbitrary<Json> = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom<Json>("a", "", "b", 0, 1, 2, 1.6, true, null),
    fc.array(tie("value"), { maxLength: 2 }),
    fc.dictionary(fc.constantFrom("a", "b", "const", "c"), tie("value")),
  ),
})).value;

Deno.test("whatever a schema says, Gemini takes it, and no value that suited is shut out", () => {
  fc.assert(
    fc.property(schemas.schema, fc.array(values, { minLength: 5, maxLength: 20 }), (part, samples) => {
      const $defs = { leaf: { type: "string" } };
      if (part.anyOf || part.oneOf || part.allOf) taken({ ...part, type: "object", $defs });
      const schema = { type: "object", properties: { v: part }, required: ["v"], $defs };
      const shown = taken(schema);
      for (const v of samples) {
        if (mismatches(schema, { v }, "").length) continue;
        assert.deepEqual(mismatches(shown, { v }, ""), [], JSON.stringify({ v, part, shown }));
      }
    }),
    { numRuns: 1000 },
  );
});
