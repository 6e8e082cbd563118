/** The layers between what a deployment has and what a run may use. Each takes tools away; none gives one back. */
import { searchName, toolSearch } from "./deferred.ts";
import type { Layer, RemovedTool, Settings } from "./run.ts";
import type { Environment, Menu, Tool } from "./tool.ts";
import type { Toolsets } from "./toolset.ts";

/** The part of a run's settings, or of a nested `exec`'s options, that decides on its menu. */
export type Policy = Pick<
  Settings,
  "tools" | "toolset" | "toolsSource" | "toolsAllow" | "toolsDeny" | "toolChoice"
>;

/** One reason for which a tool may be missing. */
export interface Gate {
  layer: Layer;
  /** True, or a sentence that says more: the tool is taken away. */
  bars(tool: Tool): boolean | string;
}

/** In order: the first that bars a tool is the one that is named. Absent lists do not constrain; an empty allow list allows nothing. */
export function gates(
  { tools, toolset = "full", toolsSource, toolsAllow, toolsDeny }: Policy,
  { env, toolsets }: { env: Environment; toolsets: Toolsets },
): Gate[] {
  const members = toolsets.members(toolset);
  return [
    // Who names tools has made these two choices.
    { layer: "exposure", bars: ({ expose }) => !tools && expose === false },
    { layer: "preset", bars: ({ name }) => !tools && !(members?.has(name) ?? true) },
    {
      layer: "source",
      bars: ({ unsafeIn }) => toolsSource !== undefined && (unsafeIn?.includes(toolsSource) ?? false),
    },
    { layer: "availability", bars: (tool) => unavailable(tool, env) },
    { layer: "deny", bars: ({ name }) => toolsDeny?.includes(name) ?? false },
    { layer: "allow", bars: ({ name }) => !(toolsAllow?.includes(name) ?? true) },
  ];
}

function unavailable(tool: Tool, env: Environment): boolean | string {
  const missing = tool.requiresEnv?.filter((name) => !Object.hasOwn(env, name) || !env[name]) ?? [];
  if (missing.length) return `not set: ${missing.join(", ")}`;
  return tool.check !== undefined && !holds(() => tool.check!(env)) && "its check does not hold";
}

/** A tool's condition. An exception, and whatever is not true, counts as no. */
export function holds(condition: () => boolean): boolean {
  try {
    return condition() === true;
  } catch {
    return false;
  }
}

/**
 * Those tools that pass all gates, in their order, with `tool_search` behind them if some of them are deferred. Who names a tool, in `tools`
 * or as the choice, has found it. `loaded` says what the model has found so far.
 */
export function menuOf(
  candidates: readonly Tool[],
  gates: readonly Gate[],
  { tools: named, toolsDeny, toolChoice }: Policy,
  isDeferred: (tool: Tool) => boolean,
  loaded: () => ReadonlySet<string>,
): Menu {
  const tools: Tool[] = [], removed: RemovedTool[] = [];
  for (const tool of candidates) {
    const found = barred(tool, gates);
    if (found) removed.push({ name: tool.name, ...found });
    else tools.push(tool);
  }
  const chosen = typeof toolChoice === "object" ? toolChoice.name : undefined;
  const deferred = new Set(
    tools.filter((tool) => isDeferred(tool) && tool.name !== chosen && !named?.includes(tool.name))
      .map(({ name }) => name),
  );
  // Where the search is denied nothing is kept back: it could not be found.
  if (!deferred.size || toolsDeny?.includes(searchName)) return { tools, deferred: new Set(), removed };
  return { tools: [...tools, toolSearch(tools, deferred, loaded)], deferred, removed };
}

function barred(tool: Tool, gates: readonly Gate[]): Omit<RemovedTool, "name"> | undefined {
  for (const { layer, bars } of gates) {
    const why = bars(tool);
    if (why) return { layer, ...(typeof why === "string" ? { reason: why } : {}) };
  }
}
