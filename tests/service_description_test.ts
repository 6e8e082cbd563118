/** What the service answers is what /openapi.json says that it answers, whatever models, tools and callers said. */
import assert from "node:assert/strict";
import { type Schema, validate } from "@cfworker/json-schema";
import { calls } from "./support/model_server.ts";
import { scene } from "./support/scene.ts";
import type { Answer } from "./support/service.ts";

const ask = { name: "ask_user", description: "Asks.", parameters: { type: "object" } };
const png = { type: "image", media_type: "image/png", data: "AAAA" };

for (const wire of ["openai-chat", "openai", "anthropic"] as const) {
  Deno.test(`answers are as described, also of odd runs (${wire})`, async () => {
    await using it = await scene(wire, ({ last, results }) => {
      if (last === "fail") return { status: 400, code: "x", message: "no" };
      if (last === "ask") return calls(["ask_user"]);
      if (last !== "odd") return { text: results.length ? [] : ["ok"] };
      return {
        text: [" \n"],
        calls: ["{", "[1]", '{"kind":"empty"}', '{"kind":"blank"}', '{"kind":"half"}', '{"kind":"nul"}', ""]
          .map((
            args,
          ) => ({ id: "same", name: "echo", args: [args] })),
      };
    });
    const { service } = it;
    const document = (await service.request("GET", "/openapi.json")).json;
    /** The answer's body, which must be as described. */
    const described = async (method: string, path: string, template: string, body?: unknown) => {
      const answer: Answer = await service.request(method, path, body);
      const { content } = document.paths[template][method.toLowerCase()].responses[answer.status];
      fits(answer.json, content["application/json"].schema, `${method} ${path}: ${answer.text}`);
      return answer;
    };
    const fits = (value: unknown, schema: Schema, what: string) => {
      // The "$ref"s lead into the document.
      const { valid, errors } = validate(value, { ...schema, components: document.components } as Schema);
      assert.ok(valid, `${what}\n${JSON.stringify(errors, null, 2)}`);
    };

    const settings = { tools: ["echo", ask], metadata: { a_b: ["\ud800", {}] } };
    for (const content of ["odd", "fail", "ask", [{ type: "text", text: "" }, png]]) {
      const { json } = await described("POST", "/runs", "/runs", { content, ...settings });
      const { id, thread } = json;
      if (content === "ask") {
        const [{ tool_call_id }] = (await service.reaches(id, "waiting")).waiting_for;
        await described("GET", `/runs/${id}`, "/runs/{id}");
        const answered = { tool_call_id, content: "" };
        await described("POST", `/runs/${id}/tool_results`, "/runs/{id}/tool_results", answered);
        await service.ended(id);
        await described("POST", `/runs/${id}/tool_results`, "/runs/{id}/tool_results", answered);
        await described("POST", `/runs/${id}/cancel`, "/runs/{id}/cancel", {});
      }
      await service.ended(id);
      await described("GET", `/runs/${id}`, "/runs/{id}");
      const { json: said } = await described("GET", `/runs/${id}/messages`, "/runs/{id}/messages");
      assert.equal(said.messages.length, { odd: 10, fail: 1, ask: 4 }[String(content)] ?? 2);
      await described("GET", `/threads/${thread}/messages`, "/threads/{id}/messages");
      const events = (await service.request("GET", `/runs/${id}/events`)).text;
      for (const [, data] of events.matchAll(/^data: (.*)$/gm)) {
        fits(JSON.parse(data!), { $ref: "#/components/schemas/EventData" }, data!);
      }
      const sent = await described("POST", `/runs/${id}/steering`, "/runs/{id}/steering", {
        content: "more",
      });
      await service.ended(sent.json.run);
    }
    await described("GET", "/runs", "/runs");
    await described("GET", "/tools", "/tools");
    await described("POST", "/runs", "/runs", { content: 7 });
    await described("POST", "/runs", "/runs", { content: "x".repeat(1_100_000) });
    await described("GET", "/runs/a~b", "/runs/{id}");
  });
}
