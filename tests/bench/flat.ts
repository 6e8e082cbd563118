/**
 * Whether a turn costs the same at the end of a long thread as at its beginning: four runs of 50 turns on one thread, each tool result 2 KB,
 * with a model in this process that takes no time, so that nothing is measured but Pawl. Once with the transcript held between slices, and
 * once with a slice of 5 turns per process, which has to read the whole thread first.
 */
import type { Budget } from "../../src/budget.ts";
import { systemClock } from "../../src/clock.ts";
import { createPawl, defineTool, type Message, type Pawl, type Queue } from "../../src/mod.ts";
import { threadKey } from "../../src/run.ts";
import type { Store } from "../../src/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { add } from "./bare_loop.ts";
import { countedStore } from "./counted_store.ts";
import { fifths, instantModel, median, type Report } from "./scene.ts";

const runs = 4, turns = 50, repetitions = 3;
const thread = "long";

const lookup = defineTool({
  ...add,
  name: "lookup",
  description: "Looks something up, and finds 2 KB.",
  execute: ({ a }) => `${a} `.repeat(2048).slice(0, 2048),
});

export async function flat(report: Report, folder: string): Promise<void> {
  await byFifths(report, "in memory", () => sqliteStore(":memory:", { clock: systemClock }));
  const path = `${folder}/flat.db`;
  await sqliteStore(path, { clock: systemClock }).close();
  const empty = Deno.statSync(path).size;
  const { log, transcript } = await measure(sqliteStore(path, { clock: systemClock }), {});
  const file = Deno.statSync(path).size - empty;
  report.line(`stored: transcript ${transcript} bytes of JSON, log ${log}, file grows by ${file}`);
  report.wanted("log against transcript", log / transcript, 1.5);
  report.wanted("file against transcript", file / transcript, 1.5);
}

/** Each repetition has a store of its own. */
export async function byFifths(report: Report, where: string, open: () => Store): Promise<void> {
  report.title(
    `A thread of ${runs} runs of ${turns} turns with results of 2 KB, ${where}, by fifths (median of ${repetitions})`,
  );
  for (const [name, budget] of [["warm", {}], ["a cold start every 5 turns", { turns: 5 }]] as const) {
    const all = [];
    for (let n = 0; n < repetitions; n++) all.push(await measure(open(), budget));
    const ms = byFifth(all.map((one) => one.ms)), bytes = byFifth(all.map((one) => one.bytes));
    report.line(`${name}: ${ms.map((value) => value.toFixed(2)).join("  ")} ms per turn`);
    report.line(`  ${bytes.map((value) => value.toFixed(0)).join("  ")} bytes handed to the store per turn`);
    report.wanted(`time, last fifth against first, ${name}, ${where}`, ms[4]! / ms[0]!, 1.5);
    report.wanted(`bytes, last fifth against first, ${name}, ${where}`, bytes[4]! / bytes[0]!, 1.5);
  }
}

interface Measured {
  /** Per turn, in order. */
  ms: number[];
  bytes: number[];
  log: number;
  transcript: number;
}

async function measure(kept: Store, budget: Partial<Budget>): Promise<Measured> {
  const { store, counts } = countedStore(kept);
  const ms: number[] = [], bytes: number[] = [];
  let since = performance.now(), had = 0, messages: Message[] = [];
  const model = instantModel(turns, lookup.name, (request) => {
    ms.push(performance.now() - since);
    bytes.push(counts.bytes - had);
    since = performance.now();
    had = counts.bytes;
    messages = request.messages;
  });
  const options = { tools: [lookup], models: model, store, budget };
  const pawl = budget.turns ? afresh(options) : createPawl(options);
  for (let n = 0; n < runs; n++) await pawl.exec("Look up what there is.", { thread, maxIterations: turns });
  const log = await bytesOfLog(store);
  await pawl.close();
  return { ms, bytes, log, transcript: new TextEncoder().encode(JSON.stringify(messages)).length };
}

/** Each slice in a Pawl of its own, as if in a new process: nothing is left of the one before but the store. */
function afresh(options: Parameters<typeof createPawl>[0]): Pawl {
  let published = 0;
  const queue: Queue = {
    name: "afresh",
    publish: (delivery) => {
      setTimeout(() => createPawl({ ...options, queue }).deliver(delivery, `message ${++published}`));
      return Promise.resolve();
    },
  };
  return createPawl({ ...options, queue });
}

async function bytesOfLog(store: Store): Promise<number> {
  let bytes = 0;
  for (let from = 0;;) {
    const page = await store.read(threadKey("local", thread), { from });
    if (!page?.entries.length) return bytes;
    for (const entry of page.entries) bytes += new TextEncoder().encode(entry).length;
    from += page.entries.length;
  }
}

function byFifth(repetitions: number[][]): number[] {
  const all = repetitions.map(fifths);
  return [0, 1, 2, 3, 4].map((n) => median(all.map((one) => one[n]!)));
}
