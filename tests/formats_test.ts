/** Answers of a given form, on each vendor's wire. */
import assert from "node:assert/strict";
import { anthropic } from "../providers/anthropic.ts";
import { gemini } from "../providers/gemini.ts";
import { strict } from "../providers/format.ts";
import type { Json } from "../src/message.ts";
import { add, asking, replyTo } from "./contract/model.ts";
import { dialect, dialects } from "./support/dialect.ts";

type Schema = { [key: string]: Json };

const closed: Schema = {
  type: "object",
  properties: {
    seats: { type: "integer", description: "How many" },
    room: { anyOf: [{ type: "string", enum: ["hall", "bar"] }, { type: "null" }] },
    guests: {
      type: "array",
      items: {
        type: "object",
        properties: { name: { type: "string" } },
        required: ["name"],
        additionalProperties: false,
      },
    },
  },
  required: ["seats", "room", "guests"],
  additionalProperties: false,
};
const open: Schema = {
  type: "object",
  properties: { seats: { type: "integer", minimum: 1 } },
  required: ["seats"],
};

Deno.test("each wire says it in its own way, strict where the schema is closed, beside tools", async () => {
  for (const responseFormat of [closed, open]) {
    const isStrict = responseFormat === closed;
    const format = { name: "output", schema: responseFormat, strict: isStrict };
    const said = {
      "openai": ["text", { format: { type: "json_schema", ...format } }],
      "openai-chat": ["response_format", { type: "json_schema", json_schema: format }],
      "anthropic": ["output_config", { format: { type: "json_schema", schema: responseFormat } }],
      "gemini": ["generationConfig", {
        responseMimeType: "application/json",
        responseJsonSchema: responseFormat,
      }],
      "bedrock": ["outputConfig", {
        textFormat: {
          type: "json_schema",
          structure: { jsonSchema: { name: "output", schema: JSON.stringify(responseFormat) } },
        },
      }],
    } as const;
    for (const each of dialects) {
      // What is open is said to Anthropic's models in words.
      if (each.wire === "anthropic" && !isStrict) continue;
      const answer = { chunks: each.frames({ text: ['{"seats": 2}'] }) };
      const { body, reply } = await replyTo(each, answer, asking(undefined, { responseFormat }));
      const [field, value] = said[each.wire];
      assert.deepEqual(body[field], value, each.wire);
      assert.equal((body.tools ?? body.toolConfig.tools).length, 1);
      assert.deepEqual(reply.content, [{ type: "text", text: '{"seats": 2}' }]);
      const { body: plain } = await replyTo(each, answer);
      assert.deepEqual(plain[field] ?? {}, {}, "and nothing where no form is asked for");
    }
  }
});

Deno.test("who holds a model to a schema: OpenAI to any, Anthropic's newer models to a closed one", () => {
  for (const wire of ["openai", "openai-chat"] as const) {
    for (const schema of [closed, open]) assert.equal(dialect(wire).model("").formats!(schema, []), true);
  }
  const formats = (model: string, schema: Schema) =>
    anthropic(`anthropic/${model}`, { apiKey: "k" }).formats!(schema, []);
  for (
    const model of ["claude-sonnet-4-5", "claude-opus-4-1-20250805", "claude-haiku-4-5", "claude-opus-5"]
  ) {
    assert.deepEqual([formats(model, closed), formats(model, open)], [true, false], model);
  }
  for (const model of ["claude-3-5-haiku-latest", "claude-opus-4-20250514", "claude-sonnet-4-0", "other"]) {
    assert.equal(formats(model, closed), false, model);
  }
});

Deno.test("who holds a model to a schema: Gemini's older models only where they are shown no tools", () => {
  const formats = (model: string, tools: typeof add[]) =>
    gemini(`gemini/${model}`, { apiKey: "k" }).formats!(open, tools);
  for (const model of ["gemini-3.8-flash", "gemini-4-argon", "gemini-flash-latest"]) {
    assert.deepEqual([formats(model, []), formats(model, [add])], [true, true], model);
  }
  for (const model of ["gemini-2.5-pro", "models/gemini-2.0-flash", "gemini-1.5-flash-8b"]) {
    assert.deepEqual([formats(model, []), formats(model, [add])], [true, false], model);
  }
});

Deno.test("a schema is strict where all is required, nothing may be added, and no vendor knows less", () => {
  assert.ok(strict(closed));
  const part = (schema: unknown) => ({
    ...closed,
    properties: { ...closed.properties as Schema, room: schema },
  });
  assert.ok(strict(part({ enum: ["a", 1] })));
  for (
    const schema of [
      open,
      { ...closed, required: ["seats", "room"] },
      { ...closed, additionalProperties: true },
      part({ type: "string", pattern: "^a" }),
      part({ type: "object", properties: {} }),
      part({ type: "array" }),
      part({ $ref: "#" }),
      part({ anyOf: [{ type: "object" }] }),
      part({}),
      part(true),
    ]
  ) assert.ok(!strict(schema), JSON.stringify(schema));
});
