import { createPawl, defineTool, type Model, type Models, type Pawl } from "../../src/mod.ts";
import * as z from "zod";

const pay = defineTool({
  name: "pay",
  description: "Pays a bill.",
  parameters: z.object({ to: z.string(), cents: z.int().positive() }),
  // A reason for calls that need it, or `true` for all. The run holds no function while it waits.
  approval: ({ to, cents }) => cents > 10_000 && `${cents / 100} € to ${to}`,
  approvalExpiresMs: 3 * 24 * 60 * 60 * 1000,
  execute: ({ to, cents }) => `${cents / 100} € are paid to ${to}`,
});

export const bookkeeper = (models: Model | Models) => createPawl({ models, tools: [pay] });

/** What a run waits for somebody to approve: id, name and arguments of each call, and the reason. */
export async function open(pawl: Pawl, run: string) {
  const { waitingFor = [] } = await pawl.read(run);
  return waitingFor.filter((call) => call.for === "approval");
}

interface Decision {
  approve: boolean;
  /** The model reads it. */
  reason?: string;
  /** The call runs with these instead of the model's. */
  arguments?: { to: string; cents: number };
  /** The same for all later calls of the tool in the thread. */
  always?: boolean;
}

/** Decides on exactly this call, once; to answer again changes nothing. */
export async function decide(pawl: Pawl, run: string, toolCallId: string, decision: Decision) {
  await pawl.resolve(run, toolCallId, decision);
}
