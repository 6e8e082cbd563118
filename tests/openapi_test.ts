import assert from "node:assert/strict";
import { Validator } from "@seriousme/openapi-schema-validator";
import { systemClock } from "../src/clock.ts";
import { httpFace } from "../src/http/app.ts";
import { FakeVerbs } from "./support/fake_verbs.ts";

async function document(): Promise<any> {
  const app = httpFace(new FakeVerbs(), { tenants: [], clock: systemClock });
  return await (await app.request("/openapi.json")).json();
}

Deno.test("the description is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const result = await validator.validate(await document());
  assert.deepEqual([result.valid, result.errors, validator.version], [true, undefined, "3.1"]);
});

Deno.test("every reference leads to a component", async () => {
  const text = JSON.stringify(await document());
  const { schemas } = JSON.parse(text).components;
  for (const [, reference] of text.matchAll(/"\$ref":"([^"]+)"/g)) {
    const [, name] = /^#\/components\/schemas\/(\w+)$/.exec(reference!) ?? [];
    assert.ok(name && name in schemas, reference!);
  }
  assert.ok(!text.includes("$defs") && !text.includes("$schema"));
});

Deno.test("every operation has a name of its own, a summary, security and the failures it may answer", async () => {
  const { paths } = await document();
  const operations = Object.values<any>(paths).flatMap((path) => Object.values<any>(path));
  assert.equal(operations.length, 12);
  assert.equal(new Set(operations.map((operation) => operation.operationId)).size, operations.length);
  for (const { operationId, summary, security, responses, requestBody } of operations) {
    assert.ok(summary, operationId);
    assert.deepEqual(security, [{ key: [] }], operationId);
    for (const status of ["400", "401", "500", "503", ...(requestBody ? ["413"] : [])]) {
      assert.deepEqual(
        responses[status].content["application/json"].schema,
        { $ref: "#/components/schemas/Error" },
        `${operationId} ${status}`,
      );
    }
  }
});

Deno.test("the description says what the face does", async () => {
  const { paths, components } = await document();
  assert.deepEqual(Object.keys(paths["/runs/{id}/events"].get.responses["200"].content), [
    "text/event-stream",
  ]);
  assert.deepEqual(paths["/runs"].post.requestBody, {
    required: true,
    content: { "application/json": { schema: { $ref: "#/components/schemas/StartRun" } } },
  });
  assert.equal(paths["/runs/{id}/cancel"].post.requestBody.required, false);
  assert.deepEqual(paths["/runs/{id}"].get.parameters[1].schema, {
    type: "integer",
    minimum: 0,
    maximum: 60,
    description: "Answer when the run ends or waits, or after so many seconds",
  });
  assert.equal(components.schemas.StartRun.additionalProperties, false);
  assert.equal("additionalProperties" in components.schemas.Run, false);
  assert.ok(components.schemas.EventData.properties.type.enum.includes("resync"));
});
