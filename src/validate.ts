/**
 * The arguments of tools: the JSON Schema that a model is shown, and the check of what it sent. Which tools there are and which call is
 * run is decided elsewhere. Everything here interprets: generated code is forbidden on Workers.
 */
import * as z from "zod";
import { dereference, type Schema, type SchemaDraft, validate } from "@cfworker/json-schema";
import { looks, mostLooks } from "./branching.ts";
import { coerce, fits, isObject, type Rules } from "./coercion.ts";
import { InputError, messageOf } from "./errors.ts";
import type { Json } from "./message.ts";
import { cheap } from "./pattern.ts";
import type { Parameters, Tool } from "./tool.ts";

// Parsers that zod compiles at run time would be eval, which Workers forbid.
z.config({ jitless: true });

type JsonSchema = { [key: string]: Json };
type Path = readonly PropertyKey[];
/** A JSON Schema, and the same as `check` uses it. */
interface Known extends Rules {
  shown: JsonSchema;
}

interface Problem {
  path: Path;
  text: string;
  kind?: MismatchKind;
}

export type MismatchKind = "missing_required" | "type_mismatch" | "enum_violation";

/** One way in which a value does not suit a schema; without a kind it is another than those. */
export interface Mismatch {
  path: string;
  text: string;
  kind?: MismatchKind;
}

/**
 * The JSON Schema of a tool's arguments: always of type object, with `properties`, without `$schema`. Fields that may be left out are not
 * required, also when they have a default (CASES C02); zod dates are date-time strings. What JSON Schema cannot say, or what could not be
 * checked later, is an InputError that names the tool and the parameter. Each turn shows it, so it is made once, and frozen.
 */
export function schemaOf(parameters: Parameters, tool?: string): JsonSchema {
  return rulesOf(parameters, tool).shown;
}

/**
 * What the tool gets, if `args` suit its parameters; else what is wrong with them, for the model to act on. Arguments that do not suit are
 * tried once more in the types that were asked for: "7" for 7, JSON text for an array. What a schema takes as it is stays as it is. A zod
 * tool gets what its schema puts out.
 */
export function check(
  tool: Pick<Tool, "name" | "parameters">,
  args: unknown,
): { ok: true; args: unknown } | { ok: false; message: string } {
  let problems: Problem[];
  try {
    // A copy, because the arguments also stand in the transcript, which no tool may change.
    const given = args === undefined ? {} : structuredClone(args);
    const rules = rulesOf(tool.parameters, tool.name);
    const checked = isZod(tool.parameters)
      ? checkZod(tool.parameters, given, rules)
      : checkJson(given, rules);
    if ("args" in checked) return { ok: true, args: checked.args };
    problems = checked.problems;
  } catch (thrown) {
    // A refinement of the author's that throws, or nesting deeper than the stack: the call fails, not the run.
    problems = [{ path: [], text: `cannot be checked: ${messageOf(thrown)}` }];
  }
  const lines = problems.slice(0, 20).map(({ path, text }) => `- ${spell(path)}: ${text.slice(0, 300)}`);
  return { ok: false, message: [`Invalid arguments for tool "${tool.name}":`, ...new Set(lines)].join("\n") };
}

/** Where `value`, as it stands, does not suit a JSON Schema; none: it does. `name` is what the value as a whole is called. */
export function mismatches(schema: JsonSchema, value: unknown, name: string): Mismatch[] {
  try {
    const rules = rulesOf(schema);
    if (fits(value, rules.root, rules)) return [];
    return jsonProblems(value, rules).map((problem) => ({ ...problem, path: spell(problem.path, name) }));
  } catch (thrown) {
    // A schema that refers to itself without end: the answer fails, not the slice.
    return [{ path: name, text: `cannot be checked: ${messageOf(thrown)}` }];
  }
}

type Checked = { args: unknown } | { problems: Problem[] };

function checkZod(schema: z.ZodType, given: unknown, rules: Rules): Checked {
  let result = z.safeParse(schema, given);
  if (!result.success) {
    const coerced = coerce(given, rules.root, rules);
    result = z.safeParse(schema, coerced);
    if (!result.success) result = z.safeParse(schema, withDates(coerced, result.error.issues));
  }
  return result.success ? { args: result.data } : { problems: result.error.issues.flatMap(zodProblems) };
}

function checkJson(given: unknown, rules: Rules): Checked {
  if (fits(given, rules.root, rules)) return { args: given };
  const coerced = coerce(given, rules.root, rules);
  return fits(coerced, rules.root, rules) ? { args: coerced } : { problems: jsonProblems(coerced, rules) };
}

