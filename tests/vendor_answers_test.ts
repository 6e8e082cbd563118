/** Answers that are no stream, streams that never end, and what stands in them where nobody expects it. */
import assert from "node:assert/strict";
import { byteServer } from "./support/byte_server.ts";
import { chunk, dialect, dialects, done } from "./support/dialect.ts";
import { asking, called, callsIn, refusal, replyTo, result, stored, user } from "./contract/model.ts";

const chat = dialect("openai-chat");
const json = { "content-type": "application/json" };

for (const each of dialects) {
  const { wire, frames } = each;
  const saving = (args: string) => ({ calls: [{ id: "c1", name: "save", args: [args] }] });

  Deno.test(`${wire}: nothing follows a vendor to another address (CASES H02)`, async () => {
    await using elsewhere = byteServer();
    elsewhere.play({ chunks: frames({ text: ["Mine now"] }) });
    for (const status of [301, 302, 303, 307, 308]) {
      const headers = { location: `${elsewhere.url}/x` };
      const error = await refusal(replyTo(each, { status, headers, chunks: [] }));
      assert.deepEqual([error.code, error.retryable], ["bad_request", false]);
      assert.match(error.message, /redirects to http.* base URL/);
    }
    assert.equal(elsewhere.requests.length, 0);
  });

  Deno.test(`${wire}: an error in a 200 that is no stream is the vendor's failure, not the line's (CASES B11)`, async () => {
    const errors = [
      ["authentication_error", "auth"],
      ["insufficient_quota", "quota"],
      ["rate_limit_exceeded", "rate_limit"],
      ["brand_new_error", "server"],
    ] as const;
    for (const [word, code] of errors) {
      for (const headers of [json, { "content-type": "application/json; charset=utf-8" }]) {
        const error = await refusal(replyTo(each, { headers, chunks: [each.error(word, "it\nbroke")] }));
        assert.equal(error.code, code);
        assert.match(error.message, /it\nbroke$/);
      }
    }
  });

  Deno.test(`${wire}: what answers without a stream is shown, and a stream under another name is read`, async () => {
    const answers = [[json, '{"choices":[]}'], [{ "content-type": "text/html" }, "<p>Log in"]] as const;
    for (const [headers, body] of answers) {
      const { code, message } = await refusal(
        replyTo(each, { headers, chunks: [body] }),
      );
      assert.equal(code, "network");
      assert.ok(message.endsWith(`: ${body}`), message);
    }
    const { reply } = await replyTo(each, { headers: json, chunks: frames(saving('{"a":1}')) });
    assert.deepEqual(called(reply), [["save", { a: 1 }]]);
  });

  Deno.test(`${wire}: a message that is whole is taken although its stream stays open without an end (CASES B15)`, async () => {
    const ends = {
      "openai-chat": [0, 1, 2],
      "openai": [0],
      "anthropic": [0, 1],
      "gemini": [0],
      "bedrock": [0, 1],
    }[wire];
    await Promise.all(ends.map(async (missing) => {
      await using server = byteServer();
      const all = frames(saving('{"a":1}')), { signal } = new AbortController();
      server.play({ chunks: all.slice(0, all.length - missing), then: "open" });
      const reply = await each.model(server.url).reply(asking(), { signal, onDelta() {} });
      assert.deepEqual(called(reply), [["save", { a: 1 }]]);
      await server.requests[0]!.left;
    }));
  });

  Deno.test(`${wire}: arguments nested deeper than anybody can write are refused as such (CASES H07)`, async () => {
    const nested = (levels: number) => `{"a":${"[".repeat(levels - 1)}${"]".repeat(levels - 1)}}`;
    const [fits] = callsIn((await replyTo(each, { chunks: frames(saving(nested(100))) })).reply);
    assert.equal(fits?.invalid, undefined);
    const model = each.model("");
    for (const levels of [101, 100_000]) {
      const { reply } = await replyTo(each, { chunks: frames(saving(nested(levels))) });
      const [deep] = callsIn(reply);
      assert.deepEqual([deep?.arguments, deep?.raw], [{}, each.objects ? undefined : nested(levels)]);
      assert.match(deep!.invalid!, /deeper than 100/);
      const history = [user("hi"), stored(model, reply), result("run-1-0", "Invalid", true)];
      await replyTo(each, { chunks: frames({ text: ["ok"] }) }, asking(history));
    }
  });

  Deno.test(`${wire}: half a surrogate pair hides in no escape of a call's arguments (CASES A27)`, async () => {
    for (const half of ["\\uD83D", "\\ud83d", "\\uDE00\\uD83D"]) {
      const args =
        `{"${half}k": {"${half}": ["x${half}"]}, "n": 12345678901234567890, "whole": "\\uD83D\\uDE00"}`;
      const { reply } = await replyTo(each, { chunks: frames(saving(args)) });
      if (!each.objects) assert.equal(callsIn(reply)[0]!.raw, args);
      await using server = byteServer();
      server.play({ chunks: frames({ text: ["ok"] }) });
      const model = each.model(server.url), { signal } = new AbortController();
      const history = [user("hi"), stored(model, reply), result("run-1-0", "ok")];
      await model.reply(asking(history), { signal, onDelta() {} });
      const { text } = server.requests[0]!;
      assert.ok(text.includes("12345678901234567890") && text.includes("\u{1F600}"), text);
      assert.ok(!/\\u[dD][89a-fA-F]/.test(text) && text.includes("\ufffdk"), text);
    }
  });
}

Deno.test("openai-chat: usage that is no count of tokens is none (CASES B09)", async () => {
  const counts: [unknown, number][] = [["12", 12], [12.4, 12], [-3, 0], ["many", 0], [null, 0], [1e30, 0], [
    {},
    0,
  ]];
  for (const [count, counted] of counts) {
    const usage = {
      prompt_tokens: count,
      completion_tokens: count,
      prompt_tokens_details: { cached_tokens: count },
    };
    const chunks = [
      chunk({ content: "hi" }, "stop"),
      `data: ${JSON.stringify({ choices: [], usage })}\n\n`,
      done,
    ];
    const { reply } = await replyTo(chat, { chunks });
    const cached = count === null ? {} : { cached: counted };
    assert.deepEqual(reply.usage, { input: counted, output: counted, ...cached }, JSON.stringify(count));
  }
});

Deno.test("openai-chat: text may come in parts (CASES B04)", async () => {
  const parts = (...texts: string[]) => chunk({ content: texts.map((text) => ({ type: "text", text })) });
  const { reply, deltas } = await replyTo(chat, {
    chunks: [parts("Hel"), parts("l", "o"), parts(), chunk({ content: "!" }, "stop"), done],
  });
  assert.deepEqual(reply.content, [{ type: "text", text: "Hello!" }]);
  assert.deepEqual(deltas.map(({ text }) => text), ["Hel", "lo", "!"]);
});
