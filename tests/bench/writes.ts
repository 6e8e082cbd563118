/** What a turn asks of the store: operations and bytes, and whether they grow with the run. */
import { openaiChat } from "../../providers/openai_chat.ts";
import { systemClock } from "../../src/clock.ts";
import { createPawl, defineTool } from "../../src/mod.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { add } from "./bare_loop.ts";
import { countedStore, type Counts } from "./counted_store.ts";
import type { ModelServer, Report } from "./scene.ts";

const lengths = [10, 25, 50];

export async function writes(report: Report, server: ModelServer, folder: string): Promise<void> {
  report.title(`What runs of ${lengths.join(", ")} turns ask of the store`);
  const perTurn: number[] = [];
  let before = { handed: 0, file: 0, turns: 0 };
  for (const turns of lengths) {
    const { counts, file } = await run(server, `${folder}/writes_${turns}.db`, turns);
    report.line(
      `${turns} turns: ${counts.bytes} bytes handed over, file grows by ${file}; ${
        Object.entries(counts.verbs).map(([verb, n]) => `${n} ${verb}`).join(", ")
      }`,
    );
    if (before.turns) {
      const handed = (counts.bytes - before.handed) / (turns - before.turns);
      perTurn.push(handed);
      report.line(
        `  each turn beyond ${before.turns}: ${handed.toFixed(0)} bytes handed over, file grows by ${
          ((file - before.file) / (turns - before.turns)).toFixed(0)
        }`,
      );
    }
    before = { handed: counts.bytes, file, turns };
    if (turns === lengths.at(-1)) {
      const { commit = 0, stream = 0, read = 0 } = counts.verbs;
      report.wanted("operations of the loop per turn", (commit - 1 + stream) / turns, 2);
      report.line(`  besides, whoever waits for the end reads ${(read / turns).toFixed(2)} times a turn`);
    }
  }
  report.wanted("bytes per turn, later against earlier", perTurn[1]! / perTurn[0]!, 1.05);
}

async function run(
  server: ModelServer,
  path: string,
  turns: number,
): Promise<{ counts: Counts; file: number }> {
  await sqliteStore(path, { clock: systemClock }).close();
  const empty = Deno.statSync(path).size;
  const { store, counts } = countedStore(sqliteStore(path, { clock: systemClock }));
  const pawl = createPawl({
    tools: [defineTool(add)],
    models: openaiChat("openai-chat/m", { apiKey: "none", baseURL: server.url(turns) }),
    store,
  });
  await pawl.exec("Add up what there is.", { maxIterations: turns });
  await pawl.close();
  return { counts, file: Deno.statSync(path).size - empty };
}
