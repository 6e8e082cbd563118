/** What becomes of model calls that fail: which are tried again, when, how often, and what a listener sees of it. */
import assert from "node:assert/strict";
import { retryAfterMs } from "../providers/failure.ts";
import { type Model, ModelError, type ModelReply } from "../src/model.ts";
import type { Event } from "../src/event.ts";
import { textOf } from "../src/message.ts";
import { refusal, replyTo } from "./contract/model.ts";
import { dialects } from "./support/dialect.ts";
import { harness } from "./support/harness.ts";
import { scriptedModel } from "./support/scripted_model.ts";
import { Stage } from "./support/stage.ts";

const now = Date.parse("Wed, 21 Oct 2026 07:28:00 GMT");

Deno.test("retry-after also comes in HTTP's older forms and as RFC 3339 (CASES E02)", () => {
  const forms: [string, number | undefined][] = [
    ["Wednesday, 21-Oct-26 07:28:02 GMT", 2000],
    ["Wed Oct 21 07:28:02 2026", 2000],
    ["2026-10-21T07:28:02Z", 2000],
    ["Wed, 99 Oct 2026 07:28:02 GMT", undefined],
    ["", undefined],
    ["NaN", undefined],
    ["1e3", undefined],
    ["  2 ", 2000],
  ];
  for (const [text, ms] of forms) {
    assert.equal(retryAfterMs(new Headers({ "retry-after": text }), now), ms, text);
  }
});

Deno.test("a limit's reset counts where the limit is used up, and only for answers of that kind (CASES E02)", async () => {
  const future = new Date(Date.now() + 60_000).toISOString();
  const forms: [Record<string, string>, number | undefined][] = [
    [{ "x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0" }, 360_000],
    [{ "x-ratelimit-reset-tokens": "20ms", "x-ratelimit-remaining-tokens": "0" }, 20],
    [{
      "x-ratelimit-reset-requests": "1h",
      "x-ratelimit-remaining-requests": "9",
      "x-ratelimit-reset-tokens": "1.5s",
      "x-ratelimit-remaining-tokens": "0",
    }, 1500],
    [{ "anthropic-ratelimit-requests-reset": future, "anthropic-ratelimit-requests-remaining": "0" }, 60_000],
    [{ "x-ratelimit-reset": `${Math.round(Date.now() / 1000) + 60}` }, 60_000],
    [{ "x-ratelimit-reset": `${Date.now() + 60_000}` }, 60_000],
    [{ "ratelimit-reset": "7" }, 7000],
    [{ "x-ratelimit-reset": "1500000000" }, undefined],
    [{ "x-ratelimit-reset": "soon" }, undefined],
    [{ "x-ratelimit-reset": "NaN" }, undefined],
    [{ "retry-after": "2", "x-ratelimit-reset": "9" }, 2000],
  ];
  for (const [headers, ms] of forms) {
    for (const status of [429, 500]) {
      const script = {
        status,
        headers: { "content-type": "application/json", ...headers },
        chunks: [dialects[0]!.error("some_error", "no")],
      };
      const { retryAfterMs: wait } = await refusal(replyTo(dialects[0]!, script));
      const wanted = status === 429 || headers["retry-after"] ? ms : undefined;
      const near = wait === undefined || wanted === undefined
        ? wait === wanted
        : Math.abs(wait - wanted) < 1500;
      assert.ok(near, `${status} ${JSON.stringify(headers)}: ${wait}, not ${wanted}`);
    }
  }
});

Deno.test("a limit that only the body tells the end of is waited for as well", async () => {
  const bodies: [string, number][] = [
    [dialects[0]!.error("rate_limit_exceeded", "Rate limit reached. Please try again in 1m2.5s."), 62_500],
    [JSON.stringify({ error: { code: 429, message: "no", details: [{ retryDelay: "37s" }] } }), 37_000],
  ];
  for (const [body, ms] of bodies) {
    const script = { status: 429, headers: { "content-type": "application/json" }, chunks: [body] };
    const error = await refusal(replyTo(dialects[0]!, script));
    assert.deepEqual([error.code, error.retryAfterMs], ["rate_limit", ms]);
  }
});

Deno.test("an overflow is told by what vendors say (CASES E06)", async () => {
  const texts = [
    "input length and `max_tokens` exceed context limit: 190000 + 8192 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size",
  ];
  for (const text of texts) {
    for (const each of dialects) {
      const body = each.error("invalid_request_error", text);
      const plain = { status: 400, headers: { "content-type": "application/json" }, chunks: [body] };
      assert.equal((await refusal(replyTo(each, plain))).code, "context_overflow", text);
    }
  }
});

