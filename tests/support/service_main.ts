/** The service as main.ts runs it, with tools that tests need besides: effects that can be counted, bodies that misbehave. */
import * as z from "zod";
import { serve } from "../../main.ts";
import { defineTool } from "../../src/mod.ts";
import { tools } from "../../tools/mod.ts";

/** A tool whose effect is a POST to the test's effect server; it ends when that answers. */
function effective(name: string, more: { replay?: "safe"; parallel?: true; deaf?: true } = {}) {
  const { deaf, ...rest } = more;
  return defineTool({
    name,
    description: `Does ${name}.`,
    parameters: z.looseObject({}),
    ...rest,
    execute: async (args, { idempotencyKey, signal }) => {
      const body = JSON.stringify({ tool: name, key: idempotencyKey, args });
      const answer = await fetch(Deno.env.get("TEST_EFFECTS")!, {
        method: "POST",
        body,
        ...(deaf ? {} : { signal }),
      });
      return await answer.text();
    },
  });
}

const polite = defineTool({
  name: "polite",
  description: "Never ends by itself; gives up 50 ms after its signal.",
  parameters: z.looseObject({}),
  execute: (_args, { signal }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        setTimeout(() => reject(new DOMException("stopped", "AbortError")), 50);
      });
    }),
});

const cycle: { self?: unknown } = {};
cycle.self = cycle;
const odd: Record<string, unknown> = {
  "empty": "",
  "blank": " \n\t",
  "undefined": undefined,
  "null": null,
  "bigint": { n: 12n },
  "cycle": cycle,
  "function": () => 1,
  "symbol": Symbol("s"),
  "nan": NaN,
  "map": new Map([[1, 2]]),
  "half": "x\uDE00y",
  "nul": "a\u0000b",
  "long": "a".repeat(29_999) + "\u{1F600}" + "b".repeat(1000),
  "throws": { toJSON: () => JSON.parse("{") },
};

const echo = defineTool({
  name: "echo",
  description: "Returns an odd value.",
  parameters: z.object({ kind: z.enum(Object.keys(odd)) }),
  execute: ({ kind }) => odd[kind],
});

if (import.meta.main) {
  serve(Deno.env.toObject(), [
    ...tools,
    effective("pay"),
    effective("look", { replay: "safe" }),
    effective("work"),
    effective("fast", { parallel: true }),
    // Held, it never ends, whatever its signal says.
    effective("forever", { deaf: true }),
    polite,
    echo,
  ]);
}
