/**
 * What a queue sends: deliveries, what it has given up on, and the sweep. It owns how each is answered, for the queue acts on that: 2xx is
 * done, 489 is hopeless, anything else comes again. Every field but ids is read from the store (CASES H04).
 */
import { FatalError, InputError, messageOf, RetryableError } from "../errors.ts";
import type { HttpQueue, Received } from "../queue.ts";
import type { Verbs } from "../verbs.ts";
import { maxBytes, readBody } from "./body.ts";
import { failed, failure } from "./failure.ts";

/** A delivery is a few ids. What the queue gave up on comes with the answer that it got last, which may be anybody's page. */
const deliveryBytes = 65_536;
/** How many threads one POST /sweep takes. */
const sweepLimit = 50;
/** Unless the failure says better: 5 s, 25 s, 125 s. Sooner, an outage of seconds would use up all tries. */
const retryMs = (retried: number) => 5_000 * 5 ** retried;

/** The handler of the paths that only the queue may call; anybody else gets one and the same 401 (CASES H03). */
export function deliveries(
  verbs: Verbs,
  queue: HttpQueue,
  onError: (error: unknown) => void = () => {},
): (request: Request) => Promise<Response> {
  return async (request) => {
    const path = new URL(request.url).pathname;
    const body = () => readBody(request, path === "/slices/failed" ? maxBytes : deliveryBytes);
    const received = await queue.receive({ path, headers: request.headers, body });
    if (!received) throw new InputError("unauthorized", "Only the queue may ask this, with its signature");
    try {
      return Response.json(await act(received, verbs, queue));
    } catch (error) {
      onError(error);
      if (error instanceof FatalError) return hopeless(error.message);
      const asked = error instanceof RetryableError ? error.retryAfterMs : undefined;
      return failed(new RetryableError(messageOf(error), asked ?? retryMs(received.retried)));
    }
  };
}

async function act(received: Received, verbs: Verbs, queue: HttpQueue): Promise<object> {
  switch (received.is) {
    case "delivery":
      await verbs.deliver(received.delivery, received.message, received.retried);
      return { ok: true };
    case "failed":
      // What was told to be hopeless stays so until somebody has acted; then the sweep finds it.
      if (!received.hopeless) await verbs.failed(received.delivery);
      return { ok: true };
    case "sweep": {
      const published = await verbs.sweep(sweepLimit);
      if (published === sweepLimit) await queue.sweepAgain(received.message);
      return { published };
    }
    case "unknown":
      throw new FatalError("message", "The message means nothing to this version");
  }
}

/** QStash's word for: do not try this again. It keeps the message where an operator finds it. */
function hopeless(message: string): Response {
  return failure(489, { code: "hopeless", message }, { "upstash-nonretryable-error": "true" });
}
