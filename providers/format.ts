/** Answers of a given form: what of JSON Schema the vendors hold a model to, letter by letter. */
import type { ModelRequest } from "../src/model.ts";

type Schema = NonNullable<ModelRequest["responseFormat"]>;

/** The name that OpenAI's wires want beside the schema. */
export const formatName = "output";

/** What every vendor's strict mode knows; schemas with more, or with properties that may be missing or added, are refused there. */
const known = new Set(
  "type properties required additionalProperties items enum const anyOf title description".split(" "),
);

/** Whether a vendor takes this schema in its strict mode. */
export function strict(schema: unknown): boolean {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return false;
  const { type, properties = {}, required = [], additionalProperties, items, anyOf = [] } = schema as Schema;
  if (!Object.keys(schema).every((key) => known.has(key))) return false;
  const inside = Object.values(properties as Schema);
  const closed = additionalProperties === false && (required as string[]).length === inside.length;
  return (type === "object" ? closed : type !== undefined || "anyOf" in schema || "enum" in schema) &&
    (type !== "array" || strict(items)) && inside.every(strict) && (anyOf as Schema[]).every(strict);
}
