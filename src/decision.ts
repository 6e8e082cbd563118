/** What a run is to end with, if not with text: how the model is told, what its answer means, and what is wrong with it. Pure. */
import { InputError, RunFailedError } from "./errors.ts";
import type { Json } from "./message.ts";
import type { Choice, Settings } from "./run.ts";
import { type Mismatch, mismatches, schemaOf } from "./validate.ts";

/**
 * no_action: the answer makes no choice. unknown_call: none of those offered. bad_args: its arguments do not suit in another way than the
 * three below. no_value, bad_value: the same of a value.
 */
export type FaultKind =
  | "no_action"
  | "unknown_call"
  | "bad_args"
  | "no_value"
  | "bad_value"
  | NonNullable<Mismatch["kind"]>;

/** What is wrong with an answer. */
export interface Fault {
  kind: FaultKind;
  message: string;
  /** The argument, or the part of the value: "args.seats", "value.items[0]". */
  path?: string;
  /** Where in the text the object begins that was taken for the answer. */
  position?: number;
}

/** The model, asked once more, gave no valid answer: the run failed with this `code`, or the nested loop did. */
export class DecisionError extends RunFailedError {
  override name = "DecisionError";
  readonly kind: FaultKind;
  readonly path?: string;
  readonly position?: number;
  constructor({ kind, message, path, position }: Fault, code: string, run: string) {
    super(code, message, run);
    this.kind = kind;
    this.path = path;
    this.position = position;
  }
}

/** What of a run's settings says how it is to end. */
export type Asked = Pick<Settings, "choices" | "responseFormat">;
export type Judged = { choice: Choice } | { output: Json } | { fault: Fault };

/** Whether text alone does not end the run. */
export function asksForMore({ choices, responseFormat }: Asked): boolean {
  return choices !== undefined || responseFormat !== undefined;
}

/** The code of a run that failed for want of an answer. */
export function codeOf({ choices }: Asked): string {
  return choices ? "decision" : "structured_output";
}

/** Refuses what no model could be asked for; the message begins with the field's name on the wire. */
export function checkAsked({ choices, responseFormat }: Asked): void {
  if (choices !== undefined && responseFormat !== undefined) {
    throw new InputError(
      "bad_input",
      "response_format: a run ends with a choice or with a value. Leave one out",
    );
  }
  if (responseFormat !== undefined) named("response_format", () => schemaOf(responseFormat));
  if (choices === undefined) return;
  const names = Array.isArray(choices) ? choices : Object.keys(choices);
  if (!names.length) throw new InputError("bad_input", "choices: expected one at least");
  for (const name of names) {
    if (typeof name !== "string" || !/^\S(?:[^\r\n]{0,126}\S)?$/.test(name)) {
      const wanted = "expected names of 1 to 128 characters, in one line";
      throw new InputError("bad_input", `choices: ${wanted}, got ${JSON.stringify(name)?.slice(0, 80)}`);
    }
  }
  if (new Set(names).size < names.length) throw new InputError("bad_input", "choices: a name is there twice");
  if (!Array.isArray(choices)) {
    for (const [name, schema] of Object.entries(choices)) named(`choices.${name}`, () => schemaOf(schema));
  }
}

/** What `body` answers; its InputError names the field. */
export function named<T>(field: string, body: () => T): T {
  try {
    return body();
  } catch (error) {
    throw error instanceof InputError ? new InputError(error.code, `${field}: ${error.message}`) : error;
  }
}

// What the model is told

/** The text that goes with the prompt. */
export function instruction({ choices, responseFormat }: Asked): string {
  if (responseFormat) {
    return "When nothing is left to find out, answer with one JSON object, and nothing else, that suits this JSON Schema:\n" +
      JSON.stringify(schemaOf(responseFormat));
  }
  const list = Array.isArray(choices);
  const lines = list
    ? choices.map((name) => `- ${name}`)
    : Object.entries(choices ?? {}).map(([name, parameters]) => {
      const { description, ...schema } = schemaOf(parameters);
      return `- ${name}${description ? `: ${description}` : ""}\n  args: ${JSON.stringify(schema)}`;
    });
  const form = list ? '{"call": "NAME"}' : '{"call": "NAME", "args": {…}}';
  return [
    "When nothing is left to find out, end with exactly one of these choices:",
    ...lines,
    `Make it by a JSON object of the form ${form}${list ? "" : ', with "args" that suit its JSON Schema,'} ` +
    "in a fenced block, as the last thing you say.",
  ].join("\n");
}

/** What is said to a model whose answer was none. */
export function reminder(asked: Asked, { message }: Fault): string {
  return `Your answer cannot be used: ${message}\n\n${instruction(asked)}`;
}

// What its answer means

/** `cut`: the text reached the limit of output, so that what it says may not be what was meant. */
export function judge(asked: Asked, text: string, cut = false): Judged {
  if (cut) return { fault: missing(asked, "it reached the limit of output and may be cut off. Be shorter") };
  return asked.choices ? judgeChoice(asked.choices, text) : judgeValue(asked.responseFormat!, text);
}

