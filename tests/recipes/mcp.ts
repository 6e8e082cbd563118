import { createPawl, type Models } from "../../src/mod.ts";
import { mcpServer } from "../../tools/mcp.ts";

/** A Pawl with the tools of one more server; `inside` are private hosts that it may be on. */
export function withDocs(models: Models, url: string, token: string, inside: string[] = []) {
  const docs = mcpServer("docs", { url, headers: { authorization: `Bearer ${token}` }, defer: true }, inside);
  return createPawl({ models, tools: [docs] });
}
