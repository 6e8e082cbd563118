/**
 * What runs cost on Upstash Redis and QStash, both stood in for on this machine: what counts is how often and how much is asked of them,
 * for over a network each round trip takes its own time. Besides, how soon a run goes on after a hand-over, and after a kill.
 */
import { createPawl, defineTool, type Queue, type Store } from "../../src/mod.ts";
import type { Model } from "../../src/model.ts";
import { qstashQueue } from "../../src/queue/qstash.ts";
import { upstashStore } from "../../src/store/upstash.ts";
import { calls, modelServer } from "../support/model_server.ts";
import { connection, publicUrl } from "../support/qstash_scene.ts";
import { qstashServer } from "../support/qstash_server.ts";
import { redisServer } from "../support/redis_server.ts";
import { startService, until } from "../support/service.ts";
import { type UpstashRest, upstashRest } from "../support/upstash_rest.ts";
import { add } from "./bare_loop.ts";
import { byFifths } from "./flat.ts";
import { instantModel, median, type Report } from "./scene.ts";

const turns = 50, slices = 5, runs = 10;

export async function redis(report: Report): Promise<void> {
  const server = await redisServer();
  if (typeof server === "string") return report.line(`\nNothing on Upstash Redis is measured: ${server}`);
  const rest = upstashRest(server.port);
  let stores = 0;
  const open = () => upstashStore({ url: rest.url, token: rest.token, prefix: `bench${++stores}:` });
  await perTurn(report, rest, open);
  await afterKill(report, rest);
  await byFifths(report, "in Redis", open);
  await rest.close();
  await server.stop();
}

interface Cost {
  trips: number;
  commands: number;
  bytes: number;
}

async function perTurn(report: Report, rest: UpstashRest, open: () => Store): Promise<void> {
  report.title(
    `Runs of ${turns} turns, one tool call each, in ${slices} slices on Redis and QStash (median of ${runs})`,
  );
  const now = async (): Promise<Cost> => ({
    trips: rest.requests,
    commands: await rest.commands(),
    bytes: rest.bytes.in + rest.bytes.out,
  });
  const spent = (from: Cost, to: Cost): Cost => ({
    trips: to.trips - from.trips,
    commands: to.commands - from.commands,
    bytes: to.bytes - from.bytes,
  });
  const inTurn: Cost[] = [], handOvers: number[] = [], whole: Cost[] = [], messages: number[] = [];
  /** When the last slice handed over, until the next one asks the model. */
  let handedOver: number | undefined, before: Cost | undefined;

  const instant = instantModel(turns, add.name, () => {});
  const model: Model = {
    ...instant,
    async reply(...asked) {
      if (handedOver !== undefined) handOvers.push(performance.now() - handedOver);
      const cost = await now();
      // Between two requests of one slice there is one turn.
      if (before && handedOver === undefined) inTurn.push(spent(before, cost));
      before = cost;
      handedOver = undefined;
      return await instant.reply(...asked);
    },
  };
  await using qstash = await qstashServer({ fetch: (request) => pawl.fetch(request) });
  const qstashed = qstashQueue(connection(qstash));
  const queue: Queue = new Proxy(qstashed, {
    get(_, name: keyof typeof qstashed) {
      const value = qstashed[name];
      if (name === "publish") handedOver = performance.now();
      return typeof value === "function" ? value.bind(qstashed) : value;
    },
  });
  const store = open();
  const pawl = createPawl({
    tools: [defineTool(add)],
    models: model,
    store,
    queue,
    budget: { turns: turns / slices },
    tenants: [{ tenant: "local", key: "none" }],
  });
  for (let n = 0; n < runs; n++) {
    const first = await now(), already = qstash.messages.length;
    await pawl.start("Add up what there is.", { maxIterations: turns });
    await qstash.idle();
    before = undefined;
    whole.push(spent(first, await now()));
    messages.push(qstash.messages.length - already);
  }
  await store.close();

  const of = (costs: Cost[], what: keyof Cost) => median(costs.map((cost) => cost[what]));
  report.line(
    `the whole run, with its start, claims and hand-overs: ${of(whole, "trips")} round trips, ${
      of(whole, "commands")
    } commands, ${of(whole, "bytes")} bytes`,
  );
  report.line(`a turn: ${of(inTurn, "bytes")} bytes both ways, of which a request's frame is most`);
  report.wanted("round trips per turn", of(inTurn, "trips"), 2);
  report.wanted("Redis commands per turn", of(inTurn, "commands"), 12);
  report.wanted("QStash messages per run", median(messages), slices);
  report.line(
    `from a hand-over to the next slice's first model request, by a queue without delay: ${
      median(handOvers).toFixed(1)
    } ms (at most ${Math.max(...handOvers).toFixed(1)})`,
  );
}

/** With real processes: QStash learns at once that the connection broke, and tries again when the message says so. */
async function afterKill(report: Report, rest: UpstashRest): Promise<void> {
  let current: { url: string }, asked = 0;
  await using qstash = await qstashServer({
    fetch: (request) => fetch(new Request(request.url.replace(publicUrl, current.url), request)),
  });
  const silence = new Promise<never>(() => {});
  await using model = modelServer("openai-chat", (_, n) => {
    asked = n;
    return n === 1 ? calls(["now"]) : n === 2 ? silence : "Done";
  });
  const env = {
    ...model.env,
    ...rest.env,
    ...qstash.env,
    PAWL_PUBLIC_URL: publicUrl,
    PAWL_API_KEYS: "bench:key",
  };
  await using one = await startService(env);
  await using other = await startService(env);
  current = one;
  await one.start({ content: "Go" }, { authorization: "Bearer key" });
  await until(() => asked === 2);
  const killed = performance.now();
  current = other;
  await one.kill9();
  await until(() => asked === 3);
  const seconds = (performance.now() - killed) / 1000;
  report.title("A process is killed in the middle of a model call");
  report.line(`the run goes on in another after ${seconds.toFixed(2)} s, of which QStash waits 5`);
  report.wanted("seconds until a run goes on after a kill", seconds, 6);
}
