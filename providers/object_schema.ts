/**
 * The schema of a tool's arguments as one plain object: vendors refuse a union at the root, and with it the whole request (CASES C03). What
 * comes out allows all that went in, and more: a call is checked against the tool's own schema before it runs.
 */
import type { Json } from "../src/message.ts";

export type Schema = { [key: string]: Json };

/** Words that OpenAI and Anthropic refuse at the root. https://platform.openai.com/docs/guides/structured-outputs#supported-schemas */
const refused = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"];

const known = new WeakMap<Schema, Schema>();

/** The same schema where nothing at its root is refused; else made once for each object. */
export function objectSchema(schema: Schema): Schema {
  if (!refused.some((word) => word in schema)) return schema;
  let shown = known.get(schema);
  if (!shown) known.set(schema, shown = oneObject(flat(schema, schema)));
  return shown;
}

/** References and parts put in where they stand, alternatives under one word. That references end is checked where tools are defined. */
function flat(part: Json | undefined, root: Schema): Schema {
  if (!isSchema(part)) return {};
  const { anyOf, oneOf, allOf, $ref } = part;
  const rest = Object.fromEntries(Object.entries(part).filter(([key]) => !refused.includes(key)));
  const branches = [anyOf ?? oneOf ?? []].flat().filter((branch) => branch !== false);
  const parts = [allOf ?? []].flat().map((branch) => flat(branch, root));
  if (typeof $ref === "string") parts.unshift(flat(found(root, $ref), root));
  const alternatives: Schema = branches.length ? { anyOf: branches.map((branch) => flat(branch, root)) } : {};
  return [...parts, { ...rest, ...alternatives }].reduce(both);
}

/** What a reference within the same schema leads to. */
export function found(root: Schema, ref: string): Json | undefined {
  if (!ref.startsWith("#")) return undefined;
  let at: Json | undefined = root;
  for (const step of ref.slice(1).split("/").slice(1)) {
    const key = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    at = typeof at === "object" && at !== null && Object.hasOwn(at, key) ? (at as Schema)[key] : undefined;
  }
  return at;
}

export function isSchema(value: Json | undefined): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What suits both, or more. */
export function both(a: Schema, b: Schema): Schema {
  const required = [a.required ?? [], b.required ?? []].flat();
  return {
    ...a,
    ...b,
    ...(a.properties && b.properties
      ? { properties: { ...a.properties as Schema, ...b.properties as Schema } }
      : {}),
    ...(required.length ? { required: [...new Set(required)] } : {}),
  };
}

/** Gemini refuses a required property that is not among the properties. */
export function declared(schema: Schema): Schema {
  if (!schema.required) return schema;
  const required = (schema.required as Json[]).filter((name) =>
    Object.hasOwn(schema.properties as Schema ?? {}, String(name))
  );
  const { required: _, ...rest } = schema;
  return required.length ? { ...rest, required } : rest;
}

/**
 * The root must be one plain object (CASES C03): it has the properties of all its alternatives, and requires what all of them do. A property
 * that only one of them names is as that one says, though the others may let it be anything.
 */
export function oneObject(schema: Schema): Schema {
  const { anyOf, ...rest } = schema;
  const root: Schema = { ...rest, type: "object", properties: rest.properties ?? {} };
  if (!Array.isArray(anyOf) || !anyOf.length) return root;
  const branches = anyOf.map((branch) => oneObject(branch as Schema));
  const properties: { [name: string]: Schema[] } = Object.create(null);
  for (const branch of [root, ...branches]) {
    for (const [name, part] of Object.entries(branch.properties as Schema)) {
      (properties[name] ??= []).push(part as Schema);
    }
  }
  const required = branches.map((branch) => (branch.required ?? []) as string[])
    .reduce((all, some) => all.filter((name) => some.includes(name)));
  const { additionalProperties: _, required: always, ...open } = root;
  return declared({
    ...open,
    properties: Object.fromEntries(Object.entries(properties).map(([name, parts]) => [name, either(parts)])),
    required: [...new Set([...(always ?? []) as string[], ...required])],
  });
}

/** One schema for what any of them allows. */
function either(parts: Schema[]): Schema {
  const distinct = [...new Map(parts.map((part) => [JSON.stringify(part), part])).values()];
  if (distinct.length === 1) return distinct[0]!;
  if (distinct.some((part) => !Object.keys(part).length)) return {};
  const { type } = distinct[0]!;
  const values = distinct.map((part) => part.enum ?? ("const" in part ? [part.const!] : undefined));
  if (values.every(Array.isArray) && distinct.every((part) => part.type === type)) {
    const { const: _, ...rest } = distinct[0]!;
    return { ...rest, enum: [...new Set(values.flat())] };
  }
  return { anyOf: distinct };
}
