import { agenticFunction, createPawl, type Model, type Models } from "../../src/mod.ts";
import * as z from "zod";

/** Reports, by the places where they are kept. */
export const kept = new Map<string, string>();

const report = agenticFunction({
  name: "report",
  description: "Researches a topic and writes a report; answers where it is.",
  parameters: z.object({ topic: z.string() }),
  // Runs again from its start in each slice: `exec` and `step` then return what they returned before.
  execute: async ({ topic }, { exec, step }) => {
    // Loops that are open at the same time need keys.
    const [past, present] = await Promise.all([
      exec(`What was ${topic} like?`, { key: "past", maxIterations: 5 }),
      exec(`What is ${topic} like?`, { key: "present", maxIterations: 5 }),
    ]);
    const text = await exec(`Write it up.\n\n${past}\n\n${present}`, { tools: [] });
    // Chance, time and effects belong into a step, whose value is recorded.
    return await step("save", () => {
      const place = `reports/${crypto.randomUUID()}`;
      kept.set(place, text);
      return place;
    });
  },
});

export const newsroom = (models: Model | Models) =>
  createPawl({ models, tools: [report], budget: { turns: 2 } });
