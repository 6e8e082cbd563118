/** Tools' schemas on the wires that want one plain object (CASES C03, C04, C07). */
import assert from "node:assert/strict";
import * as z from "zod";
import { objectSchema, type Schema } from "../providers/object_schema.ts";
import type { Parameters } from "../src/tool.ts";
import { mismatches, schemaOf } from "../src/validate.ts";
import { asking, replyTo } from "./contract/model.ts";
import { dialects } from "./support/dialect.ts";

const shownTo = async (parameters: Schema) => {
  for (const each of dialects) {
    const tools = [{ name: "add", description: "", parameters }];
    await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, asking(undefined, { tools }));
  }
};

const edits = z.discriminatedUnion("mode", [
  z.object({ mode: z.literal("peek"), id: z.string() }),
  z.object({ mode: z.literal("apply"), id: z.string(), force: z.boolean() }),
]);

Deno.test("a union at the root goes to every vendor as one object that keeps what tells its branches apart (CASES C03)", async () => {
  const given = schemaOf(edits);
  await shownTo(given);
  const shown = objectSchema(given);
  assert.equal(objectSchema(given), shown, "made once");
  assert.deepEqual(shown.required, ["mode", "id"]);
  const { mode, ...others } = shown.properties as Schema;
  assert.deepEqual(mode, { type: "string", enum: ["peek", "apply"] });
  assert.deepEqual(Object.keys(others), ["id", "force"]);
  assert.doesNotMatch(JSON.stringify(Object.keys(shown)), /anyOf|oneOf|allOf/);
});

Deno.test("whatever stands at the root, every vendor takes it, and no arguments that suit are shut out (CASES C03, C07)", async () => {
  const node = {
    type: "object",
    properties: { name: { type: "string" }, next: { $ref: "#/$defs/node" } },
    required: ["name"],
    additionalProperties: false,
  };
  const roots: [Parameters, object[]][] = [
    [edits, [{ mode: "peek", id: "1" }, { mode: "apply", id: "1", force: true }]],
    [z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })), [{ a: "", b: 1 }]],
    [z.union([z.strictObject({ a: z.string() }), z.strictObject({ b: z.number() })]), [{ a: "" }, { b: 1 }]],
    [{ $ref: "#/$defs/node", $defs: { node } }, [{ name: "a", next: { name: "b" } }]],
    [
      { anyOf: [{ $ref: "#/$defs/node" }, { required: ["x"], properties: { x: {} } }], $defs: { node } },
      [{ name: "a" }, { x: [1] }],
    ],
    [{ type: "object", not: { required: ["x"] }, properties: { y: { type: "number" } } }, [{ y: 1 }]],
    [{ type: "object", properties: { anyOf: { type: "string" } }, required: ["anyOf"] }, [{ anyOf: "" }]],
  ];
  for (const [parameters, samples] of roots) {
    const given = schemaOf(parameters), shown = objectSchema(given);
    await shownTo(given);
    for (const args of samples) {
      assert.deepEqual(mismatches(given, args, ""), []);
      assert.deepEqual(mismatches(shown, args, ""), [], JSON.stringify(shown));
    }
  }
});

Deno.test("optional keys and records ask no vendor for strictness (CASES C04)", async () => {
  const parameters = schemaOf(z.object({
    a: z.string(),
    b: z.number().optional(),
    meta: z.record(z.string(), z.string()),
    sub: z.object({ c: z.boolean().optional() }),
  }));
  for (const each of dialects) {
    const tools = [{ name: "add", description: "", parameters }];
    const { body } = await replyTo(
      each,
      { chunks: each.frames({ text: ["ok"] }) },
      asking(undefined, { tools }),
    );
    assert.doesNotMatch(JSON.stringify(body), /"strict":true/);
    // Left out, it is true on this wire.
    if (each.wire === "openai") assert.equal(body.tools[0].strict, false);
  }
});
