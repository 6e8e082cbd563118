/** Names of functions: Gemini's begin with a letter or "_", Pawl's may begin with a digit or "-" (CASES C09). */
import { wireName } from "./call.ts";

/** No name of Pawl's holds a dot, so none begins like this. */
const mark = "n.";

/** A tool's name on the wire. */
export function functionName(name: string): string {
  const plain = wireName(name);
  return /^[A-Za-z_]/.test(plain) ? plain : `${mark}${plain.slice(0, 64 - mark.length)}`;
}

/** And back. */
export function toolName(name: string): string {
  return name.startsWith(mark) ? name.slice(mark.length) : name;
}
