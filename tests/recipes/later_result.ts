import { createPawl, defineTool, type Model, type Models, type Pawl, ToolPending } from "../../src/mod.ts";
import * as z from "zod";

/** Work for a printer. */
export const letters: { text: string; run: string; toolCallId: string }[] = [];

const print = defineTool({
  name: "print",
  description: "Prints a letter.",
  parameters: z.object({ text: z.string() }),
  // It is only begun here; the run waits, without a function, until somebody tells what came of it.
  execute: ({ text }, { run, toolCallId }) => {
    letters.push({ text, run, toolCallId });
    return new ToolPending({ reason: "It is being printed" });
  },
});

export const office = (models: Model | Models) => createPawl({ models, tools: [print] });

/** The printer has done its work. */
export async function printed(pawl: Pawl, { run, toolCallId }: typeof letters[number], pages: number) {
  await pawl.resolve(run, toolCallId, { content: `${pages} pages` });
}
