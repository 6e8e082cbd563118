/**
 * Time per turn of a run of 50 turns, one tool call each, against the same done by a bare loop. Model, SDK, tool and validation are the same,
 * the model server takes no time, so what is compared is all that Pawl does; with a real model, which takes seconds, it disappears.
 */
import { openaiChat } from "../../providers/openai_chat.ts";
import { createPawl, defineTool } from "../../src/mod.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { systemClock } from "../../src/clock.ts";
import { add, bareLoop } from "./bare_loop.ts";
import { median, type ModelServer, type Report } from "./scene.ts";

const turns = 50, runs = 5, warmUps = 2;

export async function againstBareLoop(report: Report, server: ModelServer, folder: string): Promise<void> {
  report.title(`A run of ${turns} turns against a bare loop (median of ${runs} each, interleaved)`);
  const baseURL = server.url(turns);
  const pawl = (path: string) =>
    createPawl({
      tools: [defineTool(add)],
      models: openaiChat("openai-chat/m", { apiKey: "none", baseURL }),
      store: sqliteStore(path, { clock: systemClock }),
    });
  const onFile = pawl(`${folder}/time.db`), inMemory = pawl(":memory:");
  const contenders = {
    "bare loop": bareLoop(baseURL),
    "Pawl, store in memory": (prompt: string) => inMemory.exec(prompt, { maxIterations: turns }),
    "Pawl, store on disk": (prompt: string) => onFile.exec(prompt, { maxIterations: turns }),
  };
  const times: Record<string, number[]> = {};
  for (let round = -warmUps; round < runs; round++) {
    for (const [name, run] of Object.entries(contenders)) {
      const begun = performance.now();
      await run("Add up what there is.");
      if (round >= 0) (times[name] ??= []).push((performance.now() - begun) / turns);
    }
  }
  await onFile.close();
  await inMemory.close();
  const bare = median(times["bare loop"]!);
  for (const [name, all] of Object.entries(times)) {
    const ms = median(all);
    report.line(
      `${name}: ${ms.toFixed(2)} ms per turn (from ${Math.min(...all).toFixed(2)} to ${
        Math.max(...all).toFixed(2)
      }), ${(ms / bare).toFixed(2)} times`,
    );
  }
  report.wanted("time against the bare loop", median(times["Pawl, store on disk"]!) / bare, 1.5);
}