/** When the model was asked, in ms since the start. */
function timed(fail: (n: number) => Error | string, options: Parameters<typeof harness>[1] = {}) {
  const asked: number[] = [];
  const model = scriptedModel((_request: unknown) => {
    asked.push(h.time.now());
    return fail(asked.length);
  });
  const h = harness(model, options);
  const waits = () => asked.slice(1).map((at, n) => at - asked[n]!);
  return { h, waits };
}

Deno.test("what a vendor asks for is a floor, with up to a quarter more; without it waits grow (CASES E02)", async () => {
  const forms: [number | undefined, number, number][] = [
    [300, 300, 375],
    [2000, 2000, 2500],
    [0, 0, 0],
    [undefined, 1000, 1250],
  ];
  for (const [asked, least, most] of forms) {
    const { h, waits } = timed((n) => n === 1 ? new ModelError("rate_limit", "slow", asked) : "ok");
    const { run } = await h.start("Go");
    assert.equal((await h.ended(run)).text, "ok");
    const [wait] = waits();
    assert.ok(wait! >= least && wait! <= most, `${asked}: waited ${wait}`);
  }
  const { h, waits } = timed(() => new ModelError("rate_limit", "slow", 0));
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).error?.code, "rate_limit");
  const all = waits();
  assert.equal(all.length, 4);
  assert.ok(all.slice(1).every((wait, n) => wait >= 2000 * 2 ** n), `never a tight loop: ${all}`);
});

Deno.test("runs that fail together do not come back together", async () => {
  const { h, waits } = timed((n) => n < 5 ? new ModelError("overloaded", "busy") : "ok");
  const { run } = await h.start("Go");
  await h.ended(run);
  const shares = waits().map((wait, n) => wait / (1000 * 2 ** n));
  assert.equal(new Set(shares.map((share) => share.toFixed(3))).size, 4, `${shares}`);
});

Deno.test("a wait longer than the slice has left is a delayed delivery, and nobody asks before (CASES E03)", async () => {
  const stage = new Stage([new ModelError("rate_limit", "slow", 171_000), "ok"], {
    budget: { softMs: 20_000 },
  });
  const { run } = await stage.start("Go");
  const begun = stage.time.now();
  await stage.deliver();
  assert.ok(stage.time.now() - begun < 20_000, "no sleeping");
  const { at } = stage.queued.at(-1)!;
  assert.ok(at! - begun >= 171_000);
  assert.equal((await stage.view(run)).status, "waiting");
  await stage.deliver();
  assert.equal(stage.model.requests.length, 1, "too early");
  await stage.play(run);
  assert.equal((await stage.view(run)).text, "ok");
});

Deno.test("a wait of hours or days fails at once with the vendor's words (CASES E04)", async () => {
  for (const [code, wait] of [["rate_limit", 99_999_999_000], ["quota", undefined]] as const) {
    const h = harness([new ModelError(code, "resets in 16 days", wait)]);
    const { run } = await h.start("Go");
    assert.deepEqual((await h.ended(run)).error, { code, message: "resets in 16 days" });
    assert.equal(h.model.requests.length, 1);
  }
});

Deno.test("a request that is wrong is sent once, and the error is an event (CASES E05)", async () => {
  for (const code of ["bad_request", "content_policy", "auth"] as const) {
    const h = harness([new ModelError(code, "INVALID_ARGUMENT")]);
    const { run } = await h.start("Go");
    assert.equal((await h.ended(run)).error?.code, code);
    assert.equal(h.model.requests.length, 1);
    const end = (await h.events(run)).at(-1)!.event;
    assert.deepEqual(end.type === "agent_end" && end.error, { code, message: "INVALID_ARGUMENT" });
  }
});

Deno.test("tries are counted over crashes too: a turn asks no more than so often", async () => {
  let asked = 0;
  const stage: Stage = new Stage(
    Array.from({ length: 50 }, () => () => {
      // Every second try takes the process with it.
      if (++asked % 2) return new ModelError("network", "cut");
      return stage.die();
    }),
  );
  const { run } = await stage.start("Go");
  for (let n = 0; n < 40; n++) {
    if (["failed", "completed"].includes((await stage.view(run)).status)) break;
    const next = stage.queued.at(-1)!;
    await stage.until(next.at ?? 0);
    await stage.deliver(next, { message: "one" });
    await stage.time.pass(120_000);
  }
  assert.equal((await stage.view(run)).status, "failed");
  assert.ok(asked <= 10, `asked ${asked} times`);
});

