/**
 * Which tools there are, and which of them a run may use. What their arguments mean is `validate.ts`; who runs them is the loop.
 */
import { InputError } from "./errors.ts";
import type { ClientTool, Settings } from "./run.ts";
import type { AgenticContext, Parameters, Tool, ToolSource } from "./tool.ts";
import { schemaOf } from "./validate.ts";

/** The seed's form of a tool: an object or a function with `spec` and `execute`. Tool's options may stand beside them. */
interface Seed extends Partial<Omit<Tool, "execute">> {
  spec: { name: string; description?: string; parameters?: Parameters };
  execute(args: unknown, context: AgenticContext): unknown;
}

/**
 * The tool that an entry of a deployment's list stands for: what `defineTool` or `agenticFunction` made, or anything with `spec` and
 * `execute`. Without parameters a tool takes none. Everything else is an InputError that says what is missing.
 */
export function adapt(entry: unknown): Tool {
  const spec = isObject(entry) && "spec" in entry ? entry.spec : entry;
  if (!isObject(entry) || !isObject(spec) || typeof spec === "function") {
    throw new InputError("bad_input", `Cannot use ${shown(entry)} as a tool. ${advice}`);
  }
  if (!("name" in spec) || typeof spec.name !== "string") {
    throw new InputError("bad_input", `A tool has no name: ${shown(spec)}. ${advice}`);
  }
  if (!("execute" in entry) || typeof entry.execute !== "function") {
    throw new InputError("bad_input", `Tool ${shown(spec.name)} has no executor. ${advice}`);
  }
  const tool: Tool = "spec" in entry ? fromSeed(entry as unknown as Seed) : entry as unknown as Tool;
  if (tool.description !== undefined && tool.parameters !== undefined) return tool;
  return { ...tool, description: tool.description ?? "", parameters: tool.parameters ?? {} };
}

const advice = "Pass {spec, execute} or use defineTool";

function fromSeed(entry: Seed): Tool {
  const { spec: { name, description = "", parameters = {} }, ...options } = entry;
  return {
    ...options,
    name,
    description,
    parameters,
    execute: (args, context) => entry.execute(args, context),
  };
}

/** One reason for which a tool may be missing from a menu. */
type Layer = (tool: Tool, settings: Settings) => boolean;

/** In the order of the reference: veto comes last. Absent lists do not constrain; an empty allow list allows nothing. */
const layers: Layer[] = [
  (tool, { toolsDeny }) => !toolsDeny?.includes(tool.name),
  (tool, { toolsAllow }) => toolsAllow?.includes(tool.name) ?? true,
];

/** The tools of a deployment. It refuses what no model could be offered, when it is made: names, duplicates, schemas (CASES C01, C09). */
export class Registry {
  readonly #tools = new Map<string, Tool>();
  readonly #sources: ToolSource[] = [];

  constructor(entries: unknown[]) {
    for (const entry of entries) {
      if (isSource(entry)) {
        this.#sources.push(entry);
        continue;
      }
      const tool = offerable(adapt(entry));
      if (this.#tools.has(tool.name)) {
        throw new InputError("bad_input", `Tool "${tool.name}" is registered twice`);
      }
      this.#tools.set(tool.name, tool);
    }
  }

  get(name: string): Tool | undefined {
    return this.#tools.get(name);
  }

  /** In the order of registration. */
  all(): Tool[] {
    return [...this.#tools.values()];
  }

  /** Those that may have a tool for a run with these settings. */
  sources({ tools, toolset, toolsAllow }: Settings): ToolSource[] {
    if (tools === undefined && toolset !== undefined) return [];
    const named = tools?.filter((entry) => typeof entry === "string" && !this.#tools.has(entry)) as
      | string[]
      | undefined;
    return this.#sources.filter((source) =>
      [named, toolsAllow].every((names) => names?.some((name) => source.covers(name)) ?? true)
    );
  }

  /**
   * What a run with these settings may use, in a stable order: that of `tools`, or that of registration. `clientWait` makes the tool that
   * waits for a client's answer; `offered` are the tools of sources. What a source covers and does not offer is missing without a word,
   * for it may be there again in the next slice.
   */
  menu(settings: Settings, clientWait: (tool: ClientTool) => Tool, offered: Tool[] = []): Tool[] {
    return this.#pick(settings, clientWait, offered).filter((tool) =>
      layers.every((admits) => admits(tool, settings))
    );
  }

  #pick({ tools, toolset }: Settings, clientWait: (tool: ClientTool) => Tool, offered: Tool[]): Tool[] {
    if (tools === undefined) {
      if (toolset === undefined) return [...this.all(), ...offered];
      if (toolset === "none") return [];
      throw new InputError("bad_input", `toolset: there is no toolset ${shown(toolset)}; there is: none`);
    }
    const picked = new Map<string, Tool>();
    tools.forEach((entry, i) => {
      const tool = typeof entry === "string"
        ? this.#named(entry, `tools[${i}]`, offered)
        : offerable(clientWait(entry), `tools[${i}]: `);
      if (!tool) return;
      if ((picked.get(tool.name) ?? tool) !== tool) {
        throw new InputError(
          "bad_input",
          `tools[${i}]: there is another tool ${shown(tool.name)} in the list`,
        );
      }
      picked.set(tool.name, tool);
    });
    return [...picked.values()];
  }

  #named(name: string, at: string, offered: Tool[]): Tool | undefined {
    const tool = this.get(name) ?? offered.find((tool) => tool.name === name);
    if (tool !== undefined || this.#sources.some((source) => source.covers(name))) return tool;
    const names = [...this.#tools.keys()].join(", ") || "none";
    throw new InputError("bad_input", `${at}: there is no tool ${shown(name)}; there are: ${names}`);
  }
}

/** The tool, if a model can be offered it: throws InputError if its name or its schema cannot be. */
export function offerable(tool: Tool, at = ""): Tool {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(tool.name)) {
    throw new InputError(
      "bad_input",
      `${at}A tool's name must be 1 to 64 of A-Z a-z 0-9 _ -, got ${shown(tool.name)}`,
    );
  }
  try {
    schemaOf(tool.parameters, tool.name);
  } catch (error) {
    throw at && error instanceof InputError ? new InputError(error.code, at + error.message) : error;
  }
  return tool;
}

function isSource(entry: unknown): entry is ToolSource {
  return isObject(entry) && "open" in entry && "covers" in entry;
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function shown(value: unknown): string {
  if (typeof value === "function") return `function ${value.name}`.trim();
  if (typeof value === "object" && value !== null) return `an object with {${Object.keys(value).join(", ")}}`;
  return JSON.stringify(typeof value === "string" ? value.slice(0, 80) : value) ?? String(value);
}
