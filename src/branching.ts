/**
 * How often a JSON Schema that somebody else wrote makes the validator look at one value. Two references to a schema that holds two
 * references, thirty deep, are a few lines and a thousand million looks, during which this isolate does nothing else (CASES H09).
 */
import type { Schema } from "@cfworker/json-schema";

type Part = Schema | boolean | undefined;

/** The most looks that are allowed; no schema meant for people or models comes near. */
export const mostLooks = 10_000;

/** Infinity: the schema refers to itself without going into the value, so looking would never end. `known` spares looking twice. */
export function looks(schema: Part, lookup: Record<string, Part>, known = new Map<Schema, number>()): number {
  if (typeof schema !== "object") return 1;
  const found = known.get(schema);
  if (found !== undefined) return found;
  known.set(schema, Infinity);
  const count = sameValue(schema, lookup).reduce((sum: number, part) => sum + looks(part, lookup, known), 1);
  known.set(schema, count);
  return count;
}

/** The schemas that are applied to the very value that `schema` is applied to. */
function sameValue(schema: Schema, lookup: Record<string, Part>): Part[] {
  const { allOf, anyOf, oneOf, not, if: when, then, else: otherwise, dependentSchemas } = schema;
  const reference = schema.__absolute_ref__ === undefined ? undefined : lookup[schema.__absolute_ref__];
  const single = [reference, not, when, then, otherwise].filter((part) => part !== undefined);
  return [
    ...single,
    ...[allOf, anyOf, oneOf, Object.values(dependentSchemas ?? {})].flatMap((parts) => parts ?? []),
  ];
}
