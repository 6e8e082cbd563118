/** What a deployment is made of, from its environment: the same on every host. Only the embedded drivers are the host's to bring. */
import { modelFromEnv } from "./providers/mod.ts";
import { systemClock } from "./src/clock.ts";
import { deploymentFrom, type Environment } from "./src/environment.ts";
import { FatalError, InputError } from "./src/errors.ts";
import { modelNames } from "./src/model.ts";
import { createPawl, type Pawl } from "./src/pawl.ts";
import type { Queue } from "./src/queue.ts";
import { qstashQueue } from "./src/queue/qstash.ts";
import type { Warm } from "./src/slice.ts";
import type { Store } from "./src/store.ts";
import { upstashStore } from "./src/store/upstash.ts";
import { tools, toolsets } from "./tools/mod.ts";

export interface Service {
  pawl: Pawl;
  /** What it uses, for people. */
  uses: { store: string; queue: string; model: string };
  port: number;
  hasKeys: boolean;
  embedded: boolean;
}

export interface Host {
  /** A store in a file and a queue in the process, on hosts that have them. */
  embedded?(settings: { database: string; ttlMs: number }): { store: Store; queue: Queue };
  tools?: typeof tools;
  toolsets?: typeof toolsets;
  warm?: Warm;
  /** Where a request's end cuts off what it has under way. */
  waitUntil?(work: Promise<unknown>): void;
  onError(error: unknown): void;
}

/** The answer while settings are wrong, on hosts that cannot refuse to start. Throws what is something else. */
export function notSetUp(error: unknown, say: (line: string) => void): Response {
  if (!(error instanceof FatalError || error instanceof InputError)) throw error;
  say(error.message);
  return Response.json({
    error: { code: "setting", message: "The service is not set up; its log says why" },
  }, { status: 503 });
}

/** Throws FatalError or InputError, one line each, for settings that are wrong. */
export function serviceFrom(env: Environment, host: Host): Service {
  const { port, database, tenants, upstash, ...limits } = deploymentFrom(env);
  const models = modelFromEnv(env);
  // Now, and not at the first run: is its key there?
  modelNames(models.default).forEach((name) => models.get(name));
  const { ttlMs } = limits;
  const drivers = upstash
    ? {
      store: upstashStore({ ...upstash.redis, ttlMs, waitUntil: host.waitUntil }),
      queue: qstashQueue({ ...upstash.qstash, clock: systemClock }),
    }
    : host.embedded?.({ database, ttlMs });
  if (!drivers) {
    throw new FatalError(
      "setting",
      "UPSTASH_REDIS_REST_URL: set it, and QSTASH_TOKEN; this host has no embedded store",
    );
  }
  const pawl = createPawl({
    ...limits,
    ...drivers,
    models,
    tenants,
    tools: (host.tools ?? tools).flatMap((tool) => typeof tool === "function" ? tool(env) : tool),
    // Those of this deployment name its own tools.
    toolsets: host.toolsets ?? (host.tools ? {} : toolsets),
    env,
    warm: host.warm,
    onError: host.onError,
  });
  const uses = { store: drivers.store.name, queue: drivers.queue.name, model: models.default };
  return { pawl, uses, port, hasKeys: tenants.length > 0, embedded: !upstash };
}
