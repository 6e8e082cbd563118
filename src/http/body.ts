/** Reading what a client sends, with limits that hold whatever it says of itself (CASES H07). */
import { InputError } from "../errors.ts";
import type { Json } from "../message.ts";

export const maxBytes = 1_048_576;
export const maxDepth = 100;

/** The body's bytes, counted while they come. Above the limit: InputError "too_large", and the rest is not read. */
export async function readBody(request: Request, limit = maxBytes): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () => new InputError("too_large", `The body is larger than ${limit} bytes`);
  if (Number(request.headers.get("content-length")) > limit) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = request.body?.getReader();
  while (reader) {
    const { done, value } = await reader.read().catch(() => {
      throw new InputError("bad_input", "The body ended before it was complete");
    });
    if (done) break;
    length += value.length;
    if (length > limit) {
      // Not awaited: a client that does not stop sending must not hold the answer back.
      reader.cancel().catch(() => {});
      throw tooLarge();
    }
    chunks.push(value);
  }
  const bytes = new Uint8Array(length);
  chunks.reduce((at, chunk) => (bytes.set(chunk, at), at + chunk.length), 0);
  return bytes;
}

/** Reads JSON text in UTF-8; nothing at all reads as {}. Throws InputError "bad_input" at what is no JSON or nested too deep. */
export function parseJson(bytes: Uint8Array): Json {
  if (bytes.length === 0) return {};
  if (depthOf(bytes) > maxDepth) {
    throw new InputError("bad_input", `The body nests deeper than ${maxDepth} levels`);
  }
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    throw new InputError("bad_input", `The body is no JSON: ${reason}`);
  }
}

/** Counted on the bytes, before anything that walks the value could overflow the stack. */
function depthOf(bytes: Uint8Array): number {
  let depth = 0, deepest = 0, quoted = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!;
    if (quoted) {
      if (byte === 0x5c) at++;
      else if (byte === 0x22) quoted = false;
    } else if (byte === 0x22) quoted = true;
    else if (byte === 0x5b || byte === 0x7b) deepest = Math.max(deepest, ++depth);
    else if (byte === 0x5d || byte === 0x7d) depth--;
  }
  return deepest;
}
