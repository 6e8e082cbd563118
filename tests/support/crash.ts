/**
 * Runs that are cut off once, at a request of one's choice, and then left to the queue and the sweep. What the model says depends on what it
 * is asked alone, and people insist until they are answered: so each run should come to the same end.
 */
import { decode, type Entry } from "../../src/entry.ts";
import type { Key, Verbs } from "../../src/verbs.ts";
import { type Message, textOf, type Usage, type UserMessage } from "../../src/message.ts";
import type { ModelReply, ModelRequest } from "../../src/model.ts";
import { type Amount, isActive, type Settings, type Status, threadKey } from "../../src/run.ts";
import type { Store } from "../../src/store.ts";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { agenticFunction, defineTool, type ToolContext } from "../../src/tool.ts";
import { only } from "./harness.ts";
import { calls } from "./scripted_model.ts";
import { logOf } from "./simulation/facts.ts";
import { SimulatedQueue } from "./simulation/queue.ts";
import { type Fate, hour, type Isolate, minute, tenant, World } from "./simulation/world.ts";
import type { VirtualTime } from "./virtual_time.ts";

export interface Scenario {
  name: string;
  settings: Settings;
  compactTokens?: number;
  /** What the model says to a request; undefined: it thinks on until the steering has been accepted. */
  says(request: ModelRequest, steered: boolean): Partial<ModelReply> | string | undefined;
}

export interface Played {
  status: Status;
  usage: Usage;
  booked?: Amount;
  /** The transcript in short. */
  transcript: string[];
  log: Entry[];
  /** Idempotency keys of the tools that ran, by tool. */
  ran: { [tool: string]: string[] };
  requests: number;
  /** Kinds of requests in their order. */
  kinds: string[];
  /** How often a slice had to give up what it had under way. */
  cuts: number;
  /** A payment had begun and had no result when that happened. */
  paying: boolean;
}

export type MakeStore = (time: VirtualTime) => Store;

/** Long enough for the lease to be prolonged meanwhile, so that there are requests at which to cut off what takes time. */
const workMs = 6_000;
const anything = { type: "object" } as const;
const ask = { name: "ask", description: "", parameters: { type: "object" } };

/** A larger payment has to be approved. */
const mostUnasked = 10;

const asked = ({ messages }: ModelRequest) => messages.filter(({ role }) => role === "assistant").length;
const batch = calls(["pay", { amount: 7 }], ["look"], ["ask"]);

export const scenarios: Scenario[] = [
  {
    name: "steering that lets the batch finish",
    settings: { steering: "after_batch", tools: ["pay", "look", "wait", ask] },
    says: (request, steered) => steered ? [batch, calls(["wait"]), "Done"][asked(request)]! : undefined,
  },
  {
    name: "steering that comes with the last word",
    settings: { tools: ["pay", "look", "wait", ask] },
    says: (request, steered) => {
      const turn = asked(request);
      return turn < 2 || steered ? [batch, calls(["wait"]), "So far", "Done"][turn]! : undefined;
    },
  },
  {
    name: "a summary, under limits",
    settings: {
      steering: "after_batch",
      tools: ["pay", "look", "wait", ask],
      limits: { maxTokensTotal: 1_000_000 },
    },
    compactTokens: 5_000,
    says: (request, steered) => {
      const [{ content }] = request.messages as [UserMessage], text = textOf(content);
      if (text.includes("Summarise this conversation")) return "So far they paid";
      if (text.includes("So far they paid")) return "Done";
      if (!steered) return undefined;
      return [batch, { ...calls(["wait"]), usage: { input: 6_000, output: 500 } }][asked(request)]!;
    },
  },
  {
    name: "nested loops side by side",
    settings: {
      steering: "after_batch",
      tools: ["pay", "look", "wait", "agent", ask],
      limits: { maxTokensTotal: 1_000_000 },
    },
    says: (request, steered) => {
      const prompt = textOf(request.messages[0]!.content), turn = asked(request);
      if (prompt === "facts") return [calls(["look"], ["wait"]), "the facts"][turn]!;
      if (prompt === "more") return [calls(["ask"]), "and more"][turn]!;
      if (prompt.startsWith("write")) return [calls(["pay", { amount: 9 }]), "written"][turn]!;
      return turn < 1 || steered ? [calls(["agent"]), "So far", "Done"][turn]! : undefined;
    },
  },
  {
    name: "a function in a function, and an approval inside",
    settings: { steering: "after_batch", tools: ["pay", "look", "wait", "agent", "boss", ask] },
    says: (request, steered) => {
      const prompt = textOf(request.messages[0]!.content), turn = asked(request);
      if (prompt === "lead") return [calls(["agent"]), "led"][turn]!;
      if (prompt === "facts") return [calls(["look"]), "the facts"][turn]!;
      if (prompt === "more") return [calls(["ask"]), "and more"][turn]!;
      if (prompt.startsWith("write")) return [calls(["pay", { amount: mostUnasked + 1 }]), "written"][turn]!;
      return turn < 1 || steered ? [calls(["boss"]), "So far", "Done"][turn]! : undefined;
    },
  },
];

