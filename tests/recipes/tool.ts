import { createPawl, defineTool, type Model, type Models, ToolOutput } from "../../src/mod.ts";
import * as z from "zod";

const catalogue = new Map([["A7", { title: "Lamp", cents: 4900 }]]);

const look = defineTool({
  name: "look_up",
  description: "Looks an article up by its number.",
  parameters: z.object({ article: z.string(), currency: z.enum(["EUR", "NOK"]).default("EUR") }),
  replay: "safe", // only reads, so it may run again after a crash
  parallel: true, // neighbouring calls overlap
  execute: ({ article, currency }) => {
    const found = catalogue.get(article);
    // An error that the model can act on; an exception is one, too.
    if (!found) {
      return new ToolOutput(`There is no article ${article}; there are ${[...catalogue.keys()]}`, true);
    }
    return { ...found, currency }; // anything but a string becomes JSON
  },
});

/** `shop` takes orders. */
const order = (shop: string) =>
  defineTool({
    name: "order",
    description: "Orders an article.",
    parameters: z.object({ article: z.string(), count: z.int().min(1).max(10) }),
    timeoutMs: 20_000,
    // Not "safe": it begins at most once per call, and a repeat of a call whose outcome is unknown gets the same key.
    execute: async ({ article, count }, { fetch, signal, idempotencyKey, onUpdate }) => {
      onUpdate(`ordering ${count} of ${article}`);
      const answer = await fetch(`${shop}/orders`, {
        method: "POST",
        headers: { "idempotency-key": idempotencyKey },
        body: JSON.stringify({ article, count }),
        signal,
      });
      return await answer.text();
    },
  });

/** An assistant of the shop at this address. */
export const assistant = (models: Model | Models, shop: string) =>
  createPawl({ models, tools: [look, order(shop)] });
