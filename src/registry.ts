/**
 * Which tools there are, and which of them a run may use. What their arguments mean is `validate.ts`; who runs them is the loop.
 */
import { searchName } from "./deferred.ts";
import { InputError } from "./errors.ts";
import { gates, holds, menuOf } from "./policy.ts";
import type { ClientTool, Settings } from "./run.ts";
import type {
  AgenticContext,
  Environment,
  ExecOptions,
  Menu,
  Parameters,
  Tool,
  Toolset,
  ToolSource,
} from "./tool.ts";
import { Toolsets } from "./toolset.ts";
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

export interface RegistryOptions {
  /** What `availableIf`, `requiresEnv` and `check` of tools look at. */
  env?: Environment;
  toolsets?: { readonly [name: string]: Toolset };
}

const nothing: ReadonlySet<string> = new Set();

/** The tools of a deployment. It refuses what no model could be offered, when it is made: names, duplicates, schemas (CASES C01, C09). */
export class Registry {
  readonly #tools = new Map<string, Tool>();
  readonly #sources: ToolSource[] = [];
  /** Names of tools whose condition did not hold. */
  readonly #unregistered = new Set<string>();
  readonly #deployment: { env: Environment; toolsets: Toolsets };

  constructor(entries: readonly unknown[], { env = {}, toolsets = {} }: RegistryOptions = {}) {
    for (const entry of entries) {
      if (isSource(entry)) {
        this.#sources.push(entry);
        continue;
      }
      const tool = offerable(adapt(entry));
      if (tool.availableIf && !holds(() => tool.availableIf!(env))) {
        this.#unregistered.add(tool.name);
        continue;
      }
      if (this.#tools.has(tool.name)) {
        throw new InputError("bad_input", `Tool "${tool.name}" is registered twice`);
      }
      this.#tools.set(tool.name, tool);
    }
    for (const name of this.#tools.keys()) this.#unregistered.delete(name);
    const isTool = (name: string) => this.#knows(name) || this.#unregistered.has(name);
    this.#deployment = { env, toolsets: new Toolsets(toolsets, isTool) };
  }

  get(name: string): Tool | undefined {
    return this.#tools.get(name);
  }

  /** In the order of registration. */
  all(): Tool[] {
    return [...this.#tools.values()];
  }

  /** The settings of a run that began on another version of the deployment, without the tools that are gone since. */
  still(settings: Settings): { settings: Settings; gone: string[] } {
    const { tools } = settings;
    const gone = (tools ?? []).filter((entry) => typeof entry === "string").filter((name) =>
      !this.#knows(name)
    );
    if (!tools || !gone.length) return { settings, gone };
    return {
      settings: { ...settings, tools: tools.filter((entry) => !gone.includes(entry as string)) },
      gone,
    };
  }

  /** Those that may have a tool for a run with these settings. */
  sources({ tools, toolset = "full", toolsAllow }: Settings): ToolSource[] {
    const members = this.#deployment.toolsets.members(toolset);
    const wanted = tools ? tools.filter((entry) => typeof entry === "string") : members && [...members];
    const named = wanted?.filter((name) => !this.#tools.has(name));
    return this.#sources.filter((source) =>
      [named, toolsAllow].every((names) => names?.some((name) => source.covers(name)) ?? true)
    );
  }

  /**
   * What a run with these settings may use, in a stable order: that of `tools`, or that of registration. `clientWait` makes the tool that
   * waits for a client's answer; `offered` are the tools of sources. What a source covers and does not offer is missing without a word,
   * for it may be there again in the next slice. `loaded` says which deferred tools the model has found.
   */
  menu(
    settings: Settings,
    clientWait: (tool: ClientTool) => Tool,
    offered: readonly Tool[] = [],
    loaded = () => nothing,
  ): Menu {
    const candidates = settings.tools
      ? this.#pick(settings.tools, clientWait, offered)
      : [...this.all(), ...offered];
    const isDeferred = ({ defer }: Tool) => defer ?? false;
    const menu = menuOf(candidates, gates(settings, this.#deployment), settings, isDeferred, loaded);
    if (settings.tools) return menu;
    const unregistered = [...this.#unregistered].map((name) => ({ name, layer: "registration" as const }));
    return { ...menu, removed: [...unregistered, ...menu.removed] };
  }

  /** What is left of a menu for a nested loop with a policy of its own, which takes away and never adds. */
  narrow(menu: Menu, policy: ExecOptions, loaded = () => nothing): Menu {
    const { tools: named, toolChoice } = policy;
    const refuseUnknown = (name: string, at: string) => {
      if (!menu.tools.some((tool) => tool.name === name) && !this.#knows(name)) throw this.#unknown(name, at);
    };
    named?.forEach((name, i) => refuseUnknown(name, `tools[${i}]`));
    if (typeof toolChoice === "object") refuseUnknown(toolChoice.name, "toolChoice");
    const candidates = menu.tools.filter(({ name }) =>
      name !== searchName && (named?.includes(name) ?? true)
    );
    // What the outer run may use has been shown to it already.
    const passed = gates(policy, this.#deployment).filter(({ layer }) => layer !== "exposure");
    return menuOf(candidates, passed, policy, ({ name }) => menu.deferred.has(name), loaded);
  }

  #pick(
    tools: readonly (string | ClientTool)[],
    clientWait: (tool: ClientTool) => Tool,
    offered: readonly Tool[],
  ): Tool[] {
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

  #named(name: string, at: string, offered: readonly Tool[]): Tool | undefined {
    if (!this.#knows(name)) throw this.#unknown(name, at);
    return this.get(name) ?? offered.find((tool) => tool.name === name);
  }

  #knows(name: string): boolean {
    return this.#tools.has(name) || this.#sources.some((source) => source.covers(name));
  }

  #unknown(name: string, at: string): InputError {
    const names = [...this.#tools.keys()].join(", ") || "none";
    return new InputError("bad_input", `${at}: there is no tool ${shown(name)}; there are: ${names}`);
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
  if (tool.name === searchName) {
    throw new InputError("bad_input", `${at}The name ${shown(searchName)} is the built-in tool's`);
  }
  checkBounds(tool, at);
  try {
    schemaOf(tool.parameters, tool.name);
  } catch (error) {
    throw at && error instanceof InputError ? new InputError(error.code, at + error.message) : error;
  }
  return tool;
}

/** What a tool may take, tell and have kept: numbers that mean something, or none. */
function checkBounds(tool: Tool, at: string): void {
  const { name, timeoutMs, maxResultLength, cache, approval, approvalExpiresMs } = tool;
  const asked = typeof timeoutMs === "object" ? timeoutMs : undefined;
  const bounds: [field: string, value: unknown, most?: number][] = [
    ["timeoutMs", asked ? undefined : timeoutMs],
    ["timeoutMs.defaultMs", asked && (asked.defaultMs ?? NaN)],
    ["timeoutMs.minMs", asked?.minMs],
    ["timeoutMs.maxMs", asked && (asked.maxMs ?? NaN)],
    ["maxResultLength", maxResultLength, 100_000],
    ["approvalExpiresMs", approvalExpiresMs],
    ["cache.ttlMs", typeof cache === "object" ? cache.ttlMs ?? NaN : undefined],
  ];
  const refuse = (field: string, wanted: string, got: unknown) => {
    throw new InputError("bad_input", `${at}Tool ${shown(name)}: ${field}: expected ${wanted}, got ${got}`);
  };
  for (const [field, value, most = Number.MAX_SAFE_INTEGER] of bounds) {
    if (value === undefined || (typeof value === "number" && value >= 1 && value <= most)) continue;
    refuse(field, most < 1e9 ? `1 to ${most}` : "a number from 1 on", value);
  }
  if (approval && approval !== true && typeof approval !== "function") {
    refuse("approval", "true or a function", approval);
  }
  if (asked && typeof asked.from !== "function") refuse("timeoutMs.from", "a function", asked.from);
  if (asked && (asked.minMs ?? 1) > asked.maxMs) refuse("timeoutMs", "minMs up to maxMs", asked.minMs);
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
