import { deepStrictEqual as equal, match, ok, throws } from "node:assert/strict";
import * as z from "zod";
import { InputError } from "../src/errors.ts";
import { cheap } from "../src/pattern.ts";
import { defineTool, type Parameters } from "../src/tool.ts";
import { check, schemaOf } from "../src/validate.ts";

const tool = (parameters: Parameters) =>
  defineTool({ name: "t", description: "", parameters, execute: () => "" });
const passes = (parameters: Parameters, args: unknown, expected: unknown = args) =>
  equal(check(tool(parameters), args), { ok: true, args: expected });
const fails = (parameters: Parameters, args: unknown, ...lines: string[]) =>
  equal(check(tool(parameters), args), {
    ok: false,
    message: ['Invalid arguments for tool "t":', ...lines].join("\n"),
  });

/** The same parameters in both forms that a tool may have. */
function both(schema: z.ZodType): Parameters[] {
  return [schema, z.toJSONSchema(schema, { io: "input" }) as { [key: string]: any }];
}

Deno.test("A schema is always of type object, has properties and no $schema (C08)", () => {
  const empty = { type: "object", properties: {} };
  equal(schemaOf(z.object({})), empty);
  equal(schemaOf({}), empty);
  equal(schemaOf({ $schema: "http://json-schema.org/draft-07/schema#", type: "object" }), empty);
  equal(schemaOf(z.record(z.string(), z.number())), {
    type: "object",
    properties: {},
    propertyNames: { type: "string" },
    additionalProperties: { type: "number" },
  });
  const either = schemaOf(z.union([z.object({ a: z.string() }), z.object({ b: z.string() })]));
  equal([either.type, (either.anyOf as unknown[]).length], ["object", 2]);
});

Deno.test("What is no object is refused as parameters", () => {
  for (
    const bad of [z.string(), z.array(z.string()), { type: "array" }, "text", null, [], { safeParse() {} }]
  ) {
    throws(() => schemaOf(bad as Parameters, "t"), {
      name: "InputError",
      message: /^Tool "t": .*type object/,
    });
  }
});

Deno.test("What JSON Schema cannot say is refused at definition, naming tool and path (C01)", () => {
  throws(
    () => schemaOf(z.object({ deep: z.object({ n: z.bigint() }) }), "bad2"),
    new InputError(
      "bad_input",
      'Tool "bad2": parameter deep.n: BigInt cannot be represented in JSON Schema',
    ),
  );
  throws(() => schemaOf(z.object({ m: z.map(z.string(), z.string()) }), "bad"), /Tool "bad": parameter m: /);
  throws(
    () => schemaOf({ type: "object", properties: { a: { $ref: "#/$defs/x" } } }, "t"),
    /\$ref "#\/\$defs\/x"/,
  );
});

Deno.test("A literal that JSON Schema cannot hold is refused at definition, naming tool and path (C11)", () => {
  const bad: [Parameters, RegExp][] = [
    [z.object({ a: z.object({ b: z.literal(5n) }) }), /^Tool "bad": parameter a\.b: /],
    [z.object({ a: z.literal(["x", 5n]) }), /^Tool "bad": parameter a: /],
    [z.object({ a: z.literal(undefined) }), /^Tool "bad": parameter a: /],
    [z.object({ a: z.array(z.symbol()) }), /^Tool "bad": parameter a.*: /],
    [z.object({ a: z.literal(Infinity) }), /^Tool "bad": parameter a: .*Infinity/],
    [z.object({ a: z.lazy(() => z.literal(NaN)) }), /^Tool "bad": parameter a: .*NaN/],
    [z.object({ properties: z.union([z.string(), z.undefined()]) }), /^Tool "bad": parameter properties/],
    [{ properties: { a: { const: 5n } } } as any, /^Tool "bad": parameter a\.const: .*5n/],
    [{ properties: { a: { enum: [1, undefined] } } } as any, /^Tool "bad": parameter a\.enum\[1\]: /],
    [{ properties: { a: { enum: [() => 1] } } } as any, /^Tool "bad": parameter a\.enum\[0\]: /],
    [{ properties: { a: { maximum: NaN } } }, /^Tool "bad": parameter a\.maximum: /],
  ];
  for (const [parameters, message] of bad) {
    throws(() => schemaOf(parameters, "bad"), { name: "InputError", message });
  }
  enum Level {
    Low = 1,
    High = 2,
  }
  const levels = z.object({ level: z.enum(Level), one: z.literal([1, "x", null, true]) });
  equal((schemaOf(levels).properties as any).level.enum, [1, 2]);
  passes(levels, { level: "2", one: null }, { level: 2, one: null });
});