/** No answer at all. */
export function missing({ choices }: Asked, message: string): Fault {
  return { kind: choices ? "no_action" : "no_value", message };
}

/** Words that models use for "call". */
const callWords = ["call", "action", "function", "tool"];

function judgeChoice(choices: NonNullable<Asked["choices"]>, text: string): Judged {
  const list = Array.isArray(choices), names = list ? choices : Object.keys(choices);
  for (const { value, position } of objectsIn(text)) {
    const word = callWords.find((word) => typeof value[word] === "string");
    if (word) return chosen(value[word] as string, value.args, position);
  }
  // A short text alone is looked at: a name in the middle of a sentence is no decision.
  const bare = text.trim(), unquoted = bare.length > 140 ? bare : bare.replace(/^[`"'*]+|[`"'*.]+$/g, "");
  const name = names.find((name) => name === bare) ?? names.find((name) => name === unquoted);
  if (name !== undefined) return chosen(name, undefined);
  return { fault: { kind: "no_action", message: `it makes no choice${malformed(text)}` } };

  function chosen(name: string, args: unknown, position?: number): Judged {
    const at = position === undefined ? {} : { position };
    if (!names.includes(name)) {
      const message = `there is no choice ${JSON.stringify(name.slice(0, 80))}; there are: ${
        names.join(", ")
      }`;
      return { fault: { kind: "unknown_call", message, ...at } };
    }
    if (list) return { choice: { name } };
    const given = args ?? {};
    if (!isObject(given)) {
      return { fault: { kind: "bad_args", message: "args: expected an object", path: "args", ...at } };
    }
    const fault = faultOf(mismatches(choices[name]!, given, "args"), "bad_args");
    return fault ? { fault: { ...fault, ...at } } : { choice: { name, args: given } };
  }
}

function judgeValue(schema: NonNullable<Asked["responseFormat"]>, text: string): Judged {
  for (const { value, position } of objectsIn(text)) {
    const fault = faultOf(mismatches(schema, value, "value"), "bad_value");
    return fault ? { fault: { ...fault, position } } : { output: value };
  }
  return { fault: { kind: "no_value", message: `it holds no JSON object${malformed(text)}` } };
}

function faultOf(found: Mismatch[], otherwise: FaultKind): Fault | undefined {
  const first = found[0];
  if (!first) return undefined;
  const lines = found.slice(0, 20).map(({ path, text }) => `${path}: ${text.slice(0, 300)}`);
  return { kind: first.kind ?? otherwise, message: [...new Set(lines)].join("; "), path: first.path };
}

export type JsonObject = { [key: string]: Json };

/** The JSON objects in a text: all of it if it is one, else those in fenced blocks, then those that stand in the text. */
function* objectsIn(text: string): Generator<{ value: JsonObject; position: number }> {
  const whole = parsed(text);
  if (whole) return yield { value: whole, position: 0 };
  for (const { 0: fence, 1: body = "", index } of text.matchAll(/```[^\n`]*\n([\s\S]*?)```/g)) {
    yield* balanced(text, index + fence.length - 3 - body.length, index + fence.length - 3);
  }
  yield* balanced(text, 0, text.length);
}

/** Beginnings that are tried: text that holds more braces is no answer, and must not cost more than reading it a few times. */
const maxTries = 64;

function* balanced(text: string, from: number, to: number): ReturnType<typeof objectsIn> {
  let position = text.indexOf("{", from);
  for (let tries = 0; position >= 0 && position < to && tries < maxTries; tries++) {
    const end = closing(text, position, to), value = parsed(text.slice(position, end));
    if (value) yield { value, position };
    position = text.indexOf("{", value ? end : position + 1);
  }
}

/** As deep as arguments of tools may nest: what is deeper overflows the stack of whoever walks it (CASES H07). */
const deepest = 100;

/** Where the bracket closes that opens at `from`; `from`: nowhere before `to`. */
function closing(text: string, from: number, to: number): number {
  let depth = 0, quoted = false;
  for (let i = from; i < to; i++) {
    const c = text[i];
    if (quoted) {
      if (c === "\\") i++;
      else if (c === '"') quoted = false;
    } else if (c === '"') quoted = true;
    else if ((c === "{" || c === "[") && ++depth > deepest) return from;
    else if ((c === "}" || c === "]") && --depth === 0) return i + 1;
  }
  return from;
}

function parsed(text: string): JsonObject | undefined {
  if (!/^\s*\{/.test(text) || closing(text, text.indexOf("{"), text.length) < text.trimEnd().length) {
    return undefined;
  }
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** For the model: what is wrong with the JSON that it meant. */
function malformed(text: string): string {
  const meant = /```[^\n`]*\n([\s\S]*?)```/.exec(text)?.[1] ?? text;
  if (!meant.trimStart().startsWith("{")) return "";
  try {
    JSON.parse(meant);
    return "";
  } catch (error) {
    return `; its JSON is malformed: ${(error as Error).message}`;
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
