/** Runs on Upstash Redis and QStash against limits: of sizes, of lifetimes, of how long anyone waits, and of what is read and written again. */
import assert from "node:assert/strict";
import * as z from "zod";
import { defineTool, ModelError } from "../src/mod.ts";
import { calls } from "./support/scripted_model.ts";
import { type UpstashScene, upstashSceneTests } from "./support/upstash_scene.ts";

const test = await upstashSceneTests();

const tool = (name: string, execute: () => unknown, more = {}) =>
  defineTool({ name, description: `Does ${name}.`, parameters: z.looseObject({}), ...more, execute });

test("F14 60 steps with results of 5 kB write less than four times their history, by processes that come and go", async (open) => {
  const page = "0123456789abcdef".repeat(320);
  let n = 0;
  await using it = await open(() => ++n % 31 === 0 ? "Done" : calls(["look", { n }]), {
    tools: [tool("look", () => page)],
    budget: { turns: 5 },
  });
  const before = it.rest.bytes.in;
  for (let run = 0; run < 2; run++) {
    const id = await it.start({ thread: "t", max_iterations: 50 });
    it.before = () => void it.another();
    await it.qstash.idle();
    assert.equal((await it.view(id)).status, "completed");
  }
  const written = it.rest.bytes.in - before;
  const { json } = await it.call("GET", "/threads/t/messages?limit=200");
  const history = JSON.stringify(json.messages).length;
  assert.equal(json.messages.filter(({ role }: any) => role === "tool").length, 60);
  assert.ok(history > 60 * 5_000 && written < 4 * history, `${written} bytes written for ${history}`);
});

test("F15 a result of 1.5 MB is cut with a word, where Redis and QStash take no more than 1 MB at once", async (open) => {
  let refused = 0, largest = 0;
  await using it = await open([calls(["look"], ["read"]), "Done"], {
    tools: [
      tool("look", () => "x".repeat(1_500_000)),
      tool("read", () => ({ rows: Array(150_000).fill("row") })),
    ],
    budget: { turns: 1 },
  });
  it.rest.fault = (_path, commands) => {
    const size = JSON.stringify(commands).length;
    largest = Math.max(largest, size);
    if (size <= 1_000_000) return undefined;
    refused++;
    return { status: 400, error: "ERR max request size exceeded. Limit: 1000000 bytes" };
  };
  const run = await it.start();
  await it.qstash.idle();
  assert.deepEqual([(await it.view(run)).status, refused], ["completed", 0], `${largest} bytes at once`);
  for (const { content } of (await it.messages(run)).filter(({ role }) => role === "tool")) {
    assert.match(content, /\[… \d+ characters left out …\]/);
  }
  assert.ok(it.qstash.calls.every(({ text }) => text.length < 500));
});

/** When the keys of a thread end, in seconds from now. */
async function lifetimes(it: UpstashScene, thread: string): Promise<number[]> {
  const ends: number[] = [];
  for (const key of await it.rest.redis.keys(`${it.prefix}{acme~${thread}}:*`)) {
    // The lease has an end of its own.
    if (!key.endsWith(":lease")) ends.push(await it.rest.redis.pttl(key) / 1000);
  }
  return ends;
}

test("F16 all keys of a run that waits 50 s of its 60 live on together; at their end it is 404, not half a run", async (open) => {
  const ttlMs = 60_000;
  await using it = await open([calls(["send"]), "Done"], {
    ttlMs,
    tools: [tool("send", () => it.clock.sleep(30_000), {
      wait: (_args: unknown, now: number) => ({ for: "approval", until: now + 55_000 }),
    })],
  });
  const run = await it.start({ thread: "t" });
  const together = async (least: number) => {
    const ends = await lifetimes(it, "t"), [shortest, longest] = [Math.min(...ends), Math.max(...ends)];
    assert.ok(ends.length >= 5, `${ends.length} keys`);
    assert.ok(longest - shortest < 2 && shortest > least, `from ${shortest} to ${longest} s`);
  };
  await it.passUntil(async () => (await it.view(run)).status === "waiting");
  await together(110);
  await it.pass(50_000);
  const [{ tool_call_id }] = (await it.view(run)).waiting_for;
  const approved = await it.call("POST", `/runs/${run}/tool_results`, { tool_call_id, approve: true });
  assert.equal(approved.status, 202);
  await it.pass(15_000);
  assert.equal((await it.view(run)).status, "running");
  await together(40);
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.equal((await it.view(run)).status, "completed");
  await together(40);
  await it.pass(2 * ttlMs);
  for (const path of [`/runs/${run}`, "/threads/t/messages", `/runs/${run}/messages`]) {
    assert.equal((await it.call("GET", path)).status, 404);
  }
  assert.equal((await it.call("POST", `/runs/${run}/steering`, { content: "Hello?" })).status, 404);
  assert.equal((await it.call("POST", `/runs/${run}/cancel`)).status, 404);
});

