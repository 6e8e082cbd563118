/** What the service weighs as a Worker, how soon a fresh workerd answers, and what of it is each vendor's. */
import { dialects } from "../support/dialect.ts";
import { asking } from "../contract/model.ts";
import { type Report, vendorSaying } from "./scene.ts";
import { type Bundle, bundle, type Start, starts } from "./workerd.ts";

/** Nothing is asked of any of them. */
const settings = {
  PAWL_PUBLIC_URL: "https://pawl.example.com",
  PAWL_API_KEYS: "bench:key",
  UPSTASH_REDIS_REST_URL: "https://redis.example.com",
  UPSTASH_REDIS_REST_TOKEN: "token",
  QSTASH_TOKEN: "token",
  QSTASH_CURRENT_SIGNING_KEY: "current",
  QSTASH_NEXT_SIGNING_KEY: "next",
};

const kb = (bytes: number) => `${(bytes / 1000).toFixed(0)} KB`;
const ms = (time: number) => `${time.toFixed(0)} ms`;

export async function workers(report: Report, folder: string): Promise<void> {
  report.title("The service as a Worker");
  const service = await bundle("worker.ts", folder);
  report.line(`bundle: ${kb(service.size)} minified, ${kb(service.gzipped)} of them left by gzip`);
  report.wanted("bundle, minified and gzipped, in KB", service.gzipped / 1000, 400);
  const empty = await written(folder, "export default { fetch: () => new Response() };");
  const own = await starts(service, "/healthz", settings), bare = await starts(empty, "/");
  report.line(`a fresh workerd: ${told(own)}; with an empty Worker: ${told(bare)}`);
  // Each first answer is that of a first model call, which sets the vendor's SDK up.
  for (const { wire, frames } of dialects) {
    await using server = vendorSaying(frames({ text: ["Hello"] }));
    const alone = await written(folder, asks(wire));
    const start = await starts(alone, "/", { BASE_URL: server.url });
    const [size, gzipped] = [alone.size - empty.size, alone.gzipped - empty.gzipped];
    report.line(
      `${wire}, alone: ${kb(size)} minified, ${kb(gzipped)} gzipped; a fresh workerd: ${told(start)}`,
    );
  }
}

function told({ listens, answers, again }: Start): string {
  return `${ms(answers)} to the first answer, ${ms(listens)} until it listens, then ${again.toFixed(1)} ms`;
}

async function written(folder: string, code: string): Promise<Bundle> {
  const path = await Deno.makeTempFile({ dir: folder, suffix: ".ts" });
  await Deno.writeTextFile(path, code);
  return await bundle(path, folder);
}

/** A Worker with nothing but this vendor, whose file and function are named as its wire is. It asks the model when it is asked. */
function asks(wire: string): string {
  const file = new URL(`../../providers/${wire.replaceAll("-", "_")}.ts`, import.meta.url).pathname;
  const make = wire.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
  return `import { ${make} } from ${JSON.stringify(file)};
const keys = { apiKey: "none", region: "us-east-1", accessKeyId: "none", secretAccessKey: "none" };
export default {
  async fetch(_, { BASE_URL: baseURL }) {
    const model = ${make}("${wire}/m", { ...keys, baseURL });
    await model.reply(${JSON.stringify(asking())}, { signal: new AbortController().signal, onDelta() {} });
    return new Response();
  },
};`;
}
