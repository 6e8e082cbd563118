/** The service on Deno: `deno task start`, `deno serve` and Deno Deploy. It brings the embedded drivers, the socket and the signals. */
import { notSetUp, type Service, serviceFrom } from "./service.ts";
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

function complain(line: string): void {
  // deno-lint-ignore no-console
  console.error(line);
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

/** Serves until SIGINT or SIGTERM. */
export function serve(env: Environment, offered = tools): void {
  orExit(() => open(build(env, offered)));
}

function open(service: Service): void {
  // Before it listens: from then on it may be told to stop.
  const stop = stopped(), server = listen(service);
  resume(service);
  stop.then(() => end(server.shutdown()));
}

function resume({ embedded, pawl }: Service): void {
  if (embedded) keepGoing(pawl).catch((error) => report("Recovery", error));
}

/** Resolves when the process is told to stop. */
function stopped(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  for (const signal of ["SIGINT", "SIGTERM"] as const) Deno.addSignalListener(signal, resolve);
  return promise;
}

/** What was accepted is in the store, and who watches or waits comes again: none of them may keep the process. */
async function end(shutDown: Promise<void>): Promise<void> {
  await Promise.race([shutDown, systemClock.sleep(graceMs)]);
  Deno.exit(0);
}

/** Settings that are wrong end the process with one line and code 1. */
function orExit<T>(start: () => T): T {
  try {
    return start();
  } catch (error) {
    if (!(error instanceof FatalError || error instanceof InputError)) throw error;
    complain(error.message);
    Deno.exit(1);
  }
}

/** For `deno serve`, and for platforms that take the default export: they bring the socket. */
let served: Service | undefined, listening = false;

export default {
  onListen(at) {
    listening = true;
    served ??= orExit(() => build(Deno.env.toObject()));
    announce(served, "port" in at ? at.port : served.port);
    resume(served);
    // Who brought the socket closes it, but would then wait for all that sleeps.
    stopped().then(() => end(systemClock.sleep(graceMs)));
  },
  fetch(request, { remoteAddr }) {
    try {
      // Not by `onListen`: then settings that are wrong have to be told to whoever asks.
      if (!served) resume(served = build(Deno.env.toObject()));
    } catch (error) {
      return notSetUp(error, complain);
    }
    return served.pawl.fetch(request, {
      remoteAddress: "hostname" in remoteAddr ? remoteAddr.hostname : undefined,
    });
  },
} satisfies Deno.ServeDefaultExport;

if (import.meta.main) {
  const service = served = orExit(() => build(Deno.env.toObject()));
  // This is the main module under `deno serve`, too, which listens before the event loop turns: a second socket would be one too many.
  systemClock.sleep(0).then(() => listening || orExit(() => open(service)));
}
