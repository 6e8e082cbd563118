/** The library face: agent loops without a server (API.md, TypeScript). */
import assert from "node:assert/strict";
import * as z from "zod";
import {
  agenticFunction,
  createPawl,
  defineTool,
  InputError,
  ModelError,
  type Pawl,
  RunFailedError,
} from "../src/mod.ts";
import { calls, type Said, scriptedModel } from "./support/scripted_model.ts";

const weather = defineTool({
  name: "weather",
  description: "Current weather of a city.",
  parameters: z.object({ city: z.string() }),
  replay: "safe",
  execute: ({ city }) => `sunny in ${city}`,
});

function pawlWith(script: Said[], tools: unknown[] = [weather]) {
  const models = scriptedModel(script), pawl = createPawl({ tools, models });
  return { pawl, models, [Symbol.asyncDispose]: () => pawl.close() };
}

Deno.test("exec runs here to its end and answers the text", async () => {
  await using it = pawlWith([calls(["weather", { city: "Oslo" }]), "It is sunny in Oslo"]);
  assert.equal(await it.pawl.exec("Report on Oslo", { maxIterations: 10 }), "It is sunny in Oslo");
  assert.equal(it.models.left(), 0);
  assert.deepEqual(it.models.requests[0]!.tools.map(({ name }) => name), ["weather"]);
});

Deno.test("exec goes on in a thread that is named", async () => {
  await using it = pawlWith(["Hello Ann", "You are Ann"]);
  await it.pawl.exec("I am Ann", { thread: "ann" });
  assert.equal(await it.pawl.exec("Who am I?", { thread: "ann" }), "You are Ann");
  assert.equal(it.models.requests[1]!.messages.length, 3);
});

Deno.test("exec throws what the run failed of, with its code and id", async () => {
  await using it = pawlWith([new ModelError("auth", "Incorrect API key")]);
  await assert.rejects(it.pawl.exec("Go"), (error) => {
    assert.ok(error instanceof RunFailedError);
    assert.deepEqual([error.code, error.message], ["auth", "Incorrect API key"]);
    assert.match(error.run, /~/);
    return true;
  });
});

Deno.test("exec of a run that is cancelled throws", async () => {
  let run = "";
  const hang = defineTool({
    name: "hang",
    description: "",
    parameters: z.object({}),
    execute: (_args, context) => {
      run = context.run;
      queueMicrotask(() => void it.pawl.cancel(run));
      return new Promise(() => {});
    },
  });
  await using it = pawlWith([calls(["hang"])], [hang]);
  await assert.rejects(it.pawl.exec("Go"), { name: "RunFailedError", code: "cancelled" });
});

Deno.test("tools come also as the seed gives them: {spec, execute}, or anything with both", async () => {
  const given: unknown[] = [];
  class Shout {
    spec = {
      name: "shout",
      description: "",
      parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
    };
    execute({ text }: { text: string }) {
      given.push(text);
      return text.toUpperCase();
    }
  }
  const whisper = {
    spec: { name: "whisper", parameters: { type: "object", properties: {} } },
    execute: () => ({ said: "psst" }),
  };
  await using it = pawlWith([calls(["shout", { text: "hi" }], ["whisper"], ["shout", {}]), "done"], [
    new Shout(),
    whisper,
  ]);
  const { run } = await it.pawl.start("Go");
  for await (const { event } of it.pawl.watch(run)) if (event.type === "agent_end") break;
  const { messages, status } = await it.pawl.read(run);
  assert.equal(status, "completed");
  const results = messages.filter((message) => message.role === "tool");
  assert.deepEqual(results.map(({ content }) => content).slice(0, 2), ["HI", '{"said":"psst"}']);
  assert.match(String(results[2]!.content), /text/);
  assert.deepEqual(given, ["hi"]);
});

Deno.test("anything else is refused with a message that says what is missing", () => {
  const models = scriptedModel([]);
  const refused: [unknown, RegExp][] = [
    [{ name: "x", description: "", parameters: {} }, /"x" has no executor.*\{spec, execute\}/],
    [{ spec: { name: "x" } }, /no executor/],
    ["weather", /Cannot use.*defineTool/],
    [null, /Cannot use/],
    [{ execute: () => {} }, /no name/],
  ];
  for (const [tool, says] of refused) {
    assert.throws(() => createPawl({ tools: [tool], models }), (error) => {
      assert.ok(error instanceof InputError);
      assert.match(error.message, says);
      return true;
    });
  }
  assert.throws(() => createPawl({ tools: [weather, weather], models }), /registered twice/);
});

