/** Each request of a run begins with the very bytes of the one before, so that vendors' caches hold; where it cannot, a warning says so. */
import assert from "node:assert/strict";
import { sendable } from "../providers/history.ts";
import type { Model, ModelReply, ModelRequest } from "../src/model.ts";
import type { Settings } from "../src/run.ts";
import { agenticFunction } from "../src/tool.ts";
import { harness } from "./support/harness.ts";
import { calls, scriptedModel } from "./support/scripted_model.ts";
import { tenant } from "./support/simulation/world.ts";
import { Stage } from "./support/stage.ts";
import { bodies, wires } from "./support/transcript.ts";
import type { Wire } from "./support/strict.ts";

/** A request as its vendor reads it: what may grow, and what surrounds it, both as text. */
function onWire(wire: Wire, request: ModelRequest): { grows: string; around: string; body: string } {
  const body = bodies[wire]("m", sendable(request, `${wire}/m`)) as any;
  const key = ["input", "contents"].find((key) => key in body) ?? "messages";
  const { [key]: list, ...around } = body;
  return { grows: JSON.stringify(list), around: JSON.stringify(around), body: JSON.stringify(body) };
}

function grows(wire: Wire, requests: ModelRequest[]): void {
  requests.map((request) => onWire(wire, request)).reduce((before, after, n) => {
    const where = `${wire}: request ${n + 1} after request ${n}`;
    assert.ok(after.grows.startsWith(before.grows.slice(0, -1)), `${where}\n${before.grows}\n${after.grows}`);
    assert.equal(after.around, before.around, where);
    // What grows is the last of the body, so even as one text it only grows. (Gemini's SDK decides itself what comes where.)
    if (wire !== "gemini") assert.ok(after.body.startsWith(before.body.slice(0, -2)), where);
    return after;
  });
}

const weird = { "z": 1, "a": { "é": "🎉", "10": [], "2": {} } };
const picture = { type: "image" as const, mediaType: "image/png", data: "iVBORw0KGgo=" };
const tools = [
  { name: "look", description: "Looks", parameters: { type: "object" }, execute: () => "seen é🎉 \u2028" },
  {
    name: "fail",
    description: "Fails",
    parameters: { type: "object" },
    execute: () => {
      throw new Error("no");
    },
  },
] as const;

/** What a model of this vendor says: thinking with its own items, text, calls with odd arguments, broken ones. */
function says(wire: Wire): Partial<ModelReply>[] {
  const vendor = wire;
  const opaque = wire === "openai"
    ? JSON.stringify({ type: "reasoning", id: "rs_1", summary: [], encrypted_content: "e+/=" })
    : wire === "anthropic"
    ? JSON.stringify({ type: "thinking", thinking: "hm", signature: "c2ln" })
    : undefined;
  const thinking = opaque ? [{ type: "thinking" as const, text: "hm", vendor, opaque }] : [];
  const call = (name: string, more: object = {}) => ({
    type: "tool_call" as const,
    name,
    arguments: {},
    ...more,
  });
  return [
    {
      content: [
        ...thinking,
        { type: "text", text: "I look" },
        call("look", { arguments: weird }),
        call("fail"),
      ],
    },
    {
      content: [
        ...thinking,
        call("look", {
          raw: '{"n":12345678901234567890, "b" : 1.0}',
          arguments: { n: 12345678901234567890, b: 1 },
        }),
      ],
    },
    { content: [call("look", { raw: "{half", invalid: "not JSON" }), call("nobody")] },
    { content: [{ type: "text", text: "  " }, call("look")] },
    { content: [{ type: "text", text: "So far" }] },
    { content: [{ type: "text", text: "Done" }] },
  ];
}

