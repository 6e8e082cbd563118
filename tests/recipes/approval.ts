import { createPawl, defineTool, type Model, type Models, type Pawl } from "../../src/mod.ts";
import * as z from "zod";

const day = 86_400_000;

const pay = defineTool({
  name: "pay",
  description: "Pays a bill.",
  parameters: z.object({ to: z.string(), cents: z.int().positive() }),
  // Small sums are paid at once; for others the run waits, and holds no function meanwhile.
  wait: ({ to, cents }, now) =>
    cents > 10_000
      ? { for: "approval", until: now + 3 * day, reason: `${cents / 100} € to ${to}` }
      : undefined,
  execute: ({ to, cents }) => `${cents / 100} € are paid to ${to}`,
});

export const bookkeeper = (models: Model | Models) => createPawl({ models, tools: [pay] });

/** What a run waits for somebody to approve. */
export async function open(pawl: Pawl, run: string) {
  const { waitingFor = [] } = await pawl.read(run);
  return waitingFor.filter((call) => call.for === "approval");
}

/** Lets the call run, or tells the model that it may not and why. Whoever answers again changes nothing. */
export async function decide(pawl: Pawl, run: string, toolCallId: string, approve: boolean, reason?: string) {
  await pawl.resolve(run, toolCallId, { approve, reason });
}
