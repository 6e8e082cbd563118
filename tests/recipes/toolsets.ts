import { createPawl, defineTool, type Model } from "../../src/mod.ts";
import * as z from "zod";

const search = defineTool({
  name: "search",
  description: "Searches the handbook.",
  parameters: z.object({ words: z.string() }),
  requiresEnv: ["HANDBOOK_URL"], // not offered where it is not set
  execute: ({ words }) => `Nothing on ${words}`,
});
const refund = defineTool({
  name: "refund",
  description: "Pays an order back.",
  parameters: z.object({ order: z.string() }),
  unsafeIn: ["slack"], // whatever a run there asks for
  execute: ({ order }) => `${order} is paid back`,
});
const invoices = defineTool({
  name: "list_invoices",
  description: "Lists a customer's invoices.",
  parameters: z.object({ customer: z.string() }),
  defer: true, // its schema is not in the request until the model finds it with tool_search
  execute: ({ customer }) => `${customer} has none`,
});

export const support = (models: Model, env: { [name: string]: string }) =>
  createPawl({
    models,
    env,
    tools: [search, refund, invoices],
    toolsets: {
      public: { tools: ["search"] },
      staff: { includes: ["public"], tools: ["refund", "list_invoices"] },
    },
  });

/** What somebody writes in a channel, answered with the tools that the channel may use. */
export async function answer(pawl: ReturnType<typeof support>, channel: "slack" | "desk", text: string) {
  return await pawl.exec(text, { toolset: channel === "desk" ? "staff" : "public", toolsSource: channel });
}
