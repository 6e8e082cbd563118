/**
 * The tools that the default deployment registers. To offer others, change this list: an entry is a tool, a source
 * of tools, or a function that makes them from the environment (which is not known yet when this file is read).
 */
import { hostList } from "../src/address.ts";
import type { Tool, Toolset, ToolSource } from "../src/tool.ts";
import { askUser } from "./ask_user.ts";
import { calculate } from "./calculate.ts";
import { fetchUrl } from "./fetch_url.ts";
import { mcpServers } from "./mcp.ts";
import { now } from "./now.ts";
import { wait } from "./wait.ts";

export type Environment = { readonly [name: string]: string | undefined };

type Offered = Tool | ToolSource;

export const tools: (Offered | ((env: Environment) => Offered | Offered[]))[] = [
  calculate,
  now,
  (env) => fetchUrl(hostList(env.PAWL_ALLOW_HOSTS)),
  wait,
  askUser,
  (env) => mcpServers(env.PAWL_MCP_SERVERS, hostList(env.PAWL_ALLOW_HOSTS)),
];

/** Parts of the tools that a run may ask for by name, as `toolset`; "full" and "none" there always are. */
export const toolsets: Record<string, Toolset> = {};
