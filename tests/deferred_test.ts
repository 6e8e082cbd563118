/** Deferred tools: kept out of the request until the model finds them, and how it does. */
import assert from "node:assert/strict";
import * as z from "zod";
import { type Found, offered, toolSearch } from "../src/deferred.ts";
import { defineTool, type Tool } from "../src/tool.ts";

const tool = (name: string, more: Partial<Tool> = {}) =>
  ({
    ...defineTool({
      name,
      description: "",
      parameters: z.object({ to: z.string() }),
      execute: () => `${name} ran`,
    }),
    ...more,
  }) as Tool;

/** Searches tools of which all but those named in `resident` are deferred. */
function searching(tools: Tool[], { loaded = [] as string[], resident = [] as string[] } = {}) {
  const deferred = new Set(tools.map(({ name }) => name).filter((name) => !resident.includes(name)));
  const search = toolSearch(tools, deferred, () => new Set(loaded));
  return async (query: string, max_results?: number) => {
    const found = await search.execute({ query, max_results }, {} as any) as Found;
    return { loads: found.loads, text: String(found.content) };
  };
}

Deno.test("select: finds tools by their exact names, and shows name, description and schema", async () => {
  const search = searching([
    tool("send_mail", { description: "Sends a mail." }),
    tool("read_mail"),
    tool("x"),
  ]);
  const { loads, text } = await search("select:x, send_mail");
  assert.deepEqual(loads, ["send_mail", "x"]);
  const shown = text.split("\n").slice(1).map((line) => JSON.parse(line));
  assert.deepEqual([shown[0].name, shown[0].description, shown[0].parameters.required], [
    "send_mail",
    "Sends a mail.",
    ["to"],
  ]);
  assert.equal(shown.length, 2);
});

Deno.test("a name that is not there gets a line; one that is loaded already is told so", async () => {
  const search = searching([tool("a"), tool("b"), tool("c")], { loaded: ["b"], resident: ["c"] });
  const { loads, text } = await search("select:a,b,c,toString,A");
  assert.deepEqual(loads, ["a"]);
  assert.match(text, /^Already loaded, call directly: b, c$/m);
  assert.match(text, /^There is no tool "toString"\nThere is no tool "A"$/m);
  assert.deepEqual((await search("b")).text, "Already loaded, call directly: b");
});

Deno.test("keywords count 10 in the name, 5 in the hint, 2 in the description; ties are alphabetical", async () => {
  const search = searching([
    tool("zeta", { description: "About the weather" }),
    tool("hinted", { hint: "rain WEATHER" }),
    tool("b_weather"),
    tool("a_weather"),
    tool("both_weather", { description: "weather" }),
    tool("alpha", { description: "weather" }),
    tool("other", { description: "nothing of it" }),
  ]);
  assert.deepEqual((await search("Weather", 20)).loads, [
    "both_weather",
    "a_weather",
    "b_weather",
    "hinted",
    "alpha",
    "zeta",
  ]);
  assert.deepEqual((await search("rain weather", 1)).loads, ["both_weather"], "12 against 10");
  assert.deepEqual((await search("nothing rain", 1)).loads, ["hinted"]);
});

Deno.test("+term must be in the name", async () => {
  const search = searching([
    tool("slack_send", { description: "message" }),
    tool("mail_send", { description: "message to slack" }),
    tool("slack_read"),
  ]);
  assert.deepEqual((await search("+slack message")).loads, ["slack_send", "slack_read"]);
  assert.deepEqual((await search("+slack +send")).loads, ["slack_send"]);
  assert.deepEqual((await search("+ send")).loads, ["mail_send", "slack_send"]);
});

Deno.test("five results unless max_results says otherwise, from 1 to 20", async () => {
  const names = Array.from({ length: 30 }, (_, i) => `t${String(i).padStart(2, "0")}`);
  const search = searching(names.map((name) => tool(name)));
  const counts = [undefined, 0, -3, 7, 50].map(async (max) => (await search("t", max)).loads.length);
  assert.deepEqual(await Promise.all(counts), [5, 1, 1, 7, 20]);
  const exact = await search(`select:${names.join(",")}`, 1);
  assert.equal(exact.loads.length, 20, "who names tools wants them all");
  assert.match(exact.text, /most at once: t20$/m);
});

Deno.test("what finds nothing says so", async () => {
  const search = searching([tool("a")]);
  for (const query of ["zzz", "", "  , ", "+", "select:"]) {
    const { loads, text } = await search(query);
    assert.deepEqual([query, loads], [query, []]);
    assert.match(text, /Nothing was found/);
  }
});

Deno.test("the search lists what there is by name, a hundred at most", () => {
  const named = (n: number) => {
    const tools = Array.from({ length: n }, (_, i) => tool(`t${i}`));
    return toolSearch(tools, new Set(tools.map(({ name }) => name)), () => new Set()).description;
  };
  assert.match(named(2), /There are: t0, t1$/);
  assert.match(named(120), / t99 and 20 more$/);
});

Deno.test("what was found stands behind the rest, in the order in which it was found", () => {
  const tools = ["a", "b", "c", "d"].map((name) => tool(name));
  const show = (...loaded: string[]) =>
    offered({ tools, deferred: new Set(["a", "c", "d"]), removed: [] }, new Set(loaded)).map(({ name }) =>
      name
    );
  assert.deepEqual(show(), ["b"]);
  assert.deepEqual(show("d"), ["b", "d"]);
  assert.deepEqual(show("d", "a", "gone", "b"), ["b", "d", "a"]);
});
