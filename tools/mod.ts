/**
 * The tools that the default deployment registers. To offer others, change this list: an entry is a tool, or a function that makes one
 * from the environment (which is not known yet when this file is read).
 */
import { hostList } from "../src/address.ts";
import type { Tool, Toolset } from "../src/tool.ts";
import { calculate } from "./calculate.ts";
import { fetchUrl } from "./fetch_url.ts";
import { now } from "./now.ts";
import { wait } from "./wait.ts";

export type Environment = { readonly [name: string]: string | undefined };

export const tools: (Tool | ((env: Environment) => Tool))[] = [
  calculate,
  now,
  (env) => fetchUrl(hostList(env.PAWL_ALLOW_HOSTS)),
  wait,
];

/** Parts of the tools that a run may ask for by name, as `toolset`; "full" and "none" there always are. */
export const toolsets: Record<string, Toolset> = {};
