/** Light repair of a model's arguments: the right value in the wrong JSON type. */
import { type Schema, type SchemaDraft, validate } from "@cfworker/json-schema";

/** A JSON Schema as the validator takes it. */
export interface Rules {
  root: Schema;
  /** All its parts by address, for `$ref`. */
  lookup: Record<string, Schema | boolean>;
  draft: SchemaDraft;
}

type Kind = "null" | "boolean" | "number" | "string" | "array" | "object";

/**
 * `value` in the types that `schema` asks for, as far as that is possible without guessing: "7" for 7, 7 for "7", JSON text for an array
 * or an object. What the schema takes as it is stays as it is, so text stays text wherever text is allowed (CASES C10). The answer need
 * not fit: the caller validates it.
 */
export function coerce(value: unknown, schema: Schema | boolean | undefined, rules: Rules): unknown {
  const rule = resolve(schema, rules);
  if (rule === undefined) return value;
  let result = convert(value, kindsOf(rule, rules));
  for (const part of rule.allOf ?? []) result = coerce(result, part, rules);
  const branches = rule.anyOf ?? rule.oneOf ?? [];
  if (!branches.some((branch) => fits(result, branch, rules))) {
    const kind = kindOf(result);
    for (const branch of branches) {
      // As above: a value of a kind that some branch takes is not made into another kind for the sake of the next.
      if (kindsOf(branch, rules)?.has(kind) === false) continue;
      const candidate = coerce(result, branch, rules);
      if (!fits(candidate, branch, rules)) continue;
      result = candidate;
      break;
    }
  }
  if (Array.isArray(result)) {
    const { prefixItems = [], items } = rule;
    return result.map((item, i) =>
      coerce(item, prefixItems[i] ?? (Array.isArray(items) ? items[i] : items), rules)
    );
  }
  if (!isObject(result)) return result;
  const { properties = {}, additionalProperties } = rule;
  return Object.fromEntries(
    Object.entries(result).map(([key, item]) => [
      key,
      coerce(item, Object.hasOwn(properties, key) ? properties[key] : additionalProperties, rules),
    ]),
  );
}

function convert(value: unknown, kinds: Set<Kind> | undefined): unknown {
  if (kinds === undefined || kinds.has(kindOf(value))) return value;
  for (const kind of kinds) {
    const converted = converters[kind]?.(value);
    if (converted !== undefined) return converted;
  }
  return value;
}

const converters: { [kind in Kind]?: (value: unknown) => unknown } = {
  number: (value) => {
    if (typeof value !== "string" || !/^\s*-?\d+(\.\d+)?(e[+-]?\d+)?\s*$/i.test(value)) return undefined;
    const number = Number(value);
    // A number that would come out as another one stays text, and is refused as such.
    return Number.isFinite(number) && Math.abs(number) <= Number.MAX_SAFE_INTEGER ? number : undefined;
  },
  boolean: (value) => value === "true" ? true : value === "false" ? false : undefined,
  string: (value) => typeof value === "number" || typeof value === "boolean" ? String(value) : undefined,
  array: (value) => parsed(value, Array.isArray),
  object: (value) => parsed(value, isObject),
};

function parsed(value: unknown, wanted: (value: unknown) => boolean): unknown {
  if (typeof value !== "string") return undefined;
  try {
    const json = JSON.parse(value);
    return wanted(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

/** The kinds of value a schema takes; undefined: it does not say. */
function kindsOf(schema: Schema | boolean, rules: Rules): Set<Kind> | undefined {
  const rule = resolve(schema, rules);
  if (rule === undefined) return undefined;
  if (rule.type !== undefined) {
    return new Set([rule.type].flat().map((type) => type === "integer" ? "number" : type));
  }
  if (rule.enum) return new Set(rule.enum.map(kindOf));
  if (rule.const !== undefined) return new Set([kindOf(rule.const)]);
  const branches = (rule.anyOf ?? rule.oneOf)?.map((branch) => kindsOf(branch, rules));
  if (branches === undefined || branches.includes(undefined)) return undefined;
  return new Set(branches.flatMap((kinds) => [...kinds!]));
}

function resolve(schema: Schema | boolean | undefined, rules: Rules): Schema | undefined {
  for (let hops = 0; typeof schema === "object" && schema.__absolute_ref__ !== undefined; hops++) {
    if (hops === 16) return undefined;
    schema = rules.lookup[schema.__absolute_ref__];
  }
  return typeof schema === "object" ? schema : undefined;
}

export function fits(value: unknown, schema: Schema | boolean, rules: Rules): boolean {
  return validate(value, schema as Schema, rules.draft, rules.lookup).valid;
}

function kindOf(value: unknown): Kind {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value as Kind;
}

export function isObject(value: unknown): value is object {
  return kindOf(value) === "object";
}
