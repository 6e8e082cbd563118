/**
 * What a released version left in its stores: one thread with a run that has ended and one that waits for an approval. `deno task fixture`
 * writes the one of this version, before it is released; it is never written again.
 */
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { Redis } from "ioredis";
import type { Delivery } from "../../src/queue.ts";
import type { Store } from "../../src/store.ts";
import { agenticFunction, defineTool } from "../../src/tool.ts";
import { ModelError, type ModelRequest } from "../../src/model.ts";
import { textOf } from "../../src/message.ts";
import { harness } from "./harness.ts";
import { calls, type Said } from "./scripted_model.ts";
import type { VirtualTime } from "./virtual_time.ts";

/** Values of a Redis key, by what kind of key it is. */
type Value = string | string[] | { [field: string]: string };

export interface Fixture {
  /** When it was made, Unix ms: the threads in it end some days later. */
  at: number;
  run: { ended: string; waiting: string; toolCallId: string };
  /** What the queue holds. */
  delivery: Delivery;
  sqlite: {
    version: number;
    schema: string[];
    rows: { [table: string]: { [column: string]: string | number | null }[] };
  };
  /** By the last part of the key's name. */
  redis: { [part: string]: Value };
}

export const thread = "t", tenant = "local";

/** The tools that the fixture's runs have, today. `ran` counts. */
export function tools(ran: string[]) {
  const anything = { type: "object" } as const;
  return [
    defineTool({
      name: "charge",
      description: "",
      parameters: anything,
      key: ({ order }) => String(order),
      approval: ({ amount }) => amount > 10,
      execute: ({ order }) => {
        ran.push(`charge ${order}`);
        return `charged ${order} é🎉 {"a":[]}`;
      },
    }),
    defineTool({
      name: "wait",
      description: "",
      parameters: anything,
      replay: "safe",
      wait: (_args, now) => ({ for: "time", until: now + 60_000 }),
      execute: () => "waited",
    }),
    agenticFunction({
      name: "agent",
      description: "",
      parameters: anything,
      execute: async (_args, { exec, step }) => {
        const saved = await step("save", () => ({ saved: [] }));
        return `${await exec("facts", { key: "facts", choices: ["yes", "no"] }).then(JSON.stringify)} ${
          JSON.stringify(saved)
        }`;
      },
    }),
  ];
}

function says(): (request: ModelRequest) => Said {
  let failed = false, asked = false, refused = false;
  return ({ messages, system }) => {
    if (system?.includes("shorten")) return "They charged order 7.";
    const first = textOf(messages[0]!.content),
      turn = messages.filter(({ role }) => role === "assistant").length;
    if (first.startsWith("facts")) {
      if (asked) return "yes";
      asked = true;
      return "perhaps";
    }
    if (first.startsWith("Begin")) {
      if (turn === 0) {
        return calls(["charge", { order: 7, amount: 5 }], ["wait"], ["charge", { order: 9, amount: 50 }], [
          "nothing",
        ]);
      }
      if (turn === 1 && !failed) return failed = true, new ModelError("overloaded", "busy");
      if (turn === 1) return calls(["agent"]);
      if (!refused) return refused = true, new ModelError("context_overflow", "too long");
    }
    const last = textOf(messages.at(-1)!.content);
    return last === "Charge more" ? calls(["charge", { order: 8, amount: 50 }]) : "So far";
  };
}

/** Plays what a fixture holds, in a store at the virtual moment `time`. */
export async function play(store: Store, time: VirtualTime): Promise<Pick<Fixture, "run" | "delivery">> {
  const down = { name: "other", covers: () => true, open: () => Promise.reject(new Error("It is down")) };
  const h = harness(says() as (...a: any[]) => Said, {
    tools: [...tools([]), down],
    store,
    time,
    ttlMs: 604_800_000,
  });
  const first = await h.start("Begin é🎉", { metadata: { é: "🎉" } }, {
    thread,
    key: { name: "once", hash: "h" },
  });
  const { waitingFor: asked } = await h.settled(first.run);
  const { publish } = h.queue;
  h.queue.publish = () => Promise.reject(new Error("The queue is down"));
  await assert.rejects(time.until(h.pawl.send(tenant, first.run, "steering", "Never accepted")));
  h.queue.publish = publish;
  await time.until(h.pawl.send(tenant, first.run, "follow_up", "And then?"));
  const { toolCallId } = asked!.find((call) => call.for === "approval")!;
  await time.until(h.pawl.resolve(tenant, first.run, toolCallId, { approve: true }));
  await h.ended(first.run);
  const { run } = await h.start("Charge more", {}, { thread });
  const { waitingFor } = await h.settled(run);
  return {
    run: { ended: first.run, waiting: run, toolCallId: waitingFor![0]!.toolCallId },
    delivery: h.published.at(-1)!,
  };
}

export function dumpSqlite(path: string): Fixture["sqlite"] {
  const db = new DatabaseSync(path);
  const made = db.prepare(
    "select type, name, sql from sqlite_schema where sql is not null and name not like 'sqlite_%'",
  ).all();
  const rows: Fixture["sqlite"]["rows"] = {};
  for (const { type, name } of made) {
    if (type === "table") rows[String(name)] = db.prepare(`select * from "${name}"`).all() as any;
  }
  const version = Number(db.prepare("pragma user_version").get()!.user_version);
  db.close();
  return { version, schema: made.map(({ sql }) => String(sql)), rows };
}

export function loadSqlite(path: string, { version, schema, rows }: Fixture["sqlite"]): void {
  const db = new DatabaseSync(path);
  db.exec("pragma foreign_keys = off");
  for (const sql of schema) db.exec(sql);
  for (const [table, all] of Object.entries(rows)) {
    for (const row of all) {
      const columns = Object.keys(row);
      db.prepare(
        `insert into "${table}" (${columns.map((c) => `"${c}"`).join()}) values (${
          columns.map(() => "?").join()
        })`,
      ).run(...Object.values(row));
    }
  }
  db.exec(`pragma user_version = ${version}`);
  db.close();
}

const keysOf = (prefix: string) => `${prefix}{${tenant}~${thread}}:`;

export async function dumpRedis(redis: Redis, prefix: string): Promise<Fixture["redis"]> {
  const all: Fixture["redis"] = {}, begin = keysOf(prefix);
  for (const key of (await redis.keys(`${begin.replaceAll("{", "\\{")}*`)).sort()) {
    const type = await redis.type(key), part = key.slice(begin.length);
    if (type === "hash") all[part] = await redis.hgetall(key);
    else if (type === "list") all[part] = await redis.lrange(key, 0, -1);
    else all[part] = (await redis.get(key))!;
  }
  return all;
}

export async function loadRedis(redis: Redis, prefix: string, values: Fixture["redis"]): Promise<void> {
  for (const [part, value] of Object.entries(values)) {
    const key = `${keysOf(prefix)}${part}`;
    if (typeof value === "string") await redis.set(key, value);
    else if (Array.isArray(value)) await redis.rpush(key, ...value);
    else await redis.hset(key, value);
  }
}
