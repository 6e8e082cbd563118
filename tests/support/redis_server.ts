/** A private redis-server on a free port, which keeps nothing. */

export interface RedisServer {
  port: number;
  stop(): Promise<void>;
}

const install = "apt-get update && apt-get install -y redis-server";

/**
 * Starts one. Where there is no redis-server it is installed, if that is asked for (CI, or INSTALL_REDIS=1) and root may; otherwise the
 * answer is one line that says what is missing.
 */
export async function redisServer(): Promise<RedisServer | string> {
  if (!await succeeds("redis-server", "--version")) {
    const asked = [Deno.env.get("CI"), Deno.env.get("INSTALL_REDIS")].some((value) =>
      value === "true" || value === "1"
    );
    if (!asked || Deno.uid() !== 0) {
      return `redis-server is missing: run "${install}" as root, or set INSTALL_REDIS=1 as root`;
    }
    if (!await succeeds("sh", "-c", install)) return `redis-server is missing, and "${install}" failed`;
  }
  const listener = Deno.listen({ port: 0, hostname: "127.0.0.1" });
  const { port } = listener.addr as Deno.NetAddr;
  listener.close();
  // Whoever waits for the end of its input outlives even the shell, so the server ends with this process however that ends.
  const server = `redis-server --port ${port} --bind 127.0.0.1 --save "" --appendonly no --daemonize no`;
  const child = new Deno.Command("sh", {
    args: ["-c", `exec 3<&0; ${server} </dev/null >/dev/null & (cat <&3 >/dev/null; kill $!) & wait $!`],
    stdin: "piped",
    stdout: "null",
    stderr: "null",
  }).spawn();
  for (let tries = 0; !await answers(port); tries++) {
    if (tries > 200) return "redis-server was started but does not answer";
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return {
    port,
    async stop() {
      await child.stdin.close();
      await child.status;
    },
  };
}

async function succeeds(command: string, ...args: string[]): Promise<boolean> {
  try {
    return (await new Deno.Command(command, { args, stdout: "null", stderr: "null" }).output()).success;
  } catch {
    return false;
  }
}

async function answers(port: number): Promise<boolean> {
  try {
    using connection = await Deno.connect({ port, hostname: "127.0.0.1" });
    await connection.write(new TextEncoder().encode("PING\r\n"));
    return await connection.read(new Uint8Array(16)) !== null;
  } catch {
    return false;
  }
}
