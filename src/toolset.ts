/** Presets: named parts of a deployment's tools, for runs that say `toolset`. */
import { InputError } from "./errors.ts";
import type { Toolset } from "./tool.ts";

/** The toolsets that there always are. */
const builtIn: readonly string[] = ["full", "none"];

/** A deployment's toolsets by name. What names a tool or a toolset that is not there is refused when it is made: it is a misspelling. */
export class Toolsets {
  readonly #sets: ReadonlyMap<string, Toolset>;

  constructor(sets: { readonly [name: string]: Toolset }, isTool: (name: string) => boolean) {
    this.#sets = new Map([...builtIn.map((name) => [name, {}] as const), ...Object.entries(sets)]);
    for (const [name, { tools = [], includes = [] }] of Object.entries(sets)) {
      if (builtIn.includes(name)) throw wrong(name, "it is built in. Choose another name");
      for (const tool of tools) if (!isTool(tool)) throw wrong(name, `there is no tool ${quoted(tool)}`);
      for (const set of includes) {
        if (!this.#sets.has(set)) throw wrong(name, `there is no toolset ${quoted(set)} to include`);
      }
    }
  }

  /** The names of the tools in a toolset; undefined: of all. Throws InputError if there is no such toolset. */
  members(toolset: string): ReadonlySet<string> | undefined {
    if (!this.#sets.has(toolset)) {
      const names = [...this.#sets.keys()].join(", ");
      throw new InputError(
        "bad_input",
        `toolset: there is no toolset ${quoted(toolset)}; there are: ${names}`,
      );
    }
    // A set may grow while it is walked, and takes nothing twice: so this ends although includes go in circles.
    const all = new Set([toolset]);
    for (const name of all) this.#sets.get(name)!.includes?.forEach((set) => all.add(set));
    if (all.has("full")) return undefined;
    return new Set([...all].flatMap((name) => this.#sets.get(name)!.tools ?? []));
  }
}

function wrong(name: string, why: string): InputError {
  return new InputError("bad_input", `Toolset ${quoted(name)}: ${why}`);
}

function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 80));
}
