/** Tools of MCP servers, against the protocol's reference server: list, call, progress, cancel, slices; and what results and names become. */
import assert from "node:assert/strict";
import * as fc from "fast-check";
import { createPawl, FatalError } from "../src/mod.ts";
import { outputOf } from "../tools/mcp_result.ts";
import { mcpServer, mcpServers, offeredName } from "../tools/mcp.ts";
import { everything } from "./support/mcp_everything.ts";
import { run } from "./support/mcp_run.ts";
import { calls, scriptedModel } from "./support/scripted_model.ts";
import { until } from "./support/service.ts";

const allowed = ["127.0.0.1"];
const begun = /Session initialized/g, ended = /Transport closed for session/g;
const times = (text: string, what: RegExp) => text.match(what)?.length ?? 0;

Deno.test("the reference server's tools are listed, called, watched and cancelled", async (t) => {
  await using server = await everything();
  const tools = [mcpServer("everything", { url: server.url }, allowed)];
  /** All sessions have ended, and so many have begun. */
  const sessions = async (n: number) => {
    await until(() => times(server.output, ended) === n, () => server.output);
    assert.equal(times(server.output, begun), n);
  };

  await t.step("GET /tools lists them as a run would get them", async () => {
    const pawl = createPawl({ models: scriptedModel([]), tools });
    const answer = await pawl.fetch(new Request("http://localhost/tools"), { remoteAddress: "127.0.0.1" });
    const menu = await answer.json();
    assert.deepEqual(menu.warnings, []);
    const tool = (name: string) => menu.tools.find((tool: any) => tool.name === name);
    const { description, parameters, replay } = tool("everything_get-sum");
    assert.equal(description, "Returns the sum of two numbers");
    assert.deepEqual([Object.keys(parameters.properties), parameters.required], [["a", "b"], ["a", "b"]]);
    assert.equal(replay, "safe");
    assert.equal(tool("everything_toggle-simulated-logging").replay, "never");
    // It runs as a task only.
    assert.equal(tool("everything_simulate-research-query"), undefined);
    await pawl.close();
    await sessions(1);
  });

  await t.step(
    "texts, images, structured content and resources come back, each slice in a session",
    async () => {
      const { view, results, warnings } = await run(tools, [
        calls(["everything_get-sum", { a: 1, b: 2 }], ["everything_get-sum", { a: "x", b: 2 }]),
        calls(["everything_get-structured-content", { location: "Chicago" }], ["everything_get-tiny-image"]),
        calls(["everything_get-resource-reference", { resourceType: "Text", resourceId: 1 }]),
        "Done",
      ], { budget: { turns: 2 } });
      assert.deepEqual([view.status, view.text, view.slices, warnings], ["completed", "Done", 2, []]);
      const [sum, invalid, structured, image, resource] = results as any[];
      assert.equal(sum, "The sum of 1 and 2 is 3.");
      assert.match(invalid, /^!Invalid arguments for tool "everything_get-sum":\n- a: /);
      assert.deepEqual(JSON.parse(structured), {
        temperature: 36,
        conditions: "Light rain / drizzle",
        humidity: 82,
      });
      assert.deepEqual(image.map(({ type, mediaType }: any) => mediaType ?? type), [
        "text",
        "image/png",
        "text",
      ]);
      assert.match(resource, /demo:\/\/resource\/dynamic\/text\/1\nResource 1: This is a plaintext resource/);
      await sessions(3);
    },
  );

  await t.step("an error of the server is the model's to read", async () => {
    const { view, results } = await run(tools, [
      calls(["everything_get-resource-reference", { resourceType: "Text", resourceId: -1 }]),
      "Done",
    ]);
    assert.equal(view.status, "completed");
    assert.match(results[0] as string, /^!.*Invalid resourceId/);
  });

  await t.step("progress is shown while the tool runs", async () => {
    const args = { duration: 1.5, steps: 3 };
    const { events } = await run(tools, [
      calls(["everything_trigger-long-running-operation", args]),
      "Done",
    ]);
    const updates = events.flatMap((event) => event.type === "tool_execution_update" ? [event.text] : []);
    assert.deepEqual(updates.slice(0, 2), ["1/3", "2/3"]);
  });

  await t.step("a cancelled run does not wait for the server", async () => {
    const { view } = await run(tools, [
      calls(["everything_trigger-long-running-operation", { duration: 60 }]),
    ], {
      on: (event, pawl, run) => event.type === "tool_execution_start" && pawl.cancel(run),
    });
    assert.equal(view.status, "cancelled");
    await sessions(6);
  });

  await t.step("a run that uses none of its tools does not ask for them", async () => {
    for (const settings of [{ tools: [] }, { toolset: "none" }, { toolsAllow: ["now"] }]) {
      const { view, warnings } = await run(tools, ["Done"], { settings });
      assert.deepEqual([view.status, warnings], ["completed", []]);
    }
    await sessions(6);
  });
});

