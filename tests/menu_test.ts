/** The layers between a deployment's tools and a run's menu: what each takes away, and that it is named. */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { Registry, type RegistryOptions } from "../src/registry.ts";
import type { ClientTool, Settings } from "../src/run.ts";
import { agenticFunction, defineTool, type ExecOptions, type Tool } from "../src/tool.ts";
import { harness } from "./support/harness.ts";
import { calls } from "./support/scripted_model.ts";

const tool = (name: string, more: Partial<Tool> = {}): Tool => ({
  ...defineTool({ name, description: "", parameters: z.object({}), execute: () => name }),
  ...more,
});
const wait = (tool: ClientTool): Tool => ({ ...tool, execute: () => "client" });

/** The names in a menu, and what was removed as "name: layer". */
function menuIn(tools: Tool[], options?: RegistryOptions) {
  const registry = new Registry(tools, options);
  return (settings: Settings = {}) => {
    const { tools, removed } = registry.menu(settings, wait);
    return [tools.map(({ name }) => name), removed.map(({ name, layer }) => `${name}: ${layer}`)];
  };
}

const thrower = () => {
  throw new Error("no");
};

Deno.test("every layer takes its tools away, and the first that does is named", () => {
  const menu = menuIn([
    tool("a"),
    tool("unregistered", { availableIf: () => false, expose: false }),
    tool("hidden", { expose: false, unsafeIn: ["slack"] }),
    tool("other"),
    tool("unsafe", { unsafeIn: ["slack"], requiresEnv: ["KEY"] }),
    tool("unset", { requiresEnv: ["KEY"] }),
    tool("denied"),
    tool("extra"),
  ], {
    toolsets: { most: { tools: ["a", "unregistered", "hidden", "unsafe", "unset", "denied", "extra"] } },
  });
  const policy = {
    toolset: "most",
    toolsSource: "slack",
    toolsDeny: ["denied", "unset"],
    toolsAllow: ["a", "denied"],
  };
  assert.deepEqual(menu(policy), [["a"], [
    "unregistered: registration",
    "hidden: exposure",
    "other: preset",
    "unsafe: source",
    "unset: availability",
    "denied: deny",
    "extra: allow",
  ]]);
});

Deno.test("a condition that throws, or answers anything but true, takes the tool away", () => {
  const odd = [
    thrower,
    () => "yes",
    () => Promise.resolve(true),
    () => undefined,
  ] as unknown as (() => boolean)[];
  for (const condition of odd) {
    const menu = menuIn([tool("a", { availableIf: condition }), tool("b", { check: condition }), tool("c")]);
    assert.deepEqual(menu(), [["c"], ["a: registration", "b: availability"]]);
  }
});

Deno.test("conditions see the deployment's settings, and keep their `this`", () => {
  class Metered {
    name = "metered";
    description = "";
    parameters = {};
    key = "KEY";
    check(env: { [name: string]: string | undefined }) {
      return env[this.key] === "1";
    }
    execute() {}
  }
  const tools = [new Metered() as unknown as Tool, tool("b", { availableIf: ({ KEY }) => KEY === "1" })];
  assert.deepEqual(menuIn(tools, { env: { KEY: "1" } })(), [["metered", "b"], []]);
  assert.deepEqual(menuIn(tools)(), [[], ["b: registration", "metered: availability"]]);
});

Deno.test("a setting counts if it is there and not empty; what every object has is no setting", () => {
  const menu = menuIn([
    tool("a", { requiresEnv: ["KEY", "EMPTY", "NONE"] }),
    tool("b", { requiresEnv: ["constructor"] }),
    tool("c", { requiresEnv: ["KEY"] }),
  ], { env: { KEY: "k", EMPTY: "" } });
  assert.deepEqual(menu(), [["c"], ["a: availability", "b: availability"]]);
  const { removed } = new Registry([tool("a", { requiresEnv: ["KEY", "X"] })], { env: { KEY: "secret" } })
    .menu({}, wait);
  assert.deepEqual(removed, [{ name: "a", layer: "availability", reason: "not set: X" }]);
});

Deno.test("of two tools with one name the condition decides; then none is missing", () => {
  const either = (condition: boolean) =>
    menuIn([
      tool("search", { availableIf: () => condition }),
      tool("search", { availableIf: () => !condition }),
    ])();
  assert.deepEqual([either(true), either(false)], [[["search"], []], [["search"], []]]);
});

