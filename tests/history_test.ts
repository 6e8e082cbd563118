/** Faults of a transcript and how they are mended before it is sent (CASES, part A). */
import assert from "node:assert/strict";
import { wireId } from "../providers/call.ts";
import { repair } from "../providers/history.ts";
import { FatalError } from "../src/errors.ts";
import type { AssistantMessage, Message } from "../src/message.ts";
import { add, asking, result, user } from "./contract/model.ts";
import { faultOf } from "./support/strict.ts";
import { assistant, bodies, call, sent, text, wires } from "./support/transcript.ts";

const shape = (messages: Message[]) =>
  messages.map((message) =>
    message.role === "tool" ? `${message.toolCallId}:${message.content}` : message.role
  );

Deno.test("a call without a result gets one that says so (CASES A01, A02)", () => {
  const repaired = repair([
    user("go"),
    assistant([call("a"), call("b"), call("c")]),
    result("a", "real"),
    user("carry on"),
  ]);
  assert.deepEqual(shape(repaired), [
    "user",
    "assistant",
    "a:real",
    "b:No result provided",
    "c:No result provided",
    "user",
  ]);
  assert.deepEqual(repaired.map((message) => message.role === "tool" && message.isError), [
    false,
    false,
    false,
    true,
    true,
    false,
  ]);
});

Deno.test("orphans and second results are dropped (CASES A11)", () => {
  const repaired = repair([
    user("go"),
    result("nobody", "?"),
    assistant([call("a"), call("a")]),
    result("a", "first"),
    result("a", "second"),
    assistant([call("a")]),
    user("on"),
  ]);
  assert.deepEqual(shape(repaired), ["user", "assistant", "a:first", "user"]);
  assert.equal((repaired[1] as AssistantMessage).content.length, 1);
});

Deno.test("anthropic: results come first and in order, then what the user said meanwhile (CASES A07, A20)", () => {
  const { messages } = sent("anthropic", [
    user("go"),
    assistant([call("a"), call("b")]),
    result("b", "B"),
    user("a note"),
    result("a", "A"),
    user("another"),
  ]);
  assert.equal(messages.length, 3);
  assert.deepEqual(
    messages[2].content.map((block: any) => block.tool_use_id ?? block.text),
    ["a", "b", "a note", "another"],
  );
});

Deno.test("nothing empty is sent; silent tools get a visible result (CASES A22)", () => {
  const messages = [
    user("go"),
    assistant([text(""), call("a")]),
    result("a", ""),
    assistant([text(" \n")], { stopReason: "stop" }),
    { ...user(""), content: [text(" "), text("next")] },
    assistant([], { stopReason: "stop" }),
    user("  "),
  ];
  assert.deepEqual(repair(messages).map((message) => message.content), [
    "go",
    [call("a")],
    "(no output)",
    [text("next")],
    "(empty message)",
  ]);
  for (const wire of wires) assert.equal(faultOf(wire, sent(wire, messages)), undefined);
});

Deno.test("what is stored stays as it is", () => {
  const messages = [
    user("go"),
    assistant([text(""), call("a"), call("a")]),
    result("a", ""),
    result("b", "?"),
  ];
  const before = structuredClone(messages);
  repair(messages);
  assert.deepEqual(messages, before);
});

Deno.test("a transcript that asks nothing is an operator's error, not a request (CASES A23)", () => {
  for (const messages of [[], [user("go"), assistant([text("done")])], [result("x", "orphan")]]) {
    assert.throws(() => repair(messages), (error) => error instanceof FatalError && error.code === "history");
  }
});

Deno.test("half a surrogate pair becomes U+FFFD, wherever it is (CASES A27)", () => {
  const half = "x\uDE00y", mended = "x\uFFFDy";
  const messages = [
    user(half),
    assistant([text(half), call("a", { arguments: { [half]: [half] }, raw: `{"${half}":["\\ude00"]}` })]),
    result("a", half),
  ];
  for (const wire of wires) {
    const body = sent(wire, messages, { system: half, tools: [{ ...add, description: half }] });
    assert.equal(faultOf(wire, body), undefined);
    assert(JSON.stringify(body).includes(mended));
  }
});

Deno.test("thinking at a message's end is not sent, nor a message of thinking alone (CASES A18)", () => {
  const signed = {
    type: "thinking",
    text: "hm",
    vendor: "anthropic",
    opaque: '{"type":"thinking","signature":"s"}',
  } as const;
  const repaired = repair([
    user("go"),
    assistant([signed, text("So"), signed]),
    user("on"),
    assistant([signed], { stopReason: "length" }),
    user("on"),
  ]);
  assert.deepEqual(shape(repaired), ["user", "assistant", "user", "user"]);
  assert.deepEqual((repaired[1] as AssistantMessage).content, [signed, text("So")]);
});

Deno.test("what compaction leaves begins with the user", () => {
  const repaired = repair([assistant([call("a")]), result("a", "1"), user("on")]);
  assert.deepEqual(shape(repaired), ["user", "assistant", "a:1", "user"]);
});

Deno.test("ids that are too long or odd are replaced, alike for call and result and without collision (CASES A13)", () => {
  const long = "gem." + "x".repeat(64);
  const ids = [long + "a1", long + "a2", "", "ok-1_b", "a".repeat(40), "a".repeat(41)];
  const mapped = ids.map(wireId);
  assert.equal(new Set(mapped).size, ids.length);
  assert.deepEqual(mapped.slice(3, 5), ids.slice(3, 5));
  assert.equal(wireId(long), "call_" + wireId(long).slice(5), "stable");
  for (const wire of wires) {
    const messages = [user("go"), assistant(ids.map((id) => call(id))), ...ids.map((id) => result(id, id))];
    assert.equal(faultOf(wire, sent(wire, messages)), undefined);
  }
});

Deno.test("the strict stand-ins refuse what is not mended", () => {
  const faulty: [string, Message[]][] = [
    ["missing result", [user("go"), assistant([call("a")]), user("on")]],
    ["orphan", [user("go"), result("a", "1")]],
    ["repeated id", [user("go"), assistant([call("a"), call("a")]), result("a", "1"), result("a", "1")]],
    ["ends on the assistant", [user("go"), assistant([text("done")])]],
    ["empty text", [user(" ")]],
    ["half a pair", [user("x\uDE00y")]],
    ["no messages", []],
  ];
  for (const wire of wires) {
    for (const [fault, messages] of faulty) {
      const body = JSON.parse(JSON.stringify(bodies[wire]("m", asking(messages))));
      assert(faultOf(wire, body), `${wire}: ${fault}`);
    }
  }
});
