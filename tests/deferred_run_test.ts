/** Deferred tools in a run: what its requests show, and what may be called. */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import { ModelError } from "../src/model.ts";
import { Warm } from "../src/slice.ts";
import { agenticFunction, defineTool } from "../src/tool.ts";
import { type Harness, harness, type HarnessOptions } from "./support/harness.ts";
import { calls, type Said } from "./support/scripted_model.ts";

const tool = (name: string, defer = true) =>
  defineTool({
    name,
    description: `About ${name}.`,
    parameters: z.object({ n: z.number() }),
    defer,
    execute: ({ n }) => `${name} ${n}`,
  });
const tools = [tool("mail"), tool("look", false), tool("post"), tool("fax")];
const find = (...names: string[]) => calls(["tool_search", { query: `select:${names.join()}` }]);

/** A run that turns out as the script says; each of its slices knows only what the store says. */
function scene(script: Said[] | ((...a: any[]) => Said), more: HarnessOptions = {}) {
  return harness(script, { tools, budget: { turns: 1 }, warm: new Warm(0), ...more });
}

/** The tools of each request, with a check that no request takes back what the one before it showed. */
function shown({ model }: Harness): string[] {
  const requests = model.requests.map((request) => request.tools.map((tool) => tool.name).join(" "));
  requests.forEach((names, i) => assert.ok(names.startsWith(requests[i - 1] ?? ""), `request ${i + 1}`));
  return requests;
}

const results = async (h: Harness, run: string) =>
  (await h.messages(run)).flatMap((m) => m.role === "tool" ? [textOf(m.content)] : []);

Deno.test("what was found is in the next request, in each slice from then on, in the order it was found", async () => {
  const h = scene([
    find("post"),
    calls(["look", { n: 1 }]),
    calls(["tool_search", { query: "post mail" }], ["tool_search", { query: "+fax" }]),
    calls(["post", { n: 2 }], ["fax", { n: 3 }]),
    "done",
  ]);
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "done");
  assert.deepEqual(shown(h), [
    "look tool_search",
    "look tool_search post",
    "look tool_search post",
    "look tool_search post mail fax",
    "look tool_search post mail fax",
  ]);
  const [first, , second, third, ...ran] = await results(h, run);
  assert.match(first!, /"name":"post","description":"About post\."/);
  assert.match(second!, /"name":"mail"[^]*Already loaded, call directly: post/);
  assert.match(third!, /"name":"fax"/);
  assert.deepEqual(ran, ["post 2", "fax 3"]);
});

Deno.test("a call to a deferred tool that the model did not look for runs, and loads it", async () => {
  const h = scene([calls(["post", { n: 1 }]), "done"]);
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.deepEqual(await results(h, run), ["post 1"]);
  assert.deepEqual(shown(h), ["look tool_search", "look tool_search post"]);
});

Deno.test("a call to it that is wrong loads it: the next request shows how it is right", async () => {
  const h = scene([calls(["post", { m: 1 }]), "done"]);
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.match((await results(h, run))[0]!, /Invalid arguments for tool "post"/);
  assert.deepEqual(shown(h), ["look tool_search", "look tool_search post"]);
});

Deno.test("a call that was not run loads nothing", async () => {
  const h = scene([calls(["look", { n: 1 }], ["fax", { n: 2 }]), "done"]);
  const { run } = await h.start("Go", { parallelToolCalls: false });
  await h.ended(run);
  assert.match((await results(h, run))[1]!, /^Not run/);
  assert.deepEqual(shown(h), ["look tool_search", "look tool_search"]);
});

Deno.test("a forced tool is loaded, and stays when the choice is released", async () => {
  const h = scene([calls(["post", { n: 1 }]), "done"]);
  const { run } = await h.start("Go", { toolChoice: { type: "function", name: "post" } });
  await h.ended(run);
  assert.deepEqual(shown(h), ["look post tool_search", "look post tool_search"]);
  assert.deepEqual(h.model.requests.map(({ toolChoice }) => toolChoice), [
    { type: "function", name: "post" },
    "auto",
  ]);
});

