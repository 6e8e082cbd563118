/** The only source of time, chance and timers. Tests put their own in its place. */
export interface Clock {
  /** Unix milliseconds. */
  now(): number;
  /** Resolves after `ms`, at once when `signal` aborts; never rejects. A pending sleep need not keep the process alive. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** `length` random characters of [0-9a-z]. */
  id(length?: number): string;
}

/** What comes first: the value, or undefined after `ms` or when `signal` aborts. Leaves no sleep behind. */
export async function orAfter<T>(
  clock: Clock,
  ms: number,
  coming: Promise<T>,
  signal?: AbortSignal,
): Promise<T | undefined> {
  const over = new AbortController(), stop = () => over.abort();
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  try {
    return await Promise.race([coming, clock.sleep(ms, over.signal).then(() => undefined)]);
  } finally {
    signal?.removeEventListener("abort", stop);
    stop();
  }
}

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyz";

export const systemClock: Clock = {
  now: () => Date.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      // Longer than 2^31 ms overflows the platform's timers, which then fire at once.
      const timer = setTimeout(done, Math.min(ms, 2_147_483_647));
      signal?.addEventListener("abort", done);
    }),
  id: (length = 12) => {
    let id = "";
    while (id.length < length) {
      for (const byte of crypto.getRandomValues(new Uint8Array(length))) {
        if (byte < 252 && id.length < length) id += alphabet[byte % 36];
      }
    }
    return id;
  },
};