export async function play(
  scenario: Scenario,
  fate: (n: number) => Fate,
  store: MakeStore = (clock) => sqliteStore(":memory:", { clock }),
): Promise<Played> {
  const played: Played = {
    ...{
      status: "queued",
      usage: { input: 0, output: 0 },
      transcript: [],
      log: [],
      ran: {},
      requests: 0,
      kinds: [],
      cuts: 0,
      paying: false,
    },
  };
  let steered = false;
  const wanted = Promise.withResolvers<void>();
  const world: World = new World({
    seed: 1,
    faults: 0,
    store,
    compactTokens: scenario.compactTokens,
    tools: (world, isolate) => tools(world, isolate, played),
    models: (world, isolate) => {
      const clock = world.clockOf(isolate);
      return only({
        name: "crash/model",
        async reply(request) {
          await clock.sleep(workMs);
          for (;;) {
            const said = scenario.says(request, steered);
            if (said !== undefined) return whole(said);
            wanted.resolve();
            await clock.sleep(500);
          }
        },
      });
    },
    publish: (_world, delivery) => queue.accept(delivery),
    fate: (n, what) => {
      played.kinds.push(what);
      const met = fate(n);
      if (met === "outage") cut(0, 3_000);
      return met;
    },
    killed: (isolate) => {
      if (isolate.name.startsWith("worker")) cut(0);
    },
  });
  const queue = new SimulatedQueue(world, 1, true), thread = threadKey(tenant, "t");
  const entries = async () => (await logOf(world.store, thread)).map(decode);
  /** A slice gives up at one of these moments. */
  const cut = (...moments: number[]) => {
    played.cuts++;
    moments.forEach(async (ms) => {
      if (ms) await world.time.sleep(ms);
      const log = await entries(),
        paid = log.filter(({ kind, body }) =>
          kind === "result" && "toolName" in body && body.toolName === "pay"
        );
      const begun = log.filter(({ kind, path }) => kind === "call" && payments(log).has(path));
      played.paying ||= begun.length > paid.length;
    });
  };

  const ended = lead(world, scenario.settings, wanted.promise, () => steered = true);
  const run = await world.time.until(ended);
  played.requests = world.requests;
  played.log = await entries();
  const door = world.isolate("reader", true).pawl;
  const { messages } = await world.time.until(door.messages(tenant, { thread: "t" }, { limit: 1000 }));
  played.transcript = messages.map(brief);
  const { status, usage, booked } = await world.time.until(door.run(tenant, run));
  Object.assign(played, { status, usage, booked });
  await world.store.close();
  return played;
}

