/** Reading the web: one GET, its redirects, and what is left of a page when its markup is gone. */
import * as z from "zod";
import { refusal } from "../src/address.ts";
import { defineTool, type Tool, type ToolContext, ToolOutput } from "../src/tool.ts";
import { readable } from "./readable.ts";

const mostBytes = 1_000_000;
const mostCharacters = 50_000;
const mostRedirects = 5;

/**
 * A tool that reads public web pages; `allowHosts` are reached although they are private. The model chooses the address, so each hop is
 * judged before it is connected to, and no hop gets more than an Accept header (CASES H02).
 */
export function fetchUrl(allowHosts: readonly string[], timeoutMs = 15_000): Tool {
  return defineTool({
    name: "fetch_url",
    description: "Gets the text of a public web page or API by its http or https URL.",
    parameters: z.object({ url: z.string() }),
    replay: "safe",
    parallel: true,
    execute: async ({ url }, { fetch, signal }) => {
      const limit = AbortSignal.timeout(timeoutMs);
      try {
        const response = await follow(url, allowHosts, fetch, AbortSignal.any([signal, limit]));
        return await describe(response);
      } catch (error) {
        if (limit.aborted && !signal.aborted) {
          throw new Error(`${url} took longer than ${timeoutMs / 1000} s`);
        }
        throw error;
      }
    },
  });
}

async function follow(
  url: string,
  allowHosts: readonly string[],
  fetch: ToolContext["fetch"],
  signal: AbortSignal,
): Promise<Response> {
  if (!URL.canParse(url)) throw new Error(`${url} is not a URL. Give it in full, beginning with https://`);
  let hop = new URL(url);
  for (let redirects = 0; redirects <= mostRedirects; redirects++) {
    const reason = refusal(hop, allowHosts);
    if (reason !== undefined) {
      throw new Error(`${redirects > 0 ? `${url} redirects to ${hop}` : url} is refused: ${reason}`);
    }
    const headers = { accept: "text/html, text/plain, application/json, */*;q=0.5" };
    const response = await fetch(hop, { redirect: "manual", headers, signal });
    const location = response.headers.get("location");
    if (location === null || ![301, 302, 303, 307, 308].includes(response.status)) return response;
    await response.body?.cancel();
    if (!URL.canParse(location, hop)) throw new Error(`${url} redirects to what is no URL`);
    hop = new URL(location, hop);
  }
  throw new Error(`${url} redirects more than ${mostRedirects} times`);
}

async function describe(response: Response): Promise<ToolOutput> {
  const type = (response.headers.get("content-type") ?? "text/plain").toLowerCase();
  if (!/^(text\/|application\/([a-z0-9.-]+\+)?(json|xml|javascript|x-ndjson|yaml))/.test(type)) {
    await response.body?.cancel();
    return new ToolOutput(`The answer is ${type.slice(0, 80)}, which is no text.`, true);
  }
  const { text, whole } = await read(response, type.match(/charset="?([\w-]{1,40})/)?.[1] ?? "utf-8");
  const shown = cut(/^(text\/html|application\/xhtml)/.test(type) ? readable(text) : text, whole);
  return response.ok
    ? new ToolOutput(shown)
    : new ToolOutput(`HTTP ${response.status} ${response.statusText}\n\n${shown}`, true);
}

/** The first megabyte; the connection is closed after it. */
async function read(response: Response, charset: string): Promise<{ text: string; whole: boolean }> {
  const decoder = decoderOf(charset);
  let text = "", bytes = 0;
  // Leaving the loop cancels the body.
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk.subarray(0, mostBytes - bytes), { stream: true });
    bytes += chunk.length;
    if (bytes > mostBytes) return { text, whole: false };
  }
  return { text: text + decoder.decode(), whole: true };
}

function decoderOf(charset: string): TextDecoder {
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}

/** By code points, so that no character is cut in two. */
function cut(text: string, whole: boolean): string {
  const points = Array.from(text);
  if (whole && points.length <= mostCharacters) return text;
  const of = whole ? `${points.length} characters` : "a text longer than 1 MB";
  const kept = points.slice(0, mostCharacters);
  return `${kept.join("")}\n\n[These are the first ${kept.length} characters of ${of}.]`;
}
