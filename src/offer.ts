/**
 * What sources offer a run in one slice. What they cannot offer is missing with a warning; it never ends a run.
 */
import type { Bodies } from "./entry.ts";
import { messageOf } from "./errors.ts";
import { offerable, type Registry } from "./registry.ts";
import type { Settings } from "./run.ts";
import type { Tool, Using } from "./tool.ts";

export interface Offer {
  /** In the order of the sources. No two have the same name, and none has that of a registered tool. */
  tools: Tool[];
  warnings: Bodies["warning"][];
  /** Lets go of what the tools held open; they cannot be called any more. Never rejects. */
  close(): Promise<void>;
}

/** Asks those sources, all at once, that may have a tool for a run with these settings. Never rejects. */
export async function offerOf(registry: Registry, settings: Settings, using: Using): Promise<Offer> {
  const sources = registry.sources(settings), warnings: Offer["warnings"] = [];
  const opened = await Promise.allSettled(sources.map(async (source) => await source.open(using)));
  const tools = new Map<string, Tool>();
  opened.forEach((result, i) => {
    const { name } = sources[i]!;
    if (result.status === "rejected") {
      const message = `The tools of "${name}" are missing: ${messageOf(result.reason)}`;
      return void warnings.push({ code: "tools_missing", message });
    }
    for (const tool of result.value.tools) {
      const why = refusal(tool, registry.get(tool.name) ?? tools.get(tool.name));
      if (why === undefined) tools.set(tool.name, tool);
      else warnings.push({ code: "tool_refused", message: `A tool of "${name}" is missing: ${why}` });
    }
  });
  return {
    tools: [...tools.values()],
    warnings,
    async close() {
      await Promise.allSettled(
        opened.map(async (result) => result.status === "fulfilled" && await result.value.close()),
      );
    },
  };
}

/** Why this tool cannot be offered beside another of the same name, or at all. */
function refusal(tool: Tool, other: Tool | undefined): string | undefined {
  if (other) return `there is another tool "${tool.name}"`;
  try {
    offerable(tool);
  } catch (error) {
    return messageOf(error);
  }
}

/** What cannot be forced, because a source did not offer it this time, is not: the model does without, and the run goes on. */
export function withPossibleChoice(settings: Settings, tools: readonly Tool[]): Settings {
  const { toolChoice } = settings;
  const possible = typeof toolChoice === "object"
    ? tools.some(({ name }) => name === toolChoice.name)
    : toolChoice !== "required" || tools.length > 0;
  return possible ? settings : { ...settings, toolChoice: undefined };
}