Deno.test("tools that are named skip exposure and preset, and no other layer", () => {
  const menu = menuIn([
    tool("hidden", { expose: false }),
    tool("unsafe", { unsafeIn: ["cron"] }),
    tool("unset", { requiresEnv: ["KEY"] }),
    tool("a"),
    tool("b"),
  ]);
  const tools = ["b", "hidden", "unsafe", "unset", "a"];
  assert.deepEqual(menu({ tools, toolset: "none", toolsSource: "cron", toolsDeny: ["a"] }), [
    ["b", "hidden"],
    ["unsafe: source", "unset: availability", "a: deny"],
  ]);
  assert.deepEqual(menu({ tools: ["unsafe"], toolsSource: "chat" }), [["unsafe"], []]);
  assert.deepEqual(
    menu({ tools: [], toolsSource: "cron" }),
    [[], []],
    "what was not asked for is not missing",
  );
});

Deno.test("toolsets include others, also in circles; their tools stand in the order of registration", () => {
  const menu = menuIn(["a", "b", "c", "d"].map((name) => tool(name)), {
    toolsets: {
      one: { tools: ["c"], includes: ["two"] },
      two: { tools: ["a", "c"], includes: ["three", "two"] },
      three: { includes: ["one", "none"] },
      all: { includes: ["full"] },
    },
  });
  for (const toolset of ["one", "two", "three"]) assert.deepEqual(menu({ toolset })[0], ["a", "c"]);
  assert.deepEqual(menu({ toolset: "all" }), menu());
  assert.deepEqual(menu({ toolset: "full" }), menu());
  assert.deepEqual(menu({ toolset: "none" })[0], []);
});

Deno.test("a toolset that names what is not there is refused when it is made, by name", () => {
  const made = (toolsets: RegistryOptions["toolsets"]) => () =>
    new Registry([tool("a"), tool("off", { availableIf: () => false })], { toolsets });
  assert.throws(made({ x: { tools: ["b"] } }), /^InputError: Toolset "x": there is no tool "b"$/);
  assert.throws(made({ x: { tools: ["toString"] } }), /there is no tool "toString"/);
  assert.throws(made({ x: { includes: ["y"] } }), /Toolset "x": there is no toolset "y" to include/);
  assert.throws(made({ none: { tools: ["a"] } }), /Toolset "none": it is built in/);
  made({ x: { tools: ["a", "off"] } })();
});

Deno.test("a toolset that is not there is the caller's error, whatever else is asked for", () => {
  const menu = menuIn([tool("a")], { toolsets: { some: { tools: ["a"] } } });
  for (const toolset of ["research", "constructor", "__proto__", ""]) {
    assert.throws(() => menu({ toolset }), {
      name: "InputError",
      code: "bad_input",
      message: `toolset: there is no toolset ${JSON.stringify(toolset)}; there are: full, none, some`,
    });
  }
  assert.throws(() => menu({ toolset: "research", tools: ["a"] }), /^InputError: toolset: /);
});

Deno.test("a toolset may name what only a source has; the source is asked where it may have something", () => {
  const source = { name: "docs", covers: (name: string) => name.startsWith("docs_"), open: thrower };
  const toolsets = { docs: { tools: ["docs_find", "a"] }, plain: { tools: ["a"] } };
  const registry = new Registry([tool("a"), source], { toolsets });
  const asked = (settings: Settings) => registry.sources(settings).length === 1;
  const all: Settings[] = [{}, { toolset: "full" }, { toolset: "docs" }, { tools: ["docs_x"] }];
  assert.deepEqual(all.map(asked), [true, true, true, true]);
  const none: Settings[] = [{ toolset: "plain" }, { toolset: "none" }, { tools: ["a"] }, {
    toolsAllow: ["a"],
  }];
  assert.deepEqual(none.map(asked), [false, false, false, false]);
  const offered = [tool("docs_find"), tool("docs_more", { defer: true })];
  const menu = registry.menu({ toolset: "docs" }, wait, offered);
  assert.deepEqual(menu.tools.map(({ name }) => name), ["a", "docs_find"]);
  assert.deepEqual(menu.removed, [{ name: "docs_more", layer: "preset" }]);
});