// Schemas

const wanted = "parameters must be an object of zod 4 or a JSON Schema of type object";
const known = new WeakMap<Parameters, Known>();

function rulesOf(parameters: Parameters, tool?: string): Known {
  const found = known.get(parameters);
  if (found) return found;
  try {
    const given = isZod(parameters) ? fromZod(parameters) : parameters;
    if (!isObject(given) || "safeParse" in given) throw new Error(wanted);
    const { $schema, ...rest } = given as JsonSchema;
    if (rest.type !== undefined && rest.type !== "object") throw new Error(wanted);
    const shown = frozen(
      sayable({ ...rest, type: "object", properties: rest.properties ?? {} }) as JsonSchema,
    );
    const root = structuredClone(shown) as Schema;
    const lookup: Rules["lookup"] = dereference(root);
    for (const part of Object.values(lookup)) if (typeof part === "object") makeCheckable(part, lookup);
    refuseEndless(lookup);
    const rules = { shown, root, lookup, draft: draftOf(String($schema ?? "")) };
    known.set(parameters, rules);
    return rules;
  } catch (thrown) {
    throw new InputError("bad_input", `${tool === undefined ? "" : `Tool "${tool}": `}${messageOf(thrown)}`);
  }
}

function frozen<T>(value: T): T {
  if (typeof value === "object" && value !== null) Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

function isZod(parameters: Parameters): parameters is z.ZodType {
  return typeof parameters === "object" && parameters !== null && "_zod" in parameters;
}

function fromZod(schema: z.ZodType): unknown {
  return z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: ({ zodSchema, path, message }) => {
      if (zodSchema._zod.def.type === "date") return { type: "string", format: "date-time" };
      throw new Error(`parameter ${spell(parametersIn(path))}: ${message}`);
    },
    // What zod would write as null.
    override: ({ zodSchema: { _zod: { def } }, jsonSchema, path }) => {
      for (const part of [jsonSchema.const, jsonSchema.enum]) if (part !== undefined) sayable(part, path);
      if (def.type === "default" && !isJson((def as z.core.$ZodDefaultDef).defaultValue)) {
        delete jsonSchema.default;
      }
    },
  });
}

/** A copy, if it is what JSON can say; a request would fail of anything else (CASES C11). A default like that goes unsaid. */
function sayable(value: unknown, path: Path = []): Json {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (Array.isArray(value)) return value.map((item, i) => sayable(item, [...path, String(i)]));
  if (isObject(value)) {
    const said = Object.entries(value).filter(([key, part]) =>
      part !== undefined && !(key === "default" && path.at(-1) !== "properties" && !isJson(part))
    );
    return Object.fromEntries(said.map(([key, part]) => [key, sayable(part, [...path, key])]));
  }
  const shown = typeof value === "bigint" ? `${value}n` : String(value).slice(0, 80);
  throw new Error(`parameter ${spell(parametersIn(path))}: JSON Schema cannot say ${typeof value} ${shown}`);
}

function isJson(value: unknown): boolean {
  try {
    return sayable(value) !== undefined;
  } catch {
    return false;
  }
}

/** Of a path in a JSON Schema what names parameters. */
function parametersIn(path: Path): Path {
  return path.filter((key, i) => key !== "properties" || path[i - 1] === "properties");
}

function draftOf(uri: string): SchemaDraft {
  if (/draft-0[67]/.test(uri)) return "7";
  return uri.includes("draft-04") ? "4" : uri.includes("2019-09") ? "2019-09" : "2020-12";
}

/** Formats whose check takes no longer than reading the text; that of "url" can take for ever. */
const formats = new Set(["date", "time", "date-time", "email", "hostname", "ipv4", "ipv6", "uuid"]);

/**
 * JSON Schemas also come from callers and from other servers, so what they make this isolate execute must be bounded: expensive patterns are
 * shown to the model, not run (CASES H09).
 */
function makeCheckable(schema: Schema, lookup: Rules["lookup"]): void {
  if (schema.__absolute_ref__ !== undefined && lookup[schema.__absolute_ref__] === undefined) {
    throw new Error(`parameters: there is nothing at $ref ${JSON.stringify(schema.$ref)}`);
  }
  if (schema.pattern !== undefined && !cheap(schema.pattern)) delete schema.pattern;
  if (schema.format !== undefined && !formats.has(schema.format)) delete schema.format;
  if (!Object.keys(schema.patternProperties ?? {}).every(cheap)) {
    delete schema.patternProperties;
    delete schema.additionalProperties;
    delete schema.unevaluatedProperties;
  }
}

