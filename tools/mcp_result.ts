/** What the result of an MCP tool becomes: text and images as they are, the rest in words, so that every vendor takes it. */
import * as z from "zod";
import type { Image, UserBlock } from "../src/message.ts";
import { ToolOutput } from "../src/tool.ts";

/** No more of a result than the driver looks at: servers add kinds of content faster than clients. */
export const CallResult = z.looseObject({
  content: z.array(z.looseObject({ type: z.string() })).default([]),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().optional(),
});
export type CallResult = z.infer<typeof CallResult>;
type Block = CallResult["content"][number];

/** base64 characters of all images of a result; more would not fit into a commit. */
const mostImage = 700_000;

/**
 * The result for the model. Neighbouring texts are joined, `structuredContent` is appended as JSON unless a text says the same, and images
 * that vendors do not take, or that are too large, are named instead of shown.
 */
export function outputOf({ content, structuredContent, isError = false }: CallResult): ToolOutput {
  const blocks: UserBlock[] = [];
  let room = mostImage;
  const add = (block: UserBlock) => {
    const last = blocks.at(-1);
    if (block.type === "text" && last?.type === "text") last.text += `\n${block.text}`;
    else blocks.push(block);
  };
  for (const block of content) {
    const shown = shownOf(block);
    if (shown.type === "image" && (room -= shown.data!.length) < 0) {
      add(named(shown.mediaType, shown.data!, "too large to be shown"));
    } else add(shown);
  }
  if (structuredContent !== undefined && !content.some((block) => says(block, structuredContent))) {
    add({ type: "text", text: JSON.stringify(structuredContent) });
  }
  const [only] = blocks;
  if (!only) return new ToolOutput("(no output)", isError);
  return new ToolOutput(blocks.length === 1 && only.type === "text" ? only.text : blocks, isError);
}

function shownOf(block: Block): UserBlock {
  const { type, text, data, mimeType, resource } = block;
  if (type === "text" && typeof text === "string") return { type, text };
  if ((type === "image" || type === "audio") && typeof data === "string") return media(mimeType, data);
  if (type === "resource" && typeof resource === "object" && resource !== null) {
    const { uri, text, blob, mimeType } = resource as { [field: string]: unknown };
    if (typeof text === "string") return { type: "text", text: `${uri}\n${text}` };
    if (typeof blob === "string") return media(mimeType, blob);
  }
  // Links to resources, and what nobody knew when this was written: it is JSON, and models read JSON.
  return { type: "text", text: JSON.stringify(block) };
}

function media(mimeType: unknown, data: string): UserBlock {
  const mediaType = String(mimeType ?? "application/octet-stream");
  // A vendor that refuses a block refuses every later request of its thread.
  if (/^image\/(png|jpeg|gif|webp)$/.test(mediaType) && isBase64(data)) {
    return { type: "image", mediaType, data } satisfies Image;
  }
  return named(mediaType, data, "cannot be shown");
}

function isBase64(data: string): boolean {
  return data !== "" && data.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(data);
}

function named(mediaType: string, data: string, why: string): UserBlock {
  return {
    type: "text",
    text: `[${mediaType.slice(0, 80)} of ${Math.floor(data.length * 3 / 4)} bytes, ${why}]`,
  };
}

/** Servers that give structured content repeat it as text for clients that do not know it. */
function says({ type, text }: Block, structured: unknown): boolean {
  if (type !== "text" || typeof text !== "string") return false;
  try {
    return JSON.stringify(JSON.parse(text)) === JSON.stringify(structured);
  } catch {
    return false;
  }
}
