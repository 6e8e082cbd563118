/**
 * JSON Schema in the words that Gemini knows: https://ai.google.dev/api/generate-content#GenerationConfig (`responseJsonSchema`). References
 * are put in where they stand, a union at the root becomes one object, bounds and constants take other words; what it has no word for is
 * left out. What comes out allows all that went in, and more: a call is checked against the tool's own schema before it runs.
 */
import type { Json } from "../src/message.ts";
import { both, declared, found, isSchema, oneObject, type Schema } from "./object_schema.ts";

const known = new WeakMap<Schema, Schema>();

/** The schema as it is sent; made once for each object. */
export function geminiSchema(schema: Schema): Schema {
  let shown = known.get(schema);
  if (!shown) known.set(schema, shown = translated(schema));
  return shown;
}

/** A reference may stand as often inside what it refers to (CASES C07): as often as leaves the whole of a sensible size. */
const depths = [3, 2, 1];

/** In schemas that references put in. Two that refer to each other twice could be written out for ever. */
const mostPlaces = 1000;

function translated(schema: Schema): Schema {
  for (const deepest of depths) {
    const translation = new Translation(schema, deepest);
    const shown = translation.of(schema, []);
    if (translation.places < mostPlaces || deepest === depths.at(-1)) return oneObject(shown);
  }
  return schema;
}

/** Kept as they are. */
const plain = ["title", "description", "minItems", "maxItems", "minimum", "maximum"];

/** What zod says of every integer. */
const endless: Json[] = [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER];

const formats = ["date", "time", "date-time"];

class Translation {
  places = 0;

  constructor(readonly root: Schema, readonly deepest: number) {}

  /** `within`: the references that lead to where this schema stands. */
  of(schema: Json | undefined, within: readonly string[]): Schema {
    if (within.length) this.places++;
    if (!isSchema(schema)) return {};
    const { $ref, allOf, type, format, properties, required, items, prefixItems } = schema;
    const shown: Schema = Object.fromEntries(
      Object.entries(schema).filter(([key, value]) => plain.includes(key) && !endless.includes(value)),
    );
    if (formats.includes(String(format))) shown.format = format!;
    const values = listed(schema);
    Object.assign(shown, values.anyOf ? {} : typed(type), bounds(schema), values);
    if (isSchema(properties)) {
      const possible = Object.entries(properties).filter(([, part]) => part !== false);
      shown.properties = Object.fromEntries(possible.map(([name, part]) => [name, this.of(part, within)]));
    }
    if (Array.isArray(required)) shown.required = required;
    const { additionalProperties: more } = schema;
    if (more !== undefined) shown.additionalProperties = isSchema(more) ? this.of(more, within) : more;
    const tuple = Array.isArray(items) ? items : prefixItems;
    if (Array.isArray(tuple)) shown.prefixItems = tuple.map((part) => this.of(part, within));
    else if (isSchema(items)) shown.items = this.of(items, within);
    const branches = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(branches) && !shown.enum) {
      const possible = branches.filter((part) => part !== false).map((part) => this.of(part, within));
      // One without any demand left lets everything through.
      if (possible.length && possible.every((branch) => Object.keys(branch).length)) shown.anyOf = possible;
    }
    const parts = Array.isArray(allOf) ? allOf.map((part) => this.of(part, within)) : [];
    if (typeof $ref === "string") parts.unshift(this.#at($ref, within));
    return declared([...parts, shown].reduce(both));
  }

  #at(ref: string, within: readonly string[]): Schema {
    const target = found(this.root, ref);
    if (within.filter((outer) => outer === ref).length < this.deepest && this.places < mostPlaces) {
      return this.of(target, [...within, ref]);
    }
    const { type, description } = isSchema(target) ? target : {};
    return { ...(typeof type === "string" ? { type } : {}), ...(description ? { description } : {}) };
  }
}

/** Of several types only one and null are documented together; others stand side by side. */
function typed(type: Json | undefined): Schema {
  if (typeof type === "string") return { type };
  if (!Array.isArray(type)) return {};
  const more = type.filter((one) => one !== "null").length > 1;
  return more ? { anyOf: type.map((one) => ({ type: one })) } : { type };
}

/** Bounds that exclude their limit; between integers there is a next one. */
function bounds(
  { type, exclusiveMinimum: above, exclusiveMaximum: below, minimum, maximum }: Schema,
): Schema {
  const whole = type === "integer", shown: Schema = {};
  if (typeof above === "number") {
    shown.minimum = Math.max(whole ? Math.floor(above) + 1 : above, Number(minimum ?? -Infinity));
  }
  if (typeof below === "number") {
    shown.maximum = Math.min(whole ? Math.ceil(below) - 1 : below, Number(maximum ?? Infinity));
  }
  return shown;
}

/** `enum` and `const`: lists of texts or of numbers, or those side by side. */
function listed(schema: Schema): Schema {
  const values = Array.isArray(schema.enum) ? schema.enum : "const" in schema ? [schema.const!] : [];
  const texts = values.filter((value) => typeof value === "string");
  const numbers = values.filter((value) => typeof value === "number");
  // An empty text is refused in a list, and what is not plain has no place in one.
  if (!values.length || texts.includes("") || values.some((value) => typeof value === "object" && value)) {
    return {};
  }
  const sorts: Schema[] = [
    ...(texts.length ? [{ type: "string", enum: texts }] : []),
    ...(numbers.length ? [{ type: schema.type === "integer" ? "integer" : "number", enum: numbers }] : []),
    ...(values.some((value) => typeof value === "boolean") ? [{ type: "boolean" }] : []),
    ...(values.includes(null) ? [{ type: "null" }] : []),
  ];
  return sorts.length === 1 ? sorts[0]! : { anyOf: sorts };
}
