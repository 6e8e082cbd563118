/** The service on each of its hosts, Deno and workerd, end to end between stand-ins of Upstash Redis, QStash and a vendor. */
import assert from "node:assert/strict";
import main from "../main.ts";
import { eventClient, type Got } from "./support/event_client.ts";
import { hosts, leavingClient, startServed } from "./support/hosts.ts";
import { countedDeliveries, type HostScene, hostScene, spoken } from "./support/hosts_scene.ts";
import { calls } from "./support/model_server.ts";
import { sign } from "./support/qstash_server.ts";
import { gate } from "./support/scene.ts";
import { until } from "./support/service.ts";
import { upstash } from "./support/upstash.ts";

const rest = await upstash();
const scenes = new Map<string, Promise<HostScene>>();
Deno.test.afterAll(async () => {
  for (const starting of scenes.values()) {
    await starting.then((scene) => scene[Symbol.asyncDispose](), () => {});
  }
});

/** The same test on each host; those of a host share one service, which is started when it is needed. */
function onEachHost(name: string, body: (scene: HostScene) => Promise<void>, says = /^$/): void {
  for (const kind of hosts) {
    Deno.test({
      name: `${kind.name}: ${name}`,
      ignore: rest === undefined,
      async fn() {
        if (!scenes.has(kind.name)) {
          scenes.set(kind.name, hostScene(kind, rest!, { env: { PAWL_SLICE_TURNS: "2" } }));
        }
        const scene = await scenes.get(kind.name)!;
        const before = scene.host.said().length;
        await body(scene);
        // What a process says comes a little later.
        await until(
          () => says.test(scene.host.said().slice(before)),
          () => `it says ${says}: ${scene.host.said()}`,
        );
      },
    });
  }
}

const add = (n: number) => calls(["calculate", { expression: `${n} + ${n}` }]);

onEachHost("a run of five turns is three slices, each brought by one message", async (it) => {
  it.says("Count", [add(1), add(2), add(3), add(4), "Done"]);
  const run = await it.start("Count"), before = it.qstash.messages.length - 1;
  const { iterations, slices, text } = await it.reaches(run, "completed");
  assert.deepEqual({ iterations, slices, text }, { iterations: 5, slices: 3, text: "Done" });
  assert.deepEqual(spoken(await it.messages(run)), [
    "user: Count",
    ...[1, 2, 3, 4].flatMap((n) => ["assistant: [calculate]", `tool: ${2 * n}`]),
    "assistant: Done",
  ]);
  await it.qstash.idle();
  const messages = it.qstash.messages.slice(before);
  assert.deepEqual(messages.map(({ answers }) => answers), [[200], [200], [200]]);
});

onEachHost("steering that comes while a tool runs skips the calls that have not begun", async (it) => {
  const page = gate();
  it.web.pages["/slow"] = { chunks: [page.promise, "a page"] };
  const url = `${it.web.url}/slow`;
  it.says("Read", ({ last }) =>
    last === "Read" ? calls(["fetch_url", { url }], ["wait", { seconds: 60 }]) : `Heard ${last}`);
  const run = await it.start("Read");
  await until(() => it.web.requests.some(({ path }) => path === "/slow"));
  assert.equal((await it.ask("POST", `/runs/${run}/steering`, { content: "use EUR" })).status, 202);
  page.resolve();
  assert.equal((await it.reaches(run, "completed")).text, "Heard use EUR");
  assert.deepEqual(spoken(await it.messages(run)).slice(2, -1), [
    "tool: a page",
    "tool: Skipped due to queued user message",
    "user: use EUR",
  ]);
});

onEachHost("a wait inside of a nested loop holds no function, and goes on when it is over", async (it) => {
  it.says("Rest", [calls(["delegate", { task: "Sleep" }]), "Rested"]);
  it.says("Sleep", [calls(["wait", { seconds: 1.2 }]), "We slept"]);
  const run = await it.start("Rest");
  const { waiting_for } = await it.reaches(run, "waiting");
  assert.deepEqual(waiting_for.map(({ name }: { name: string }) => name), ["wait"]);
  await until(() => it.qstash.messages.every(({ state }) => state !== "ACTIVE"), "no delivery is under way");
  assert.equal((await it.reaches(run, "completed")).text, "Rested");
  assert.deepEqual(spoken(await it.messages(run)).slice(2), [
    "tool: They say: We slept",
    "assistant: Rested",
  ]);
});

