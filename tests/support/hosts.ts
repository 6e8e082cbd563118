/** The hosts that the service runs on, each started with the same settings: a process of Deno, and workerd through wrangler. */
import assert from "node:assert/strict";
import { unstable_startWorker } from "wrangler";
import { command, startService, until } from "./service.ts";

export interface Host extends AsyncDisposable {
  url: string;
  /** All that the service told its operator. */
  said(): string;
  /** Past what stands before the service here and does not tell it when a client leaves. */
  direct: { port: number; headers: Record<string, string> };
}

export interface HostKind {
  name: "Deno" | "workerd";
  /** PAWL_PUBLIC_URL is the host's own URL. */
  start(env: Record<string, string>): Promise<Host>;
  /** What it tells its operator of these settings, with which it must not serve. */
  refused(env: Record<string, string>): Promise<string>;
}

const root = new URL("../../", import.meta.url);

/** With the tools of `hosts_main.ts` and `hosts_worker.ts`. */
export const hosts: HostKind[] = [
  {
    name: "Deno",
    async start(env) {
      const port = freePort();
      const service = await startService({ ...env, ...addressed(port) }, "tests/support/hosts_main.ts");
      return {
        url: service.url,
        said: () => service.output.replace(/^Pawl listens[^]*?limit=1'\n\n/, ""),
        direct: { port, headers: {} },
        [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
      };
    },
    async refused(env) {
      const { code, stderr } = await command("main.ts", { ...env, ...addressed(freePort()) }).output();
      assert.equal(code, 1);
      return new TextDecoder().decode(stderr);
    },
  },
  {
    name: "workerd",
    start: (env) => startWorkerd(env, "tests/support/hosts_worker.ts"),
    async refused(env) {
      await using host = await startWorkerd(env, "worker.ts");
      const answer = await fetch(`${host.url}/healthz`);
      assert.deepEqual([answer.status, (await answer.json()).error.code], [503, "setting"]);
      return await until(() => host.said());
    },
  },
];

/** Started as wrangler.toml says, with nothing of a developer's own settings. */
async function startWorkerd(env: Record<string, string>, main: string): Promise<Host> {
  // No word home, and no look for a file that only Cloudflare has.
  Deno.env.set("WRANGLER_SEND_METRICS", "false");
  Deno.env.set("CLOUDFLARE_CF_FETCH_ENABLED", "false");
  const port = freePort(), said: string[] = [];
  const bindings = Object.entries({ ...env, ...addressed(port) })
    // As wrangler.toml gives them: what is a number there is none here.
    .map(([name, value]) => [
      name,
      /^\d+$/.test(value) ? { type: "json", value: Number(value) } : { type: "plain_text", value },
    ]);
  const worker = await unstable_startWorker(
    {
      config: new URL("wrangler.toml", root).pathname,
      entrypoint: new URL(main, root).pathname,
      // A list that is not empty keeps .dev.vars out.
      envFiles: ["/dev/null"],
      bindings: { ...Object.fromEntries(bindings), OTHER: { type: "json", value: { not: "a setting" } } },
      dev: {
        server: { hostname: "127.0.0.1", port },
        inspector: false,
        watch: false,
        persist: false,
        logLevel: "none",
        structuredLogsHandler: ({ message }: { message: string }) => void said.push(message),
      },
    } as Parameters<typeof unstable_startWorker>[0],
  );
  try {
    const { proxyData } = await new Promise<Reloaded>((resolve, reject) => {
      worker.raw.once("reloadComplete", resolve);
      // A bundle that does not start is never served.
      worker.raw.once("error", ({ cause }: { cause: Error }) => reject(cause));
    });
    const { userWorkerUrl, headers } = proxyData;
    return {
      url: `http://127.0.0.1:${port}`,
      said: () => said.join("\n"),
      direct: { port: Number(userWorkerUrl.port), headers },
      [Symbol.asyncDispose]: () => worker.dispose(),
    };
  } catch (error) {
    await worker.dispose();
    throw error;
  }
}

/** What wrangler tells its proxy when the bundle is served. */
interface Reloaded {
  proxyData: { userWorkerUrl: { port: string }; headers: Record<string, string> };
}

function addressed(port: number) {
  return { PORT: String(port), PAWL_PUBLIC_URL: `http://127.0.0.1:${port}` };
}

/** A service must know its own URL before it listens. */
function freePort(): number {
  using listener = Deno.listen({ port: 0, hostname: "127.0.0.1" });
  return (listener.addr as Deno.NetAddr).port;
}

/** By `deno serve`, which is how a platform takes main.ts. */
export async function startServed(env: Record<string, string>): Promise<Omit<Host, "direct">> {
  const port = freePort(), url = `http://127.0.0.1:${port}`;
  const child = command("main.ts", env, ["serve", `--port=${port}`, "--host=127.0.0.1"]).spawn();
  let said = "";
  const reading = [child.stdout, child.stderr].map(async (stream) => {
    for await (const text of stream.pipeThrough(new TextDecoderStream())) said += text;
  });
  const host = {
    url,
    said: () => said,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await Promise.all([child.status, ...reading]);
    },
  };
  try {
    await until(
      () => fetch(`${url}/healthz`).then(({ body }) => (body?.cancel(), true), () => false),
      () => said,
    );
    return host;
  } catch (error) {
    await host[Symbol.asyncDispose]();
    throw error;
  }
}

/** A client that asks and reads nothing, over a connection of its own, until it leaves. */
export async function leavingClient(
  { direct }: Host,
  path: string,
  headers: Record<string, string>,
): Promise<{ leave(): void }> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port: direct.port });
  const lines = Object.entries({ host: "localhost", ...headers, ...direct.headers }).map((pair) =>
    pair.join(": ")
  );
  await connection.write(new TextEncoder().encode([`GET ${path} HTTP/1.1`, ...lines, "", ""].join("\r\n")));
  return { leave: () => connection.close() };
}
