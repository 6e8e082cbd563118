/** The hosts that the service runs on, each started with the same settings: a process of Deno, and workerd through wrangler. */
import { unstable_startWorker } from "wrangler";
import { startService } from "./service.ts";

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
  },
  { name: "workerd", start: (env) => startWorkerd(env, "tests/support/hosts_worker.ts") },
];

/** Started as wrangler.toml says, with nothing of a developer's own settings. */
export async function startWorkerd(env: Record<string, string>, main = "worker.ts"): Promise<Host> {
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
      // A bundle that does not start is never served; wrangler only logs why.
      const timer = setTimeout(() => reject(new Error(`workerd did not start: ${said.join("\n")}`)), 60_000);
      worker.raw.once("reloadComplete", (reloaded: Reloaded) => {
        clearTimeout(timer);
        resolve(reloaded);
      });
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
export function freePort(): number {
  using listener = Deno.listen({ port: 0, hostname: "127.0.0.1" });
  return (listener.addr as Deno.NetAddr).port;
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