Deno.test("A default that JSON cannot say is not shown, and the tool gets it (C02, C11)", () => {
  const schema = z.object({ max: z.number().default(Infinity), since: z.date().default(new Date(0)) });
  equal(schemaOf(schema).properties, {
    max: { type: "number" },
    since: { type: "string", format: "date-time", default: "1970-01-01T00:00:00.000Z" },
  });
  equal((check(tool(schema), {}) as any).args, { max: Infinity, since: new Date(0) });
  const json = { type: "object", properties: { default: { type: "number", default: NaN } } };
  equal(schemaOf(json), { type: "object", properties: { default: { type: "number" } } });
});

Deno.test("A date is a date-time string for the model and a Date for the tool (C01)", () => {
  const schema = z.object({ when: z.date(), more: z.array(z.date().nullable()).optional() });
  equal((schemaOf(schema).properties as any).when, { type: "string", format: "date-time" });
  const when = "2026-01-31T12:00:00Z";
  passes(schema, { when, more: [null, when] }, { when: new Date(when), more: [null, new Date(when)] });
  passes(z.object({ w: z.union([z.date(), z.number()]) }), { w: when }, { w: new Date(when) });
  fails(schema, { when: "tomorrow" }, "- when: expected a date and time like 2026-01-31T12:00:00Z");
  fails(schema, { when: "2026-02-31" }, "- when: expected a date and time like 2026-01-31T12:00:00Z");
});

Deno.test("A transform shows its input and hands over its output (C01)", () => {
  const schema = z.object({ x: z.string().transform(Number) });
  equal((schemaOf(schema).properties as any).x, { type: "string" });
  passes(schema, { x: "7" }, { x: 7 });
});

Deno.test("A field with a default is not required, and the tool gets the default (C02)", () => {
  const schema = z.object({ topics: z.array(z.string()), max: z.number().default(10) });
  equal(schemaOf(schema).required, ["topics"]);
  passes(schema, { topics: ["a"] }, { topics: ["a"], max: 10 });
});

Deno.test("Unknown keys: dropped, refused by a strict object, kept by a loose one (C12)", () => {
  const args = { a: "x", extra: 1 };
  equal(schemaOf(z.object({ a: z.string() })).additionalProperties, undefined);
  equal(schemaOf(z.strictObject({ a: z.string() })).additionalProperties, false);
  equal(schemaOf(z.looseObject({ a: z.string() })).additionalProperties, {});
  passes(z.object({ a: z.string() }), args, { a: "x" });
  passes(z.looseObject({ a: z.string() }), args);
  for (const parameters of both(z.strictObject({ a: z.string() }))) {
    fails(parameters, args, "- extra: is not a known argument");
  }
});

Deno.test("No arguments are no arguments (B06)", () => {
  for (const parameters of both(z.object({}))) passes(parameters, undefined, {});
  for (const parameters of both(z.object({}))) {
    fails(parameters, null, "- arguments: expected object, received null");
  }
});

