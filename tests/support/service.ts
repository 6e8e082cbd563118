/** The service as a process of its own: started, asked over HTTP, killed, started again on the same file. */
import assert from "node:assert/strict";
import { systemClock } from "../../src/clock.ts";

export interface Answer {
  status: number;
  headers: Headers;
  /** The body, where it is JSON. */
  json: any;
  text: string;
}

export interface Service extends AsyncDisposable {
  /** Another one after each start. */
  readonly url: string;
  /** The store's file. */
  readonly database: string;
  request(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** POST /runs, which must be accepted; answers the run's id. */
  start(
    body: object,
    headers?: Record<string, string>,
  ): Promise<{ id: string; thread: string; message_id: string }>;
  /** The run once it has ended, which must happen in seconds. */
  ended(run: string): Promise<any>;
  /** The run once it has this status. */
  reaches(run: string, status: string): Promise<any>;
  messages(run: string): Promise<any[]>;
  /** No process may do anything about this one. */
  kill9(): Promise<void>;
  /** SIGTERM; answers how the process ended. */
  terminate(): Promise<Deno.CommandStatus>;
  restart(): Promise<void>;
  /** All that its processes wrote. */
  readonly output: string;
}

const root = new URL("../../", import.meta.url);
const permissions = ["--allow-net", "--allow-env", "--allow-read", "--allow-write"];
/** How long anything may take that should take moments, on a busy machine. */
const patienceMs = 30_000;

/** Looks again and again until it holds. */
export async function until<T>(
  look: () => T | Promise<T>,
  what: string | (() => string) = String(look),
): Promise<Exclude<T, false | undefined | null>> {
  for (const deadline = Date.now() + patienceMs;;) {
    const found = await look();
    if (found) return found as Exclude<T, false | undefined | null>;
    assert.ok(Date.now() < deadline, `Not in time: ${typeof what === "string" ? what : what()}`);
    await systemClock.sleep(10);
  }
}

/** A command line of this repository, with nothing of this process's environment but what Deno needs. */
export function command(main: string, env: Record<string, string>, how = ["run"]): Deno.Command {
  const kept = ["PATH", "HOME", "DENO_DIR"].flatMap((name) => {
    const value = Deno.env.get(name);
    return value === undefined ? [] : [[name, value]];
  });
  return new Deno.Command(Deno.execPath(), {
    args: [...how, ...permissions, new URL(main, root).pathname],
    cwd: root,
    clearEnv: true,
    env: { ...Object.fromEntries(kept), NO_COLOR: "1", ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
  });
}

/** Starts a service and waits until it listens. By default it has the tools of `service_main.ts`. */
export async function startService(
  env: Record<string, string> = {},
  main = "tests/support/service_main.ts",
): Promise<Service> {
  const folder = await Deno.makeTempDir({ prefix: "pawl-test-" }), database = `${folder}/pawl.db`;
  let output = "", url = "", child: Deno.ChildProcess, read: Promise<unknown>;

  const collect = async (from: ReadableStream<Uint8Array>) => {
    for await (const text of from.pipeThrough(new TextDecoderStream())) output += text;
  };
  const start = async () => {
    const before = output.length;
    child = command(main, { PORT: "0", PAWL_DB: database, ...env }).spawn();
    read = Promise.all([collect(child.stdout), collect(child.stderr)]);
    let over = false;
    child.status.then(() => over = true);
    url = await until(() => {
      assert.ok(!over, `The service ended: ${output}`);
      return /Pawl listens on (\S+)\n/.exec(output.slice(before))?.[1];
    }, () => `it listens; it said: ${output}`);
  };
  const end = async (signal: Deno.Signal) => {
    try {
      child.kill(signal);
    } catch { /* It has ended already. */ }
    const status = await child.status;
    await read;
    return status;
  };

  const service: Service = {
    get url() {
      return url;
    },
    get output() {
      return output;
    },
    database,
    async request(method, path, body, headers = {}) {
      const answer = await fetch(url + path, {
        method,
        headers,
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      });
      const text = await answer.text();
      const isJson = answer.headers.get("content-type")?.startsWith("application/json");
      return {
        status: answer.status,
        headers: answer.headers,
        json: isJson ? JSON.parse(text) : undefined,
        text,
      };
    },
    async start(body, headers) {
      const { status, json, text } = await service.request("POST", "/runs", body, headers);
      assert.equal(status, 202, text);
      return json;
    },
    ended: (run) =>
      until(async () => {
        const { json } = await service.request("GET", `/runs/${run}?wait=1`);
        return ["completed", "failed", "cancelled"].includes(json.status) && json;
      }, () => `${run} ends; the service said: ${output}`),
    reaches: (run, status) =>
      until(async () => {
        const { json } = await service.request("GET", `/runs/${run}`);
        return json.status === status && json;
      }, `${run} is ${status}`),
    async messages(run) {
      const { status, json, text } = await service.request("GET", `/runs/${run}/messages?limit=200`);
      assert.equal(status, 200, text);
      return json.messages;
    },
    async kill9() {
      await end("SIGKILL");
    },
    terminate: () => end("SIGTERM"),
    restart: start,
    async [Symbol.asyncDispose]() {
      await end("SIGKILL");
      await Deno.remove(folder, { recursive: true });
    },
  };
  try {
    await start();
  } catch (error) {
    await service[Symbol.asyncDispose]();
    throw error;
  }
  return service;
}
