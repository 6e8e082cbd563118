/** One run in real time over a store in memory, with all that can be seen of it. */
import type { Budget } from "../../src/budget.ts";
import { createPawl, defineTool, type Pawl } from "../../src/mod.ts";
import type { Event } from "../../src/event.ts";
import type { ToolMessage } from "../../src/message.ts";
import type { RunView, Settings } from "../../src/run.ts";
import type { Store } from "../../src/store.ts";
import { type McpServer, mcpServer } from "../../tools/mcp.ts";
import { type Said, type ScriptedModel, scriptedModel } from "./scripted_model.ts";

/** What a server is sent, and nobody may see. */
export const secret = "SEKRIT-q7";
export const headers = { authorization: `Bearer ${secret}`, "x-key": "SEKRIT-x" };

/** The server as a source named "shop". */
export function shop({ url }: { url: string }, more: Partial<McpServer> = {}) {
  return mcpServer("shop", { url, headers, ...more }, ["127.0.0.1"]);
}

/** A tool of the deployment's own. */
export const local = defineTool({
  name: "local",
  description: "",
  parameters: { type: "object" },
  execute: () => "ok",
});

export interface Ran {
  view: RunView;
  model: ScriptedModel;
  events: Event[];
  /** The results of its calls, in their order; an error's text follows "!". */
  results: (string | ToolMessage["content"])[];
  warnings: string[];
  /** Names of the tools that the model was offered, turn by turn. */
  offered: string[][];
}

export interface RunOptions {
  settings?: Settings;
  budget?: Partial<Budget>;
  store?: Store;
  /** Called with each event as it comes. */
  on?(event: Event, pawl: Pawl, run: string): unknown;
}

export async function run(tools: unknown[], script: Said[], options: RunOptions = {}): Promise<Ran> {
  const model = scriptedModel(script), { settings, budget, store } = options;
  const pawl = createPawl({ models: model, tools, budget, store });
  const { run } = await pawl.start("Go", settings);
  const events: Event[] = [];
  for await (const { event } of pawl.watch(run)) {
    events.push(event);
    await options.on?.(event, pawl, run);
  }
  const view = await pawl.read(run);
  // Sources are closed after the hand-over.
  await pawl.close();
  const said = view.messages.filter((message) => message.role === "tool");
  return {
    view,
    model,
    events,
    results: said.map(({ content, isError }) => isError ? `!${content}` : content),
    warnings: events.flatMap((event) => event.type === "warning" ? [`${event.code}: ${event.message}`] : []),
    offered: model.requests.map((request) => request.tools.map(({ name }) => name)),
  };
}
