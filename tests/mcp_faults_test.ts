/** MCP servers that are down, slow or strange when they are asked for their tools: they cost these and a warning, and never the run. */
import assert from "node:assert/strict";
import { createPawl } from "../src/mod.ts";
import { mcpServer } from "../tools/mcp.ts";
import { type McpFake, mcpFake, text } from "./support/mcp_server.ts";
import { local, run, shop } from "./support/mcp_run.ts";
import { calls, scriptedModel } from "./support/scripted_model.ts";
import { until } from "./support/service.ts";

Deno.test("a server that cannot be used costs its tools and a warning; the others work", async (t) => {
  const echoing = ({ headers }: { headers: Headers }) =>
    `${headers.get("authorization")} ${headers.get("x-key")}`;
  const faults: { [what: string]: [fault: McpFake["fault"], warning: RegExp] } = {
    "refuses the credentials": [
      (sent) => new Response(`bad token: ${echoing(sent)}`, { status: 401 }),
      /it refuses the credentials \(HTTP 401\)$/,
    ],
    "fails": [(sent) => new Response(echoing(sent), { status: 500 }), /it answered HTTP 500$/],
    "is slow": [
      () => new Promise<Response>((resolve) => setTimeout(() => resolve(new Response()), 600)),
      /in time$/,
    ],
    "is slow to list": [
      ({ method }) =>
        method === "tools/list"
          ? new Promise<Response>((resolve) => setTimeout(() => resolve(new Response()), 600))
          : undefined,
      /it did not answer in time$/,
    ],
    "is no MCP server": [
      () => new Response("<html>", { headers: { "content-type": "text/html" } }),
      /it does not answer as MCP servers do$/,
    ],
    "says what is no JSON": [
      () => new Response("{", { headers: { "content-type": "application/json" } }),
      /it does not answer as MCP servers do$/,
    ],
    "speaks another version": [
      () => Response.json({ jsonrpc: "2.0", id: 0, result: { protocolVersion: "1066-10-14" } }),
      /it speaks a version of MCP that is not known here$/,
    ],
    "redirects elsewhere": [
      () => new Response(null, { status: 307, headers: { location: "http://127.0.0.2:9/" } }),
      /it answered HTTP 307$/,
    ],
    "says an error with what it was sent": [
      (sent) =>
        sent.method === "tools/list"
          ? Response.json({ jsonrpc: "2.0", id: 1, error: { code: -32000, message: `no: ${echoing(sent)}` } })
          : undefined,
      /no: \[redacted\] \[redacted\]$/,
    ],
    "breaks off while it lists": [
      ({ method }) =>
        method === "tools/list"
          ? new Response("data: {", { headers: { "content-type": "text/event-stream" } })
          : undefined,
      /the connection was lost$/,
    ],
    "has a list without end": [
      ({ id, method }) =>
        method === "tools/list"
          ? Response.json({ jsonrpc: "2.0", id, result: { tools: [], nextCursor: "on" } })
          : undefined,
      /its list of tools has more than 50 pages$/,
    ],
  };
  for (const [what, [fault, warning]] of Object.entries(faults)) {
    await t.step(what, async () => {
      await using fake = mcpFake(["pay"]);
      fake.fault = fault;
      const { view, results, warnings, offered, events } = await run(
        [local, shop(fake, { timeoutMs: what.startsWith("is slow") ? 300 : undefined })],
        [calls(["local"], ["shop_pay"]), "Done"],
      );
      assert.deepEqual([view.status, view.text], ["completed", "Done"]);
      assert.deepEqual(offered, [["local"], ["local"]]);
      assert.deepEqual(results, ["ok", '!There is no tool "shop_pay". The tools are: local']);
      assert.equal(warnings.length, 1);
      assert.match(warnings[0]!, /^tools_missing: The tools of "shop" are missing: /);
      assert.match(warnings[0]!, warning);
      assert.ok(!JSON.stringify([view, events]).includes("SEKRIT"), "no secret is seen");
      assert.equal(events[0]!.type, "agent_start");
    });
  }
});