onEachHost(
  "F11 a cancel stops a tool and a model that hang, from another request, within seconds",
  async (it) => {
    it.web.pages["/never"] = { chunks: [], then: "open" };
    it.says("Hang in a tool", [calls(["fetch_url", { url: `${it.web.url}/never` }])]);
    const never = gate();
    it.says("Hang in the model", () => ({ text: ["a", "b"], hold: never.promise }));
    const before = it.model.requests.length;
    const runs = await Promise.all(
      ["Hang in a tool", "Hang in the model"].map((content) => it.start(content)),
    );
    const page = await until(() => it.web.requests.find(({ path }) => path === "/never"));
    await until(() => it.model.requests.length === before + 2);
    for (const run of runs) assert.equal((await it.ask("POST", `/runs/${run}/cancel`)).status, 202);
    const began = Date.now();
    await page.left;
    await it.qstash.idle();
    assert.ok(Date.now() - began < 8_000, `it took ${Date.now() - began} ms`);
    never.resolve();
    for (const run of runs) assert.equal((await it.ask("GET", `/runs/${run}`)).json.status, "cancelled");
    assert.deepEqual(it.qstash.messages.slice(-2).map(({ answers }) => answers), [[200], [200]]);
  },
);

onEachHost("a call to a client's tool waits for its answer, whichever request brings it", async (it) => {
  it.says("Ask", [calls(["ask_user", { question: "Which?" }]), "Blue it is"]);
  const parameters = { type: "object", properties: { question: { type: "string" } } };
  const run = await it.start("Ask", { tools: [{ name: "ask_user", description: "Asks.", parameters }] });
  const { waiting_for: [call] } = await it.reaches(run, "waiting");
  const answer = { tool_call_id: call.tool_call_id, content: "blue" };
  assert.equal((await it.ask("POST", `/runs/${run}/tool_results`, answer)).status, 202);
  assert.equal((await it.reaches(run, "completed")).text, "Blue it is");
  assert.equal((await it.ask("POST", `/runs/${run}/tool_results`, answer)).status, 200);
  assert.equal(spoken(await it.messages(run))[2], "tool: blue");
});

onEachHost(
  "events are resumed by Last-Event-ID, each exactly once, by a client that loses its connection",
  async (it) => {
    const page = gate();
    it.web.pages["/held"] = { chunks: [page.promise, "a page"] };
    it.says("Watch", [calls(["fetch_url", { url: `${it.web.url}/held` }]), add(2), add(3), "Seen"]);
    const run = await it.start("Watch"), url = `${it.host.url}/runs/${run}/events`;
    using first = eventClient(url, { headers: it.headers, leaveAfter: 5 });
    await until(() => first.got.length === 5, "five events");
    page.resolve();
    using second = eventClient(url, { headers: it.headers, lastEventId: first.got.at(-1)!.id });
    await until(() => second.got.at(-1)?.event === "agent_end", "the last event");
    // Pieces are shown to those who watched meanwhile; the rest is told to everybody.
    const lasting = (got: Got[]) =>
      got.filter(({ event }) => !/message_(start|update)/.test(event)).map(({ id }) => id);
    const all = await it.events(run);
    assert.deepEqual(lasting([...first.got, ...second.got]), lasting(all));
    assert.deepEqual(await it.events(run, all.at(-4)!.id), all.slice(-3));
    assert.equal((await it.ask("GET", `/runs/${run}/events?after=${all.at(-1)!.id}`)).status, 204);
  },
);

onEachHost("an Idempotency-Key answers the same run again, and refuses another body", async (it) => {
  it.says("Once", ["Done"]);
  const key = { "idempotency-key": crypto.randomUUID() }, body = { content: "Once" };
  const answers = [];
  for (let n = 0; n < 2; n++) answers.push(await it.ask("POST", "/runs", body, key));
  const [first, again] = answers.map(({ status, json: { status: _, ...ids } }) => ({ status, ...ids }));
  assert.deepEqual([first!.status, again], [202, first]);
  assert.equal((await it.ask("POST", "/runs", { content: "Twice" }, key)).status, 409);
  assert.equal((await it.reaches(first!.id, "completed")).text, "Done");
});