Deno.test("what a result holds becomes text and images that every vendor takes", () => {
  const png = { type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" };
  const image = { type: "image", mediaType: "image/png", data: "iVBORw0KGgo=" };
  const link = { type: "resource_link", uri: "file:///a", name: "a" };
  const text = (text: string) => ({ type: "text", text });
  const content = (...content: any[]) => outputOf({ content }).content;
  assert.equal(content(text("a"), text("b")), "a\nb");
  assert.deepEqual(content(text("a"), png, text("b")), [text("a"), image, text("b")]);
  assert.deepEqual(
    content({ type: "resource", resource: { uri: "x:1", mimeType: "image/png", blob: png.data } }),
    [image],
  );
  assert.equal(content({ type: "resource", resource: { uri: "x:1", text: "hi" } }), "x:1\nhi");
  assert.equal(content(link), JSON.stringify(link));
  assert.equal(
    content({ type: "audio", data: "AAAA", mimeType: "audio/wav" }),
    "[audio/wav of 3 bytes, cannot be shown]",
  );
  assert.equal(content({ ...png, mimeType: "image/svg+xml" }), "[image/svg+xml of 9 bytes, cannot be shown]");
  assert.equal(content({ ...png, data: "no base64" }), "[image/png of 6 bytes, cannot be shown]");
  assert.match(
    content({ ...png, data: "AAAA".repeat(300_000) }) as string,
    /bytes, too large to be shown\]$/,
  );
  assert.equal(content({ type: "hologram", depth: 3 }), '{"type":"hologram","depth":3}');
  assert.equal(content(), "(no output)");
});

Deno.test("structured content is shown once", () => {
  const structuredContent = { n: 1 }, json = { type: "text", text: '{ "n": 1 }' };
  const shown = (content: any[]) => outputOf({ content, structuredContent }).content;
  assert.equal(shown([]), '{"n":1}');
  assert.equal(shown([json]), '{ "n": 1 }');
  assert.equal(shown([{ type: "text", text: "One" }]), 'One\n{"n":1}');
  assert.equal(outputOf({ content: [json], isError: true }).isError, true);
});

Deno.test("names are spelled so that vendors take them, and no two of a server's tools share one", async () => {
  assert.equal(await offeredName("s_", "get-sum_2"), "s_get-sum_2");
  assert.equal(await offeredName("s_", "files.read"), "s_files_x2e_read");
  assert.equal(await offeredName("s_", "get_xaxis"), "s_get_xaxis");
  assert.equal(await offeredName("s_", "überall 🦀"), "s__xfc_berall_x20__x1f980_");
  const decoded = (name: string) =>
    name.slice(2).replace(/_x([0-9a-f]+)_/g, (_, hex) => String.fromCodePoint(parseInt(hex, 16)));
  const odd = fc.string({ unit: fc.constantFrom(..."_x25ef.-🦀"), maxLength: 8 });
  await fc.assert(fc.asyncProperty(odd, async (name) => {
    const offered = await offeredName("s_", name);
    assert.match(offered, /^[A-Za-z0-9_-]{1,64}$/);
    assert.equal(decoded(offered), name);
  }));
  const long = "a".repeat(70);
  const names = await Promise.all([long, long + "b", long].map((name) => offeredName("s_", name)));
  assert.deepEqual(names.map(({ length }) => length), [64, 64, 64]);
  assert.equal(names[0], names[2]);
  assert.notEqual(names[0], names[1]);
});

Deno.test("a wrong setting is one line that names it and shows nothing of it", () => {
  const wrong: [setting: unknown, why: RegExp][] = [
    ["{SEKRIT", /it is no JSON/],
    [[], /it: .*expected record/],
    [{ s: { headers: { a: "SEKRIT" } } }, /s\.url: /],
    [{ s: { url: "https://x.example", key: "SEKRIT" } }, /s: .*key/],
    [{ s: { url: "SEKRIT" } }, /s: its url is none/],
    [{ "s.": { url: "https://x.example" } }, /s\.: a server's name/],
    [{ s: { url: "http://10.0.0.1/SEKRIT" } }, /s: 10\.0\.0\.1 is not a public address.*PAWL_ALLOW_HOSTS/],
    [{ s: { url: "https://u:SEKRIT@x.example" } }, /s: .*password/],
    [{ s: { url: "https://x.example", headers: { a: "SEKRIT\n" + "x: y" } } }, /s: its headers/],
  ];
  for (const [setting, why] of wrong) {
    const text = typeof setting === "string" ? setting : JSON.stringify(setting);
    assert.throws(() => mcpServers(text, []), (error) => {
      assert.ok(error instanceof FatalError);
      assert.match(error.message, /^PAWL_MCP_SERVERS: [^\n]*$/);
      assert.match(error.message, why);
      assert.ok(!error.message.includes("SEKRIT"), error.message);
      return true;
    });
  }
  assert.deepEqual(mcpServers(undefined, []), []);
  const two = { a: { url: "https://a.example/mcp" }, b: { url: "http://10.0.0.1:9", timeout_ms: 5 } };
  assert.deepEqual(mcpServers(JSON.stringify(two), ["10.0.0.1"]).map(({ name }) => name), ["a", "b"]);
});
