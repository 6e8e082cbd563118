/**
 * Time per turn of a run of 50 turns, one tool call each, against the same done by a bare loop. Model, SDK, tool and validation are the same,
 * the model server takes no time, so what is compared is all that Pawl does; with a real model, which takes seconds, it disappears.
 */
import { openaiChat } from "../../providers/openai_chat.ts";
import { createPawl, defineTool } from "../../src/mod.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { systemClock } from "../../src/clock.ts";
import { add, bareLoop, messageFile } from "./bare_loop.ts";
import { median, type ModelServer, type Report } from "./scene.ts";

const turns = 50, runs = 15, warmUps = 8;

export async function againstBareLoop(report: Report, server: ModelServer, folder: string): Promise<void> {
  report.title(
    `A run of ${turns} turns against a bare loop, ms per turn (median of ${runs} each, interleaved)`,
  );
  const baseURL = server.url(turns);
  const pawl = (path: string) =>
    createPawl({
      tools: [defineTool(add)],
      models: openaiChat("openai-chat/m", { apiKey: "none", baseURL }),
      store: sqliteStore(path, { clock: systemClock }),
    });
  const onDisk = pawl(`${folder}/time.db`), inMemory = pawl(":memory:");
  const file = messageFile(`${folder}/messages.db`);
  const contenders = {
    bare: bareLoop(baseURL),
    bareOnDisk: bareLoop(baseURL, file.keep),
    inMemory: (prompt: string) => inMemory.exec(prompt, { maxIterations: turns }),
    onDisk: (prompt: string) => onDisk.exec(prompt, { maxIterations: turns }),
  };
  const times = { bare: [], bareOnDisk: [], inMemory: [], onDisk: [] } as Record<Name, number[]>;
  type Name = keyof typeof contenders;
  const names = Object.keys(contenders) as Name[];
  for (let round = -warmUps; round < runs; round++) {
    for (const name of names) {
      const begun = performance.now();
      await contenders[name]("Add up what there is.");
      if (round >= 0) times[name].push((performance.now() - begun) / turns);
    }
  }
  await onDisk.close();
  await inMemory.close();
  file.close();

  const ms = (name: Name) => median(times[name]);
  const row = (what: string, name: Name) =>
    report.line(
      `${what}: ${ms(name).toFixed(2)} (from ${Math.min(...times[name]).toFixed(2)} to ${
        Math.max(...times[name]).toFixed(2)
      }), ${(ms(name) / ms("bare")).toFixed(2)} times the bare loop`,
    );
  row("bare loop", "bare");
  row("bare loop that writes each message to disk", "bareOnDisk");
  row("Pawl, store in memory", "inMemory");
  row("Pawl, store on disk", "onDisk");
  report.wanted("store on disk, against the bare loop", ms("onDisk") / ms("bare"), 1.5);
  report.wanted("the same, without waiting for the disk", ms("inMemory") / ms("bare"), 1.5);
  report.wanted("the same, both waiting for the disk", ms("onDisk") / ms("bareOnDisk"), 1.5);
}