/** The people: they start, steer when that is wanted, and answer. Resolves when the run has ended; until then there is a sweep. */
async function lead(
  world: World,
  settings: Settings,
  wanted: Promise<void>,
  onSteered: () => void,
): Promise<string> {
  const key = (name: string): Key => ({ name, hash: name });
  const { run } = await insist(
    world,
    (pawl) => pawl.start(tenant, "Go é🎉", settings, { thread: "t", key: key("go") }),
  );
  const state = async () => (await world.store.read(threadKey(tenant, "t"), { run }))!.run!;
  let answers = 0;
  const steer = async () => {
    await wanted;
    await insist(world, (pawl) => pawl.send(tenant, run, "steering", "Hurry", key("hurry")));
    onSteered();
  };
  const answer = async () => {
    for (;;) {
      await world.time.sleep(minute);
      const { status, progress } = await state();
      if (!isActive(status)) return;
      const waiting = status === "waiting" ? JSON.parse(progress).waitingFor ?? [] : [];
      for (const call of waiting) {
        if (call.for === "time") continue;
        const answer = call.for === "approval" ? { approve: true } : { content: "blue" };
        const once = key(`answer ${answers++}`);
        await insist(
          world,
          (pawl) => pawl.resolve(tenant, run, call.toolCallId, answer, once),
        );
      }
    }
  };
  const sweep = async () => {
    while (isActive((await state()).status)) {
      await world.time.sleep(15 * minute);
      const sweeper = world.isolate("sweeper");
      await Promise.race([sweeper.pawl.sweep().catch(() => {}), world.time.sleep(minute)]);
    }
  };
  await Promise.all([steer(), answer(), sweep()]);
  return run;
}

/** Asks again, of another process, until there is an answer. */
async function insist<T>(world: World, ask: (pawl: Verbs) => Promise<T>): Promise<T> {
  for (let tries = 0; tries < 20; tries++) {
    const isolate = world.isolate("door");
    const died = new Promise<undefined>((resolve) => isolate.mourners.push(() => resolve(undefined)));
    const answer = await Promise.race([ask(isolate.pawl).catch(() => undefined), died]);
    if (answer !== undefined) return answer;
    await world.time.sleep(1_000);
  }
  throw new Error("Nobody answers");
}

function tools(world: World, isolate: Isolate, { ran }: Played): unknown[] {
  const clock = world.clockOf(isolate);
  const effect = (name: string) => async (_args: unknown, { idempotencyKey }: ToolContext) => {
    (ran[name] ??= []).push(idempotencyKey);
    await clock.sleep(workMs);
    return `${name} é🎉 {"a":[]} 007`;
  };
  const plain = { description: "", parameters: anything };
  return [
    defineTool({
      ...plain,
      name: "pay",
      approval: ({ amount }) => amount > mostUnasked,
      execute: effect("pay"),
    }),
    agenticFunction({
      ...plain,
      name: "boss",
      execute: async (_args, { exec, step }) => {
        const [led, noted] = await Promise.all([exec("lead"), step("note", () => ({ noted: [] }))]);
        return `${led} ${JSON.stringify(noted)}`;
      },
    }),
    defineTool({ ...plain, name: "look", replay: "safe", execute: effect("look") }),
    defineTool({
      ...plain,
      name: "wait",
      replay: "safe",
      wait: (_args, now) => ({ for: "time", until: now + hour }),
      execute: () => "waited",
    }),
    agenticFunction({
      ...plain,
      name: "agent",
      execute: async (_args, { exec, step, idempotencyKey }) => {
        const parts = await Promise.all([
          exec("facts", { key: "facts" }),
          exec("more", { key: "more" }),
          step("save", async () => {
            (ran.save ??= []).push(idempotencyKey);
            await clock.sleep(workMs);
            return { saved: [] };
          }),
        ]);
        return `${JSON.stringify(parts)} ${await exec(`write ${parts[0]}`, { key: "write" })}`;
      },
    }),
  ];
}

/** Paths of calls that pay. */
function payments(log: Entry[]): Set<string> {
  return new Set(log.flatMap((entry) => {
    if (entry.kind !== "assistant") return [];
    const asked = entry.body.content.filter((block) => block.type === "tool_call");
    const frame = entry.path === "." ? "" : `${entry.path}/`;
    return asked.flatMap(({ name }, index) => name === "pay" ? [`${frame}${entry.n}.${index}`] : []);
  }));
}

function whole(said: Partial<ModelReply> | string): ModelReply {
  const usage = { input: 10, output: 5 };
  return typeof said === "string"
    ? { content: [{ type: "text", text: said }], stopReason: "stop", usage }
    : { stopReason: "tool_calls", usage, ...said, content: said.content! };
}

function brief(message: Message): string {
  if (message.role !== "assistant") {
    return `${message.role}${"isError" in message && message.isError ? "!" : ""}: ${textOf(message.content)}`;
  }
  const said = message.content.map((block) =>
    block.type === "tool_call" ? `${block.name}()` : textOf([block])
  );
  return `assistant: ${said.join(" ")}`;
}
