/** Streams as servers really send them: cut, split, out of order, and wrong in ways that were seen in the field (CASES, part B). */
import assert from "node:assert/strict";
import type { ModelReply } from "../src/model.ts";
import { byteServer, bytewise } from "./support/byte_server.ts";
import { frame as binaryFrame } from "./support/bedrock_dialect.ts";
import { chunk, dialect, dialects, done, event, type Frame } from "./support/dialect.ts";
import { add, asking, called, callsIn, refusal, replyTo, result, stored, user } from "./contract/model.ts";

const chat = dialect("openai-chat"), responses = dialect("openai"), anthropic = dialect("anthropic");

const textOf = (reply: ModelReply) =>
  reply.content.map((block) => block.type === "text" ? block.text : "").join("");

async function chatReply(chunks: Frame[]) {
  return (await replyTo(chat, { chunks })).reply;
}

for (const each of dialects) {
  const { wire, frames } = each, isBinary = wire === "bedrock";
  const call = (...args: string[]) => ({ calls: [{ id: "c1", name: "save", args }] });

  Deno.test(`${wire}: arguments cut off by the server are kept but never whole (CASES B02)`, async () => {
    const cut = '{"path":"/t/a","content":"';
    if (each.objects) {
      const { code } = await refusal(replyTo(each, { chunks: frames(call(cut)) }));
      return assert.equal(code, "network");
    }
    const [save] = callsIn((await replyTo(each, { chunks: frames(call(cut)) })).reply);
    assert.deepEqual([save?.arguments, save?.raw], [{}, cut]);
    assert.match(save!.invalid!, /not JSON/);
  });

  Deno.test(`${wire}: the output limit is reported beside arguments that still parse (CASES B03)`, async () => {
    const stop = {
      "openai-chat": "length",
      "openai": "max_output_tokens",
      "anthropic": "max_tokens",
      "gemini": "MAX_TOKENS",
      "bedrock": "max_tokens",
    }[wire];
    const { reply } = await replyTo(each, { chunks: frames({ ...call('{"path":"a.txt"}'), stop }) });
    assert.equal(reply.stopReason, "length");
    assert.deepEqual(called(reply), [["save", { path: "a.txt" }]]);
  });

  Deno.test(`${wire}: no arguments are {}, broken ones are an error (CASES B06)`, async () => {
    for (const args of [[], [""], ["  "], ["{}"]]) {
      const [now] = callsIn((await replyTo(each, { chunks: frames(call(...args)) })).reply);
      assert.deepEqual(now, { ...now, arguments: {} });
      assert.deepEqual([now?.invalid, now?.raw], [undefined, undefined]);
    }
    const broken = [["[1]", /array/], ['"x"', /string/], ['{"a"', /JSON/], ["null", /null/]] as const;
    for (const [args, why] of broken.slice(0, each.objects ? 2 : 4)) {
      const [save] = callsIn((await replyTo(each, { chunks: frames(call(args)) })).reply);
      assert.deepEqual([save?.arguments, save?.raw], [{}, args]);
      assert.match(save!.invalid!, why);
    }
  });

  Deno.test(`${wire}: integers beyond 2^53 go back as they came (DESIGN rule 6)`, async () => {
    await using server = byteServer();
    const model = each.model(server.url), { signal } = new AbortController();
    server.play({ chunks: frames(call('{"id": 12345678901234567890, "n": 1.0}')) });
    const message = stored(model, await model.reply(asking(), { signal, onDelta() {} }));
    await model.reply(asking([user("hi"), message, result("run-1-0", "ok")]), { signal, onDelta() {} });
    const { text } = server.requests[1]!;
    assert.match(text, /12345678901234567890/);
    assert.match(text, /n\\?": ?1\.0/);
  });

  Deno.test(`${wire}: one byte at a time, CRLF and a byte order mark change nothing (CASES B07)`, async () => {
    const text = "北京 🚀 e\u0301";
    const said = { text: [text], calls: [{ id: "c1", name: "save", args: [JSON.stringify({ text })] }] };
    const bytes = isBinary
      ? bytewise(...frames(said))
      : bytewise("\uFEFF" + frames(said).join("").replaceAll("\n", "\r\n"));
    const { reply, deltas } = await replyTo(each, { chunks: bytes });
    assert.equal(textOf(reply), text);
    assert.equal(deltas.map((delta) => delta.type === "text" ? delta.text : "").join(""), text);
    assert.deepEqual(called(reply), [["save", { text }]]);
  });

  Deno.test(`${wire}: comments and empty frames are ignored (CASES B08)`, async () => {
    const said = frames({ text: ["a", "b"], ...call('{"x":', "1}") });
    const empty = [
      ...[": PROCESSING\n\n", ":\n", "data:\n\n", "data: \n\n", "data\n\n"],
      ...["event: x\ndata:\n\n", "event: ping\n\n", "id: 7\nretry: 10\n\n", "\n\n\n"],
    ];
    for (const between of isBinary ? [binaryFrame({ "event-type": "ping" }, "")] : empty) {
      const { reply } = await replyTo(each, { chunks: said.flatMap((frame) => [between, frame]) });
      assert.deepEqual([textOf(reply), called(reply)], ["ab", [["save", { x: 1 }]]], String(between));
    }
  });

  Deno.test(`${wire}: a stream that ends without saying why is a failure, text or call (CASES B13)`, async () => {
    for (const said of [{ text: ["Half of"] }, call('{"a":1'), call('{"a":1}'), {}]) {
      const error = await refusal(replyTo(each, { chunks: frames({ ...said, stop: null }) }));
      assert.deepEqual([error.code, error.retryable], ["network", true]);
    }
  });

  Deno.test(`${wire}: the end mark ends the turn though the socket stays open (CASES B15)`, async () => {
    await using server = byteServer();
    server.play({ chunks: frames({ text: ["done"] }), then: "open" });
    const { signal } = new AbortController();
    const reply = await each.model(server.url).reply(asking(), { signal, onDelta() {} });
    assert.equal(textOf(reply), "done");
    await server.requests[0]!.left;
  });

  Deno.test(`${wire}: a data line of broken JSON is a failure (CASES B16)`, async () => {
    const broken = isBinary
      ? binaryFrame({ "event-type": "contentBlockDelta" }, '{"delta":{"te')
      : wire === "openai-chat"
      ? 'data: {"choices":[{"delta":{"tool_ca\n\n'
      : 'event: x\ndata: {"type":"response.outp\n\n';
    for (const end of [[], frames({ text: ["as if nothing"] })]) {
      const chunks = [...frames({ ...call('{"a":1}'), stop: null }), broken, ...end];
      assert.equal((await refusal(replyTo(each, { chunks }))).code, "network");
    }
  });

  Deno.test(`${wire}: a 200 that is no stream at all is a failure`, async () => {
    const headers = { "content-type": "text/html" };
    assert.equal((await refusal(replyTo(each, { headers, chunks: ["<html>busy</html>"] }))).code, "network");
  });
}

Deno.test("openai-chat: an error inside a 200 stream is the vendor's failure (CASES B11)", async () => {
  const errors = [
    ['data: {"error":{"code":502,"message":"worker busy"},"choices":[]}\n\n', "server", /worker busy/],
    ['data: {"error":{"code":"rate_limit_exceeded","message":"slow"}}\n\n', "rate_limit", /slow/],
    ['data: {"error":{"code":"invalid_prompt","message":"bad"}}\n\n', "bad_request", /bad/],
    ['data: {"error":{"type":"insufficient_quota","message":"pay"}}\n\n', "quota", /pay/],
    ['data: {"error":"out of memory"}\n\n', "server", /out of memory/],
    ['event: error\ndata: {"code":"rate_limit_exceeded","message":"slow"}\n\n', "rate_limit", /slow/],
    ['event: error\ndata: {"type":"insufficient_quota","message":"pay"}\n\n', "quota", /pay/],
    [chunk({}, "error") + done, "server", /error/],
  ] as const;
  for (const [frame, code, message] of errors) {
    const error = await refusal(chatReply([...chat.frames({ text: ["a", "b"], stop: null }), frame]));
    assert.equal(error.code, code, frame);
    assert.match(error.message, message);
  }
});

Deno.test("openai: response.failed and error events are the vendor's failure (CASES B11)", async () => {
  const failed = (code: string) =>
    event({
      type: "response.failed",
      response: { status: "failed", error: { code, message: "it broke" }, output: [] },
    });
  const errors = [
    [failed("server_error"), "server"],
    [failed("rate_limit_exceeded"), "rate_limit"],
    [failed("invalid_prompt"), "bad_request"],
    [event({ type: "error", code: "server_error", message: "it broke" }), "server"],
    [`data: {"type":"error","code":"rate_limit_exceeded","message":"it broke"}\n\n`, "rate_limit"],
  ] as const;
  for (const [frame, code] of errors) {
    const error = await refusal(
      replyTo(responses, { chunks: [...responses.frames({ text: ["a"], stop: null }), frame] }),
    );
    assert.equal(error.code, code, frame);
    assert.match(error.message, /it broke/);
  }
});

Deno.test("anthropic: an error event after 200 is the vendor's failure (CASES B12)", async () => {
  const errors = [
    ["overloaded_error", "overloaded"],
    ["rate_limit_error", "rate_limit"],
    ["api_error", "server"],
    ["invalid_request_error", "bad_request"],
    ["authentication_error", "auth"],
    ["brand_new_error", "server"],
  ] as const;
  for (const [type, code] of errors) {
    const frame = event({ type: "error", error: { type, message: "Overloaded" } });
    const chunks = [...anthropic.frames({ text: ["The three"], stop: null }), frame];
    const error = await refusal(replyTo(anthropic, { chunks }));
    assert.equal(error.code, code);
    assert.match(error.message, /^anthropic\/m: Overloaded$/);
  }
});

Deno.test("anthropic: a stop reason without message_stop is accepted (CASES B13)", async () => {
  const chunks = anthropic.frames({ text: ["Whole"] }).slice(0, -1);
  assert.equal(textOf((await replyTo(anthropic, { chunks })).reply), "Whole");
});

Deno.test("openai-chat: a finish_reason without [DONE] is accepted", async () => {
  assert.equal(textOf(await chatReply(chat.frames({ text: ["Whole"] }).slice(0, -1))), "Whole");
});

Deno.test("calls count although the reason says stop (CASES B18)", async () => {
  for (const [each, stop] of [[chat, "stop"], [anthropic, "end_turn"], [responses, "completed"]] as const) {
    const { reply } = await replyTo(each, {
      chunks: each.frames({ calls: [{ id: "h1", name: "f", args: ["{}"] }], stop }),
    });
    assert.deepEqual([reply.stopReason, called(reply)], ["tool_calls", [["f", {}]]]);
  }
});

Deno.test("a reason of tool calls without any is empty, with text it is an answer (CASES A24)", async () => {
  for (const [each, stop] of [[chat, "tool_calls"], [anthropic, "tool_use"]] as const) {
    for (const text of [[], [" \n"]]) {
      const error = await refusal(replyTo(each, { chunks: each.frames({ text, stop }) }));
      assert.deepEqual([error.code, error.retryable], ["empty", true]);
    }
    const { reply } = await replyTo(each, { chunks: each.frames({ text: ["Well."], stop }) });
    assert.deepEqual([reply.stopReason, textOf(reply)], ["stop", "Well."]);
  }
});

Deno.test("a refusal has its own reason, also with a call in it (CASES B19)", async () => {
  const half = [{ id: "rf1", name: "f", args: ['{"a'] }];
  const refused = [
    [anthropic, anthropic.frames({ calls: half, stop: "refusal" }), "refusal"],
    [chat, chat.frames({ calls: half, stop: "content_filter" }), "content_filter"],
    [chat, [chunk({ refusal: "no" }), chunk({}, "stop"), done], "refusal"],
    [responses, responses.frames({ text: ["a"], stop: "content_filter" }), "content_filter"],
  ] as const;
  for (const [each, chunks, detail] of refused) {
    const { reply } = await replyTo(each, { chunks: [...chunks] });
    assert.deepEqual([reply.stopReason, reply.stopDetail], ["refusal", detail]);
  }
});

Deno.test("reasons nobody knows are no success; a full context counts as length (CASES B21)", async () => {
  const reasons = [
    [anthropic, "model_context_window_exceeded", "length", undefined],
    [anthropic, "brand_new_reason", "other", "brand_new_reason"],
    [chat, "brand_new_reason", "other", "brand_new_reason"],
    [responses, "brand_new_reason", "other", "brand_new_reason"],
  ] as const;
  for (const [each, stop, stopReason, stopDetail] of reasons) {
    const { reply } = await replyTo(each, { chunks: each.frames({ text: ["Hm"], stop }) });
    assert.deepEqual([reply.stopReason, reply.stopDetail], [stopReason, stopDetail]);
  }
});

Deno.test("anthropic: unsigned thinking is never kept, redacted thinking is (CASES A15)", async () => {
  const start = (index: number, content_block: object) =>
    event({ type: "content_block_start", index, content_block });
  const [first, ...rest] = anthropic.frames({ text: ["Hi"] });
  const { reply } = await replyTo(anthropic, {
    chunks: [
      first!,
      start(7, { type: "thinking", thinking: "", signature: "" }),
      event({ type: "content_block_delta", index: 7, delta: { type: "thinking_delta", thinking: "abc" } }),
      start(8, { type: "redacted_thinking", data: "opaque+/" }),
      ...rest,
    ],
  });
  const thinking = reply.content.filter((block) => block.type === "thinking");
  assert.deepEqual(thinking, [
    {
      type: "thinking",
      text: "",
      vendor: "anthropic",
      opaque: '{"type":"redacted_thinking","data":"opaque+/"}',
    },
  ]);
});

Deno.test("openai: reasoning and calls keep their order on the way back, whatever ended first (CASES A18)", async () => {
  const items = [
    { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "e1" },
    { type: "function_call", id: "fc_1", call_id: "c1", name: "add", arguments: '{"a":1}' },
    { type: "reasoning", id: "rs_2", summary: [], encrypted_content: "e2" },
    { type: "function_call", id: "fc_2", call_id: "c2", name: "add", arguments: '{"a":2}' },
  ];
  const chunks = [
    ...items.map((item, output_index) => event({ type: "response.output_item.done", output_index, item }))
      .reverse(),
    event({ type: "response.completed", response: { status: "completed", output: [], usage: null } }),
  ];
  const message = stored(responses.model(""), (await replyTo(responses, { chunks })).reply);
  const history = [user("hi"), message, result("run-1-0", "one"), result("run-1-1", "two")];
  const { body } = await replyTo(responses, { chunks: responses.frames({ text: ["ok"] }) }, asking(history));
  assert.deepEqual(body.input.slice(1), [
    items[0],
    { ...items[1], call_id: "run-1-0" },
    items[2],
    { ...items[3], call_id: "run-1-1" },
    { type: "function_call_output", call_id: "run-1-0", output: "one" },
    { type: "function_call_output", call_id: "run-1-1", output: "two" },
  ]);
});

Deno.test("names that no vendor takes back do not poison the thread (CASES A29)", async () => {
  for (const each of dialects) {
    const names = ["get_wether", "multi_tool_use.parallel", "", "x".repeat(80)];
    const calls = names.map((name, n) => ({ id: `c${n}`, name, args: ['{"a":1}'] }));
    const { reply } = await replyTo(each, { chunks: each.frames({ calls }) });
    assert.deepEqual(callsIn(reply).map((call) => call.name), names);
    const message = stored(each.model(""), reply);
    const results = names.map((_, n) => result(`run-1-${n}`, `Unknown tool; there is ${add.name}`, true));
    await replyTo(each, { chunks: each.frames({ text: ["ok"] }) }, asking([user("hi"), message, ...results]));
  }
});
