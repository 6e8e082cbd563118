/** `deno task fixture`: writes what this version leaves in its stores to `tests/fixtures/VERSION.json`. A released one is never changed. */
import { stdout } from "node:process";
import { decode, type Kind, kinds } from "../src/entry.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { upstashStore } from "../src/store/upstash.ts";
import { dumpRedis, dumpSqlite, type Fixture, play } from "./support/fixture.ts";
import { redisServer } from "./support/redis_server.ts";
import { upstashRest } from "./support/upstash_rest.ts";
import { VirtualTime } from "./support/virtual_time.ts";

const { version } = JSON.parse(await Deno.readTextFile(new URL("../deno.json", import.meta.url)));
const path = new URL(`fixtures/${version}.json`, import.meta.url);

const time = new VirtualTime(), file = await Deno.makeTempFile({ suffix: ".db" });
await Deno.remove(file);
const sqlite = sqliteStore(file, { clock: time });
const played = await play(sqlite, time);
await sqlite.close();

const server = await redisServer();
if (typeof server === "string") throw new Error(server);
const rest = upstashRest(server.port), ahead = new VirtualTime(), asked = globalThis.fetch;
// What is asked of Redis takes real time, in which none of the other passes.
globalThis.fetch = (input, init) => ahead.during(asked(input, init));
const redis = upstashStore({ url: rest.url, token: rest.token, prefix: "f:", clock: ahead.background() });
const again = await play(
  new Proxy(redis, {
    get: (_, verb: keyof typeof redis) => {
      const value = redis[verb];
      if (typeof value !== "function" || verb === "watch") {
        return typeof value === "function" ? value.bind(redis) : value;
      }
      return (...args: unknown[]) =>
        ahead.during((value as (...all: unknown[]) => Promise<unknown>).apply(redis, args));
    },
  }),
  ahead,
);
if (JSON.stringify(again.run) !== JSON.stringify(played.run)) {
  throw new Error("Both stores must tell of the same runs");
}
const left = dumpSqlite(file),
  written = new Set(left.rows.log!.map(({ entry }) => decode(String(entry)).kind));
const missing = Object.keys(kinds).filter((kind) => !written.has(kind as Kind));
if (missing.length) {
  throw new Error(`No entry of kind ${missing.join(", ")}: let play() in fixture.ts make one`);
}
const fixture: Fixture = {
  at: time.now(),
  ...played,
  sqlite: left,
  redis: await dumpRedis(rest.redis, "f:"),
};
await Deno.writeTextFile(path, JSON.stringify(fixture, null, 1) + "\n");
await redis.close();
await rest.close();
await server.stop();
await Deno.remove(file);
stdout.write(`Wrote ${path.pathname}\n`);
