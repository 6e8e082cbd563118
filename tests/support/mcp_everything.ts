/** The protocol's own reference server, as a process that speaks streamable HTTP. */
import config from "../../deno.json" with { type: "json" };
import { until } from "./service.ts";

export interface Everything extends AsyncDisposable {
  url: string;
  /** All that it wrote: it tells of each session. */
  readonly output: string;
}

export async function everything(): Promise<Everything> {
  for (let tries = 1;; tries++) {
    const free = Deno.listen({ port: 0, hostname: "127.0.0.1" }), { port } = free.addr;
    free.close();
    const child = new Deno.Command(Deno.execPath(), {
      args: ["run", "-A", config.imports["@modelcontextprotocol/server-everything"], "streamableHttp"],
      cwd: new URL("../../", import.meta.url),
      env: { PORT: String(port), NO_COLOR: "1" },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
    let output = "", over = false;
    const collect = async (from: ReadableStream<Uint8Array>) => {
      for await (const text of from.pipeThrough(new TextDecoderStream())) output += text;
    };
    const read = Promise.all([collect(child.stdout), collect(child.stderr)]);
    child.status.then(() => over = true);
    // Somebody else may have taken the port meanwhile.
    await until(() => over || output.includes(`listening on port ${port}`), () => `it listens: ${output}`);
    if (over && tries < 3) {
      await read;
      continue;
    }
    return {
      url: `http://127.0.0.1:${port}/mcp`,
      get output() {
        return output;
      },
      async [Symbol.asyncDispose]() {
        if (!over) child.kill("SIGKILL");
        await child.status;
        await read;
      },
    };
  }
}
