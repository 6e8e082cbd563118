/** Whatever a transcript has been through, every vendor takes it (DESIGN rule 9). */
import assert from "node:assert/strict";
import fc from "fast-check";
import { repair } from "../providers/history.ts";
import { FatalError } from "../src/errors.ts";
import type { AssistantBlock, Message, ToolCall } from "../src/message.ts";
import { result, user } from "./contract/model.ts";
import { faultOf } from "./support/strict.ts";
import { assistant, call, sent, text, wires } from "./support/transcript.ts";

/** Histories as runs leave them: every fault that a crash, a cancel, an odd model or a compaction can put into one. */
const histories = fc.array(turn(), { maxLength: 5 }).map((turns) => turns.flatMap((turn, n) => turn(n)));

function turn(): fc.Arbitrary<(n: number) => Message[]> {
  const words = fc.constantFrom("", " ", "hello", "x\uDE00y", "北京 🚀");
  const ownCall = fc.record({
    name: fc.constantFrom("add", "", "multi_tool_use.parallel", "x".repeat(80)),
    sent: fc.constantFrom(
      { raw: "{" },
      { raw: '{"n":12345678901234567890}' },
      { raw: '{"a":"\\ude00"}' },
      {},
    ),
    opaque: fc.boolean(),
  });
  const block = fc.oneof(
    words.map(text),
    fc.constantFrom("anthropic", "openai", "openai-chat", "gemini", "bedrock").map((vendor) => ({
      thinking: vendor,
    })),
    ownCall,
  );
  return fc.record({
    prompts: fc.array(words, { maxLength: 2 }),
    blocks: fc.array(block, { maxLength: 4 }),
    vendor: fc.constantFrom(...wires),
    answered: fc.array(fc.constantFrom("real", "silent", "error", "twice", "late", "none"), { maxLength: 4 }),
    orphan: fc.boolean(),
  }).map(({ prompts, blocks, vendor, answered, orphan }) => (n) => {
    let index = 0;
    const content = blocks.map((block): AssistantBlock => {
      if ("type" in block) return block;
      if ("thinking" in block) return thinking(block.thinking);
      const id = `run-${n}-${index++}`;
      const own = { openai: `{"id":"fc_${id}"}`, gemini: '{"thoughtSignature":"c2ln"}' } as const;
      const opaque = block.opaque && vendor in own ? { opaque: own[vendor as keyof typeof own] } : {};
      const invalid = block.sent.raw === "{" ? { invalid: "not JSON" } : {};
      const args: ToolCall["arguments"] = block.sent.raw?.includes("ude00") ? { a: "\uDE00" } : {};
      return { ...call(id, { name: block.name, arguments: args }), ...block.sent, ...invalid, ...opaque };
    });
    const results = Array.from({ length: index }, (_, at): [string, Message[]] => {
      const id = `run-${n}-${at}`, how = answered[at] ?? "real";
      if (how === "none") return [how, []];
      if (how === "twice") return [how, [result(id, "1"), result(id, "2")]];
      return [how, [result(id, how === "silent" ? "" : how, how === "error")]];
    });
    const those = (late: boolean) =>
      results.flatMap(([how, messages]) => (how === "late") === late ? messages : []);
    return [
      ...prompts.map(user),
      assistant(content, { model: `${vendor}/m` }),
      ...those(false),
      ...(orphan ? [result(`nobody-${n}`, "?")] : []),
      user("meanwhile"),
      ...those(true),
    ];
  });
}

function thinking(vendor: string): AssistantBlock {
  const opaque = vendor === "anthropic"
    ? { type: "thinking", thinking: "hm", signature: "s" }
    : vendor === "gemini"
    ? { thoughtSignature: "c2ln" }
    : vendor === "bedrock"
    ? { reasoningContent: { reasoningText: { text: "hm", signature: "s" } } }
    : { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "e" };
  return {
    type: "thinking",
    text: "hm",
    vendor,
    ...(vendor === "openai-chat" ? {} : { opaque: JSON.stringify(opaque) }),
  };
}

Deno.test("any history, cut anywhere at either end, is taken by every vendor once repaired (DESIGN rule 9)", () => {
  fc.assert(
    fc.property(histories, fc.nat(30), fc.nat(30), (history, from, length) => {
      const messages = history.slice(from, from + length);
      for (const wire of wires) {
        try {
          assert.equal(faultOf(wire, sent(wire, messages)), undefined);
        } catch (error) {
          // Only where nothing is asked.
          assert(error instanceof FatalError && messages.at(-1)?.role !== "user", String(error));
        }
      }
    }),
    { numRuns: 500 },
  );
});

Deno.test("repair keeps every real result, and mends nothing twice", () => {
  fc.assert(
    fc.property(histories, (history) => {
      const messages = [user("go"), ...history, user("on")];
      const once = repair(messages);
      assert.deepEqual(repair(once), once);
      const called = new Set(
        messages.flatMap((message) => message.role === "assistant" ? message.content : [])
          .flatMap((block) => block.type === "tool_call" ? [block.id] : []),
      );
      const real = new Set(
        messages.flatMap((m) => m.role === "tool" && called.has(m.toolCallId) ? [m.toolCallId] : []),
      );
      for (const id of real) {
        const [kept, ...more] = once.filter((message) =>
          message.role === "tool" && message.toolCallId === id
        );
        assert(kept && kept.content !== "No result provided" && more.length === 0);
      }
    }),
    { numRuns: 300 },
  );
});