Deno.test("Numbers, booleans and text in the wrong JSON type are put right", () => {
  const schema = z.object({
    n: z.number(),
    i: z.int().nullable(),
    b: z.boolean(),
    s: z.string(),
    list: z.array(z.object({ n: z.number() })),
    map: z.record(z.string(), z.number()),
  });
  for (const parameters of both(schema)) {
    passes(
      parameters,
      { n: " -1.5e2", i: "7", b: "true", s: 12, list: [{ n: "3" }], map: { constructor: "4" } },
      { n: -150, i: 7, b: true, s: "12", list: [{ n: 3 }], map: { constructor: 4 } },
    );
  }
  passes({ type: "object", properties: { i: { type: ["integer", "null"] } } }, { i: "7" }, { i: 7 });
  passes({ type: "object", properties: { e: { enum: [1, 2] } } }, { e: "2" }, { e: 2 });
});

Deno.test("What is not plainly of the other type stays as it is and is refused", () => {
  for (const n of ["", "1,5", "0x10", "seven", "12345678901234567890", "1e999", "Infinity"]) {
    for (const parameters of both(z.object({ n: z.number() }))) {
      fails(parameters, { n }, "- n: expected number, received string");
    }
  }
});

Deno.test("JSON text becomes an array only where the schema wants one and takes no text (C10)", () => {
  const schema = z.object({ edits: z.array(z.object({ a: z.number() })), note: z.string() });
  for (const parameters of both(schema)) {
    passes(parameters, { edits: '[{"a":1}]', note: '{"keep":1}' }, { edits: [{ a: 1 }], note: '{"keep":1}' });
    fails(parameters, { edits: '[{"a":1', note: "" }, "- edits: expected array, received string");
  }
  const open = z.object({ either: z.union([z.string().max(3), z.array(z.number())]) });
  for (const parameters of both(open)) equal(check(tool(parameters), { either: "[1,2]" }).ok, false);
  passes({ type: "object", properties: { x: { type: ["string", "array"] } } }, { x: "[1]" });
  passes(both(z.object({ a: z.number() }))[1]!, '{"a":"1"}', { a: 1 });
});

Deno.test("Alternatives and references are followed", () => {
  const Tree = z.object({
    value: z.union([z.number(), z.object({ big: z.number() })]),
    get kids() {
      return z.array(Tree).optional();
    },
  });
  for (const parameters of both(Tree)) {
    passes(
      parameters,
      { value: "1", kids: '[{"value":{"big":"2"}}]' },
      { value: 1, kids: [{ value: { big: 2 } }] },
    );
  }
});

Deno.test("A failure names each problem by its path", () => {
  const schema = z.object({
    q: z.string(),
    list: z.array(z.object({ n: z.number() })),
    e: z.enum(["x", "y"]),
  });
  const [zod, json] = both(schema);
  const args = { list: [{ n: 1 }, { n: {} }], e: "z" };
  fails(
    zod!,
    args,
    "- q: is required: expected string",
    "- list[1].n: expected number, received object",
    '- e: Invalid option: expected one of "x"|"y"',
  );
  fails(
    json!,
    args,
    "- q: is required",
    "- list[1].n: expected number, received object",
    '- e: does not match any of ["x","y"].',
  );
  fails(
    z.object({ u: z.union([z.number(), z.boolean()]) }),
    { u: {} },
    "- u: expected number, received object, or expected boolean, received object",
  );
});

Deno.test("A failure's text is bounded", () => {
  const args = Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`${"k".repeat(50)}${i}`, 1]));
  const result = check(tool(z.strictObject({})), args);
  ok(!result.ok && result.message.length < 8000);
});

Deno.test("Checking changes nothing of what the model sent", () => {
  const args = { list: ["1"], o: { a: 1 } };
  const parameters = { type: "object", properties: { list: { type: "array", items: { type: "number" } } } };
  const result = check(tool(parameters), args);
  (result as any).args.o.a = 2;
  equal(args, { list: ["1"], o: { a: 1 } });
});

Deno.test("A schema that throws is a failed call, not an exception", () => {
  const thrower = z.object({
    a: z.string().refine(() => {
      throw new Error("no network");
    }),
  });
  fails(thrower, { a: "" }, "- arguments: cannot be checked: no network");
  const loop = { type: "object", properties: { a: { $ref: "#/properties/a" } } };
  match((check(tool(loop), { a: 1 }) as any).message, /cannot be checked/);
});

