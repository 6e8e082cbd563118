/** What the service says of tools: the menu, what is missing from it, and names that are not there. */
import assert from "node:assert/strict";
import * as z from "zod";
import { createPawl, defineTool, type Tool } from "../src/mod.ts";
import { scriptedModel } from "./support/scripted_model.ts";

const tool = (name: string, more: Partial<Tool> = {}): Tool => ({
  ...defineTool({ name, description: "", parameters: z.object({}), execute: () => name }),
  ...more,
});

async function withService(
  body: (call: (method: string, path: string, body?: object) => Promise<[number, any]>) => Promise<void>,
) {
  const pawl = createPawl({
    models: scriptedModel(["one", "two", "three"]),
    env: { KEY: "" },
    tools: [
      tool("look"),
      tool("pay", { unsafeIn: ["slack"] }),
      tool("mail", { requiresEnv: ["KEY"] }),
      tool("fax", { defer: true }),
      tool("inner", { expose: false }),
      tool("beta", { availableIf: () => false }),
    ],
    toolsets: { desk: { tools: ["pay", "mail"], includes: ["all"] }, all: { tools: ["look"] } },
  });
  await body(async (method, path, body) => {
    const request = new Request(`http://127.0.0.1${path}`, {
      method,
      ...(body && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
    const answer = await pawl.fetch(request, { remoteAddress: "127.0.0.1" });
    return [answer.status, await answer.json()];
  });
  await pawl.close();
}

const names = (of: { name: string }[]) => of.map(({ name }) => name);
const layers = (removed: { name: string; layer: string }[]) =>
  Object.fromEntries(removed.map(({ name, layer }) => [name, layer]));

Deno.test("GET /tools is the menu of a run, and names the layer of every tool that is missing", async () => {
  await withService(async (call) => {
    const [status, all] = await call("GET", "/tools");
    assert.equal(status, 200);
    assert.deepEqual(names(all.tools), ["look", "pay", "fax", "tool_search"]);
    assert.deepEqual(names(all.tools.filter((tool: { deferred?: boolean }) => tool.deferred)), ["fax"]);
    assert.deepEqual(all.removed, [
      { name: "beta", layer: "registration" },
      { name: "mail", layer: "availability", reason: "not set: KEY" },
      { name: "inner", layer: "exposure" },
    ]);

    const [, desk] = await call("GET", "/tools?toolset=desk&source=slack");
    assert.deepEqual(names(desk.tools), ["look"]);
    assert.deepEqual(layers(desk.removed), {
      beta: "registration",
      inner: "exposure",
      fax: "preset",
      pay: "source",
      mail: "availability",
    });
    const [, none] = await call("GET", "/tools?toolset=none");
    assert.deepEqual(none.tools, []);
    assert.equal(none.removed.length, 6);
  });
});

Deno.test("tools_removed of a run says the same of its own settings, while it works and when it is over", async () => {
  await withService(async (call) => {
    const [, { id }] = await call("POST", "/runs", {
      content: "Go",
      tools: ["inner", "pay", "look"],
      tools_source: "slack",
      tools_allow: ["inner", "pay"],
    });
    const expected = { pay: "source", look: "allow" };
    assert.deepEqual(layers((await call("GET", `/runs/${id}`))[1].tools_removed), expected);
    const [, over] = await call("GET", `/runs/${id}?wait=10`);
    assert.equal(over.text, "one");
    assert.deepEqual(layers(over.tools_removed), expected);
    const [, list] = await call("GET", "/runs");
    assert.equal("tools_removed" in list.runs[0], false);
  });
});

Deno.test("names that are not there, or could not be sent, are 400 with the field's name (CASES C09, A29)", async () => {
  await withService(async (call) => {
    const refused = async (fields: object, field: RegExp) => {
      const [status, { error }] = await call("POST", "/runs", { content: "Go", ...fields });
      assert.deepEqual([status, error.code], [400, "bad_input"], JSON.stringify(fields));
      assert.match(error.message + JSON.stringify(error.details ?? ""), field);
    };
    await refused({ toolset: "research" }, /toolset: there is no toolset "research"; there are: full, none/);
    await refused({ toolset: "__proto__" }, /toolset/);
    await refused({ tools: ["look", "serch"] }, /tools\[1\]: there is no tool "serch"/);
    await refused({ tools: ["constructor"] }, /tools\[0\]/);
    await refused({ tools: ["beta"] }, /tools\[0\]: there is no tool "beta"/);
    for (const name of ["cal.add", "cal/add", "1st tool", "", "n".repeat(80)]) {
      await refused({ tools: [{ name, description: "", parameters: {} }] }, /tools/);
    }
    await refused({ tools: [{ name: "tool_search", description: "", parameters: {} }] }, /tools\[0\]/);
    const toolChoice = { type: "function", name: "mail" };
    await refused({ tool_choice: toolChoice }, /tool_choice: the run has no tool "mail"/);
    const [status, { error }] = await call("GET", "/tools?toolset=research");
    assert.equal(status, 400);
    assert.match(error.message, /^toolset: /);
  });
});
