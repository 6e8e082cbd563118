/**
 * Several processes of the service on one Redis and one QStash, behind one address that gives each request to the next living one. What
 * goes wrong is drawn from the seed: processes are killed, deliveries come twice, late and out of order, and answers get lost.
 */
import { systemClock } from "../../../src/clock.ts";
import { type EffectServer, effectServer } from "../effect_server.ts";
import { type ModelServer, modelServer } from "../model_server.ts";
import { type QstashServer, qstashServer } from "../qstash_server.ts";
import { type Service, startService } from "../service.ts";
import { Dice } from "../simulation/dice.ts";
import type { UpstashRest } from "../upstash_rest.ts";
import { keyOf, type Plan, replyTo, tenants } from "./plan.ts";

export interface World extends AsyncDisposable {
  rest: UpstashRest;
  qstash: QstashServer;
  effects: EffectServer;
  model: ModelServer;
  /** Where clients and QStash find the service. */
  url: string;
  /** All that its processes wrote. */
  output(): string;
  /** What went wrong, by kind. */
  faults: Record<string, number>;
  /** From now on nothing goes wrong any more, and all processes live. */
  calm(): Promise<void>;
}

export interface WorldOptions {
  seed: number;
  plans: Plan[];
  /** Between two kills. */
  killMs: [low: number, high: number];
  processes?: number;
}

export async function world(rest: UpstashRest, options: WorldOptions): Promise<World> {
  const { seed, plans, killMs, processes = 3 } = options;
  const dice = new Dice(seed, "faults"), faults: Record<string, number> = {}, over = new AbortController();
  /** Counts each fault that it lets happen. */
  const strikes = (what: string, chance: number) => {
    const is = !over.signal.aborted && dice.chance(chance);
    if (is) faults[what] = (faults[what] ?? 0) + 1;
    return is;
  };

  const effects = effectServer(() => dice.between(0, 200));
  const model = modelServer("openai-chat", async (asked) => {
    await systemClock.sleep(dice.between(30, 400));
    const fails = strikes("model failures", 0.01);
    return fails ? { status: 503, code: "overloaded", message: "busy" } : replyTo(plans, asked);
  });

  let turn = 0;
  const services: { service: Service; lives: boolean }[] = [];
  const next = async () => {
    for (;; await systemClock.sleep(20)) {
      const living = services.filter(({ lives }) => lives);
      if (living.length) return living[turn++ % living.length]!.service;
    }
  };
  const proxy = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const { pathname, search } = new URL(request.url), { method, headers } = request;
    const body = method === "GET" ? undefined : await request.arrayBuffer();
    try {
      const answer = await fetch((await next()).url + pathname + search, { method, headers, body });
      return new Response(await answer.arrayBuffer(), answer);
    } catch {
      return new Response(null, { status: 502 }); // The process died over it.
    }
  });
  const url = `http://127.0.0.1:${proxy.addr.port}`;

  // QStash waits seconds between tries; here it is a twentieth.
  const qstash = await qstashServer({ backoffScale: 0.05 });
  qstash.faults.lateMs = () => over.signal.aborted ? 0 : dice.between(0, 60);
  const drops = (what: string, chance: number) => ({ get: () => strikes(what, chance) ? 1 : 0, set() {} });
  Object.defineProperties(qstash.faults, {
    copies: { get: () => strikes("doubled deliveries", 0.15) ? 2 : 1 },
    dropPublishAnswers: drops("lost answers to publishes", 0.03),
    dropDeliveryAnswers: drops("lost answers to deliveries", 0.03),
  });
  rest.fault = () => {
    if (strikes("lost answers of Redis", 0.005)) return "drop response";
    if (strikes("lost requests to Redis", 0.005)) return "drop request";
    return dice.chance(0.05) ? { delayMs: dice.between(1, 40) } : undefined;
  };

  const env = {
    ...effects.env,
    ...model.env,
    ...rest.env,
    ...qstash.env,
    PAWL_PUBLIC_URL: url,
    PAWL_API_KEYS: tenants.map((tenant) => `${tenant}:${keyOf(tenant)}`).join(","),
    PAWL_SLICE_TURNS: "2",
    PAWL_LEASE_MS: "4000",
  };
  const begun = await Promise.all(Array.from({ length: processes }, () => startService(env)));
  services.push(...begun.map((service) => ({ service, lives: true })));

  const unrest = (async () => {
    for (;;) {
      await systemClock.sleep(dice.between(...killMs), over.signal);
      if (over.signal.aborted) return;
      const victim = dice.pick(services);
      victim.lives = false;
      faults["kills"] = (faults["kills"] ?? 0) + 1;
      await victim.service.kill9();
      await victim.service.restart();
      victim.lives = true;
    }
  })();

  return {
    rest,
    qstash,
    effects,
    model,
    url,
    faults,
    output: () => services.map(({ service }) => service.output).join(""),
    async calm() {
      over.abort();
      rest.fault = undefined;
      await unrest;
    },
    async [Symbol.asyncDispose]() {
      over.abort();
      rest.fault = undefined;
      await unrest;
      await qstash[Symbol.asyncDispose]();
      for (const { service } of services) await service[Symbol.asyncDispose]();
      await proxy.shutdown();
      await effects[Symbol.asyncDispose]();
      await model[Symbol.asyncDispose]();
    },
  };
}
