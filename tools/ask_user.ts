/** A question to whoever started the run. It waits in `waiting_for` until `POST /runs/{id}/tool_results` answers it. */
import * as z from "zod";
import { defineTool } from "../src/tool.ts";

export const askUser = defineTool({
  name: "ask_user",
  description:
    "Asks the user a question and waits for the answer. Use it only when you cannot go on without it.",
  parameters: z.object({
    question: z.string().min(1),
    options: z.array(z.string()).max(20).optional().describe("Answers to choose from; others may come"),
  }),
  replay: "safe",
  // Where nobody reads along nobody answers: a run has it only if its `tools` name it.
  expose: false,
  unsafeIn: ["webhook", "cron"],
  wait: ({ question }) => ({ for: "answer", reason: question }),
  execute: () => {
    throw new Error("The answer is the result; nothing runs here");
  },
});