const reply: ModelReply = {
  content: [{ type: "text", text: "late" }],
  stopReason: "stop",
  usage: { input: 1, output: 1 },
};

/** Says a piece after each of these waits, then the whole; after a wait of Infinity nothing comes any more. */
function slow(
  clock: { sleep(ms: number): Promise<void> },
  tries: number[][],
  deaf = false,
): Model & { tries: number } {
  return {
    name: "slow/model",
    tries: 0,
    async reply(_request, { signal, onDelta }) {
      for (const wait of tries[this.tries++] ?? []) {
        const aborted = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
        await (wait === Infinity ? deaf ? new Promise(() => {}) : aborted : clock.sleep(wait));
        if (signal.aborted) throw new ModelError("aborted", "aborted");
        onDelta({ type: "text", text: "." });
      }
      return reply;
    },
  };
}

Deno.test("a model that sends nothing is given up after a while, and asked again", async () => {
  for (const deaf of [false, true]) {
    for (
      const [patience, waits] of [[{ firstMs: 2000 }, [Infinity]], [{ idleMs: 3000 }, [
        10,
        Infinity,
      ]]] as const
    ) {
      const { time } = harness([]);
      const model = slow(time, [[...waits], [1]], deaf);
      const h = harness(model as any, { time, patience });
      const begun = time.now();
      const { run } = await h.start("Go");
      const view = await h.ended(run);
      assert.deepEqual([view.text, view.iterations], ["late", 1]);
      const said = (await h.messages(run)).at(-1)!;
      assert.ok(said.at - begun < 10_000, `after ${said.at - begun} ms`);
      const retry = (await h.events(run)).map(({ event }) => event).find(({ type }) =>
        type === "message_retry"
      );
      assert.equal(retry?.type === "message_retry" && retry.code, "timeout");
    }
  }
});

Deno.test("a model that is slow but alive is not given up", async () => {
  const { time } = harness([]);
  const model = slow(time, [Array.from({ length: 20 }, () => 2500)]);
  const h = harness(model as any, {
    time,
    patience: { firstMs: 3000, idleMs: 3000 },
    budget: { hardMs: 600_000 },
  });
  const { run } = await h.start("Go");
  assert.equal((await h.ended(run)).text, "late");
  assert.equal(model.tries, 1);
});

Deno.test("a listener ends with the right text although the first attempt broke after its deltas, also when it comes back", async () => {
  const { time } = harness([]);
  let broken = false;
  const model: Model = {
    name: "m/m",
    async reply(_request, { onDelta }) {
      for (const text of broken ? ["good ", "end"] : ["bad ", "start"]) {
        onDelta({ type: "text", text });
        await time.sleep(1_000);
      }
      if (broken) return { ...reply, content: [{ type: "text", text: "good end" }] };
      broken = true;
      throw new ModelError("network", "cut");
    },
  };
  for (const leaves of [false, true]) {
    broken = false;
    const h = harness(model as any, { time });
    const { run } = await h.start("Go");
    const shown = new Map<string, string>();
    let after: string | undefined, voided = 0, left = false;
    const take = (event: Event) => {
      if (event.type === "message_start" && event.message.role === "assistant") {
        shown.set(event.message.id, "");
      }
      // What was not seen in pieces comes as a whole.
      if (event.type === "message_end" && event.message.role === "assistant") {
        const { id, content } = event.message, pieces = shown.get(id);
        assert.ok(pieces === "" || pieces === textOf(content), `${pieces}`);
        shown.set(id, textOf(content));
      }
      if (event.type === "message_update") {
        shown.set(event.messageId, shown.get(event.messageId)! + (event.delta as { text: string }).text);
      }
      if (event.type === "message_retry") {
        voided++;
        shown.delete(event.messageId);
      }
      if (event.type === "resync") {
        shown.clear();
        for (const message of event.messages) {
          if (message.role === "assistant") shown.set(message.id, textOf(message.content));
        }
      }
    };
    const listen = async () => {
      for (;;) {
        for await (
          const { id, event } of h.pawl.events("local", run, { after, signal: new AbortController().signal })
        ) {
          after = id;
          take(event);
          if (event.type === "agent_end") return;
          // It goes in the middle of the first attempt, and comes back in the middle of the second.
          if (leaves && !left && event.type === "message_update") break;
        }
        left = true;
        await time.sleep(2_600);
      }
    };
    await time.until(listen());
    const [text] = shown.values();
    assert.equal(shown.size, 1);
    assert.equal(text, "good end");
    if (!leaves) assert.equal(voided, 1);
  }
});