Deno.test("a tool may not take the name of the built-in one", () => {
  assert.throws(() => new Registry([tool("tool_search")]), /"tool_search" is the built-in tool's/);
  const menu = menuIn([tool("a")]);
  const client = { name: "tool_search", description: "", parameters: {} };
  assert.throws(() => menu({ tools: [client] }), /^InputError: tools\[0\]: The name "tool_search"/);
});

/** What a model is offered in the nested loop that `options` open, in a run with `settings`; or what became of the call. */
async function nested(
  options: ExecOptions,
  settings: Settings = {},
  tools: Tool[] = ["a", "b", "c"].map((name) => tool(name)),
): Promise<string> {
  const agent = agenticFunction({
    name: "agent",
    description: "",
    parameters: z.object({}),
    execute: (_args, { exec }) => exec("inside", options),
  });
  const h = harness((request: ModelRequest) => {
    const last = request.messages.at(-1)!;
    if (last.role === "tool") return textOf(last.content);
    return last.content === "inside"
      ? `offered: ${request.tools.map(({ name }) => name).join(" ")}`
      : calls(["agent"]);
  }, { tools: [...tools, agent], toolsets: { some: { tools: ["b", "agent"] } } });
  const { run } = await h.start("Go", settings);
  return (await h.ended(run)).text!;
}

Deno.test("a nested loop inherits the outer menu; its own policy only narrows it", async () => {
  const all = "offered: a b c agent";
  assert.equal(await nested({}), all);
  assert.equal(await nested({ toolset: "full" }), all);
  assert.equal(await nested({ tools: ["c", "a"] }), "offered: a c");
  assert.equal(await nested({ tools: ["c", "a"] }, { toolsDeny: ["a"] }), "offered: c");
  assert.equal(await nested({ toolset: "some" }), "offered: b agent");
  assert.equal(await nested({ toolset: "some", toolsDeny: ["b"] }), "offered: agent");
  assert.equal(await nested({ toolsAllow: ["a", "b"] }, { toolsAllow: ["agent", "b"] }), "offered: b");
  assert.equal(await nested({ toolset: "full" }, { toolset: "some" }), "offered: b agent");
});

Deno.test('tools: [] and toolset: "none" opt out, also in a nested loop', async () => {
  assert.equal(await nested({ tools: [] }), "offered: ");
  assert.equal(await nested({ toolset: "none" }), "offered: ");
});

Deno.test("a nested loop's source takes away what is unsafe there, and it keeps what the run named", async () => {
  const tools = [tool("b"), tool("hidden", { expose: false }), tool("unsafe", { unsafeIn: ["cron"] })];
  assert.equal(
    await nested({ toolsSource: "cron" }, { tools: ["agent", "hidden", "unsafe"] }, tools),
    "offered: agent hidden",
  );
  assert.equal(await nested({ tools: ["hidden"] }, {}, tools), "offered: ", "it can't widen");
});

Deno.test("what a nested loop names and nobody knows is an error of the function, which says so", async () => {
  assert.match(await nested({ tools: ["a", "toString"] }), /^tools\[1\]: there is no tool "toString"/);
  assert.match(await nested({ toolset: "research" }), /^toolset: there is no toolset "research"/);
  const toolChoice = { type: "function", name: "nope" } as const;
  assert.match(await nested({ toolChoice }), /^toolChoice: there is no tool "nope"/);
});

Deno.test("a run says which of its tools are missing, and why", async () => {
  const h = harness(["ok", "ok"], {
    tools: [tool("a"), tool("b", { check: thrower }), tool("c", { expose: false })],
  });
  const { run } = await h.start("Go", { toolsDeny: ["a"] });
  assert.deepEqual((await h.ended(run)).toolsRemoved, [
    { name: "a", layer: "deny" },
    { name: "b", layer: "availability", reason: "its check does not hold" },
    { name: "c", layer: "exposure" },
  ]);
  const plain = await h.start("Go", { tools: ["a"] });
  assert.equal("toolsRemoved" in await h.ended(plain.run), false);
  await assert.rejects(h.start("Go", { toolset: "x" }), { code: "bad_input", message: /^toolset: / });
});
