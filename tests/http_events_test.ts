import assert from "node:assert/strict";
import { type Clock, systemClock } from "../src/clock.ts";
import type { Event } from "../src/event.ts";
import { httpFace } from "../src/http/app.ts";
import { frameOf, pingMs } from "../src/http/sse.ts";
import { eventClient } from "./support/event_client.ts";
import { FakeVerbs } from "./support/fake_verbs.ts";

const headers = { authorization: "Bearer key" };

function setUp(clock: Clock = systemClock) {
  const verbs = new FakeVerbs();
  const reported: unknown[] = [];
  const app = httpFace(verbs, {
    tenants: [{ tenant: "a", key: "key" }],
    clock,
    onError: (error) => reported.push(error),
  });
  const { id } = verbs.given("a", { status: "running" });
  return { verbs, app, id, path: `/runs/${id}/events`, reported };
}

/** Serves over a real socket; `url` is the run's events. */
function serve() {
  const set = setUp();
  const server = Deno.serve({ port: 0, onListen: () => {} }, (request) => set.app.fetch(request));
  return {
    ...set,
    url: `http://127.0.0.1:${server.addr.port}${set.path}`,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const warn = (message: string): Event => ({ type: "warning", code: "c", message });
const end: Event = { type: "agent_end", status: "completed", finishReason: "stop" };

async function until(condition: () => boolean): Promise<void> {
  for (let tries = 0; !condition(); tries++) {
    assert.ok(tries < 500, `Not within 5 s: ${condition}`);
    await systemClock.sleep(10);
  }
}

/** A spec-conform client that collects until the given number of events has come, then leaves. */
async function collect(url: string, count: number, lastEventId?: string) {
  const { got } = eventClient(url, { headers, lastEventId, leaveAfter: count });
  await until(() => got.length >= count);
  return got;
}

Deno.test("B23 line breaks and NUL in what a model or a client wrote cannot make another event", async () => {
  await using set = serve();
  const text = "a\revent: run_done\rdata: {}\r\r\n\n\u0000\u2028\u2029\ud800 id: 9\n";
  set.verbs.emit(
    set.id,
    { type: "message_update", messageId: "m", delta: { type: "text", text } },
    { type: "tool_execution_start", toolCallId: "c", toolName: "x\nid: 9", args: { "k\r": "v\n\n" } },
    end,
  );
  const got = await collect(set.url, 3);
  assert.deepEqual(got, [
    {
      id: "0.0",
      event: "message_update",
      data: {
        run: set.id,
        frame: ".",
        type: "message_update",
        message_id: "m",
        delta: { type: "text", text },
      },
    },
    {
      id: "1.0",
      event: "tool_execution_start",
      data: {
        run: set.id,
        frame: ".",
        type: "tool_execution_start",
        tool_call_id: "c",
        tool_name: "x\nid: 9",
        args: { "k\r": "v\n\n" },
      },
    },
    {
      id: "2.0",
      event: "agent_end",
      data: { run: set.id, frame: ".", type: "agent_end", status: "completed", finish_reason: "stop" },
    },
  ]);
});

Deno.test("B23 an id or a name with a line break is never written", () => {
  for (
    const [id, type] of [["1\n2", "warning"], ["1\r", "warning"], ["1\u0000", "warning"], ["", "warning"], [
      "1.0",
      "a\nb",
    ]]
  ) {
    const event = { ...warn("x"), type } as Event;
    assert.throws(() => frameOf({ id: id!, run: "r", frame: ".", event }), /expected a plain id and name/);
  }
});

Deno.test("B23 a Last-Event-ID with line breaks goes to the verb as an unknown id and comes back nowhere", async () => {
  const { verbs, app, id, path } = setUp();
  verbs.given("a");
  verbs.emit(id, warn("first"), end);
  const answer = await app.request(`${path}?after=${encodeURIComponent("9\rid: 7\n\nevent: x")}`, {
    headers,
  });
  const text = await answer.text();
  assert.deepEqual(text.match(/^(event|id): .*$/gm), [
    "id: 2.0",
    "event: resync",
    "id: 0.0",
    "event: warning",
    "id: 1.0",
    "event: agent_end",
  ]);
  const { state, run, messages } = JSON.parse(/^data: (.*)$/m.exec(text)![1]!);
  assert.deepEqual([run, state.id, state.status, messages], [id, id, "running", []]);
});

Deno.test("B24 a client that reconnects with the id it saw last gets each later event once, while more flow", async () => {
  await using set = serve();
  const emit = (from: number, to: number) => {
    for (let n = from; n <= to; n++) set.verbs.emit(set.id, n === 40 ? end : warn(String(n)));
  };
  emit(1, 20);
  const first = await collect(set.url, 17);
  const second = collect(set.url, 23, first.at(-1)!.id);
  for (let n = 21; n <= 40; n++) {
    emit(n, n);
    await systemClock.sleep(1);
  }
  const got = [...first, ...await second].map(({ id }) => id);
  assert.deepEqual(got, Array.from({ length: 40 }, (_, n) => `${n}.0`));
});

Deno.test("B24 the header of a client that comes back goes before the ?after= of its first URL", async () => {
  const { verbs, app, id, path } = setUp();
  verbs.emit(id, warn("1"), warn("2"), warn("3"), end);
  const ids = async (query: string, extra: Record<string, string> = {}) => {
    const text = await (await app.request(path + query, { headers: { ...headers, ...extra } })).text();
    return text.match(/(?<=^id: ).*$/gm);
  };
  assert.deepEqual(await ids("?after=1.0"), ["2.0", "3.0"]);
  assert.deepEqual(await ids("?after=0.0", { "last-event-id": "2.0" }), ["3.0"]);
});

Deno.test("an EventSource that has seen the end is told by 204 not to come again", async () => {
  const { verbs, app, id, path } = setUp();
  verbs.emit(id, warn("1"), end);
  Object.assign(await verbs.run("a", id), { status: "completed" });
  assert.equal((await app.request(`${path}?after=1.0`, { headers })).status, 204);
  assert.equal(verbs.watching, 0);
  const rest = await app.request(`${path}?after=0.0`, { headers });
  assert.deepEqual([rest.status, (await rest.text()).match(/^id: .*$/gm)], [200, ["id: 1.0"]]);
});

Deno.test("F22 a client that drops its socket is noticed, all is let go, and the run knows nothing of it", async () => {
  await using set = serve();
  set.verbs.emit(set.id, warn("1"));
  const gone = new AbortController();
  const answer = await fetch(set.url, { headers, signal: gone.signal });
  const reader = answer.body!.getReader();
  await reader.read();
  assert.equal(set.verbs.watching, 1);
  gone.abort();
  await reader.read().catch(() => {});
  await until(() => set.verbs.watching === 0);
  assert.deepEqual([set.verbs.calls, (await set.verbs.run("a", set.id)).status], [[], "running"]);
  assert.deepEqual(set.reported, []);
});

Deno.test("F22 a reader that cancels, before or after its first event, leaves nothing behind", async () => {
  const { verbs, app, id, path } = setUp();
  const unread = await app.request(path, { headers });
  await unread.body!.cancel();
  assert.equal(verbs.watching, 0);
  verbs.emit(id, warn("1"));
  const reader = (await app.request(path, { headers })).body!.getReader();
  await reader.read();
  const pending = reader.read();
  await reader.cancel();
  assert.equal((await pending).done, true);
  await until(() => verbs.watching === 0);
});

Deno.test("a HEAD of the events opens nothing", async () => {
  const { verbs, app, path } = setUp();
  const answer = await app.request(path, { method: "HEAD", headers });
  assert.deepEqual([answer.status, answer.body, verbs.watching], [200, null, 0]);
});

Deno.test("a reader that fetches nothing makes the face read nothing", async () => {
  const { verbs, app, id, path } = setUp();
  verbs.emit(id, ...Array.from({ length: 1000 }, (_, n) => warn(String(n))));
  const reader = (await app.request(path, { headers })).body!.getReader();
  await reader.read();
  await systemClock.sleep(20);
  assert.ok(verbs.taken <= 2, `${verbs.taken} events were taken`);
  await reader.cancel();
});

Deno.test("a silent stream says every 15 seconds that it is alive, and no ping outlives it", async () => {
  const sleeps: { ms: number; wake: () => void; signal?: AbortSignal }[] = [];
  const clock: Clock = {
    ...systemClock,
    sleep: (ms, signal) =>
      new Promise((wake) => {
        sleeps.push({ ms, wake, ...(signal ? { signal } : {}) });
        signal?.addEventListener("abort", () => wake());
      }),
  };
  const { verbs, app, id, path } = setUp(clock);
  const reader = (await app.request(path, { headers })).body!.pipeThrough(new TextDecoderStream())
    .getReader();
  for (let n = 0; n < 2; n++) {
    const read = reader.read();
    await until(() => sleeps.length === n + 1);
    sleeps[n]!.wake();
    assert.equal((await read).value, ": ping\n\n");
  }
  verbs.emit(id, end);
  assert.match((await reader.read()).value!, /^id: 0.0\n/);
  assert.equal((await reader.read()).done, true);
  assert.ok(sleeps.every(({ ms, signal }) => ms === pingMs && signal!.aborted));
});

Deno.test("a failure in the middle closes the stream; the operator hears of it, the client resumes", async () => {
  const { verbs, app, id, path, reported } = setUp();
  verbs.emit(id, warn("1"), { ...warn("2"), type: "x\ny" } as never);
  const text = await (await app.request(path, { headers })).text();
  assert.deepEqual(text.match(/^id: .*$/gm), ["id: 0.0"]);
  assert.deepEqual([reported.length, verbs.watching], [1, 0]);
});

Deno.test("a run that is not there is JSON 404 before any stream; the stream's headers keep proxies from holding it", async () => {
  const { app, path, verbs, id } = setUp();
  const absent = await app.request("/runs/t~x/events", { headers });
  assert.deepEqual([absent.status, (await absent.json()).error.code], [404, "not_found"]);
  verbs.emit(id, end);
  const answer = await app.request(path, { headers });
  await answer.text();
  assert.match(answer.headers.get("content-type")!, /^text\/event-stream/);
  assert.match(answer.headers.get("cache-control")!, /^no-cache/);
  assert.equal(answer.headers.get("x-accel-buffering"), "no");
});
