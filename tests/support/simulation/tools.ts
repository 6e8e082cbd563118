/** What the simulated model may call, and the books that the tools keep of what they did. */
import type { Json } from "../../../src/message.ts";
import { agenticFunction, defineTool, type ToolContext } from "../../../src/tool.ts";
import { Dice } from "./dice.ts";
import { forever, hour, type Isolate, minute, type World } from "./world.ts";

/** Text that does not survive careless hands. */
export const delicate = 'é🎉 {"a":[]} 007 \ud800 \u0000 9007199254740993';

export interface Execution {
  tool: string;
  run: string;
  key: string;
  /** The arguments as JSON. */
  args: string;
  at: number;
  isolate: Isolate;
}

export class Books {
  readonly executions: Execution[] = [];
  /** What nested calls returned, by idempotency key and their own key. */
  readonly returned = new Map<string, string>();
  /** Every text that anything in the simulation said; only these may be in a transcript. */
  readonly texts = new Set<string>();
  /** JSON of every block that a model said. */
  readonly blocks = new Set<string>();

  say(text: string): string {
    this.texts.add(text);
    return text;
  }
}

const anything = { type: "object" } as const;

/** A tool that the client runs. */
export const ask = {
  name: "ask",
  description: "Asks the client.",
  parameters: anything as { [key: string]: Json },
};

export const toolNames = ["pay", "look", "peek", "wait", "approve", "agent", "break"];

export function simulatedTools(world: World, isolate: Isolate, books: Books, seed: number): unknown[] {
  const dice = new Dice(seed, `tools ${isolate.number}`), clock = world.clockOf(isolate);

  /** Something happens outside, then it takes its time. */
  const effect = (tool: string) => async (args: unknown, context: ToolContext) => {
    const { run, idempotencyKey: key, signal } = context, at = world.time.now();
    books.executions.push({ tool, run, key, args: JSON.stringify(args), at, isolate });
    world.note(() => `${isolate.name} ${tool} ${key}`);
    context.onUpdate(delicate);
    const heeds = dice.chance(0.5), ms = dice.chance(0.08) ? 90_000 : dice.between(0, 8_000);
    if (world.fault(0.03)) {
      await clock.sleep(ms / 2);
      world.kill(isolate, `in ${tool}`);
      return await forever();
    }
    await clock.sleep(ms, heeds ? signal : undefined);
    const cancelledAt = world.facts.cancelled.get(run);
    if (cancelledAt !== undefined && !signal.aborted) {
      judgeDelay(world, isolate, cancelledAt, `${tool} ran on`);
    }
    return books.say(`${tool} did ${key} ${delicate}`);
  };

  const same = (key: string, text: string) => {
    const before = books.returned.get(key);
    if (before !== undefined && before !== text) {
      world.problem("R5 replay", `${key} returned ${text}, before ${before}`);
    }
    books.returned.set(key, text);
    return text;
  };

  return [
    defineTool({ name: "pay", description: "", parameters: anything, execute: effect("pay") }),
    defineTool({
      name: "look",
      description: "",
      parameters: anything,
      replay: "safe",
      execute: effect("look"),
    }),
    defineTool({
      name: "peek",
      description: "",
      parameters: anything,
      replay: "safe",
      parallel: true,
      timeoutMs: minute,
      execute: effect("peek"),
    }),
    defineTool({
      name: "wait",
      description: "",
      parameters: anything,
      replay: "safe",
      wait: (_args, now) => ({ for: "time", until: now + hour }),
      execute: () => books.say("waited"),
    }),
    defineTool({
      name: "approve",
      description: "",
      parameters: anything,
      wait: (_args, now) => ({ for: "approval", until: now + 2 * hour, reason: delicate }),
      execute: effect("approve"),
    }),
    defineTool({
      name: "break",
      description: "",
      parameters: anything,
      execute: () => {
        throw new Error(books.say(`broken ${delicate}`));
      },
    }),
    agenticFunction({
      name: "agent",
      description: "",
      parameters: anything,
      execute: async ({ level = 1 }: { level?: number }, { exec, step, run, idempotencyKey: id }) => {
        const nested = (key: string) =>
          exec(books.say(`level ${level} ${key} of ${id} ${delicate}`), { key, maxIterations: 3 })
            .then((text) => same(`${id} ${key}`, text));
        const [facts, more, saved] = await Promise.all([
          nested("facts"),
          nested("more"),
          step("save", async () => {
            books.executions.push({
              tool: "save",
              run,
              key: id,
              args: "",
              at: world.time.now(),
              isolate,
            });
            await clock.sleep(dice.between(100, 2_000));
            return { id: world.time.id(), text: delicate, list: [] };
          }).then((saved) => same(`${id} save`, JSON.stringify(saved))),
        ]);
        const end = await nested("write");
        return books.say([facts, more, saved, end].join("|"));
      },
    }),
  ];
}

/** Cancel is noticed within 5 s; a lease that could not be prolonged meanwhile takes longer to tell. */
export function judgeDelay(world: World, isolate: Isolate, cancelledAt: number, what: string): void {
  const failed = isolate.renewalsFailed.filter((at) => at > cancelledAt - 1_000).length;
  const delay = world.time.now() - cancelledAt;
  if (delay > 5_000 * (1 + failed)) world.problem("R8 cancel", `${what} ${delay} ms after the cancel`);
}