Deno.test("an agentic function collects, saves and writes, as the README shows it", async () => {
  const saved: string[] = [];
  const report = agenticFunction({
    name: "report",
    description: "Research a topic and write a report.",
    parameters: z.object({ topic: z.string() }),
    execute: async ({ topic }, { exec, step }) => {
      const facts = await exec(`Collect facts on ${topic}`, { toolsAllow: ["weather"] });
      await step("save", () => void saved.push(facts));
      return await exec(`Write it up: ${facts}`, { tools: [] });
    },
  });
  await using it = pawlWith([
    calls(["report", { topic: "Oslo" }]),
    calls(["weather", { city: "Oslo" }]),
    "sunny",
    "Oslo is sunny.",
    "Here you are: Oslo is sunny.",
  ], [weather, report]);
  assert.equal(await it.pawl.exec("Report on Oslo"), "Here you are: Oslo is sunny.");
  assert.deepEqual(saved, ["sunny"]);
  const offered = it.models.requests.map(({ tools }) => tools.map(({ name }) => name).join());
  assert.deepEqual(offered, ["weather,report", "weather", "weather", "", "weather,report"]);
});

Deno.test("pawl.exec in the body of an agentic function is its nested loop, without being handed the context", async () => {
  const models = scriptedModel((request) => {
    const last = request.messages.at(-1)!;
    if (last.role === "tool") return `said: ${String(last.content)}`;
    return last.content === "Go" ? calls(["duet"]) : `sings ${String(last.content)}`;
  });
  const duet = agenticFunction({
    name: "duet",
    description: "",
    parameters: z.object({}),
    execute: async () => {
      const both = await Promise.all([pawl.exec("alto", { key: "a" }), pawl.exec("bass", { key: "b" })]);
      return `${both.join(" and ")}, then ${await pawl.exec("both", { tools: [] })}`;
    },
  });
  const pawl: Pawl = createPawl({ tools: [duet], models, budget: { turns: 1 } });
  const { run } = await pawl.start("Go");
  const frames = new Set<string>();
  for await (const { frame } of pawl.watch(run)) frames.add(frame);
  const { text, slices } = await pawl.read(run);
  assert.equal(text, "said: sings alto and sings bass, then sings both");
  assert.deepEqual([...frames].sort(), [".", "1.0/a", "1.0/b", "1.0/exec"]);
  assert.ok(slices > 2, "it was run again from its start");
  const ask = (frame: string) =>
    pawl.fetch(new Request(`http://127.0.0.1/runs/${run}/messages?frame=${encodeURIComponent(frame)}`), {
      remoteAddress: "127.0.0.1",
    });
  const inner = await (await ask("1.0/a")).json();
  assert.deepEqual(inner.messages.map(({ content }: { content: unknown }) => content), [
    "alto",
    [{ type: "text", text: "sings alto" }],
  ]);
  const none = await ask("1.0/c");
  assert.deepEqual([none.status, (await none.json()).error.code], [404, "not_found"]);
  await pawl.close();
});

Deno.test("the same key is the same run", async () => {
  await using it = pawlWith(["once"]);
  const first = await it.pawl.start("Go", { key: "k" }), again = await it.pawl.start("Go", { key: "k" });
  assert.deepEqual([again.run, again.messageId], [first.run, first.messageId]);
  await assert.rejects(it.pawl.start("Other", { key: "k" }), { code: "conflict" });
});

Deno.test("fetch is the HTTP face, for clients on this machine where there are no keys", async () => {
  await using it = pawlWith(["hello"]);
  const request = () => new Request("http://127.0.0.1/runs", { method: "POST", body: '{"content":"Hi"}' });
  assert.equal((await it.pawl.fetch(request(), { remoteAddress: "127.0.0.1" })).status, 202);
  assert.equal((await it.pawl.fetch(request(), { remoteAddress: "203.0.113.9" })).status, 401);
  assert.equal((await it.pawl.fetch(request())).status, 401);
});

Deno.test("execute receives what the schema puts out; wrong uses do not compile", () => {
  defineTool({
    name: "typed",
    description: "",
    parameters: z.object({ n: z.number().default(3) }),
    execute: ({ n }, { signal }) => {
      const number: number = n, aborted: boolean = signal.aborted;
      return [number, aborted];
    },
  });
  const wrong = [
    // @ts-expect-error: a tool needs a description
    () => defineTool({ name: "x", parameters: z.object({}), execute: () => 1 }),
    () =>
      defineTool({
        name: "x",
        description: "",
        parameters: z.object({}),
        // @ts-expect-error: replay is "safe" or "never"
        replay: "maybe",
        execute: () => 1,
      }),
    () =>
      defineTool({
        name: "x",
        description: "",
        parameters: z.object({}),
        // @ts-expect-error: a plain tool has no exec
        execute: (_args, { exec }) => exec("x"),
      }),
  ];
  assert.equal(wrong.length, 3);
});