for (const wire of wires) {
  Deno.test(`${wire}: requests only grow, over slices, crashes, steering and follow-ups`, async () => {
    const script = says(wire);
    let asked = 0, died = false;
    const stage: Stage = new Stage(() => {
      if (asked === 2 && !died) {
        died = true;
        return () => stage.die();
      }
      return script[asked++]!;
    }, { tools: [...tools] as any, budget: { turns: 1 } });
    // What the vendor thought goes back to the very model that thought it.
    (stage.model as { name: string }).name = `${wire}/m`;
    const { run } = await stage.ask((pawl) =>
      pawl.start(tenant, [{ type: "text", text: "Go é🎉" }, picture], { system: "Be brief" }, { thread: "t" })
    );
    for (let n = 0; n < 20 && (await stage.view(run)).status !== "completed"; n++) {
      if (n === 1) await stage.ask((pawl) => pawl.send(tenant, run, "steering", "Hurry\ud800"));
      if (n === 3) await stage.ask((pawl) => pawl.send(tenant, run, "follow_up", "And then?"));
      const next = stage.queued.at(-1)!;
      await stage.until(next.at ?? 0);
      await stage.deliver(next, { message: "one" });
    }
    assert.deepEqual([(await stage.view(run)).text, died], ["Done", true]);
    assert.equal(stage.model.requests.length, 7);
    grows(wire, stage.model.requests);
    assert.ok(!(await stage.log()).some(({ kind }) => kind === "warning"));
  });

  Deno.test(`${wire}: requests only grow where an answer of a certain form is wanted, and in nested loops`, async () => {
    const nested = agenticFunction({
      name: "ask",
      description: "",
      parameters: { type: "object" },
      execute: (_args, { exec }) => exec("inner", { tools: ["look"] }),
    });
    const said = [calls(["ask"]), "no json", "apples"], inner = [calls(["look"]), calls(["look"]), "inside"];
    const model = scriptedModel(({ messages }) =>
      JSON.stringify(messages[0]).includes("inner") ? inner.shift()! : said.shift()!
    );
    (model as { name: string }).name = `${wire}/m`;
    const h = harness(model, { tools: [...tools, nested], budget: { turns: 2 } });
    const { run } = await h.start("Go", { choices: ["apples", "pears"] });
    assert.equal((await h.ended(run)).choice?.name, "apples");
    const [own, within] = [false, true].map((wanted) =>
      model.requests.filter(({ messages }) => JSON.stringify(messages[0]).includes("inner") === wanted)
    );
    assert.deepEqual([own!.length, within!.length], [3, 3]);
    grows(wire, own!);
    grows(wire, within!);
  });
}

Deno.test("anthropic: what its cache may keep is marked, in no more than four places, and never in a message", () => {
  const request: ModelRequest = {
    system: "Be brief",
    messages: [{ role: "user", id: "u", content: "Go", at: 1 }],
    tools: tools.map(({ name, description, parameters }) => ({ name, description, parameters })),
    toolChoice: "auto",
  };
  const body = bodies.anthropic("m", request) as any, mark = { type: "ephemeral" };
  assert.deepEqual(
    [
      body.cache_control,
      body.system[0].cache_control,
      body.tools[0].cache_control,
      body.tools[1].cache_control,
    ],
    [mark, mark, undefined, mark],
  );
  assert.doesNotMatch(JSON.stringify(body.messages), /cache_control/);
});

const searched: Settings = { maxIterations: 9 };
const warned = async (h: ReturnType<typeof harness>, run: string) =>
  (await h.events(run)).flatMap(({ event }) => event.type === "warning" ? [event.code] : []);

Deno.test("a menu that changes is a warning, once, also over slices and crashes", async () => {
  const late = { ...tools[0], name: "late", defer: true };
  for (const turns of [1, 9]) {
    const h = harness([
      calls(["look"]),
      calls(["tool_search", { query: "select:late" }]),
      calls(["late"]),
      "done",
    ], {
      tools: [...tools, late],
      budget: { turns },
    });
    const { run } = await h.start("Go", searched);
    await h.ended(run);
    assert.deepEqual(await warned(h, run), ["menu_changed"]);
    const { tools: before } = h.model.requests[1]!, { tools: after } = h.model.requests[2]!;
    assert.deepEqual(after.slice(0, before.length), before, "what is new comes last");
  }
});

Deno.test("a summary is a warning; from there on requests grow again", async () => {
  const model: Model & { requests: ModelRequest[] } = scriptedModel(({ messages }, n) =>
    JSON.stringify(messages).includes("Summarise this")
      ? "in short"
      : n > 12
      ? "done"
      : { ...calls(["look"]), usage: { input: n === 4 ? 9000 : 10, output: 5 } }
  );
  const h = harness(model as any, { tools: [...tools], compactTokens: 5000, budget: { turns: 3 } });
  const { run } = await h.start("Go", { maxIterations: 20 });
  await h.ended(run);
  assert.deepEqual(await warned(h, run), ["compaction"]);
  const at = model.requests.findIndex(({ messages }) => JSON.stringify(messages).includes("Summarise this"));
  for (const wire of wires) {
    grows(wire, model.requests.slice(0, at));
    grows(wire, model.requests.slice(at + 1));
  }
});