/** Whatever value stands there, checking it must end, and soon. */
function refuseEndless(lookup: Rules["lookup"]): void {
  const known = new Map<Schema, number>();
  for (const part of Object.values(lookup)) {
    const count = looks(part, lookup, known);
    if (count === Infinity) throw new Error("parameters: a $ref leads back to where it stands");
    if (count > mostLooks) throw new Error(`parameters: more than ${mostLooks} schemas apply to one value`);
  }
}

/** Puts a Date where the schema asks for one and a date stands there as text (CASES C01). */
function withDates(value: unknown, issues: z.core.$ZodIssue[], at: Path = []): unknown {
  const holder = { value };
  for (const issue of issues) {
    const path = [...at, ...issue.path];
    if (issue.code === "invalid_union") {
      for (const branch of issue.errors) holder.value = withDates(holder.value, branch, path);
    }
    if (issue.code !== "invalid_type" || issue.expected !== "date") continue;
    let parent: any = holder;
    const keys = ["value", ...path];
    for (const key of keys.slice(0, -1)) parent = parent?.[key];
    const last = keys.at(-1)!;
    if (isoDate.safeParse(parent?.[last]).success) parent[last] = new Date(parent[last]);
  }
  return holder.value;
}

const isoDate = z.union([z.iso.datetime({ offset: true }), z.iso.date()]);

// Problems

function zodProblems(issue: z.core.$ZodIssue): Problem[] {
  const under = (problems: Problem[]) => problems.map((p) => ({ ...p, path: [...issue.path, ...p.path] }));
  if (issue.code === "unrecognized_keys") {
    return under(issue.keys.map((key) => ({ path: [key], text: "is not a known argument" })));
  }
  if (issue.code === "invalid_union" && issue.errors.length > 0) {
    const branches = issue.errors.map((issues) => issues.flatMap(zodProblems));
    if (branches.every((problems) => problems.every(({ path }) => path.length === 0))) {
      return under([{ path: [], text: [...new Set(branches.flat().map(({ text }) => text))].join(", or ") }]);
    }
    // The alternative that the arguments miss by least is the one that was meant.
    return under(branches.reduce((least, problems) => problems.length < least.length ? problems : least));
  }
  if (issue.code === "invalid_type" && issue.expected === "date") {
    return under([{ path: [], text: "expected a date and time like 2026-01-31T12:00:00Z" }]);
  }
  const text = issue.message.replace(/^Invalid input: /, "");
  return under([{ path: [], text: text.replace(/^(.*), received undefined$/, "is required: $1") }]);
}

/** Keywords whose error only says that there is another one further in. */
const wrappers = new Set([
  ..."allOf anyOf oneOf $ref properties patternProperties additionalProperties unevaluatedProperties".split(
    " ",
  ),
  ..."items prefixItems additionalItems unevaluatedItems dependentSchemas if propertyNames".split(" "),
]);

function jsonProblems(value: unknown, rules: Rules): Problem[] {
  const { errors } = validate(value, rules.root, rules.draft, rules.lookup, false);
  const leaves = errors.filter(({ keyword }) => !wrappers.has(keyword));
  return (leaves.length > 0 ? leaves : errors).map(jsonProblem);
}

const kinds: { [keyword: string]: MismatchKind } = {
  required: "missing_required",
  type: "type_mismatch",
  enum: "enum_violation",
  const: "enum_violation",
};

function jsonProblem(
  { instanceLocation, keyword, error }: { instanceLocation: string; keyword: string; error: string },
): Problem {
  const path = instanceLocation.split("/").slice(1).map((key) =>
    decodeURIComponent(key).replaceAll("~1", "/").replaceAll("~0", "~")
  );
  if (keyword === "false") return { path, text: "is not a known argument" };
  const kind = kinds[keyword];
  const missing = keyword === "required" && error.match(/property "(.*)"\.$/s);
  if (missing) return { path: [...path, missing[1]!], text: "is required", kind };
  const type = keyword === "type" && error.match(/^Instance type "(.*)" is invalid\. Expected (.*)\.$/s);
  if (type) return { path, text: `expected ${type[2]!.replaceAll('"', "")}, received ${type[1]}`, kind };
  return { path, text: error.replace(/^Instance /, ""), kind };
}

/** `edits[0].a`; the value as a whole is called "arguments", or has a name that the path begins with. */
function spell(path: Path, name = ""): string {
  const text = path.map((key) => /^\d+$/.test(String(key)) ? `[${String(key)}]` : `.${String(key)}`).join("");
  return name + (name ? text : text.replace(/^\./, "")) || "arguments";
}
