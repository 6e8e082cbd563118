/** Waiting calls over HTTP: what is shown of them, and how they are answered. */
import assert from "node:assert/strict";
import * as z from "zod";
import { createPawl, defineTool } from "../src/mod.ts";
import { askUser } from "../tools/ask_user.ts";
import { calls, scriptedModel } from "./support/scripted_model.ts";

function service(script: Parameters<typeof scriptedModel>[0]) {
  const paid: unknown[] = [];
  const pay = defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string() }),
    approval: ({ to }) => `money to ${to}`,
    execute: (args) => {
      paid.push(args);
      return "paid";
    },
  });
  const model = scriptedModel(script);
  const pawl = createPawl({
    models: model,
    tools: [pay, askUser],
    tenants: [{ tenant: "a", key: "key-a" }, { tenant: "b", key: "key-b" }],
  });
  const call = async (method: string, path: string, body?: object, key = "key-a"): Promise<[number, any]> => {
    const answer = await pawl.fetch(
      new Request(`http://pawl.test${path}`, {
        method,
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        ...(body && { body: JSON.stringify(body) }),
      }),
    );
    return [answer.status, await answer.json()];
  };
  return { paid, model, call, close: () => pawl.close() };
}

Deno.test("an approval over HTTP shows the arguments, takes changed ones, and is the tenant's own", async () => {
  const { call, paid, close } = service([
    calls(["pay", { to: "ann" }]),
    calls(["pay", { to: "cat" }]),
    "done",
  ]);
  const [, { id }] = await call("POST", "/runs", { content: "Pay Ann" });
  const [, waits] = await call("GET", `/runs/${id}?wait=20`);
  assert.equal(waits.status, "waiting");
  const [{ tool_call_id, until: _, ...shown }] = waits.waiting_for;
  assert.deepEqual(shown, { name: "pay", for: "approval", reason: "money to ann", arguments: { to: "ann" } });

  const path = `/runs/${id}/tool_results`;
  const refused: [object, number, RegExp][] = [
    [{ content: "paid" }, 400, /approve/],
    [{ approve: true, arguments: { to: ["bob"] } }, 400, /arguments.*to/],
    [{ approve: true, arguments: "bob" }, 400, /arguments/],
    [{ approve: false, arguments: { to: "bob" } }, 400, /arguments/],
    [{ approve: true, once: true }, 400, /once/],
  ];
  for (const [body, status, message] of refused) {
    const [got, { error }] = await call("POST", path, { tool_call_id, ...body });
    assert.equal(got, status, JSON.stringify(body));
    assert.match(error.message, message);
  }
  assert.equal((await call("POST", path, { tool_call_id, approve: true }, "key-b"))[0], 404);
  assert.equal((await call("POST", path, { tool_call_id: "made-up", approve: true }))[0], 404);
  assert.equal(paid.length, 0);

  const answer = { tool_call_id, approve: true, arguments: { to: "bob" }, always: true };
  assert.equal((await call("POST", path, answer))[0], 202);
  assert.equal((await call("POST", path, answer))[0], 200);
  const [, ended] = await call("GET", `/runs/${id}?wait=20`);
  assert.deepEqual([ended.status, ended.text], ["completed", "done"]);
  assert.deepEqual(paid, [{ to: "bob" }, { to: "cat" }], "the second one was approved with the first");
  await close();
});

Deno.test("the model asks the user, where the run names ask_user, and gets the answer days later", async () => {
  const question = { question: "Which colour?", options: ["red", "blue"] };
  const { call, model, close } = service(["no tools", calls(["ask_user", question]), "red it is"]);
  const [, plain] = await call("POST", "/runs", { content: "Paint" });
  await call("GET", `/runs/${plain.id}?wait=20`);
  assert.ok(
    !model.requests[0]!.tools.some(({ name }) => name === "ask_user"),
    "not for runs that do not name it",
  );

  const [, { id }] = await call("POST", "/runs", { content: "Paint", tools: ["ask_user"] });
  const [, { waiting_for: [waits] }] = await call("GET", `/runs/${id}?wait=20`);
  assert.deepEqual([waits.name, waits.for, waits.reason, waits.arguments], [
    "ask_user",
    "answer",
    "Which colour?",
    question,
  ]);
  const { tool_call_id } = waits;
  assert.equal((await call("POST", `/runs/${id}/tool_results`, { tool_call_id, approve: true }))[0], 400);
  assert.equal((await call("POST", `/runs/${id}/tool_results`, { tool_call_id, content: "red" }))[0], 202);
  assert.equal((await call("GET", `/runs/${id}?wait=20`))[1].text, "red it is");
  await close();
});