onEachHost("F24 twenty runs at once, ten of them in the very same moment, share nothing", async (it) => {
  const together = gate(), prompts = Array.from({ length: 20 }, (_, n) => `Run ${n}`);
  let asked = 0;
  prompts.forEach((prompt, n) =>
    it.says(prompt, async ({ results }) => {
      if (++asked === 10) together.resolve();
      await together.promise;
      return results.length < 3 ? add(n + results.length) : `${prompt} is done`;
    })
  );
  const runs = await Promise.all(prompts.map((prompt) => it.start(prompt)));
  const ended = await Promise.all(runs.map((run) => it.reaches(run, "completed")));
  assert.deepEqual(ended.map(({ text }) => text), prompts.map((prompt) => `${prompt} is done`));
  for (const [n, run] of runs.entries()) {
    const results = (await it.messages(run)).filter(({ role }) => role === "tool").map(({ content }) =>
      content
    );
    assert.deepEqual(results, [n, n + 1, n + 2].map((sum) => String(2 * sum)));
  }
  await it.qstash.idle();
  assert.deepEqual(it.qstash.messages.filter(({ answers }) => answers.some((status) => status !== 200)), []);
});

onEachHost("F17 what is not signed for this service by the queue is 401, and touches nothing", async (it) => {
  const url = `${it.host.url}/slices`, body = "{}", before = it.asked();
  const key = it.qstash.keys.current, next = it.qstash.keys.next;
  const signatures = await Promise.all([
    sign("sig_other", { url, body }),
    sign(key, { url, body: "{ }" }),
    sign(key, { url: "https://pawl.example/slices", body }),
    sign(next, { url: `${it.host.url}/sweep`, body }),
  ]);
  for (const signature of ["", ...signatures]) {
    const headers = { "upstash-message-id": "msg_1", "upstash-signature": signature };
    assert.equal((await it.ask("POST", "/slices", body, headers)).status, 401);
  }
  assert.equal((await it.ask("GET", "/runs", undefined, { authorization: "Bearer key-other" })).status, 401);
  assert.equal(it.asked(), before);
});

onEachHost(
  "F20 a delivery for what is gone is 2xx, one that means nothing to this version 489",
  async (it) => {
    it.says("Soon gone", ["never said"]);
    it.qstash.inside.hold();
    const run = await it.start("Soon gone"), message = it.qstash.messages.at(-1)!;
    assert.equal((await it.ask("DELETE", `/threads/${run.split("~")[0]}`)).status, 204);
    it.qstash.inside.release();
    await it.qstash.idle();
    assert.deepEqual(message.answers, [200]);

    const body = new TextDecoder().decode(message.body).replace('"v":1', '"v":2'),
      url = `${it.host.url}/slices`;
    const signature = await sign(it.qstash.keys.next, { url, body });
    const headers = { "upstash-message-id": "msg_2", "upstash-signature": signature };
    const answer = await it.ask("POST", "/slices", body, headers);
    assert.deepEqual([answer.status, answer.headers.get("upstash-nonretryable-error")], [489, "true"]);
  },
  /FatalError: The message means nothing to this version/,
);

onEachHost("F22 a client that leaves hurts no run, and what was held for it is let go", async (it) => {
  it.says("Go on", [add(1), "Went on"]);
  it.qstash.inside.hold();
  const run = await it.start("Go on"), [key] = await it.rest.redis.keys(`*${run.split("~")[0]}}:meta`);
  const watchers = async () => (await it.rest.redis.hget(key!, "watchers"))!.split(";").length - 1;
  const heard = async (count: number) => it.rest.subscriptions === count && await watchers() === count;
  const client = await leavingClient(it.host, `/runs/${run}/events`, it.headers);
  await until(() => heard(1), "it is heard");
  client.leave();
  await until(() => heard(0), "nobody is heard");
  // One that is answered is let go as well.
  const waiting = it.ask("GET", `/runs/${run}?wait=1`);
  await until(() => heard(1), "it is heard");
  assert.equal((await waiting).json.status, "queued");
  await until(() => heard(0), "nobody is heard");
  it.qstash.inside.release();
  assert.equal((await it.reaches(run, "completed")).text, "Went on");
});

