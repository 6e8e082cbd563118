/**
 * Tools of MCP servers over streamable HTTP. It owns under which names and promises a server's tools are offered; the conversation is
 * `mcp_session.ts`, what a result becomes is `mcp_result.ts`.
 */
import * as z from "zod";
import { refusal } from "../src/address.ts";
import { digest, hex } from "../src/digest.ts";
import { FatalError, InputError } from "../src/errors.ts";
import type { Tool, ToolSource } from "../src/tool.ts";
import { outputOf } from "./mcp_result.ts";
import { Failure, openSession, type Session } from "./mcp_session.ts";

export interface McpServer {
  url: string;
  /** Sent with each request. Taken for secrets: what the server says is shown and stored without them. */
  headers?: { [name: string]: string };
  /** How long a call may take, 60,000 by default. The list of tools is waited for no longer than that. */
  timeoutMs?: number;
  /** Its tools stay out of requests until the model finds them with `tool_search`. */
  defer?: boolean;
  /** Its tools whose calls somebody has to approve, by the server's own names; true: all. */
  approval?: boolean | readonly string[];
}

const usualMs = 60_000;
/** How long a server may take at most to say which tools it has; each slice waits for it. */
const listMs = 10_000;

const setting = z.record(
  z.string(),
  z.strictObject({
    url: z.string(),
    headers: z.record(z.string(), z.string()).optional(),
    timeout_ms: z.int().min(1).max(3_600_000).optional(),
    defer: z.boolean().optional(),
    approval: z.union([z.boolean(), z.array(z.string())]).optional(),
  }),
);

/** The servers in PAWL_MCP_SERVERS. Throws FatalError, without showing what the setting holds. */
export function mcpServers(text: string | undefined, allowHosts: readonly string[]): ToolSource[] {
  if (!text) return [];
  const wrong = (what: string) => new FatalError("setting", `PAWL_MCP_SERVERS: ${what}`);
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    throw wrong('it is no JSON; expected {"name":{"url":"https://…","headers":{…}}}');
  }
  const { data, error } = setting.safeParse(given);
  if (error) {
    const [{ path, message }] = error.issues as [z.core.$ZodIssue];
    throw wrong(`${path.join(".") || "it"}: ${message}`);
  }
  return Object.entries(data).map(([name, { timeout_ms: timeoutMs, ...server }]) => {
    try {
      return mcpServer(name, { ...server, timeoutMs }, allowHosts);
    } catch (error) {
      throw error instanceof InputError ? wrong(error.message) : error;
    }
  });
}

/**
 * The tools of one server, named `name_tool`. It is connected to when it is asked, and until the source is closed; `allowHosts` are reached
 * although they are private. Throws InputError for what cannot be a server.
 */
export function mcpServer(name: string, server: McpServer, allowHosts: readonly string[] = []): ToolSource {
  const wrong = (what: string) => new InputError("bad_input", `${name}: ${what}`);
  if (!/^[A-Za-z0-9_-]{1,32}$/.test(name)) throw wrong("a server's name must be 1 to 32 of A-Z a-z 0-9 _ -");
  if (!URL.canParse(server.url)) throw wrong("its url is none; give it in full, beginning with https://");
  const reason = refusal(new URL(server.url), allowHosts);
  if (reason !== undefined) throw wrong(`${reason}; hosts in PAWL_ALLOW_HOSTS are reached all the same`);
  try {
    new Headers(server.headers);
  } catch {
    throw wrong("its headers hold what no header can");
  }
  const prefix = `${name}_`, { timeoutMs = usualMs, defer = false, approval = false } = server;
  const asks = (tool: unknown) =>
    typeof approval === "boolean" ? approval : approval.includes(tool as string);
  return {
    name,
    covers: (tool) => tool.startsWith(prefix),
    async open({ signal, fetch }) {
      const session = openSession(server, fetch);
      try {
        const listed = await session.list(signal, Math.min(timeoutMs, listMs));
        const tools = listed.filter(isCallable).map(async (one) => ({
          ...await toolOf(prefix, one, session),
          timeoutMs,
          defer,
          ...(asks((one as Listed | null)?.name) ? { approval: true as const } : {}),
        }));
        return { tools: await Promise.all(tools), close: session.close };
      } catch (error) {
        await session.close();
        throw error;
      }
    },
  };
}

/** What a server says of a tool, if it says it as it should. What is missing or odd is for the registry to refuse. */
interface Listed {
  name?: unknown;
  description?: unknown;
  inputSchema?: unknown;
  annotations?: { readOnlyHint?: unknown; idempotentHint?: unknown };
  execution?: { taskSupport?: unknown };
}

/** Tools that run as tasks only are asked for in another way, which is not spoken here. */
function isCallable(listed: unknown): boolean {
  return (listed as Listed | null)?.execution?.taskSupport !== "required";
}

async function toolOf(prefix: string, listed: unknown, session: Session): Promise<Tool> {
  const { name, description, inputSchema, annotations } = (listed ?? {}) as Listed;
  const repeatable = annotations?.readOnlyHint === true || annotations?.idempotentHint === true;
  return {
    name: typeof name === "string" && name !== "" ? await offeredName(prefix, name) : "",
    description: typeof description === "string" ? description : "",
    parameters: inputSchema as Tool["parameters"],
    replay: repeatable ? "safe" : "never",
    async execute(args, { signal, idempotencyKey, onUpdate }) {
      try {
        return outputOf(await session.call(name as string, args, { signal, idempotencyKey, onUpdate }));
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        const unknown = error.unsure && !repeatable
          ? ". What the call did is unknown: check before you ask for it again"
          : "";
        throw new Error(`The MCP server: ${error.message}${unknown}`);
      }
    },
  };
}

const longest = 64;

/**
 * The name under which vendors take a server's tool. What they do not take is spelled by its code point, `_x2e_` for a dot, so that no two
 * tools of a server share a name; a name that is too long ends in its own hash. The same in each slice, for calls wait in between.
 */
export async function offeredName(prefix: string, name: string): Promise<string> {
  // Also "_" is spelled, where what follows could be read as such a spelling.
  const spelled = prefix + name.replace(
    /_(?=x[0-9a-f]+[^A-Za-z0-9-])|[^A-Za-z0-9_-]/gu,
    (point) => `_x${point.codePointAt(0)!.toString(16)}_`,
  );
  if (spelled.length <= longest) return spelled;
  const hash = hex((await digest(spelled)).subarray(0, 5));
  return `${spelled.slice(0, longest - 1 - hash.length)}_${hash}`;
}
