/** Upstash Redis for tests: the REST stand-in before a private redis-server, started for the test file that asks. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/clock.ts";
import { type UpstashOptions, upstashStore } from "../../src/store/upstash.ts";
import { Scene } from "../contract/store_scene.ts";
import { redisServer } from "./redis_server.ts";
import { type UpstashRest, upstashRest } from "./upstash_rest.ts";

/**
 * Undefined where there is no Redis: then the tests that need it count as ignored, and one says why. In CI that one fails.
 */
export async function upstash(): Promise<UpstashRest | undefined> {
  const server = await redisServer();
  if (typeof server === "string") {
    const ci = Deno.env.get("CI") === "true";
    // deno-lint-ignore no-console
    console.warn(server);
    Deno.test({ name: `Redis: ${server}`, ignore: !ci, fn: () => assert.fail(server) });
    return undefined;
  }
  const rest = upstashRest(server.port);
  Deno.test.afterAll(async () => {
    await rest.close();
    await server.stop();
  });
  return rest;
}

let stores = 0;

/** Begins the keys of a store that shares nothing with the ones before it. */
export function freshPrefix(): string {
  return `${++stores}:`;
}

export interface Stage {
  rest: UpstashRest;
  s: Scene;
  prefix: string;
  /** All keys of the scene's thread that are there, by their last part. */
  keys(): Promise<Record<string, string>>;
  /** Another store on the same keys. */
  other(over?: Partial<UpstashOptions>): Scene;
}

export type UpstashTest = (
  name: string,
  body: (stage: Stage) => Promise<void>,
  over?: Partial<UpstashOptions>,
) => void;

/** Tests of one store each, with Redis's own clock unless the test brings another. */
export function upstashTests(rest: UpstashRest | undefined): UpstashTest {
  return (name, body, over = {}) =>
    Deno.test({
      name: `Upstash: ${name}`,
      ignore: rest === undefined,
      async fn() {
        const { url, token } = rest!, prefix = freshPrefix(), scenes: Scene[] = [];
        const real = { ...systemClock, sleepers: 0, advance: (ms: number) => systemClock.sleep(ms) };
        const clock = (over.clock ?? real) as Scene["clock"];
        const other = (more: Partial<UpstashOptions> = {}) => {
          const scene = new Scene(upstashStore({ url, token, prefix, ...over, ...more }), clock);
          scenes.push(scene);
          return scene;
        };
        const s = other();
        const keys = async () => {
          const names = await rest!.redis.keys(`${prefix}{${s.thread}}:*`);
          return Object.fromEntries(names.map((key) => [key.slice(key.lastIndexOf(":") + 1), key]));
        };
        try {
          await body({ rest: rest!, s, prefix, keys, other });
        } finally {
          rest!.fault = undefined;
          for (const { store } of scenes) await store.close();
        }
      },
    });
}
