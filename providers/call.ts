/** Tool calls on the wire: their arguments, ids and names, as every vendor takes them. */
import type { Json, ToolCall } from "../src/message.ts";
import { wellFormed } from "./history.ts";

/** A call as the model sent it, from the text of its arguments. Never throws: what cannot be used is said in `invalid` (CASES B02, B06). */
export function received(name: string, text: string, opaque?: string): Omit<ToolCall, "id"> {
  const call = { type: "tool_call", name, arguments: {}, ...(opaque ? { opaque } : {}) } as const;
  // A tool without parameters gets "", blanks or nothing at all.
  if (!text.trim()) return call;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { ...call, raw: text, invalid: `not JSON, perhaps cut off: ${(error as Error).message}` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    const kind = Array.isArray(value) ? "an array" : value === null ? "null" : `a ${typeof value}`;
    return { ...call, raw: text, invalid: `expected a JSON object, got ${kind}` };
  }
  if (!nestsWithin(value, deepest)) {
    return { ...call, raw: text, invalid: `nested deeper than ${deepest} levels` };
  }
  const parsed = value as ToolCall["arguments"];
  return { ...call, arguments: parsed, ...(JSON.stringify(parsed) === text ? {} : { raw: text }) };
}

/** The same from a wire whose arguments are no text but an object; `args` may hold what `spelled` kept. */
export function receivedObject(name: string, args: unknown, opaque?: string): Omit<ToolCall, "id"> {
  if (nestsWithin(args, deepest)) return received(name, args == null ? "" : JSON.stringify(args), opaque);
  return { ...received(name, "", opaque), invalid: `nested deeper than ${deepest} levels` };
}

/** As deep as a request may nest: what is deeper could be read, but overflows the stack of whoever writes or walks it (CASES H07). */
const deepest = 100;

export function nestsWithin(value: unknown, levels: number): boolean {
  return typeof value !== "object" || value === null ||
    (levels > 0 && Object.values(value).every((held) => nestsWithin(held, levels - 1)));
}

/**
 * A call's arguments as text: the model's own bytes, so that no integer beyond 2^53 changes. Text that is no JSON object goes as {},
 * since servers that parse it would refuse the thread for ever; the call's result tells the model what was wrong.
 */
export function argumentsText(call: ToolCall): string {
  if (call.invalid !== undefined) return "{}";
  // Half a surrogate pair can hide in an escape, where the text as a whole looks well-formed (CASES A27).
  if (call.raw !== undefined && /\\u[dD][89a-fA-F]/.test(call.raw)) {
    return JSON.stringify(argumentsObject(call));
  }
  return call.raw ?? JSON.stringify(call.arguments);
}

/** The same for a wire that wants an object: numbers that JavaScript cannot hold are kept as they were spelled. */
export function argumentsObject(call: ToolCall): { [key: string]: unknown } {
  if (call.raw === undefined || call.invalid !== undefined) return call.arguments;
  return JSON.parse(call.raw, keepSpelling);
}

// Both are in V8 for years, but not yet in TypeScript's library.
const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => Json };

function keepSpelling(key: string, value: unknown, context?: { source?: string }): unknown {
  if (typeof value === "string") return wellFormed(value);
  if (typeof value === "object" && value !== null) return withKeysWellFormed(value);
  return spelled(key, value, context);
}

/** For `JSON.parse`: numbers that JavaScript cannot hold stay as they are spelled, for `JSON.stringify` to write. */
export function spelled(_key: string, value: unknown, context?: { source?: string }): unknown {
  const source = context?.source;
  return typeof value === "number" && source && String(value) !== source && rawJSON ? rawJSON(source) : value;
}

/** Its values are well-formed already: a reviver sees them first. */
function withKeysWellFormed(value: object): object {
  if (Array.isArray(value) || Object.keys(value).every((key) => key.isWellFormed())) return value;
  return Object.fromEntries(Object.entries(value).map(([key, held]) => [key.toWellFormed(), held]));
}

/** The shortest limit that is known, that of Chat Completions. The same ids go to everybody (CASES A13). */
const longestId = 40;

/** Pawl's id of a call as it goes over the wire. One that is too long or oddly spelled is replaced by a hash of it: always the same one. */
export function wireId(id: string): string {
  if (id.length <= longestId && /^[A-Za-z0-9_-]+$/.test(id)) return id;
  return `call_${hash(id)}`;
}

/** The same for servers that want nine letters and digits: a hash in any case, so that no two ids become one. */
export function shortId(id: string): string {
  return BigInt(`0x${hash(id)}`).toString(36).padStart(9, "0").slice(-9);
}

/** 64-bit FNV-1a over UTF-16 units: synchronous, unlike the platform's digests. Nobody attacks it, Pawl makes the ids. */
function hash(text: string): string {
  let value = 0xcbf29ce484222325n;
  for (let i = 0; i < text.length; i++) {
    value = BigInt.asUintN(64, (value ^ BigInt(text.charCodeAt(i))) * 0x100000001b3n);
  }
  return value.toString(16).padStart(16, "0");
}

/** A name that was called, as every vendor takes it. Models make up names that no vendor takes back (CASES A29). */
export function wireName(name: string): string {
  return name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64) || "unnamed";
}