Deno.test("the search itself may be forced; and where all tools are deferred it is what can be required", async () => {
  for (const toolChoice of [{ type: "function", name: "tool_search" }, "required"] as const) {
    const h = scene([find("post"), "done"], { tools: [tool("post")] });
    await h.ended((await h.start("Go", { toolChoice })).run);
    assert.deepEqual(shown(h), ["tool_search", "tool_search post"]);
  }
});

Deno.test("tools that a run names are not kept from it", async () => {
  const h = scene(["done"]);
  await h.ended((await h.start("Go", { tools: ["post", "look"] })).run);
  assert.deepEqual(shown(h), ["post look"]);
});

Deno.test("where nothing is deferred, or the search is denied, there is none and all tools are shown", async () => {
  const h = scene(["done", "done"]);
  await h.ended((await h.start("Go", { toolsAllow: ["look"] })).run);
  await h.ended((await h.start("Go", { toolsDeny: ["tool_search", "fax"] })).run);
  assert.deepEqual(h.model.requests.map((request) => request.tools.map(({ name }) => name)), [
    ["look"],
    ["mail", "look", "post"],
  ]);
});

Deno.test("the search finds only what the run may use", async () => {
  const h = scene([find("post", "fax"), calls(["fax", { n: 1 }]), "done"]);
  const { run } = await h.start("Go", { toolsDeny: ["fax"] });
  await h.ended(run);
  assert.doesNotMatch(h.model.requests[0]!.tools[1]!.description, /fax/);
  const [found, called] = await results(h, run);
  assert.match(found!, /There is no tool "fax"/);
  assert.match(called!, /There is no tool "fax"/);
  assert.deepEqual(shown(h).at(-1), "look tool_search post");
});

Deno.test("the thread's next run still has what the transcript shows as found, if it may use it", async () => {
  const h = scene([find("post", "mail"), "one", "two", "three"]);
  await h.ended((await h.start("Go", {}, { thread: "t" })).run);
  await h.ended((await h.start("On", {}, { thread: "t" })).run);
  await h.ended((await h.start("On", { toolsDeny: ["mail"] }, { thread: "t" })).run);
  assert.deepEqual(h.model.requests.slice(2).map((request) => request.tools.map(({ name }) => name)), [
    ["look", "tool_search", "mail", "post"],
    ["look", "tool_search", "post"],
  ]);
});

Deno.test("a model call that is tried again asks for the same", async () => {
  const h = scene([find("post"), new ModelError("overloaded", "Later"), "done"]);
  const { run } = await h.start("Go");
  await h.ended(run);
  assert.deepEqual(shown(h), ["look tool_search", "look tool_search post", "look tool_search post"]);
});

Deno.test("a nested loop finds for itself; names and forced choices are loaded there too", async () => {
  const seen: Record<string, string[]> = {};
  const agent = agenticFunction({
    name: "agent",
    description: "",
    parameters: z.object({}),
    async execute(_args, { exec }) {
      await exec("plain", { toolsDeny: ["agent"] });
      await exec("named", { tools: ["fax", "look"] });
      await exec("forced", { toolsAllow: ["fax", "mail"], toolChoice: { type: "function", name: "fax" } });
      await exec("denied", { toolsAllow: ["fax"], toolsDeny: ["tool_search"] });
      return "ok";
    },
  });
  const h = scene((request) => {
    const first = request.messages.at(0)!, last = request.messages.at(-1)!;
    const prompt = textOf(first.content);
    (seen[prompt] ??= []).push(request.tools.map(({ name }: { name: string }) => name).join(" "));
    if (prompt === "plain" && last.role === "user") return find("post");
    if (prompt === "forced" && last.role === "user") return calls(["fax", { n: 1 }]);
    if (prompt !== "Go") return "nested";
    const turn = request.messages.length;
    return turn === 1 ? find("mail") : turn === 3 ? calls(["agent"]) : "done";
  }, { tools: [...tools, agent] });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "done");
  assert.deepEqual(seen, {
    Go: ["look agent tool_search", "look agent tool_search mail", "look agent tool_search mail"],
    plain: ["look tool_search", "look tool_search post"],
    named: ["look fax"],
    forced: ["fax tool_search", "fax tool_search"],
    denied: ["fax"],
  });
});