test("E03 a vendor that asks for 171 s gets them: a delayed delivery, no function that sleeps, no request before", async (open) => {
  await using it = await open([new ModelError("rate_limit", "slow down", 171_000), "Done"], {
    budget: { softMs: 20_000, hardMs: 30_000 },
  });
  const run = await it.start(), began = it.clock.now();
  // Time stands still, and the delivery is over.
  await it.qstash.idle();
  assert.deepEqual(it.qstash.messages.map(({ answers }) => answers), [[200], []]);
  // Not before; up to a quarter later, so that runs which failed together do not come back together.
  const delay = Number(it.qstash.calls[1]!.headers.get("upstash-delay")!.replace(/s$/, ""));
  assert.ok(delay >= 171 && delay <= 214, `${delay} s`);
  await it.pass(170_000);
  assert.equal(it.model.requests.length, 1);
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.ok(it.qstash.messages[1]!.notBefore - began >= 171_000);
  assert.deepEqual([it.model.requests.length, (await it.view(run)).status], [2, "completed"]);
});

test("a wait longer than the queue allows is carried on from delay to delay, and ends in time", async (open) => {
  await using it = await open([calls(["wait"]), "Done"], {
    tools: [
      tool("wait", () => "waited", {
        wait: (_args: unknown, now: number) => ({ for: "time", until: now + 25_000 }),
      }),
    ],
    queue: { maxDelayMs: 10_000 },
    server: { limits: { maxDelayMs: 10_000 } },
  });
  const run = await it.start();
  await it.pass(24_000);
  assert.equal((await it.view(run)).status, "waiting");
  await it.passUntil(async () => (await it.view(run)).status === "completed");
  assert.equal((await it.view(run)).status, "completed");
  const hops = it.qstash.messages.map(({ body }) => JSON.parse(new TextDecoder().decode(body)))
    .map(({ ticket, hop }) => [ticket, hop]);
  assert.deepEqual(hops, [[1, 0], [2, 0], [2, 1], [2, 2]]);
  assert.equal(it.model.requests.length, 2);
});

for (const kind of ["warm", "cold"] as const) {
  const reads = kind === "warm" ? "only what is new to it" : "the whole thread once";
  test(`a ${kind} process reads ${reads} with each claim`, async (open) => {
    const sizes: number[] = [], lengths: number[] = [];
    let pages = 0, n = 0;
    await using it = await open(() => ++n > 20 ? "Done" : calls(["look", { n }]), {
      tools: [tool("look", () => "x".repeat(5_000))],
      budget: { turns: 2 },
      verbs: (store) => ({
        async claim(...asked) {
          const before = it.rest.bytes.out, claimed = await store.claim(...asked);
          sizes.push(it.rest.bytes.out - before);
          if (claimed.is === "claimed") lengths.push(claimed.length - claimed.from);
          return claimed;
        },
        read: (...asked) => (pages++, store.read(...asked)),
      }),
    });
    it.qstash.inside.hold();
    const run = await it.start({ thread: "t", max_iterations: 50 });
    if (kind === "cold") it.before = () => void it.another();
    pages = 0;
    it.qstash.inside.release();
    await it.qstash.idle();
    assert.equal(pages, 0, "the claim has answered it all");
    assert.equal((await it.view(run)).status, "completed");
    const log = await it.log("t"), transcript = JSON.stringify(await it.messages(run)).length;
    assert.equal(sizes.length, 11);
    if (kind === "warm") {
      assert.ok(lengths.every((length) => length <= 1), `${lengths}`);
      assert.ok(Math.max(...sizes) < 5_000, `${sizes}`);
    } else {
      assert.ok(lengths.at(-1)! > log.length - 12, `${lengths} of ${log.length}`);
      assert.ok(sizes.at(-1)! < 1.25 * transcript, `${sizes.at(-1)} bytes for a transcript of ${transcript}`);
    }
  });
}
