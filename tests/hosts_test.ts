/** The service on each of its hosts, Deno and workerd, end to end between stand-ins of Upstash Redis, QStash and a vendor. */
import assert from "node:assert/strict";
import { eventClient, type Got } from "./support/event_client.ts";
import { hosts, leavingClient } from "./support/hosts.ts";
import { type HostScene, hostScene, spoken } from "./support/hosts_scene.ts";
import { calls } from "./support/model_server.ts";
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
function onEachHost(name: string, body: (scene: HostScene) => Promise<void>): void {
  for (const kind of hosts) {
    Deno.test({
      name: `${kind.name}: ${name}`,
      ignore: rest === undefined,
      async fn() {
        if (!scenes.has(kind.name)) {
          scenes.set(kind.name, hostScene(kind, rest!, { env: { PAWL_SLICE_TURNS: "2" } }));
        }
        const scene = await scenes.get(kind.name)!;
        await body(scene);
        assert.equal(
          scene.host.said().replace(/^Pawl listens[^]*?limit=1'\n\n/, ""),
          "",
          "it has nothing to say",
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
