/** Waiting that occupies no function meanwhile. */
import * as z from "zod";
import { defineTool } from "../src/tool.ts";

export const wait = defineTool({
  name: "wait",
  description: "Waits for so many seconds before going on, at most 30 days.",
  parameters: z.object({ seconds: z.number().min(0).max(30 * 24 * 60 * 60) }),
  replay: "safe",
  wait: ({ seconds }, now) => ({ for: "time", until: now + Math.ceil(seconds * 1000) }),
  execute: ({ seconds }) => `Waited ${seconds} seconds.`,
});
