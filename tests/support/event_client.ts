/** A spec-conform client of a run's events: the `eventsource` package, with every name that events have or might be forged to have. */
import { EventSource } from "eventsource";

export interface Got {
  id: string;
  event: string;
  data: any;
}

export interface EventClient extends Disposable {
  /** All so far. */
  got: Got[];
  close(): void;
}

const names = [
  "agent_start",
  "turn_start",
  "message_start",
  "message_update",
  "message_end",
  "tool_execution_start",
  "tool_execution_update",
  "tool_execution_end",
  "turn_end",
  "agent_end",
  "slice_start",
  "slice_end",
  "message_retry",
  "mail_queued",
  "mail_taken",
  "run_waiting",
  "warning",
  "resync",
  "run_done",
  "message",
];

export interface EventClientOptions {
  /** Sent with the first request; after that the client knows by itself. */
  lastEventId?: string;
  headers?: Record<string, string>;
  /** Leaves once it has got so many. */
  leaveAfter?: number;
}

export function eventClient(
  url: string,
  { lastEventId, headers, leaveAfter = Infinity }: EventClientOptions = {},
): EventClient {
  const got: Got[] = [];
  const source = new EventSource(url, {
    fetch: (input, init) =>
      fetch(input, {
        ...init as RequestInit,
        headers: {
          ...init?.headers,
          ...headers,
          ...(lastEventId && !got.length ? { "last-event-id": lastEventId } : {}),
        },
      }),
  });
  for (const name of names) {
    source.addEventListener(name, ({ lastEventId, type, data }) => {
      if (got.length >= leaveAfter) return;
      got.push({ id: lastEventId, event: type, data: JSON.parse(data) });
      if (type === "agent_end" || got.length >= leaveAfter) source.close();
    });
  }
  return { got, close: () => source.close(), [Symbol.dispose]: () => source.close() };
}
