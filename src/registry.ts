/**
 * Which tools there are, and which of them a run may use. What their arguments mean is `validate.ts`; who runs them is the loop.
 */
import { InputError } from "./errors.ts";
import type { ClientTool, Settings } from "./run.ts";
import type { AgenticContext, Parameters, Tool } from "./tool.ts";
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

  constructor(entries: unknown[]) {
    for (const entry of entries) {
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

  /**
   * What a run with these settings may use, in a stable order: that of `tools`, or that of registration. `clientWait` makes the tool that
   * waits for a client's answer.
   */
  menu(settings: Settings, clientWait: (tool: ClientTool) => Tool): Tool[] {
    return this.#pick(settings, clientWait).filter((tool) =>
      layers.every((admits) => admits(tool, settings))
    );
  }

  #pick({ tools, toolset }: Settings, clientWait: (tool: ClientTool) => Tool): Tool[] {
    if (tools === undefined) {
      if (toolset === undefined) return this.all();
      if (toolset === "none") return [];
      throw new InputError("bad_input", `toolset: there is no toolset ${shown(toolset)}; there is: none`);
    }
    const picked = new Map<string, Tool>();
    tools.forEach((entry, i) => {
      const tool = typeof entry === "string"
        ? this.#named(entry, `tools[${i}]`)
        : offerable(clientWait(entry), `tools[${i}]: `);
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

  #named(name: string, at: string): Tool {
    const tool = this.get(name);
    if (tool !== undefined) return tool;
    const names = [...this.#tools.keys()].join(", ") || "none";
    throw new InputError("bad_input", `${at}: there is no tool ${shown(name)}; there are: ${names}`);
  }
}

function offerable(tool: Tool, at = ""): Tool {
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

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function shown(value: unknown): string {
  if (typeof value === "function") return `function ${value.name}`.trim();
  if (typeof value === "object" && value !== null) return `an object with {${Object.keys(value).join(", ")}}`;
  return JSON.stringify(typeof value === "string" ? value.slice(0, 80) : value) ?? String(value);
}
