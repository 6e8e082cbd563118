/**
 * What Pawl costs, as a report: time against a bare loop on the same SDK, store operations, bytes, memory, whether a turn costs the same at
 * the end of a long thread as at its beginning, each vendor's adapter against its SDK, and what the service weighs and takes to start as a
 * Worker. `deno task bench`; figures are of this machine, ratios are what to look at.
 */
import { stdout } from "node:process";
import { againstBareLoop } from "./bench/against_bare_loop.ts";
import { flat } from "./bench/flat.ts";
import { redis } from "./bench/redis.ts";
import { vendors } from "./bench/vendors.ts";
import { workers } from "./bench/workers.ts";
import { writes } from "./bench/writes.ts";
import { modelServer, Report } from "./bench/scene.ts";

const report = new Report((line) => stdout.write(`${line}\n`));
const folder = await Deno.makeTempDir({ prefix: "pawl_bench_" });
const server = await modelServer();
report.memory("at the start");
try {
  await againstBareLoop(report, server, folder);
  report.memory("after it");
  await writes(report, server, folder);
} finally {
  await server.stop();
}
await flat(report, folder);
await redis(report);
await vendors(report);
await workers(report, folder);
report.memory("at the end");
await Deno.remove(folder, { recursive: true });
report.conclude();
