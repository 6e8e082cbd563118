/** How calls and usage are put together from the deltas that servers really send, most of them in Chat Completions. */
import assert from "node:assert/strict";
import { called, refusal, replyTo } from "./contract/model.ts";
import { chunk, dialect, done, event } from "./support/dialect.ts";

/** Chat frames with these tool deltas, one a frame, and an end. */
const deltas = (parts: unknown[], finish = "tool_calls") => [
  ...parts.map((part) => chunk({ tool_calls: [part] })),
  chunk({}, finish),
  done,
];
const fn = (name: string | undefined, args: string | undefined, rest: object = {}) => ({
  ...rest,
  function: { name, arguments: args },
});

async function chatReply(chunks: string[]) {
  return (await replyTo(dialect("openai-chat"), { chunks })).reply;
}

Deno.test("openai-chat: deltas without index become separate calls, arguments may precede the name (CASES B04)", async () => {
  const reply = await chatReply(deltas([
    fn(undefined, '{"x":', { id: "a1" }),
    fn(undefined, "1}"),
    fn("g", "{}", { id: "a2" }),
    fn("f", undefined, { id: "a1" }),
  ]));
  assert.deepEqual(called(reply), [["f", { x: 1 }], ["g", {}]]);
});

Deno.test("openai-chat: colliding indexes, missing and repeated ids still make two calls (CASES A10, A12, B04)", async () => {
  const q = (value: string) => JSON.stringify({ q: value });
  const starts: { id?: string; index?: number | null }[][] = [
    [{ id: "a", index: 0 }, { id: "b", index: 0 }],
    [{ id: "same", index: 0 }, { id: "same", index: 0 }],
    [{ id: "same" }, { id: "same" }],
    [{ index: 0 }, { index: 0 }],
    [{ id: "", index: null }, { id: "", index: null }],
    [{}, {}],
  ];
  for (const [first, second] of starts) {
    const whole = await chatReply(deltas([fn("lookup", q("a"), first), fn("lookup", q("b"), second)]));
    assert.deepEqual(called(whole), [["lookup", { q: "a" }], ["lookup", { q: "b" }]], JSON.stringify(first));
    const pieces = await chatReply(deltas([
      fn("lookup", "", first),
      fn(undefined, '{"q":', { index: first!.index }),
      fn(undefined, '"a"}', { index: first!.index }),
      fn("lookup", '{"q":', second),
      fn(undefined, '"b"}', { index: second!.index }),
    ]));
    assert.deepEqual(called(pieces), [["lookup", { q: "a" }], ["lookup", { q: "b" }]], JSON.stringify(first));
  }
});

Deno.test("openai-chat: a name that is repeated with each delta, or once more at the end, is one call (CASES B04)", async () => {
  const at = { index: 0, id: "a" };
  const reply = await chatReply(
    deltas([fn("f", "", at), fn("f", '{"x"', at), fn("f", ":1}", at), fn("f", "", at)]),
  );
  assert.deepEqual(called(reply), [["f", { x: 1 }]]);
});

Deno.test("openai-chat: an empty finish_reason is not the end (CASES B08)", async () => {
  const reply = await chatReply([
    chunk({ tool_calls: [fn("f", '{"x":', { index: 0, id: "a" })] }),
    ": ping\n\n",
    chunk({}, ""),
    chunk({ tool_calls: [fn(undefined, "1}", { index: 0 })] }),
    chunk({}, "tool_calls"),
    done,
  ]);
  assert.deepEqual(called(reply), [["f", { x: 1 }]]);
  assert.equal(
    (await chatReply([chunk({ content: "a" }), chunk({}, "stop"), chunk({}, ""), done])).stopReason,
    "stop",
  );
  assert.equal((await refusal(chatReply([chunk({ content: "a" }), chunk({}, "")]))).code, "network");
});

Deno.test("openai-chat: chunks without choices, delta or both are taken (CASES B09)", async () => {
  const usage = { usage: { prompt_tokens: 7, completion_tokens: 3 } };
  for (const last of [{ choices: [], ...usage }, usage, { choices: null, ...usage }]) {
    const reply = await chatReply([
      'data: {"choices":[{"index":0,"finish_reason":null}]}\n\n',
      'data: {"choices":[{"index":0,"delta":null}]}\n\n',
      chunk({ tool_calls: [fn("f", "{}", { index: 0, id: "a" })] }),
      chunk({}, "tool_calls"),
      `data: ${JSON.stringify(last)}\n\n`,
      done,
    ]);
    assert.deepEqual([called(reply), reply.usage], [[["f", {}]], { input: 7, output: 3 }]);
  }
});

