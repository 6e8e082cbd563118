/** A list of models: the next is asked where the one before cannot answer, and only before anything of its answer came. */
import assert from "node:assert/strict";
import { type Model, ModelError, type ModelErrorCode } from "../src/model.ts";
import { createRuntime } from "../src/runtime.ts";
import { defineTool } from "../src/mod.ts";
import { modelFromEnv } from "../providers/mod.ts";
import { Registry } from "../src/registry.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { calls, type Said, type ScriptedModel, scriptedModel } from "./support/scripted_model.ts";
import { VirtualTime } from "./support/virtual_time.ts";
import { InputError } from "../src/errors.ts";

/** A runtime with the models "a/1" and "b/2". */
function two(a: Said[], b: Said[], list = "a/1, b/2") {
  const time = new VirtualTime(), store = sqliteStore(":memory:", { clock: time });
  const models = new Map<string, ScriptedModel>([
    ["a/1", { ...scriptedModel(a), name: "a/1" }],
    ["b/2", { ...scriptedModel(b), name: "b/2" }],
  ]);
  const look = defineTool({
    name: "look",
    description: "",
    parameters: { type: "object" },
    execute: () => "seen",
  });
  const runtime = () =>
    createRuntime({
      store,
      clock: time,
      registry: new Registry([look]),
      budget: { turns: 1 },
      queue: {
        name: "test",
        publish: (delivery) => {
          time.sleep(Math.max(1, (delivery.at ?? 0) - time.now())).then(() =>
            runtime().deliver(delivery, crypto.randomUUID())
          );
          return Promise.resolve();
        },
      },
      models: {
        default: list,
        get(name): Model {
          const model = models.get(name);
          if (!model) throw new InputError("bad_input", `no model ${name}`);
          return model;
        },
      },
    });
  const pawl = runtime();
  return {
    async ends(settings = {}) {
      const { run } = await time.until(pawl.start("local", "Go", settings, { thread: "t" }));
      const view = await time.until(pawl.settled("local", run, 86_400_000));
      const { messages } = await time.until(pawl.messages("local", { run }));
      const by = messages.flatMap((message) => message.role === "assistant" ? [message.model] : []);
      return { view, by };
    },
    start: (settings: object) => time.until(pawl.start("local", "Go", settings)),
    asked: (name: string) => models.get(name)!.requests.length,
  };
}

const broken = (code: ModelErrorCode) => new ModelError(code, code);

for (const code of ["overloaded", "rate_limit", "network", "timeout", "server", "auth", "quota"] as const) {
  Deno.test(`the next model answers where the first gives ${code}, in all slices of the run`, async () => {
    const it = two([broken(code)], [calls(["look"]), "done"]);
    const { view, by } = await it.ends();
    assert.deepEqual([view.status, view.text, by], ["completed", "done", ["b/2", "b/2"]]);
    assert.equal(it.asked("a/1"), 1, "the first is not asked again in each turn");
  });
}

for (const code of ["bad_request", "content_policy", "context_overflow"] as const) {
  Deno.test(`what is wrong with the request is not asked of the next model: ${code}`, async () => {
    const it = two([broken(code)], ["done"]);
    const { view } = await it.ends();
    assert.deepEqual([view.status, view.error?.code], ["failed", code]);
    assert.equal(it.asked("b/2"), 0);
  });
}

Deno.test("once something of an answer came, the same model is asked again", async () => {
  const it = two([
    (_request, { onDelta }) => {
      onDelta({ type: "text", text: "Half" });
      return broken("network");
    },
    broken("overloaded"),
    "whole",
  ], ["other"]);
  const { view, by } = await it.ends();
  assert.deepEqual([view.text, by], ["whole", ["a/1"]]);
});

Deno.test("the last of the list is tried again as a single one is, and then the run fails", async () => {
  const it = two([broken("overloaded")], [broken("overloaded"), broken("overloaded"), "done"]);
  assert.equal((await it.ends()).view.text, "done");
  const all = two([broken("auth")], [broken("auth")]);
  assert.equal((await all.ends()).view.error?.code, "auth");
});

Deno.test("a new run begins with the first of the list, and a run may bring its own", async () => {
  const it = two([broken("overloaded"), "first"], ["second", "third"]);
  assert.deepEqual((await it.ends()).by, ["b/2"]);
  assert.deepEqual((await it.ends()).by, ["a/1"]);
  assert.deepEqual((await it.ends({ model: "b/2,a/1" })).by, ["b/2"]);
});

Deno.test("a list with a model that is not there is refused", async () => {
  const it = two([], []);
  await assert.rejects(it.start({ model: "a/1, c/3" }), { code: "bad_input", message: /c\/3/ });
  await assert.rejects(it.start({ model: "a/1," }), { code: "bad_input" });
  const models = modelFromEnv({ PAWL_MODEL: "openai/gpt-5.4-mini, demo/rules", OPENAI_API_KEY: "k" });
  assert.equal(models.default, "openai/gpt-5.4-mini, demo/rules");
});