Deno.test("Names of Object.prototype are ordinary argument names", () => {
  const args = JSON.parse('{"__proto__":{"x":1},"constructor":"2"}');
  const result = check(tool({ type: "object", properties: { constructor: { type: "number" } } }), args);
  ok(result.ok && Object.hasOwn(result.args as object, "__proto__"));
  equal((result.args as any).constructor, 2);
});

Deno.test("A pattern that could run for ever is not run; others are (H09)", () => {
  const schema = (pattern: string) => ({ type: "object", properties: { p: { type: "string", pattern } } });
  const evil = "a".repeat(40) + "!";
  for (const pattern of ["^(a+)+$", "(a|a)*$", "^(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)$", "a+b", "(", "^(a*)\\1$"]) {
    equal(cheap(pattern), false, pattern);
    passes(schema(pattern), { p: evil });
  }
  for (
    const pattern of ["^[a-z]+$", "^\\d{4}-\\d{2}$", "^(?:red|green)$", "^[0-9a-f]{8}-[0-9a-f]{4}$", "x"]
  ) {
    equal(cheap(pattern), true, pattern);
    equal(check(tool(schema(pattern)), { p: "A!" }).ok, false);
  }
  const start = performance.now();
  check(tool({ type: "object", properties: { u: { type: "string", format: "url" } } }), {
    u: "http://" + "a".repeat(50),
  });
  check(tool(schema("^[a-z]+$")), { p: "a".repeat(1e6) + "!" });
  check(tool({ type: "object", patternProperties: { "^(a+)+$": {} }, additionalProperties: false }), {
    [evil]: 1,
  });
  ok(performance.now() - start < 1000);
});

Deno.test("A schema that multiplies, or leads back to itself, is refused where it is defined (H09)", () => {
  const refer = (name: string) => ({ $ref: `#/$defs/${name}` });
  const doubling = (levels: number, keyword: string) => ({
    type: "object",
    properties: { a: refer("x0") },
    $defs: Object.fromEntries(
      Array.from({ length: levels }, (_, n) => [
        `x${n}`,
        n === levels - 1 ? {} : { [keyword]: [refer(`x${n + 1}`), refer(`x${n + 1}`)] },
      ]),
    ),
  });
  for (const keyword of ["allOf", "anyOf", "oneOf"]) {
    throws(
      () => schemaOf(doubling(40, keyword), "t"),
      /Tool "t": parameters: more than 10000 schemas apply/,
    );
    schemaOf(doubling(8, keyword), "t");
  }
  const endless: Parameters[] = [
    { $ref: "#" },
    { properties: { a: refer("x") }, $defs: { x: { anyOf: [refer("y")] }, y: { not: refer("x") } } },
  ];
  for (const schema of endless) throws(() => schemaOf(schema, "t"), /\$ref leads back/);
  // A tree goes on in its children; a union may have many members.
  const tree = {
    type: "object",
    properties: { children: { type: "array", items: { anyOf: [{ $ref: "#" }, { type: "null" }] } } },
  };
  const members = Array.from(
    { length: 500 },
    (_, n) => ({ properties: { kind: { const: n } }, required: ["kind"] }),
  );
  for (
    const [schema, args] of [[tree, { children: [{ children: [null] }] }], [{ anyOf: members }, { kind: 7 }]]
  ) {
    const tool = { name: "t", description: "", parameters: schema as Parameters, execute: () => "" };
    equal(check(tool, args), { ok: true, args });
  }
});

Deno.test("A parameter may be called pattern, format or $ref-like names", () => {
  const properties = { pattern: { type: "string" }, format: { type: "string" }, id: { type: "number" } };
  equal(schemaOf({ type: "object", properties }).properties, properties);
  passes({ type: "object", properties }, { pattern: "(a+)+$", format: "url", id: "1" }, {
    pattern: "(a+)+$",
    format: "url",
    id: 1,
  });
});
