/**
 * Stores for simulated worlds, in a real Redis. What such a store asks for takes real time, in which no virtual time passes; and it asks
 * without a network, so that all is done in the order in which it was asked.
 */
import type { Store } from "../../src/store.ts";
import { upstashStore } from "../../src/store/upstash.ts";
import { freshPrefix } from "./upstash.ts";
import type { UpstashRest } from "./upstash_rest.ts";
import type { VirtualTime } from "./virtual_time.ts";

/** Makes a store for one world. Worlds come one after another: this process has one `fetch`, and it serves the latest. */
export function upstashWorlds(
  rest: UpstashRest,
): (time: VirtualTime, ttlMs?: number, prefix?: string) => Store {
  const network = globalThis.fetch;
  let latest: VirtualTime;
  const ask = async (url: string, init?: RequestInit) => {
    const response = await rest.fetch(new Request(url, { ...init, signal: undefined }));
    await rest.heard();
    return response;
  };
  globalThis.fetch = (input, init) =>
    `${input}`.startsWith(rest.url) ? latest.during(ask(`${input}`, init)) : network(input, init);

  return (time, ttlMs, prefix = freshPrefix()) => {
    latest = time;
    const { url, token } = rest;
    const store = upstashStore({ url, token, prefix, ttlMs, clock: time.background() });
    const close = async () => {
      await store.close();
      const keys = await rest.redis.keys(`${prefix}*`);
      if (keys.length) await rest.redis.unlink(keys);
    };
    return new Proxy(store, {
      get: (_, verb: keyof Store) => {
        if (verb === "name") return store.name;
        if (verb === "close") return close;
        if (verb === "watch") return store.watch.bind(store);
        const body = (store[verb] as (...args: unknown[]) => Promise<unknown>).bind(store);
        return (...args: unknown[]) => time.during(body(...args));
      },
    });
  };
}
