/** What travels through QStash: ids, and nothing that the store does not say better (CASES H04). */
import * as z from "zod";
import type { Delivery } from "../queue.ts";

const count = z.int().min(0);
const Body = z.object({
  v: z.literal(1),
  thread: z.string().min(1),
  incarnation: z.string().min(1),
  run: z.string().min(1),
  ticket: count,
  hop: count,
}).transform(({ v: _version, ...delivery }) => delivery);
/** The part of QStash's failure callback that is used. */
const Failure = z.object({ status: z.number().optional(), sourceBody: z.string() });

export function writeDelivery({ thread, incarnation, run, ticket, hop }: Delivery): string {
  return JSON.stringify({ v: 1, thread, incarnation, run, ticket, hop } satisfies z.input<typeof Body>);
}

/** Undefined: it is no delivery, or of a version that this one does not know. */
export function readDelivery(text: string): Delivery | undefined {
  return read(Body, text);
}

/** The delivery that a failure callback is about; "hopeless" if its last answer was 489. */
export function readFailure(text: string): { delivery: Delivery; hopeless: boolean } | undefined {
  const failure = read(Failure, text), source = failure && fromBase64(failure.sourceBody);
  const delivery = source === undefined ? undefined : readDelivery(source);
  return delivery && { delivery, hopeless: failure?.status === 489 };
}

function read<T>(schema: z.ZodType<T>, text: string): T | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** As UTF-8: `atob` alone makes one character of each byte. */
function fromBase64(text: string): string | undefined {
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));
  } catch {
    return undefined;
  }
}
