/** What the tests of the hosts need besides the default tools. */
import * as z from "zod";
import { agenticFunction } from "../../src/tool.ts";
import { tools } from "../../tools/mod.ts";

/** Added to the list itself, which is where a deployment's own tools go. */
tools.push(agenticFunction({
  name: "delegate",
  description: "Has somebody else do it.",
  parameters: z.object({ task: z.string() }),
  execute: async ({ task }, { exec }) => `They say: ${await exec(task, { tools: ["wait"] })}`,
}));