onEachHost(
  "no secret is sent to the queue, shown or told, also where a vendor or Redis quotes it",
  async (it) => {
    const { model, rest, qstash, headers } = it, before = qstash.calls.length;
    it.says("Secretly", [add(1), add(2), "Done"]);
    it.says("In vain", () => ({
      status: 401,
      code: "invalid_api_key",
      message: `Incorrect API key: ${model.env.OPENAI_API_KEY}`,
    }));
    const done = await it.start("Secretly"), refused = await it.start("In vain");
    await it.reaches(done, "completed");
    assert.equal((await it.reaches(refused, "failed")).error.code, "auth");
    await qstash.idle();
    const told: unknown[] = [];
    for (const run of [done, refused]) {
      told.push(await it.events(run), await it.messages(run), (await it.ask("GET", `/runs/${run}`)).text);
    }
    rest.fault = () => ({ status: 401, error: `WRONGPASS invalid token "${rest.token}"` });
    const answer = await it.ask("GET", "/runs").finally(() => rest.fault = undefined);
    assert.equal(answer.status, 500);
    await until(() => /refuses the token/.test(it.host.said()), () => it.host.said());
    for (const { headers, text } of qstash.calls.slice(before)) {
      told.push(text, [...headers].filter(([name]) => name !== "authorization"));
    }
    const all = JSON.stringify([told, answer.text, it.host.said()]);
    const secrets = [model.env.OPENAI_API_KEY!, rest.token, qstash.token, ...Object.values(qstash.keys)];
    assert.deepEqual([...secrets, headers.authorization!.slice(7)].filter((one) => all.includes(one)), []);
  },
  /refuses the token/,
);

for (const kind of hosts) {
  Deno.test({
    name: `${kind.name}: F21 F23 no invocation asks more than its budget, nor anything after its answer`,
    ignore: rest === undefined,
    async fn() {
      const { deliver, invocations } = countedDeliveries();
      await using it = await hostScene(kind, rest!, { env: { PAWL_SLICE_SUBREQUESTS: "30" }, deliver });
      it.says("Count on", ({ results }) => results.length < 29 ? add(results.length) : "Done");
      const run = await it.start("Count on", { max_iterations: 50 });
      await it.qstash.idle();
      const { status, iterations, slices } = (await it.ask("GET", `/runs/${run}`)).json;
      assert.deepEqual([status, iterations, slices], ["completed", 30, invocations.length]);
      assert.ok(slices > 2, `it took ${slices} slices`);
      assert.ok(invocations.every(({ during }) => during <= 30), JSON.stringify(invocations));
      assert.ok(invocations.every(({ after }) => after === 0), JSON.stringify(invocations));
    },
  });

  Deno.test(`${kind.name}: settings that are missing are one line for its operator, without secrets`, async () => {
    const env = { UPSTASH_REDIS_REST_URL: "https://redis.example", UPSTASH_REDIS_REST_TOKEN: "SEKRIT-1" };
    const said = await kind.refused(env);
    assert.match(said, /^QSTASH_TOKEN: it is missing[^\n]*\n?$/);
    assert.doesNotMatch(said, /SEKRIT/);
  });
}

Deno.test("Deno: deno serve takes the default export, and runs with what is embedded", async () => {
  await using host = await startServed({ PAWL_DB: ":memory:" });
  const post = { method: "POST", body: JSON.stringify({ content: "What is 6 * 7?" }) };
  const { id } = await (await fetch(`${host.url}/runs`, post)).json();
  const run = await (await fetch(`${host.url}/runs/${id}?wait=20`)).json();
  assert.equal(run.status, "completed");
  assert.match(run.text, /42/);
});

Deno.test("Deno: the default export with settings that are wrong answers 503", async () => {
  const before = Deno.env.get("PAWL_MODEL"), lines: unknown[] = [], operator = console, { error } = operator;
  Deno.env.set("PAWL_MODEL", "acme/m");
  operator.error = (line) => void lines.push(line);
  try {
    const remoteAddr = { transport: "tcp", hostname: "127.0.0.1", port: 1 } as const;
    const completed = Promise.resolve();
    const answer = await main.fetch(new Request("http://localhost/healthz"), { remoteAddr, completed });
    assert.deepEqual([answer.status, (await answer.json()).error.code], [503, "setting"]);
    assert.match(lines.join("\n"), /^There is no model "acme\/m"[^\n]*$/);
  } finally {
    operator.error = error;
    before === undefined ? Deno.env.delete("PAWL_MODEL") : Deno.env.set("PAWL_MODEL", before);
  }
});
