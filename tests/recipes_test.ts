/** RECIPES.md: what stands there is what runs here. */
import assert from "node:assert/strict";
import { createPawl, type Pawl } from "../src/mod.ts";
import { mcpServers } from "../tools/mcp.ts";
import { kept, newsroom } from "./recipes/agentic_function.ts";
import { bookkeeper, decide, open } from "./recipes/approval.ts";
import { triage } from "./recipes/decision.ts";
import { letters, office, printed } from "./recipes/later_result.ts";
import { withDocs } from "./recipes/mcp.ts";
import { assistant } from "./recipes/tool.ts";
import { answer, support } from "./recipes/toolsets.ts";
import { byteServer } from "./support/byte_server.ts";
import { only } from "./support/harness.ts";
import { mcpFake } from "./support/mcp_server.ts";
import { calls, scriptedModel } from "./support/scripted_model.ts";
import { until } from "./support/service.ts";

const root = new URL("../", import.meta.url);
const page = await Deno.readTextFile(new URL("RECIPES.md", root));
const blocks = (text: string) => [...text.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, code]) => code!);

/** Text of the tool results of the last run, and whether they are errors. */
async function results(pawl: Pawl, run: string): Promise<unknown[]> {
  const { messages } = await pawl.read(run);
  return messages.flatMap((message) => message.role === "tool" ? [[message.isError, message.content]] : []);
}

Deno.test("each recipe of the page is a file that is tested here, and the other way round", async () => {
  const files: string[] = [];
  for await (const { name } of Deno.readDir(new URL("tests/recipes/", root))) {
    const text = await Deno.readTextFile(new URL(`tests/recipes/${name}`, root));
    files.push(text.replaceAll("../../", "./"));
  }
  assert.deepEqual(blocks(page).toSorted(), files.toSorted());
});

