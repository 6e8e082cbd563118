/** Upstash Redis for tests: the REST stand-in before a private redis-server, started for the test file that asks. */
import assert from "node:assert/strict";
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
