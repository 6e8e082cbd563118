/** What things cost, how that is limited on each wire, and what of it is seen from outside. */
import assert from "node:assert/strict";
import { longestOutput } from "../src/allowance.ts";
import { prices } from "../providers/prices.ts";
import { asking, replyTo } from "./contract/model.ts";
import { dialects } from "./support/dialect.ts";
import { harness } from "./support/harness.ts";
import { calls, modelServer } from "./support/model_server.ts";
import { startService } from "./support/service.ts";

Deno.test("prices are known by vendor and model; caches make input cheaper, and dearer before", async () => {
  const priceOf = await prices();
  const all = { input: 1_000_000, output: 0 };
  for (
    const name of [
      "openai/gpt-4o-mini",
      "openai-chat/gpt-4o-mini",
      "anthropic/claude-haiku-4-5",
      "gemini/gemini-2.5-flash",
      "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
    ]
  ) {
    const price = priceOf(name)!;
    assert.ok(price(all) > 0 && price({ input: 0, output: 1_000_000 }) > price(all), name);
    assert.ok(price({ ...all, cached: 1_000_000 }) < price(all), name);
    // More cached than there is, as some servers count.
    assert.ok(
      price({ input: 10, output: 0, cached: 99, written: 99 }) <= price({ input: 10, output: 0 }),
      name,
    );
  }
  assert.equal(priceOf("openai/gpt-4o-mini")!(all), 0.15);
  const claude = priceOf("anthropic/claude-haiku-4-5")!;
  assert.ok(claude({ ...all, written: 1_000_000 }) > claude(all));
  assert.equal(priceOf("openai/nobody-knows-it"), undefined);
  assert.equal(priceOf("nobody/gpt-4o-mini"), undefined);
  assert.equal(priceOf("demo/rules")!(all), 0);
});

Deno.test("every wire says how long the answer may be, if that is limited", async () => {
  for (const each of dialects) {
    const body = async (maxOutputTokens?: number) =>
      (await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, { ...asking(), maxOutputTokens })).body;
    const limited = JSON.stringify(await body(77));
    assert.match(limited, /"(max_tokens|max_output_tokens|maxOutputTokens|maxTokens)":77\b/, each.wire);
    assert.doesNotMatch(JSON.stringify(await body()), /:77\b/);
  }
});

Deno.test("what is booked for an answer is no more than any wire would ask for", async () => {
  for (const each of dialects) {
    const { body } = await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, {
      ...asking(),
      maxOutputTokens: longestOutput,
    });
    assert.match(JSON.stringify(body), new RegExp(`:${longestOutput}\\b`), each.wire);
  }
});

Deno.test("usage adds up over the messages of a run, part by part", async () => {
  const said = (
    usage: { input: number; output: number; cached?: number; reasoning?: number; written?: number },
  ) => ({
    content: [{ type: "tool_call" as const, name: "add", arguments: {} }],
    usage,
  });
  const h = harness([
    said({ input: 10, output: 5 }),
    said({ input: 20, output: 5, cached: 10, reasoning: 2 }),
    { content: [{ type: "text", text: "ok" }], usage: { input: 30, output: 5, cached: 20, written: 7 } },
  ], { tools: [{ name: "add", description: "", parameters: { type: "object" }, execute: () => "1" }] });
  const { run } = await h.start("Go");
  assert.deepEqual((await h.ended(run)).usage, {
    input: 60,
    output: 15,
    cached: 30,
    reasoning: 2,
    written: 7,
  });
  const each = (await h.messages(run)).flatMap((message) =>
    message.role === "assistant" ? [message.usage] : []
  );
  assert.deepEqual(each.map(({ cached }) => cached), [undefined, 10, 20]);
});

Deno.test("over HTTP: a limit in money needs a price, is told in the run, and reaches the wire", async () => {
  await using vendor = modelServer(
    "openai-chat",
    (_asked, n) => n < 3 ? calls(["add", { a: 1, b: 2 }]) : "done",
  );
  await using service = await startService({ ...vendor.env, PAWL_MODEL: "openai-chat/gpt-4o-mini" });
  const refused = await service.request("POST", "/runs", {
    content: "Go",
    model: "openai-chat/nobody-knows-it",
    limits: { max_cost_usd: 1 },
  });
  assert.deepEqual([refused.status, refused.json.error.code], [400, "bad_input"]);
  assert.match(refused.json.error.message, /max_cost_usd: no price is known/);
  assert.equal(
    (await service.request("POST", "/runs", { content: "Go", limits: { max_cost_usd: 0 } })).status,
    400,
  );

  const { id } = await service.start({
    content: "Go",
    limits: { max_cost_usd: 1, max_tokens_total: 100_000 },
  });
  const run = await service.ended(id);
  assert.deepEqual([run.status, run.usage.input, run.booked], ["completed", 36, undefined]);
  // 36 in, 12 of them cached at half the price, and 21 out.
  assert.ok(Math.abs(run.cost_usd - (24 * 0.15 + 12 * 0.075 + 21 * 0.6) / 1e6) < 1e-9, `${run.cost_usd}`);
  assert.deepEqual(vendor.requests.map(({ body }) => body.max_completion_tokens), [8192, 8192, 8192]);

  const poor = await service.ended(
    (await service.start({ content: "Go", limits: { max_tokens_total: 20 } })).id,
  );
  assert.deepEqual([poor.status, poor.error.code], ["failed", "max_tokens_total"]);
  assert.equal(vendor.requests.length, 3, "nothing was asked");
});
