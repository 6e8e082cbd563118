/**
 * Whether a regular expression that somebody else wrote may be run. The engine backtracks: `(a+)+$` on forty letters blocks the only thread
 * for years, and no timer can interrupt it (CASES H09).
 */

/**
 * True if matching takes time at most proportional to the text. It knows by form, so it also refuses many patterns that would be fast:
 * allowed are one open-ended repetition after `^`, counted ones, and a few choices, none of them around a group.
 */
export function cheap(pattern: string): boolean {
  if (pattern.length > 1000 || !compiles(pattern) || /\\[1-9k]/.test(pattern)) return false;
  const bare = pattern.replace(/\\.|\[(?:\\.|[^\]\\])*\]/gs, "x").replaceAll("(?:", "(");
  const count = (of: RegExp) => bare.match(of)?.length ?? 0;
  if (count(/\)[*+?{]|\(\?|\{\d*\d{4}/g) > 0 || count(/[?|]/g) > 5) return false;
  if (count(/[*+{]/g) === 0) return true;
  return bare.startsWith("^") && !bare.includes("|") && count(/[*+]|\{\d*,/g) <= 1;
}

function compiles(pattern: string): boolean {
  try {
    new RegExp(pattern, "u");
    return true;
  } catch {
    return false;
  }
}
