/** The rules of the demonstration: which calls a prompt gives reason for, of the tools that are offered. */
import type { Json, ToolCall } from "../src/message.ts";
import type { ToolSpec } from "../src/model.ts";

export type Call = Omit<ToolCall, "id">;

interface Found {
  at: number;
  call: Call;
}

/** How much of a prompt is read, and how many calls one may give reason for. */
const mostText = 5_000;
const mostCalls = 16;

/** In the order in which they stand in the prompt, none twice. */
export function callsIn(prompt: string, tools: ToolSpec[]): Call[] {
  let text = prompt.slice(0, mostText);
  const found: Found[] = [];
  for (const rule of rules) {
    for (const match of text.matchAll(rule.pattern)) {
      const call = rule.call(match, tools, prompt.slice(match.index + match[0].length));
      if (call && tools.some(({ name }) => name === call.name)) found.push({ at: match.index, call });
      // What one rule has understood is not for the next to read: no arithmetic in a URL or a date.
      text = text.slice(0, match.index) + " ".repeat(match[0].length) +
        text.slice(match.index + match[0].length);
    }
  }
  if (tools.some(({ name }) => name === "calculate")) found.push(...arithmetic(text));
  const calls = found.sort((a, b) => a.at - b.at).map(({ call }) => call);
  const distinct = new Map(calls.map((call) => [JSON.stringify(call), call]));
  return [...distinct.values()].slice(0, mostCalls);
}

/** What a call is about to do, after "I will". */
export function phrase({ name, arguments: args }: Call): string {
  if (name === "calculate") return `calculate ${args.expression}`;
  if (name === "now") return args.time_zone ? `look up the time in ${args.time_zone}` : "look up the time";
  if (name === "fetch_url") return `read ${args.url}`;
  if (name === "wait") return `wait ${args.seconds} seconds`;
  return `call ${name}`;
}

const call = (name: string, args: Call["arguments"]): Call => ({ type: "tool_call", name, arguments: args });

interface Rule {
  pattern: RegExp;
  /** Undefined: understood, and no reason for a call. `rest` is what follows in the prompt. */
  call(match: RegExpExecArray, tools: ToolSpec[], rest: string): Call | undefined;
}

