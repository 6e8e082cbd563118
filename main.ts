/** The service on Deno: `deno task start`, `deno serve` and Deno Deploy. It brings the embedded drivers, the socket and the signals. */
import { type Service, serviceFrom } from "./service.ts";
import { systemClock } from "./src/clock.ts";
import type { Environment } from "./src/environment.ts";
import { FatalError, InputError } from "./src/errors.ts";
import type { Pawl } from "./src/mod.ts";
import { inProcessQueue } from "./src/queue/in_process.ts";
import { Warm } from "./src/slice.ts";
import { sqliteStore } from "./src/store/sqlite.ts";
import { tools } from "./tools/mod.ts";

/** How often runs that should have come are looked for, where no schedule does it. */
const sweepMs = 900_000;
/** How long requests under way get to end once the process shall stop. */
const graceMs = 2_000;

/** Throws FatalError or InputError, one line each, for settings that are wrong. */
export function build(env: Environment, offered = tools): Service {
  return serviceFrom(env, {
    embedded: ({ database, ttlMs }) => ({
      store: openStore(database, ttlMs),
      queue: inProcessQueue(systemClock),
    }),
    tools: offered,
    warm: new Warm(),
    onError: (error) => report("Request", error),
  });
}

/** The driver knows the file but not the setting that named it. */
function openStore(database: string, ttlMs: number) {
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

function announce({ uses: { store, queue, model }, hasKeys }: Service, port: number): void {
  const at = `http://127.0.0.1:${port}`, auth = hasKeys ? " -H 'authorization: Bearer KEY'" : "";
  const prompt = JSON.stringify({ content: "What is 6 * 7, and what time is it in Oslo?" });
  say(
    `Pawl listens on ${at}\n  store ${store} · queue ${queue} · model ${model}\n\nTry it, then see what came of it:\n`,
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
    // Before it listens: from then on it may be told to stop.
    const stop = Promise.withResolvers<void>();
    for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, stop.resolve);
    const server = listen(service);
    if (service.embedded) keepGoing(service.pawl).catch((error) => report("Recovery", error));
    stop.promise.then(async () => {
      // What was accepted is in the store, and who watches or waits comes again: none of them may keep the process.
      await Promise.race([server.shutdown(), systemClock.sleep(graceMs)]);
      Deno.exit(0);
    });
  } catch (error) {
    if (!(error instanceof FatalError || error instanceof InputError)) throw error;
    // deno-lint-ignore no-console
    console.error(error.message);
    Deno.exit(1);
  }
}

/** For `deno serve`, which brings the socket: the service is made at the first request. */
let served: Service | undefined;

export default {
  fetch(request, { remoteAddr }) {
    if (!served) {
      served = build(Deno.env.toObject());
      if (served.embedded) keepGoing(served.pawl).catch((error) => report("Recovery", error));
    }
    return served.pawl.fetch(request, {
      remoteAddress: "hostname" in remoteAddr ? remoteAddr.hostname : undefined,
    });
  },
} satisfies Deno.ServeDefaultExport;

if (import.meta.main) serve(Deno.env.toObject());
