import { defineChoice, type Pawl } from "../../src/mod.ts";
import * as z from "zod";

const refund = defineChoice({
  description: "Pays an order back.",
  parameters: z.object({ order: z.string(), cents: z.int().positive() }),
  run: ({ order, cents }) => `${order}: ${cents / 100} € go back`,
});

/** What becomes of a customer's mail. */
export async function triage(pawl: Pawl, mail: string): Promise<string> {
  const chosen = await pawl.exec(`What shall become of this mail?\n\n${mail}`, {
    choices: {
      ignore: "ignored", // a value: what exec answers
      reply: z.object({ text: z.string() }), // to be filled in: exec answers { name, args }
      refund, // a function, run with what was filled in
    },
  });
  return typeof chosen === "string" ? chosen : `replied: ${chosen.args.text}`;
}