Deno.test("openai-chat: usage on every chunk is neither the end nor summed (CASES B10)", async () => {
  const counted = (k: number) => ({ usage: { prompt_tokens: 10, completion_tokens: k } });
  const reply = await chatReply([
    chunk({ tool_calls: [fn("f", "", { index: 0, id: "a" })] }, null, counted(1)),
    ...['{"x"', ":", "1}"].map((args, k) =>
      chunk({ tool_calls: [fn(undefined, args, { index: 0 })] }, null, counted(k + 2))
    ),
    chunk({}, "tool_calls", counted(5)),
    chunk({}, null, { usage: null }),
    done,
  ]);
  assert.deepEqual([called(reply), reply.usage], [[["f", { x: 1 }]], { input: 10, output: 5 }]);
});

const places: (number | undefined)[][] = [[0, 0], [undefined, undefined], [3, 3], [5, 2]];

Deno.test("anthropic: blocks that share an index, or have none, are separate (CASES B04)", async () => {
  for (const indexes of places) {
    const blocks = indexes.flatMap((index, n) => [
      event({
        type: "content_block_start",
        index,
        content_block: { type: "tool_use", id: "t", name: "f", input: {} },
      }),
      ...['{"n":', `${n}}`].map((partial_json) =>
        event({ type: "content_block_delta", index, delta: { type: "input_json_delta", partial_json } })
      ),
      event({ type: "content_block_stop", index }),
    ]);
    const end = dialect("anthropic").frames({ stop: "tool_use" });
    const { reply } = await replyTo(dialect("anthropic"), {
      chunks: [...end.slice(0, -2), ...blocks, ...end.slice(-2)],
    });
    assert.deepEqual(called(reply), [["f", { n: 0 }], ["f", { n: 1 }]], `${indexes}`);
  }
});

Deno.test("openai: items that share an index, or have none, are separate, whatever the end lists (CASES B04)", async () => {
  for (const indexes of places.slice(0, 3)) {
    for (const ids of [["a", "b"], [undefined, undefined]]) {
      const items = indexes.map((output_index, n) =>
        event({
          type: "response.output_item.done",
          output_index,
          item: { type: "function_call", id: ids[n], call_id: "c", name: "f", arguments: `{"n":${n}}` },
        })
      );
      const response = { status: "completed", output: [], usage: null };
      const { reply } = await replyTo(dialect("openai"), {
        chunks: [...items, event({ type: "response.completed", response })],
      });
      assert.deepEqual(called(reply), [["f", { n: 0 }], ["f", { n: 1 }]], `${indexes} ${ids}`);
    }
  }
});

Deno.test("usage may stand in any chunk; what is not said again stays as it was (CASES B10)", async () => {
  const usage = { prompt_tokens: 10, completion_tokens: 5 }, counted = { usage };
  for (
    const chunks of [
      [chunk({ content: "a" }, null, counted), chunk({}, "stop"), done],
      [chunk({ content: "a" }, "stop", counted), done],
      [`data: ${JSON.stringify(counted)}\n\n`, chunk({ content: "a" }, "stop"), done],
      [chunk({ content: "a" }, "stop"), chunk({}, null, counted)],
    ]
  ) {
    const { reply } = await replyTo(dialect("openai-chat"), { chunks });
    assert.deepEqual([reply.stopReason, reply.usage], ["stop", { input: 10, output: 5 }]);
  }
  const text = dialect("anthropic").frames({ text: ["a"], stop: null }).slice(1);
  const start = (usage?: object) => event({ type: "message_start", message: { usage } });
  const delta = (usage?: object, stop_reason: string | null = null) =>
    event({ type: "message_delta", delta: { stop_reason }, usage });
  const stop = event({ type: "message_stop" });
  for (
    const chunks of [
      [start({ input_tokens: 10, output_tokens: 5 }), ...text, delta(undefined, "end_turn"), stop],
      [start(), ...text, delta({ input_tokens: 10, output_tokens: 5 }, "end_turn"), stop],
      [
        start({ input_tokens: 10, output_tokens: 1 }),
        ...text,
        delta({ output_tokens: 3 }),
        delta({ input_tokens: null, output_tokens: 5 }, "end_turn"),
        delta(),
        stop,
      ],
    ]
  ) {
    const { reply } = await replyTo(dialect("anthropic"), { chunks });
    assert.deepEqual([reply.stopReason, reply.usage], ["stop", { input: 10, output: 5 }]);
  }
});
