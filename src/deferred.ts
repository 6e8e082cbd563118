/**
 * Tools whose schemas stay out of the request until the model finds them. It owns the built-in tool that finds them; what was found is in
 * the log (`Frame.loaded`), and the request shows it from the next turn on (`offered`).
 */
import { type Menu, type Parameters, type Tool, ToolOutput } from "./tool.ts";
import { schemaOf } from "./validate.ts";

/** The name of the built-in tool; no other tool may have it. */
export const searchName = "tool_search";

/** What a search tells the model, and the tools that it thereby loads. */
export class Found extends ToolOutput {
  constructor(content: string, readonly loads: readonly string[]) {
    super(content);
  }
}

/**
 * The tools that a request shows. Those that were found come last, in the order in which they were: so a request begins as the one before it
 * did, and a vendor's cache still knows it.
 */
export function offered({ tools, deferred }: Menu, loaded: ReadonlySet<string>): Tool[] {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  const found = [...loaded].filter((name) => deferred.has(name)).map((name) => byName.get(name)!);
  return [...tools.filter(({ name }) => !deferred.has(name)), ...found];
}

const most = 20, usual = 5;

const parameters: Parameters = {
  type: "object",
  properties: {
    query: {
      type: "string",
      description:
        '"select:NAME,NAME" for tools by their exact names, or keywords. "+word" must be in the name',
    },
    max_results: { type: "integer", description: `1 to ${most}; ${usual} by default` },
  },
  required: ["query"],
  additionalProperties: false,
};

/** Names that the description holds; they cost a few tokens each, in every request. */
const maxListed = 100;

/** The tool that finds what is deferred in a menu. `loaded` says what the model has found so far. */
export function toolSearch(
  tools: readonly Tool[],
  deferred: ReadonlySet<string>,
  loaded: () => ReadonlySet<string>,
): Tool {
  const names = [...deferred], more = names.length - maxListed;
  return {
    name: searchName,
    description: "Finds tools that are not shown yet, and shows how they are called. There are: " +
      names.slice(0, maxListed).join(", ") + (more > 0 ? ` and ${more} more` : ""),
    parameters,
    replay: "safe",
    execute({ query, max_results = usual }: { query: string; max_results?: number }) {
      const known = tools.filter(({ name }) => !deferred.has(name) || loaded().has(name));
      const hidden = tools.filter((tool) => !known.includes(tool));
      const limit = Math.max(1, Math.min(most, max_results));
      const exact = /^\s*select:(.*)$/s.exec(query);
      return exact ? select(words(exact[1]!), hidden, known) : search(query, limit, hidden, known);
    },
  };
}

function select(names: string[], hidden: Tool[], known: Tool[]): Found {
  const named = (tools: Tool[]) => tools.filter(({ name }) => names.includes(name));
  const found = named(hidden), there = named(known);
  const unknown = names.filter((name) => ![...found, ...there].some((tool) => tool.name === name));
  return answer(found.slice(0, most), there, [
    ...found.slice(most).map(({ name }) => `Not shown, for ${most} are the most at once: ${name}`),
    ...unknown.map((name) => `There is no tool ${JSON.stringify(name)}`),
  ]);
}

function search(query: string, limit: number, hidden: Tool[], known: Tool[]): Found {
  const terms = words(query.toLowerCase());
  const must = terms.filter((term) => /^\+./.test(term)).map((term) => term.slice(1));
  const all = terms.map((term) => term.replace(/^\+/, "")).filter(Boolean);
  const best = (tools: Tool[]) =>
    tools.map((tool) => ({ tool, score: score(tool, all, must) })).filter(({ score }) => score > 0)
      .sort((a, b) => b.score - a.score || (a.tool.name < b.tool.name ? -1 : 1))
      .slice(0, limit).map(({ tool }) => tool);
  return answer(best(hidden), best(known), []);
}

/** Every word counts wherever it stands. */
function score({ name, hint = "", description }: Tool, terms: string[], must: string[]): number {
  const has = (text: string, term: string) => text.toLowerCase().includes(term);
  if (!must.every((term) => has(name, term))) return 0;
  return terms.reduce(
    (sum, term) =>
      sum + (has(name, term) ? 10 : 0) + (has(hint, term) ? 5 : 0) + (has(description, term) ? 2 : 0),
    0,
  );
}

function answer(found: Tool[], there: Tool[], more: string[]): Found {
  const lines = found.map(({ name, description, parameters }) =>
    JSON.stringify({ name, description, parameters: schemaOf(parameters) })
  );
  if (found.length) lines.unshift("Found. Call these as any other tool:");
  if (there.length) lines.push(`Already loaded, call directly: ${there.map(({ name }) => name).join(", ")}`);
  lines.push(...more);
  const content = lines.join("\n") ||
    "Nothing was found. Use other words, or names that the description lists";
  return new Found(content, found.map(({ name }) => name));
}

function words(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}
