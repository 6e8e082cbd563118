/** What the measurements share: a model server, files to store in, models, and the arithmetic of medians. */
import type { Model, ModelRequest } from "../../src/model.ts";
import type { Frame } from "../support/dialect.ts";

/** Starts the model server; `url(n)` is one that lets a run take n turns. */
export async function modelServer(): Promise<{ url(turns: number): string; stop(): Promise<unknown> }> {
  const script = new URL("./model_server.ts", import.meta.url).href;
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", script],
    stdout: "piped",
  }).spawn();
  const reader = process.stdout.getReader();
  const port = new TextDecoder().decode((await reader.read()).value).trim();
  return {
    url: (turns) => `http://127.0.0.1:${port}/${turns}`,
    stop: async () => {
      await reader.cancel();
      process.kill();
      await process.status;
    },
  };
}

/** A model in this process that takes no time: it asks for `tool` until a run has its `turns`, then answers. */
export function instantModel(turns: number, tool: string, asked: (request: ModelRequest) => void): Model {
  let n = 0;
  return {
    name: "bench/instant",
    reply: (request) => {
      asked(request);
      const last = ++n % turns === 0;
      return Promise.resolve({
        content: last
          ? [{ type: "text", text: "Done, all of it." }]
          : [{ type: "tool_call", name: tool, arguments: { a: n, b: 7 } }],
        stopReason: last ? "stop" : "tool_calls",
        usage: { input: 1000, output: 30 },
      });
    },
  };
}

export function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}

/** Means of the first fifth, the second, and so on. */
export function fifths(values: number[]): number[] {
  const size = values.length / 5;
  return [0, 1, 2, 3, 4].map((n) => {
    const part = values.slice(Math.round(n * size), Math.round((n + 1) * size));
    return part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}

export type ModelServer = Awaited<ReturnType<typeof modelServer>>;

/** Prints as it goes, and at the end what was wanted and is missed. */
export class Report {
  #missed: string[] = [];
  constructor(readonly line: (text: string) => void) {}

  title(text: string): void {
    this.line(`\n${text}`);
  }

  memory(when: string): void {
    this.line(`memory (RSS) ${when}: ${(Deno.memoryUsage().rss / 1e6).toFixed(0)} MB`);
  }

  wanted(what: string, value: number, atMost: number): void {
    const met = value <= atMost;
    if (!met) this.#missed.push(what);
    this.line(`  ${what}: ${value.toFixed(2)}, wanted at most ${atMost}: ${met ? "met" : "MISSED"}`);
  }

  conclude(): void {
    this.line(this.#missed.length ? `\nMissed: ${this.#missed.join("; ")}` : "\nAll that is wanted is met");
  }
}

/** A vendor in this process that says the same whatever it is asked. */
export function vendorSaying(frames: Frame[]): AsyncDisposable & { url: string; bodies: string[] } {
  const bytes = new Blob(frames), bodies: string[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const body = await request.text();
    if (!bodies.length) bodies.push(body);
    return new Response(bytes, { headers: { "content-type": "text/event-stream" } });
  });
  return {
    url: `http://127.0.0.1:${server.addr.port}`,
    bodies,
    [Symbol.asyncDispose]: () => server.shutdown(),
  };
}
