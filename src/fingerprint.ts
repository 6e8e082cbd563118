/** Whether two values say the same, whatever the order of keys, and what calls are told apart by. */

/** JSON with sorted keys. */
export function canonical(value: unknown): string {
  return JSON.stringify(
    value,
    (_key, part) =>
      part && typeof part === "object" && !Array.isArray(part)
        ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => a < b ? -1 : 1))
        : part,
  );
}

/** The identity of a call, handed to its tool (DESIGN rule 5). */
export function idempotencyKey(run: string, path: string): string {
  return `${run}/${path}`;
}

/** What a call does, whoever asked for it: its tool and arguments, whatever the order of keys. */
export function signature(call: { name: string; arguments: unknown }, args = call.arguments): string {
  return `${call.name} ${canonical(args)}`;
}

/** Short texts as they are; of long ones enough to tell them apart. */
export function fingerprintOf(text: string): string {
  if (text.length <= 200) return text;
  return `${text.slice(0, 120)}… (${text.length} characters, ${hashOf(text)})`;
}

/** 64 bits, for texts that nobody chooses in order to deceive. */
export function hashOf(text: string): string {
  let a = 0xdeadbeef, b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    a = Math.imul(a ^ text.charCodeAt(i), 2654435761);
    b = Math.imul(b ^ text.charCodeAt(i), 1597334677);
  }
  return `${(a >>> 0).toString(16)}${(b >>> 0).toString(16)}`;
}
