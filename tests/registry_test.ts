import { deepStrictEqual as equal, throws } from "node:assert/strict";
import * as z from "zod";
import { adapt, Registry } from "../src/registry.ts";
import type { ClientTool, Settings } from "../src/run.ts";
import { agenticFunction, defineTool, type Tool } from "../src/tool.ts";

const named = (name: string) =>
  defineTool({ name, description: `Does ${name}.`, parameters: z.object({}), execute: () => name });
const wait = (tool: ClientTool): Tool => ({ ...tool, execute: () => "client" });
const registry = new Registry([named("a"), named("b"), named("c")]);
const menu = (settings: Settings) => registry.menu(settings, wait).tools.map(({ name }) => name);

Deno.test("A tool that defineTool or agenticFunction made is used as it is", () => {
  const tool = named("a");
  equal(adapt(tool) === tool, true);
  const agentic = agenticFunction({
    name: "f",
    description: "",
    parameters: z.object({}),
    execute: () => "",
  });
  equal(adapt(agentic) === agentic, true);
});

Deno.test("The seed's forms are tools: {spec, execute}, instances and functions that have both", async () => {
  const spec = {
    name: "seed",
    description: "From the seed.",
    parameters: { type: "object", properties: {} },
  };
  class Instance {
    spec = spec;
    answer = "instance";
    execute(args: { x: string }) {
      return this.answer + args.x;
    }
  }
  const callable = Object.assign(() => "called", {
    spec,
    execute: (args: { x: string }) => "callable" + args.x,
  });
  const plain = { spec, execute: (args: { x: string }, context: unknown) => `plain${args.x}${context}` };
  const run = async (entry: unknown) => await adapt(entry).execute({ x: "!" }, "context" as any);
  equal(await run(new Instance()), "instance!");
  equal(await run(callable), "callable!");
  equal(await run(plain), "plain!context");
  const { execute: _, ...rest } = adapt(callable);
  equal(rest, spec);
});

Deno.test("A seed's tool may say no more than its name, and may carry a tool's options", () => {
  const { execute: _, ...tool } = adapt({ spec: { name: "seed" }, execute: () => "", replay: "safe" });
  equal(tool, { name: "seed", description: "", parameters: {}, replay: "safe" });
});

Deno.test("What is no tool is refused with what is missing", () => {
  const refuses = (entry: unknown, message: RegExp) =>
    throws(() => adapt(entry), { name: "InputError", message });
  const bare = { name: "x", description: "", parameters: {} };
  refuses(bare, /^Tool "x" has no executor\. Pass \{spec, execute\} or use defineTool$/);
  refuses({ spec: bare }, /^Tool "x" has no executor\. Pass/);
  refuses({ spec: {}, execute: () => "" }, /^A tool has no name/);
  refuses({ execute: () => "" }, /^A tool has no name: an object with \{execute\}/);
  refuses("x", /^Cannot use "x" as a tool/);
  refuses(function search() {}, /^Cannot use function search as a tool/);
  refuses({ spec: null, execute: () => "" }, /^Cannot use an object with \{spec, execute\} as a tool/);
  refuses(null, /^Cannot use null as a tool/);
  refuses(undefined, /^Cannot use undefined as a tool/);
});

Deno.test("A name that some vendor refuses is refused at registration (C09)", () => {
  for (const name of ["cal.add", "cal/add", "1st tool", "", "n".repeat(65), "ü"]) {
    throws(() => new Registry([named(name)]), /name must be 1 to 64 of A-Z a-z 0-9 _ -/);
  }
  new Registry([named("n".repeat(64)), named("1-A_z")]);
});

Deno.test("Two tools with one name are refused at registration", () => {
  throws(() => new Registry([named("a"), named("a")]), /^InputError: Tool "a" is registered twice$/);
});

Deno.test("A schema that cannot be shown is refused at registration, naming tool and parameter (C01)", () => {
  const bad = defineTool({
    name: "bad",
    description: "",
    parameters: z.object({ n: z.bigint() }),
    execute: () => "",
  });
  throws(() => new Registry([named("a"), bad]), /Tool "bad": parameter n: /);
});

Deno.test("Names of Object.prototype are not tools (A29)", () => {
  for (const name of ["constructor", "toString", "__proto__", ""]) equal(registry.get(name), undefined);
  equal(registry.get("a")?.name, "a");
});

Deno.test("The menu holds all tools, none, or those asked for, in a stable order", () => {
  equal(menu({}), ["a", "b", "c"]);
  equal(menu({ toolset: "none" }), []);
  equal(menu({ tools: [] }), []);
  equal(menu({ tools: ["c", "a", "c"] }), ["c", "a"]);
  equal(menu({ tools: ["a"], toolset: "none" }), ["a"]);
});

Deno.test("Deny subtracts, then allow limits; an empty allow list allows nothing", () => {
  equal(menu({ toolsDeny: ["b", "unknown"] }), ["a", "c"]);
  equal(menu({ toolsAllow: ["b", "c"], toolsDeny: ["b"] }), ["c"]);
  equal(menu({ toolsAllow: [] }), []);
  equal(menu({ toolsAllow: null as any }), ["a", "b", "c"]);
  equal(menu({ tools: ["b", "a"], toolsAllow: ["a"] }), ["a"]);
});

Deno.test("A tool or toolset that is not there is the caller's error and names what there is", () => {
  throws(() => menu({ tools: ["a", "b", "x"] }), {
    name: "InputError",
    code: "bad_input",
    message: 'tools[2]: there is no tool "x"; there are: a, b, c',
  });
  throws(() => menu({ tools: ["toString"] }), /there is no tool "toString"/);
  throws(() => menu({ toolset: "research" }), { code: "bad_input", message: /^toolset: .*"research"/ });
});

Deno.test("A client's tool stands in the menu as the tool that waits for it", () => {
  const client = { name: "ask", description: "Asks.", parameters: { type: "object" } };
  const { tools } = registry.menu({ tools: ["a", client] }, wait);
  equal(tools.map((tool) => tool.name), ["a", "ask"]);
  equal(tools[1]!.execute({}, {} as any), "client");
  equal(menu({ tools: [client], toolsDeny: ["ask"] }), []);
  equal(menu({ tools: [{ ...client, name: "b" }] }), ["b"]);
});

Deno.test("A client's tool with a bad name, a bad schema or another's name is the caller's error", () => {
  const client = { name: "ask", description: "", parameters: {} };
  throws(
    () => menu({ tools: ["a", { ...client, name: "a.b" }] }),
    /^InputError: tools\[1\]: A tool's name must be/,
  );
  throws(
    () => menu({ tools: [{ ...client, parameters: { type: "string" } }] }),
    /^InputError: tools\[0\]: Tool "ask": /,
  );
  throws(
    () => menu({ tools: [client, client] }),
    /^InputError: tools\[1\]: there is another tool "ask" in the list$/,
  );
  throws(() => menu({ tools: ["a", { ...client, name: "a" }] }), /tools\[1\]: there is another tool "a"/);
  throws(() => menu({ tools: [{ ...client, name: "a" }, "a"] }), /tools\[1\]: there is another tool "a"/);
});
