/** How the answer is read that a run is to end with: a choice, or a value (DESIGN §2). */
import assert from "node:assert/strict";
import { type Fault, judge, type Judged } from "../src/decision.ts";
import type { Settings } from "../src/run.ts";

const names = { choices: ["approve", "send back", "approve all"] };
const book = {
  type: "object",
  description: "Books a table.",
  properties: {
    seats: { type: "integer", minimum: 1 },
    room: { enum: ["hall", "bar"] },
    guests: { type: "array", items: { type: "object", properties: { name: { type: "string" } } } },
  },
  required: ["seats"],
};
const filled = { choices: { book, wait: { type: "object" } } } satisfies Settings;
const value = { responseFormat: book };

const fence = (text: string) => "```json\n" + text + "\n```";

/** What is said of an answer, in short. */
function short(judged: Judged): unknown {
  if ("fault" in judged) {
    return [judged.fault.kind, ...judged.fault.path ? [judged.fault.path] : []].join(" ");
  }
  return "choice" in judged ? judged.choice : judged.output;
}

const chose = (name: string, args?: object) => args ? { name, args } : { name };

Deno.test("an answer is a JSON object that calls a choice, or the bare name of one", () => {
  const table: [Settings, string, unknown][] = [
    [names, fence('{"call": "approve"}'), chose("approve")],
    [
      names,
      "I looked at it.\n" + fence('{"call": "send back", "args": {"x": 1}}') + "\nThat is all.",
      chose("send back"),
    ],
    [names, 'So: {"call": "approve"}.', chose("approve")],
    [names, '{"action": "approve"}', chose("approve")],
    [names, '{"function": "approve"}', chose("approve")],
    [names, '{"tool": "approve"}', chose("approve")],
    [names, "approve all", chose("approve all")],
    [names, " `approve`\n", chose("approve")],
    [names, "**approve**", chose("approve")],
    [names, "I approve", "no_action"],
    [names, "approve, or send back", "no_action"],
    [names, "", "no_action"],
    [names, '{"choice": "approve"}', "no_action"],
    [names, '{"call": 7}', "no_action"],
    [names, '["approve"]', "no_action"],
    [names, '{"call": "Approve"}', "unknown_call"],
    [names, '{"call": "constructor"}', "unknown_call"],
    [names, "constructor", "no_action"],
    // The first fenced block goes before what stands in the text, and data is no call.
    [names, '{"call": "approve"} and then ' + fence('{"call": "send back"}'), chose("send back")],
    [names, fence('{"found": {"call": "no"}}') + fence('{"call": "approve"}'), chose("approve")],
    [names, 'In {braces} and {"a": "}"} I say {"call": "approve"}', chose("approve")],
    [names, '{"call": "approve"', "no_action"],
    [
      filled,
      fence('{"call": "book", "args": {"seats": 2, "room": "bar"}}'),
      chose("book", { seats: 2, room: "bar" }),
    ],
    // Code within an argument may hold fences, and any bracket.
    [
      filled,
      fence('{"call": "wait", "args": {"md": "```\\n}{ \\" ]\\n```"}}'),
      chose("wait", { md: '```\n}{ " ]\n```' }),
    ],
    [filled, '{"call": "wait"}', chose("wait", {})],
    [filled, '{"call": "wait", "args": null}', chose("wait", {})],
    [filled, "wait", chose("wait", {})],
    [filled, "book", "missing_required args.seats"],
    [filled, '{"call": "book", "args": {}}', "missing_required args.seats"],
    [filled, '{"call": "book", "args": [2]}', "bad_args args"],
    [filled, '{"call": "book", "args": "{\\"seats\\": 2}"}', "bad_args args"],
    [filled, '{"call": "book", "args": {"seats": "2"}}', "type_mismatch args.seats"],
    [filled, '{"call": "book", "args": {"seats": true}}', "type_mismatch args.seats"],
    [filled, '{"call": "book", "args": {"seats": 2.5}}', "type_mismatch args.seats"],
    [filled, '{"call": "book", "args": {"seats": 2, "room": "attic"}}', "enum_violation args.room"],
    [filled, '{"call": "book", "args": {"seats": 0}}', "bad_args args.seats"],
    [
      filled,
      '{"call": "book", "args": {"seats": 2, "guests": [{}, {"name": 7}]}}',
      "type_mismatch args.guests[1].name",
    ],
    [value, '{"seats": 2}', { seats: 2 }],
    [value, "Here:\n" + fence('{"seats": 2}'), { seats: 2 }],
    [value, '{"seats": 2, "note": "```\\n{}\\n```"}', { seats: 2, note: "```\n{}\n```" }],
    [value, '{\n "note": "a ```",\n "seats": 2,\n "more": "```"\n}', {
      note: "a ```",
      seats: 2,
      more: "```",
    }],
    [value, "Two seats", "no_value"],
    [value, "[2]", "no_value"],
    [value, '{"seats": 2', "no_value"],
    [value, '{"seats": null}', "type_mismatch value.seats"],
    [value, '{"seats": 0}', "bad_value value.seats"],
  ];
  for (const [asked, text, expected] of table) assert.deepEqual(short(judge(asked, text)), expected, text);
});

Deno.test("a fault says where it is, and what is wrong with the JSON", () => {
  const fault = (text: string) => (judge(filled, text) as { fault: Fault }).fault;
  assert.equal(fault('So {"call": "nothing"}').position, 3);
  assert.match(fault('{"call": "nothing"}').message, /no choice "nothing"; there are: book, wait/);
  assert.match(fault(fence('{"call": "book" "args": {}}')).message, /its JSON is malformed: .*position 16/);
  assert.match(
    fault('{"call": "book", "args": {"seats": "2", "room": 1}}').message,
    /args\.seats: .*; args\.room: /,
  );
});

Deno.test("what was cut off is not looked at, and odd text costs no more than reading it", () => {
  assert.equal(short(judge(names, "approve", true)), "no_action");
  assert.equal(short(judge(value, '{"seats": 2}', true)), "no_value");
  const odd = ["{".repeat(200_000), '{"call":'.repeat(100_000), "```\n".repeat(100_000), "`".repeat(200_000)];
  odd.push('{"call": "wait", "args": ' + '{"a":'.repeat(5000) + "1" + "}".repeat(5001));
  const began = performance.now();
  for (const text of odd) assert.equal(short(judge(filled, text)), "no_action");
  assert.ok(performance.now() - began < 5000);
});

Deno.test("a schema that never ends fails the answer, not the slice", () => {
  const endless = { properties: { a: { $ref: "#/$defs/b" } }, $defs: { b: { $ref: "#/$defs/b" } } };
  assert.match(
    String(short(judge({ choices: { x: endless } }, '{"call": "x", "args": {"a": 1}}'))),
    /^bad_args/,
  );
});
