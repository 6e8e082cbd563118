/** What the compiler knows of tools, functions and choices, and which wrong uses it refuses. Nothing here runs. */
import assert from "node:assert/strict";
import * as z from "zod";
import { agenticFunction, defineChoice, defineTool, type Hooks, type Pawl, ToolOutput } from "../src/mod.ts";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;

/** Compiles only if `value` is a B and nothing else. */
const is = <B>() => <A>(_value: A, _same: Same<A, B>) => {};

const named = { name: "x", description: "" };
const parameters = z.object({
  city: z.string(),
  days: z.int().default(3),
  unit: z.enum(["C", "F"]).optional(),
  when: z.string().transform((text) => new Date(text)),
  also: z.array(z.object({ lat: z.number(), long: z.number() })),
});
interface Filled {
  city: string;
  days: number;
  unit?: "C" | "F" | undefined;
  when: Date;
  also: { lat: number; long: number }[];
}

export function aToolReceivesWhatItsSchemaPutsOut() {
  defineTool({
    ...named,
    parameters,
    wait: (args, now) => {
      is<number>()(now, true);
      return { for: "time", until: args.when.getTime() };
    },
    approval: ({ days }) => days > 7 && `${days.toFixed()} days`,
    timeoutMs: { from: ({ days }) => days * 1000, defaultMs: 1000, maxMs: 60_000 },
    key: ({ city, days }) => `${city.toUpperCase()} ${days.toFixed()}`,
    reconcile: (key, args) => {
      is<string>()(key, true);
      is<Date>()(args.when, true);
      return { is: "unknown" };
    },
    execute: (args, context) => {
      const filled: Filled = args;
      is<number>()(args.days, true);
      is<"C" | "F" | undefined>()(args.unit, true);
      is<{ lat: number; long: number }[]>()(args.also, true);
      is<AbortSignal>()(context.signal, true);
      is<string>()(context.idempotencyKey, true);
      is<typeof fetch>()(context.fetch, true);
      return new ToolOutput(filled.city, true);
    },
  });
  // A schema that is written by hand says nothing to the compiler.
  defineTool({
    ...named,
    parameters: { type: "object", properties: { n: { type: "number" } } },
    execute: (args) => is<any>()(args.n, true),
  });
}

export function aFunctionsLoopsAnswerWhatWasAskedFor() {
  agenticFunction({
    ...named,
    parameters,
    execute: async ({ days }, { exec, step }) => {
      is<number>()(days, true);
      is<string>()(await exec("Go", { tools: ["weather"], key: "a" }), true);
      is<"yes" | "no">()(await exec("Go", { choices: ["yes", "no"] }), true);
      is<{ n: number }>()(await exec("Go", { responseFormat: z.object({ n: z.number() }) }), true);
      is<{ id: number }>()(await step("save", () => ({ id: 1 })), true);
      is<boolean>()(await step("ask", () => Promise.resolve(true)), true);
    },
  });
}

export async function choicesAnswerWhatTheyStandFor(pawl: Pawl) {
  const refund = defineChoice({
    parameters: z.object({ cents: z.int() }),
    run: ({ cents }) => cents / 100,
  });
  const chosen = await pawl.exec("Go", {
    choices: { one: 1, reply: z.object({ text: z.string() }), refund, call: () => Promise.resolve(true) },
  });
  is<1 | number | boolean | { name: "reply"; args: { text: string } }>()(chosen, true);
  is<string>()(await pawl.exec("Go", { maxIterations: 3, thread: "t" }), true);
}

