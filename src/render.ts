/** What a tool returned, as the content of its result: whatever it is, the log can hold it (CASES A28). */
import { Found } from "./deferred.ts";
import type { Bodies } from "./entry.ts";
import { messageOf } from "./errors.ts";
import type { UserBlock } from "./message.ts";
import { ToolOutput } from "./tool.ts";

type Rendered = Pick<Bodies["result"], "content" | "isError" | "loads" | "terminate">;

/** The longest text result, in code points, of a tool that does not say otherwise. */
const usualLength = 30_000;

/** The most characters of pictures (base64) in a result: stores take 10 MB at once, and no vendor takes larger ones. */
const mostPicture = 4_000_000;

/** All of it; the log gets what `capped` leaves. */
export function render(value: unknown): Rendered {
  if (value instanceof Found) return { content: value.content, isError: false, loads: value.loads };
  if (value instanceof ToolOutput) {
    const { content, isError, terminate } = value;
    return { content, isError, ...(terminate ? { terminate } : {}) };
  }
  if (typeof value === "string") return { content: value, isError: false };
  if (value === undefined) return { content: "(no output)", isError: false };
  if (typeof value === "function" || typeof value === "symbol") {
    return { content: `The tool returned a ${typeof value}, which cannot be shown`, isError: true };
  }
  try {
    return {
      content: typeof value === "object" ? JSON.stringify(value, plain) ?? "(no output)" : String(value),
      isError: false,
    };
  } catch (error) {
    return { content: `The tool's result cannot be written as JSON: ${messageOf(error)}`, isError: true };
  }
}

/** What JSON has no word for. */
function plain(_key: string, value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  if (value instanceof Map || value instanceof Set) return [...value];
  if (value instanceof Error) return { name: value.name, message: value.message };
  return value;
}

/**
 * Of the text in a result at most so many code points: 70 % of the room for its head, the rest for its tail, and between them a note of
 * what was left out (CASES A27, F15). Several blocks of text are one text here. Images stay, unless no store would take them.
 */
export function capped(content: string | UserBlock[], most = usualLength): string | UserBlock[] {
  if (typeof content === "string") return clip(content, most);
  let room = mostPicture;
  content = content.map((block) => {
    if (block.type === "text" || (room -= block.data?.length ?? 0) >= 0) return block;
    return { type: "text", text: `[an image of ${block.data!.length} characters left out: too large]` };
  });
  const length = content.reduce((sum, block) => sum + (block.type === "text" ? pointsIn(block.text) : 0), 0);
  if (length <= most) return content;
  const head = Math.floor(most * 0.7), tail = length - (most - head);
  let at = 0;
  return content.flatMap((block): UserBlock[] => {
    if (block.type !== "text") return [block];
    const points = Array.from(block.text), from = at;
    at += points.length;
    const before = points.slice(0, Math.max(0, head - from)), after = points.slice(Math.max(0, tail - from));
    // The block in which the gap begins has the note.
    const note = from <= head && head < at ? leftOut(length - most) : "";
    const text = before.length === points.length ? block.text : `${before.join("")}${note}${after.join("")}`;
    return text ? [{ ...block, text }] : [];
  });
}

export function clip(text: string, most: number): string {
  if (text.length <= most) return text;
  const points = Array.from(text);
  if (points.length <= most) return text;
  const head = Math.floor(most * 0.7), tail = most - head;
  return points.slice(0, head).join("") + leftOut(points.length - most) + points.slice(-tail).join("");
}

function leftOut(count: number): string {
  return `\n[… ${count} characters left out …]\n`;
}

function pointsIn(text: string): number {
  return text.length - (text.match(/[\uD800-\uDBFF][\uDC00-\uDFFF]/g)?.length ?? 0);
}