Deno.test("a server that is down is waited for no longer than its refusal takes, also where its tool is forced", async () => {
  const gone = mcpFake([]);
  await gone.die();
  for (const toolChoice of ["required", { type: "function", name: "shop_pay" }] as const) {
    const { view, warnings, model } = await run([shop(gone)], ["Done"], { settings: { toolChoice } });
    assert.equal(view.status, "completed");
    assert.match(warnings[0]!, /it cannot be reached$/);
    assert.equal(model.requests[0]!.toolChoice, "auto");
  }
  const { view, warnings } = await run([shop(gone), local], ["Done"], { settings: { tools: ["shop_pay"] } });
  assert.deepEqual([view.status, warnings.length], ["completed", 1]);
});

Deno.test("a list is asked for once in a slice, and what it says in the next one holds there", async () => {
  await using fake = mcpFake(["pay"]);
  fake.answer = ({ name }) => {
    fake.tools = ["refund"];
    return text(name);
  };
  const { view, results, offered } = await run([shop(fake)], [
    calls(["shop_pay"], ["shop_pay"]),
    calls(["shop_pay"]),
    calls(["shop_refund"]),
    "Done",
  ], { budget: { turns: 2 } });
  assert.deepEqual([view.status, view.slices], ["completed", 2]);
  assert.deepEqual(offered, [["shop_pay"], ["shop_pay"], ["shop_refund"], ["shop_refund"]]);
  // The third was asked for in the first slice, and would have run in the second.
  const gone = '!There is no tool "shop_pay". The tools are: shop_refund';
  assert.deepEqual(results, ["pay", "pay", gone, "refund"]);
  assert.equal(fake.sent.filter(({ method }) => method === "tools/list").length, 2);
  assert.equal(fake.sessions.size, 0);
});

Deno.test("tools that no model can be offered, or whose name is taken, are refused one by one", async () => {
  await using fake = mcpFake([
    { name: "fine", description: "d", inputSchema: { type: "object" } },
    { name: "array", inputSchema: { type: "array" } },
    { name: "nowhere", inputSchema: { type: "object", properties: { a: { $ref: "#/$defs/none" } } } },
    { name: "schemaless" },
    { inputSchema: { type: "object" } },
    null,
    { name: "fine", inputSchema: { type: "object" } },
    { name: "taken", inputSchema: { type: "object" } },
    { name: "a.b", inputSchema: { type: "object" } },
  ]);
  const taken = { ...local, name: "shop_taken" };
  await using other = mcpFake(["pay_fine", "x"]);
  const sources = [shop(fake), mcpServer("shop_pay", { url: other.url }, ["127.0.0.1"])];
  await using third = mcpFake(["pay_x"]);
  sources.unshift(shop(third));
  const { view, warnings, offered } = await run([taken, ...sources], ["Done"]);
  assert.equal(view.status, "completed");
  assert.deepEqual(offered[0], [
    "shop_taken",
    "shop_pay_x",
    "shop_fine",
    "shop_a_x2e_b",
    "shop_pay_pay_fine",
  ]);
  assert.deepEqual(warnings.map((warning) => /^tool_refused: A tool of "(\w+)"/.exec(warning)?.[1]), [
    ...Array(7).fill("shop"),
    "shop_pay",
  ]);
  for (
    const what of [/"shop_array": parameters must/, /nothing at \$ref/, /"shop_schemaless": /, /name must be/]
  ) {
    assert.ok(warnings.some((warning) => what.test(warning)), String(what));
  }
  assert.equal(warnings.filter((warning) => /there is another tool "shop_fine"/.test(warning)).length, 1);
  assert.match(warnings.at(-1)!, /there is another tool "shop_pay_x"$/);
});

Deno.test("a run that is cancelled while its server is asked ends at once", async () => {
  await using fake = mcpFake(["pay"]);
  const { promise: held, resolve: release } = Promise.withResolvers<undefined>();
  fake.fault = ({ method }) => method === "tools/list" ? held as Promise<never> : undefined;
  const model = scriptedModel([]), pawl = createPawl({ models: model, tools: [shop(fake)] });
  const started = await pawl.start("Go");
  await until(() => fake.sent.some(({ method }) => method === "tools/list"));
  assert.equal((await pawl.cancel(started.run)).status, "cancelled");
  await until(() => fake.sessions.size === 0);
  release(undefined);
  assert.equal(model.requests.length, 0);
  await pawl.close();
});