const rules: Rule[] = [
  {
    pattern: /\bhttps?:\/\/[^\s<>"'`)\]]+/gi,
    call: ([url]) => call("fetch_url", { url: url.replace(/[.,;:!?]{1,9}$/, "") }),
  },
  {
    pattern: /\b(?:use|call|run) (?:the )?(?:tool )?[`"']?([A-Za-z0-9_-]{1,64})\b/gi,
    call: (match, tools, rest) => {
      const tool = tools.find(({ name }) => name === match[1] && !phrased.has(name));
      return tool && plausible(tool, rest.split(/\n|, | and | then /, 1)[0]!);
    },
  },
  { pattern: /\b\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?/g, call: () => undefined },
  {
    pattern: /\bwait (?:for )?(\d{1,9}(?:\.\d{1,3})?) ?(s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b/gi,
    call: (match) => {
      const unit = { s: 1, m: 60, h: 3600 }[match[2]![0]!.toLowerCase()] ?? 1;
      return call("wait", { seconds: Number(match[1]) * unit });
    },
  },
  {
    pattern: new RegExp(
      [
        /\b(?:what(?:['’]s| is)?|which|tell me|current|today['’]s|the) (?:the |is the )?(?:current |local )?/,
        /(?:date and time|time and date|time|date|day)\b(?: is it| is)?(?: right now| now| today)?/,
        /(?: in ([a-z_]+(?:[ /](?!and\b|then\b|right\b|now\b|please\b)[a-z_]+){0,2}))?/,
        /(?=\s*(?:$|[^\w\s]|and\b|then\b|right\b|now\b|please\b))/,
      ].map(({ source }) => source).join(""),
      "gi",
    ),
    call: (match) => {
      const zone = match[1] === undefined ? undefined : zoneOf(match[1]);
      return call("now", zone === undefined ? {} : { time_zone: zone });
    },
  },
];

/** Tools that have a rule of their own. */
const phrased = new Set(["calculate", "now", "fetch_url", "wait"]);

/** The IANA name for a zone or a city, as far as one begins the text. Undefined: the place is not known, so the time will be UTC. */
function zoneOf(place: string): string | undefined {
  const spelled = place.trim().replaceAll(" ", "_").toLowerCase();
  if (/^(utc|gmt)(_|$)/.test(spelled)) return "UTC";
  const zones = Intl.supportedValuesOf("timeZone");
  const begins = (name: string) => spelled === name || spelled.startsWith(`${name}_`);
  return zones.find((zone) => begins(zone.toLowerCase())) ??
    zones.find((zone) => begins(zone.slice(zone.lastIndexOf("/") + 1).toLowerCase()));
}

const words: { [word: string]: string } = {
  "plus": "+",
  "minus": "-",
  "times": "*",
  "multiplied by": "*",
  "divided by": "/",
  "to the power of": "^",
  "x": "*",
};

const pattern = new RegExp(
  [
    /(?<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)|pi\b)/,
    /(?<opens>(?:sqrt|abs|round|floor|ceil|min|max|log|ln|exp|sin|cos|tan)?\s?\()/,
    new RegExp(`(?<word>(?:${Object.keys(words).join("|")})\\b)`),
    /(?<closes>\))|(?<comma>,)|(?<sign>[-+*/%^×÷−])/,
  ].map(({ source }) => source).join("|"),
  "iy",
);

interface Token {
  at: number;
  /** With a space before it if there was one. */
  text: string;
  kind: "number" | "opens" | "closes" | "comma" | "sign";
}

/** Expressions in which something is to be done. */
function arithmetic(text: string): Found[] {
  const found: Found[] = [];
  // "1,000" is one number; but in "max(1,200)" there are two.
  text = text.replace(/(?<![\d,.(])\d{1,3}(?:,\d{3})+(?!\d)/g, (n) => n.replaceAll(",", "").padEnd(n.length));
  let run: Token[] = [], depth = 0;
  const finish = () => {
    const tokens = trimmed(run);
    const first = tokens[0];
    const numbers = tokens.filter(({ kind }) => kind === "number").length;
    const works = tokens.slice(1).some(({ kind }) => kind === "sign") && numbers > 1;
    if (first && (works || (numbers > 0 && tokens.some(({ text }) => /[a-z]\s?\($/i.test(text))))) {
      const expression = tokens.map(({ text }) => text).join("").trim();
      found.push({ at: first.at, call: call("calculate", { expression }) });
    }
    run = [], depth = 0;
  };
  for (let at = 0; at < text.length;) {
    if (/[^\S\n]/.test(text[at]!)) {
      at++;
      continue;
    }
    const next = tokenAt(text, at, run.length === 0);
    if (next === undefined) {
      finish();
      at++;
      continue;
    }
    const { token, end } = next;
    at = end;
    const afterOperand = run.at(-1)?.kind === "number" || run.at(-1)?.kind === "closes";
    const ends = depth === 0 &&
      (token.kind === "closes" || token.kind === "comma" ||
        (afterOperand && (token.kind === "number" || token.kind === "opens")));
    if (ends) finish();
    if (ends && (token.kind === "closes" || token.kind === "comma")) continue;
    depth += token.kind === "opens" ? 1 : token.kind === "closes" ? -1 : 0;
    run.push(token);
  }
  finish();
  return found;
}

function tokenAt(text: string, at: number, first: boolean): { token: Token; end: number } | undefined {
  // Neither "4" in "gpt-4" nor "x" in "index" stands for itself.
  const before = text[at - 1] ?? "";
  const inWord = first
    ? /[\w.]-?$/.test(text.slice(Math.max(0, at - 2), at))
    : /\w/.test(before) && /[a-z]/i.test(text[at]!);
  pattern.lastIndex = at;
  const match = inWord ? null : pattern.exec(text);
  if (!match) return undefined;
  const { word, ...groups } = match.groups!;
  const shown = word === undefined ? match[0] : words[word.toLowerCase()]!;
  const kind = (Object.keys(groups).find((name) => groups[name] !== undefined) ?? "sign") as Token["kind"];
  return { token: { at, text: (/\s/.test(before) ? " " : "") + shown, kind }, end: pattern.lastIndex };
}

/** Without what belongs to the sentence around it: open ends, and the dash of a list. */
function trimmed(tokens: Token[]): Token[] {
  const run = [...tokens];
  const count = (kind: Token["kind"]) => run.filter((token) => token.kind === kind).length;
  while (run.length > 0 && run.at(-1)!.kind !== "number" && run.at(-1)!.kind !== "closes") run.pop();
  while (run[0]?.kind === "sign" && (!/[-−]/.test(run[0].text) || run[1]?.text.startsWith(" "))) run.shift();
  while (run[0]?.text.trim() === "(" && count("opens") > count("closes")) run.shift();
  return run;
}

/** A call with arguments that suit the tool's schema, made from the prompt where that is possible. */
export function plausible(tool: ToolSpec, prompt: string): Call {
  const args = example(tool.parameters, tool.parameters, prompt, 0);
  return call(tool.name, args as Call["arguments"]);
}

type Schema = { [key: string]: any };

function example(schema: Schema, root: Schema, prompt: string, depth: number): Json {
  if (depth > 8 || typeof schema !== "object") return null;
  const inner = (part: Schema) => example(part, root, prompt, depth + 1);
  const given = [schema.const, schema.default, schema.enum?.[0], schema.examples?.[0]];
  const value = given.find((value) => value !== undefined);
  if (value !== undefined) return value;
  if (typeof schema.$ref === "string") return inner(referred(schema.$ref, root));
  const branch = schema.anyOf?.[0] ?? schema.oneOf?.[0];
  if (branch !== undefined && schema.properties === undefined) return inner(branch);
  switch ([schema.type].flat()[0]) {
    case "string":
      return text(schema, prompt);
    case "integer":
    case "number": {
      const number = Number(prompt.match(/-?\d{1,12}(?:\.\d{1,6})?/)?.[0] ?? schema.minimum ?? 1);
      const bounded = Math.max(schema.minimum ?? -Infinity, Math.min(schema.maximum ?? Infinity, number));
      return schema.type === "integer" ? Math.trunc(bounded) : bounded;
    }
    case "boolean":
      return true;
    case "array":
      return Array.from({ length: Math.min(schema.minItems ?? 0, 8) }, () => inner(schema.items ?? {}));
    case "object":
      return Object.fromEntries(
        (schema.required ?? []).map((
          key: string,
        ) => [key, inner({ ...hints.get(key), ...schema.properties?.[key] })]),
      );
    default:
      return null;
  }
}

/** What a parameter of this name is likely to want. */
const hints = new Map<string, Schema>([["url", { format: "uri" }], ["expression", { examples: ["1 + 1"] }]]);

function text({ format, minLength = 0, maxLength = 1000 }: Schema, prompt: string): string {
  if (format === "date-time") return "2026-01-01T00:00:00Z";
  if (format === "date") return "2026-01-01";
  if (format === "uri") return prompt.match(/https?:\/\/[^\s<>"']+/)?.[0] ?? "https://example.com/";
  if (format === "email") return "someone@example.com";
  const words = prompt.replace(/^["'`\s]{0,9}(?:tool )?(?:(?:on|for|with|about|in|to) |: )?/i, "").replace(
    /[\s.?!]{1,9}$/,
    "",
  ) || "example";
  return Array.from(words).slice(0, maxLength).join("").padEnd(minLength, ".");
}

function referred(ref: string, root: Schema): Schema {
  return ref.split("/").slice(1).reduce((part: any, key) => part?.[key], root) ?? {};
}