export async function wrongUses(pawl: Pawl) {
  // @ts-expect-error: a tool needs a name
  defineTool({ description: "", parameters, execute: () => 1 });
  // @ts-expect-error: it needs a description
  defineTool({ name: "x", parameters, execute: () => 1 });
  // @ts-expect-error: it needs parameters
  defineTool({ ...named, execute: () => 1 });
  // @ts-expect-error: it needs a body
  defineTool({ ...named, parameters });
  // @ts-expect-error: its body receives what the schema puts out, and nothing else
  defineTool({ ...named, parameters, execute: ({ town }) => town });
  // @ts-expect-error: its body receives what is put out, not what is sent: a date here
  defineTool({ ...named, parameters, execute: ({ when }) => when.toUpperCase() });
  // @ts-expect-error: a body that wants other arguments does not suit the schema
  defineTool({ ...named, parameters, execute: (args: { city: number }) => args.city });
  // @ts-expect-error: what is optional may be missing
  defineTool({ ...named, parameters, execute: ({ unit }) => unit.length });
  // @ts-expect-error: replay is "safe" or "never"
  defineTool({ ...named, parameters, replay: "maybe", execute: () => 1 });
  // @ts-expect-error: a wait is for one of three
  defineTool({ ...named, parameters, wait: () => ({ for: "luck" }), execute: () => 1 });
  // @ts-expect-error: a key is text
  defineTool({ ...named, parameters, key: ({ days }) => days, execute: () => 1 });
  // @ts-expect-error: an approval is asked for with a reason, or not
  defineTool({ ...named, parameters, approval: ({ days }) => days, execute: () => 1 });
  // @ts-expect-error: a time that is asked for has bounds
  defineTool({ ...named, parameters, timeoutMs: { from: ({ days }) => days }, execute: () => 1 });
  // @ts-expect-error: what became of a call is one of three
  defineTool({ ...named, parameters, reconcile: () => "done", execute: () => 1 });
  // @ts-expect-error: a plain tool has no exec
  defineTool({ ...named, parameters, execute: (_args, { exec }) => exec("x") });
  // @ts-expect-error: nor a step
  defineTool({ ...named, parameters, execute: (_args, { step }) => step("x", () => 1) });
  // @ts-expect-error: who asks the model for a time says what may be had
  defineTool({ ...named, parameters, timeoutMs: { from: () => 1 }, execute: () => 1 });
  defineTool({
    ...named,
    parameters: z.object({ seconds: z.number() }),
    // @ts-expect-error: a time is asked for by the tool's own arguments
    timeoutMs: { from: ({ minutes }) => minutes, defaultMs: 1, maxMs: 2 },
    execute: () => 1,
  });
  // @ts-expect-error: a cache is on, off, or for so long
  defineTool({ ...named, parameters, cache: "yes", execute: () => 1 });
  // @ts-expect-error: a length is a number
  defineTool({ ...named, parameters, maxResultLength: "10", execute: () => 1 });
  // @ts-expect-error: a hook blocks, or gives other arguments
  const hooks: Hooks = { beforeToolCall: () => ({ deny: "no" }) };
  // @ts-expect-error: an output says no more than that
  void [hooks, new ToolOutput("done", { stop: true })];
  // @ts-expect-error: a body that is replayed is replayed, always
  agenticFunction({ ...named, parameters, replay: "never", execute: () => 1 });
  // @ts-expect-error: a nested loop has no thread of its own
  agenticFunction({ ...named, parameters, execute: (_args, { exec }) => exec("x", { thread: "t" }) });
  // @ts-expect-error: nor may it bring tools along
  agenticFunction({ ...named, parameters, execute: (_args, { exec }) => exec("x", { tools: [named] }) });
  // @ts-expect-error: a choice's function receives what its schema puts out
  defineChoice({ parameters: z.object({ n: z.number() }), run: ({ n }) => n.length });
  // @ts-expect-error: what is chosen is one of the names
  const yes: "yes" = await pawl.exec("Go", { choices: ["yes", "no"] });
  // @ts-expect-error: toolChoice is a word or names a function
  await pawl.exec("Go", { toolChoice: "sometimes" });
  // @ts-expect-error: a call is answered or decided on
  await pawl.resolve("run", "call", { reason: "none" });
  // @ts-expect-error: there is no such option
  await pawl.exec("Go", { maxIteration: 3 });
  return yes;
}

Deno.test("execute receives what zod infers; wrong uses fail deno check", async () => {
  const file = new URL(import.meta.url).pathname;
  const { code, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["check", file],
    env: { NO_COLOR: "1" },
  }).output();
  assert.equal(code, 0, new TextDecoder().decode(stderr));
});
