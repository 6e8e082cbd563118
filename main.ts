/** The composition root: the only place that reads the environment and names the drivers of a deployment. */
import { modelFromEnv } from "./providers/mod.ts";
import { systemClock } from "./src/clock.ts";
import { deploymentFrom, type Environment } from "./src/environment.ts";
import { FatalError, InputError } from "./src/errors.ts";
import { createPawl, type Models, type Pawl, type Store } from "./src/mod.ts";
import { inProcessQueue } from "./src/queue/in_process.ts";
import { sqliteStore } from "./src/store/sqlite.ts";
import { tools } from "./tools/mod.ts";

/** How often runs that should have come are looked for. */
const sweepMs = 900_000;
/** How long requests under way get to end once the process shall stop. */
const graceMs = 2_000;

export interface Service {
  pawl: Pawl;
  models: Models;
  store: string;
  queue: string;
  port: number;
  hasKeys: boolean;
}

/** Builds a service. Throws FatalError or InputError, one line each, for settings that are wrong. */
export function build(env: Environment, offered = tools): Service {
  const { port, database, tenants, upstash, ...limits } = deploymentFrom(env);
  if (upstash) {
    throw new FatalError(
      "setting",
      "UPSTASH_REDIS_REST_URL: this version has the embedded store only; unset it, and QSTASH_TOKEN with it",
    );
  }
  const models = modelFromEnv(env);
  models.get(models.default);
  const store = openStore(database, limits.ttlMs);
  const queue = inProcessQueue(systemClock);
  const pawl = createPawl({
    ...limits,
    models,
    store,
    queue,
    tenants,
    tools: offered.map((tool) => typeof tool === "function" ? tool(env) : tool),
    onError: (error) => report("Request", error),
  });
  return { pawl, models, store: store.name, queue: queue.name, port, hasKeys: tenants.length > 0 };
}

/** The driver knows the file but not the setting that named it. */
function openStore(database: string, ttlMs: number): Store {
  try {
    return sqliteStore(database, { clock: systemClock, ttlMs });
  } catch (error) {
    throw error instanceof FatalError ? new FatalError(error.code, `PAWL_DB: ${error.message}`) : error;
  }
}

/** Goes on with what an earlier process left, and looks again from time to time. */
async function keepGoing(pawl: Pawl): Promise<void> {
  const resumed = await pawl.recover();
  if (resumed) say(`Goes on with ${resumed} open ${resumed === 1 ? "run" : "runs"}`);
  for (;;) {
    await systemClock.sleep(sweepMs);
    await pawl.sweep().catch((error) => report("Sweep", error));
  }
}

function say(line: string): void {
  // deno-lint-ignore no-console
  console.log(line);
}

function report(what: string, error: unknown): void {
  // deno-lint-ignore no-console
  console.error(`${what}:`, error);
}

function announce({ models, store, queue, hasKeys }: Service, port: number): void {
  const at = `http://127.0.0.1:${port}`, auth = hasKeys ? " -H 'authorization: Bearer KEY'" : "";
  const prompt = JSON.stringify({ content: "What is 6 * 7, and what time is it in Oslo?" });
  say(
    `Pawl listens on ${at}\n  store ${store} · queue ${queue} · model ${models.default}\n\nTry it, then see what came of it:\n`,
  );
  say(`  curl -s${auth} -H 'content-type: application/json' -d '${prompt}' ${at}/runs`);
  say(`  curl -s${auth} '${at}/runs?limit=1'\n`);
}

function listen(service: Service) {
  const { port, hasKeys, pawl } = service;
  try {
    return Deno.serve({
      port,
      // Without keys only this machine may ask, so nobody else is listened to.
      hostname: hasKeys ? "0.0.0.0" : "127.0.0.1",
      onListen: ({ port }) => announce(service, port),
    }, (request, { remoteAddr }) => pawl.fetch(request, { remoteAddress: remoteAddr.hostname }));
  } catch (error) {
    if (!(error instanceof Deno.errors.AddrInUse || error instanceof Deno.errors.PermissionDenied)) {
      throw error;
    }
    throw new FatalError("setting", `PORT: cannot listen on ${port}: ${error.message}. Choose another`);
  }
}

/** Serves until SIGINT or SIGTERM. Settings that are wrong end the process with one line and code 1. */
export function serve(env: Environment, offered = tools): void {
  try {
    const service = build(env, offered);
    const server = listen(service);
    keepGoing(service.pawl).catch((error) => report("Recovery", error));
    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      Deno.addSignalListener(signal, async () => {
        // What was accepted is in the store, and who watches or waits comes again: none of them may keep the process.
        await Promise.race([server.shutdown(), systemClock.sleep(graceMs)]);
        Deno.exit(0);
      });
    }
  } catch (error) {
    if (!(error instanceof FatalError || error instanceof InputError)) throw error;
    // deno-lint-ignore no-console
    console.error(error.message);
    Deno.exit(1);
  }
}

if (import.meta.main) serve(Deno.env.toObject());
