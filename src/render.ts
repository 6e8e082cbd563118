/** What a tool returned, as the content of its result: whatever it is, the log can hold it (CASES A28). */
import { Found } from "./deferred.ts";
import { messageOf } from "./errors.ts";
import type { UserBlock } from "./message.ts";
import { ToolOutput } from "./tool.ts";

/** The longest text result, in code points; longer ones keep their head and tail. */
const maxLength = 30_000;

export function render(
  value: unknown,
): { content: string | UserBlock[]; isError: boolean; loads?: readonly string[] } {
  if (value instanceof Found) return { content: clipped(value.content), isError: false, loads: value.loads };
  if (value instanceof ToolOutput) return { content: clipped(value.content), isError: value.isError };
  if (typeof value === "string") return { content: clip(value), isError: false };
  if (value === undefined) return { content: "(no output)", isError: false };
  if (typeof value === "function" || typeof value === "symbol") {
    return { content: `The tool returned a ${typeof value}, which cannot be shown`, isError: true };
  }
  try {
    return {
      content: clip(typeof value === "object" ? JSON.stringify(value, plain) : String(value)),
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

function clipped(content: string | UserBlock[]): string | UserBlock[] {
  if (typeof content === "string") return clip(content);
  return content.map((block) => block.type === "text" ? { ...block, text: clip(block.text) } : block);
}

/** Keeps 70 % of the room for the head, counts code points, and says what was left out (CASES A27, F15). */
export function clip(text: string, most = maxLength): string {
  if (text.length <= most) return text;
  const points = Array.from(text);
  if (points.length <= most) return text;
  const head = Math.floor(most * 0.7), tail = most - head;
  const cut = points.length - head - tail;
  return `${points.slice(0, head).join("")}\n[… ${cut} characters left out …]\n${
    points.slice(-tail).join("")
  }`;
}
