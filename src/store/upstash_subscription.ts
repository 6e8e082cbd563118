/** Hears what scripts publish, over server-sent events. It is a wake-up and nothing else: what there is to know is in the thread. */
import type { Clock } from "../clock.ts";

export interface WatchOptions {
  url: string;
  token: string;
  channel: string;
  clock: Clock;
  signal: AbortSignal;
  /** Whether partials are shown. */
  live: boolean;
  wake(): void;
  /** Tells the thread that this one watches for so long; 0: no longer. */
  say(id: string, ms: number): Promise<unknown>;
}

/** How long a watcher counts as one without saying so again, and how often it does. */
const watchMs = 75_000;
const watchAgainMs = 30_000;
/** After a subscription that broke off. */
const pauseMs = 2000;
/** Longer than any line that matters. */
const longestLine = 1000;

/** Watches until the signal aborts. Never rejects: who is not heard is only slower, as listeners look by themselves now and then. */
export async function watch({ live, wake, say, ...it }: WatchOptions): Promise<void> {
  const { clock, signal } = it, id = (live ? "l" : "n") + clock.id();
  const tell = (ms: number) => say(id, ms).catch(() => {});
  const news = () => {
    try {
      if (!signal.aborted) wake();
    } catch {
      // Listeners cannot hurt (DESIGN rule 10); this one reads again when it next looks.
    }
  };
  let told: Promise<unknown> | undefined;
  // What happened before the thread knew of a watcher was not published.
  const onOpen = () => told = tell(watchMs).then(news);
  const subscribed = subscribe({ ...it, onOpen, onMessage: news });
  while (!signal.aborted) {
    await clock.sleep(watchAgainMs, signal);
    if (told && !signal.aborted) await tell(watchMs);
  }
  await subscribed;
  if (told) await told.then(() => tell(0));
}

type Subscription = Pick<WatchOptions, "url" | "token" | "channel" | "clock" | "signal"> & {
  /** The subscription stands, for the first time or again. */
  onOpen(): void;
  onMessage(): void;
};

async function subscribe(it: Subscription): Promise<void> {
  while (!it.signal.aborted) {
    await listen(it).catch(() => {});
    await it.clock.sleep(pauseMs, it.signal);
  }
}

/** Until it breaks off. */
async function listen({ url, token, channel, signal, onOpen, onMessage }: Subscription): Promise<void> {
  const response = await fetch(`${url.replace(/\/$/, "")}/subscribe/${encodeURIComponent(channel)}`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, accept: "text/event-stream" },
    signal,
  });
  if (!response.ok || !response.body) return await response.body?.cancel();
  let rest = "";
  // Deno's fetch forgets its signal when memory is collected while a body is read, and would listen for ever; a pipe does not.
  for await (const text of response.body.pipeThrough(new TextDecoderStream(), { signal })) {
    const lines = (rest + text).split("\n");
    rest = lines.pop()!.slice(0, longestLine);
    for (const line of lines) {
      if (line.startsWith("data: subscribe,")) onOpen();
      if (line.startsWith("data: message,")) onMessage();
    }
  }
}