Deno.test("the page's links lead to its headings", () => {
  const headings = [...page.matchAll(/^## (.*)$/gm)].map(([, text]) => text!);
  const links = [...page.matchAll(/\[([^\]]+)\]\(#([^)]+)\)/g)].map(([, text, to]) => [text, to]);
  assert.deepEqual(links, headings.map((text) => [text, text.toLowerCase().replaceAll(" ", "-")]));
});

Deno.test("a tool: defaults, errors that the model can act on, the key of an effect", async () => {
  await using shop = byteServer();
  shop.play({ chunks: ["order 12"] });
  const model = scriptedModel([
    calls(["look_up", { article: "A7" }], ["look_up", { article: "B1" }], ["look_up", {}]),
    calls(["order", { article: "A7", count: 2 }], ["order", { article: "A7", count: 11 }]),
    "Two are on their way",
  ]);
  const pawl = assistant(model, shop.url);
  const { run } = await pawl.start("Two lamps, please");
  await until(async () => (await pawl.read(run)).status === "completed");
  const [found, missing, wrong, ordered, tooMany] = await results(pawl, run) as [boolean, string][];
  await pawl.close();
  assert.deepEqual(found, [false, '{"title":"Lamp","cents":4900,"currency":"EUR"}']);
  assert.deepEqual(missing, [true, "There is no article B1; there are A7"]);
  assert.ok(wrong![0] && /article/.test(wrong![1]));
  assert.deepEqual(ordered, [false, "order 12"]);
  assert.ok(tooMany![0] && /count/.test(tooMany![1]));
  assert.deepEqual(shop.requests.map(({ path, body }) => [path, body]), [
    ["/orders", { article: "A7", count: 2 }],
  ]);
  assert.match(shop.requests[0]!.headers.get("idempotency-key")!, /./);
});

Deno.test("an agentic function: two loops at once and one after them, saved once, over several slices", async () => {
  const model = scriptedModel(({ messages }) => {
    const asked = String(messages.at(-1)!.content);
    if (asked === "Go") return calls(["report", { topic: "Oslo" }]);
    if (messages.at(-1)!.role === "tool") return `It is in ${asked}`;
    return asked.startsWith("Write it up") ? `Report: ${asked.slice(14)}` : `Answer to "${asked}"`;
  });
  const pawl = newsroom(model);
  const { run } = await pawl.start("Go");
  await until(async () => (await pawl.read(run)).status === "completed");
  const { text, slices } = await pawl.read(run);
  await pawl.close();
  assert.ok(slices > 2, `${slices} slices`);
  const place = /^It is in (reports\/.*)$/.exec(text!)![1]!;
  assert.deepEqual([...kept], [[
    place,
    'Report: Answer to "What was Oslo like?"\n\nAnswer to "What is Oslo like?"',
  ]]);
  assert.equal(model.requests.length, 5);
});

Deno.test("approval: small sums at once; others wait, and are paid or not as somebody decides", async () => {
  const pay = (to: string, cents: number): [string, { to: string; cents: number }] => ["pay", { to, cents }];
  const pawl = bookkeeper(scriptedModel([
    calls(pay("Ann", 500), pay("Bob", 20_000), pay("Cy", 30_000), pay("Di", 40_000)),
    calls(pay("Eve", 50_000)),
    "All decided",
  ]));
  const { run } = await pawl.start("Pay them");
  await until(async () => (await pawl.read(run)).status === "waiting");
  const waiting = await open(pawl, run);
  assert.deepEqual(waiting.map(({ reason }) => reason), ["200 € to Bob", "300 € to Cy", "400 € to Di"]);
  assert.deepEqual(waiting[0]!.arguments, { to: "Bob", cents: 20_000 });
  const [bob, cy, di] = waiting.map(({ toolCallId }) => toolCallId);
  await decide(pawl, run, bob!, { approve: true, arguments: { to: "Bob", cents: 15_000 } });
  await decide(pawl, run, cy!, { approve: false, reason: "Cy is a fraud" });
  await decide(pawl, run, di!, { approve: true, always: true });
  await until(async () => (await pawl.read(run)).status === "completed");
  const [ann, changed, refused, paid, unasked] = await results(pawl, run) as [boolean, string][];
  await pawl.close();
  assert.deepEqual(ann, [false, "5 € are paid to Ann"]);
  assert.ok(!changed![0] && /150 € are paid to Bob/.test(changed![1]), String(changed));
  assert.ok(refused![0] && /Cy is a fraud/.test(refused![1]), String(refused));
  assert.deepEqual([paid, unasked], [[false, "400 € are paid to Di"], [false, "500 € are paid to Eve"]]);
});

Deno.test("a result that comes later: the run waits until somebody tells it", async () => {
  const pawl = office(scriptedModel([calls(["print", { text: "Dear Ann" }]), "It is printed"]));
  const { run } = await pawl.start("Write to Ann");
  await until(async () => (await pawl.read(run)).status === "waiting");
  assert.deepEqual((await pawl.read(run)).waitingFor!.map(({ reason }) => reason), ["It is being printed"]);
  const [letter] = letters;
  assert.deepEqual([letter!.text, letter!.run], ["Dear Ann", run]);
  await printed(pawl, letter!, 2);
  await until(async () => (await pawl.read(run)).status === "completed");
  assert.deepEqual(await results(pawl, run), [[false, "2 pages"]]);
  await pawl.close();
});

Deno.test("a toolset per channel: what a channel may not use is not offered there", async () => {
  const offered = async (channel: "slack" | "desk", env = {}) => {
    const model = scriptedModel(["hello"]);
    const pawl = support(model, env);
    assert.equal(await answer(pawl, channel, "hi"), "hello");
    await pawl.close();
    return model.requests[0]!.tools.map(({ name }) => name);
  };
  const env = { HANDBOOK_URL: "https://example.com" };
  assert.deepEqual(await offered("slack", env), ["search"]);
  assert.deepEqual(await offered("slack"), []);
  assert.deepEqual(await offered("desk", env), ["search", "refund", "tool_search"]);
});

Deno.test("deciding: a value, something filled in, a function", async () => {
  const answers = [
    [{ call: "ignore" }, "ignored"],
    [{ call: "reply", args: { text: "Hello" } }, "replied: Hello"],
    [{ call: "refund", args: { order: "A7", cents: 250 } }, "A7: 2.5 € go back"],
  ] as const;
  for (const [said, outcome] of answers) {
    const pawl = createPawl({ models: scriptedModel([JSON.stringify(said)]) });
    assert.equal(await triage(pawl, "Dear all"), outcome);
    await pawl.close();
  }
});

Deno.test("tools of MCP servers: by the setting, and in a program", async () => {
  const setting = /PAWL_MCP_SERVERS='(.*)'/.exec(page)![1];
  assert.deepEqual(mcpServers(setting, []).map(({ name }) => name), ["docs"]);

  await using fake = mcpFake(["read"]);
  const model = scriptedModel([calls(["tool_search", { query: "read" }]), calls(["docs_read"]), "Done"]);
  const pawl = withDocs(only(model), fake.url, "token", ["127.0.0.1"]);
  assert.equal(await pawl.exec("Go"), "Done");
  await pawl.close();
  assert.deepEqual(fake.calls, ["read"]);
  assert.deepEqual(model.requests.map(({ tools }) => tools.map(({ name }) => name)), [
    ["tool_search"],
    ["tool_search", "docs_read"],
    ["tool_search", "docs_read"],
  ]);
});
