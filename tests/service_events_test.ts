/** A run's events over a real connection: exactly once, whatever the client, the model and the network do (CASES B23, B24, F22). */
import assert from "node:assert/strict";
import { eventClient, type Got } from "./support/event_client.ts";
import { calls } from "./support/model_server.ts";
import { gate, type Scene, scene } from "./support/scene.ts";
import { until } from "./support/service.ts";

const events = ({ service }: Scene, run: string) => `${service.url}/runs/${run}/events`;

/** All events of a run that has ended. */
async function whole(it: Scene, run: string): Promise<Got[]> {
  using client = eventClient(events(it, run));
  await until(() => client.got.at(-1)?.event === "agent_end");
  return client.got;
}

/** What an event is about, without what differs between a message that was seen in pieces and one that was not. */
function named({ event, data }: Got): string {
  return [event, data.message?.id ?? data.message_id ?? data.tool_call_id ?? data.turn ?? data.slice ?? ""]
    .join(" ");
}

const withoutPieces = (got: Got[]) => got.filter(({ event }) => event !== "message_update");

Deno.test("B23 line breaks in what a model says are text to a spec-conform client, in pieces and as a whole", async () => {
  const text = ["a\revent: run_done", "\rdata: {}\r\r", "\nid: 7\n\n", "\u2028\u0000 end"], open = gate();
  await using it = await scene(
    "openai-chat",
    (_, n) => n === 1 ? calls(["work"]) : { text, hold: open.promise },
  );
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  using client = eventClient(events(it, id));
  await until(() => client.got.some(({ event }) => event === "tool_execution_start"));
  hold.release();
  await until(
    () => client.got.some(({ event }) => event === "message_update"),
    () => JSON.stringify(client.got),
  );
  open.resolve();
  await until(() => client.got.at(-1)?.event === "agent_end");
  const pieces = client.got.filter(({ event }) => event === "message_update").map(({ data }) =>
    data.delta.text
  );
  assert.ok(text.join("").startsWith(pieces.join("")), "the pieces are of the text, in order");
  const { message } = client.got.findLast(({ event }) => event === "message_end")!.data;
  assert.deepEqual(message.content, [{ type: "text", text: text.join("") }]);
  assert.deepEqual(client.got.filter(({ event }) => event === "run_done" || event === "message"), []);
  assert.ok(client.got.every(({ id }) => /^\d+\.\d+$/.test(id)));
});

Deno.test("B24 a client that drops after 17 events and comes back while more flow gets each exactly once", async () => {
  const open = gate();
  await using it = await scene("anthropic", async (_, n) => {
    if (n === 4) await open.promise;
    return n <= 6 ? calls(["look", { n }]) : "Done";
  });
  const { id } = await it.service.start({ content: "Go" });
  using first = eventClient(events(it, id), { leaveAfter: 17 });
  await until(() => first.got.length === 17);
  using second = eventClient(events(it, id), { lastEventId: first.got.at(-1)!.id });
  await until(() => second.got.length > 0);
  open.resolve();
  await until(() => second.got.at(-1)?.event === "agent_end");
  const all = await whole(it, id), got = [...first.got, ...second.got];
  assert.ok(all.length >= 40, `${all.length} events`);
  assert.deepEqual(withoutPieces(got).map(named), all.map(named));
  assert.equal(new Set(got.map(({ id }) => id)).size, got.length, "each id once");
});

Deno.test("B24 a client that drops in the middle of a message goes on with its next piece", async () => {
  const open = gate(), text = Array.from({ length: 40 }, (_, n) => `${n} `);
  await using it = await scene("openai", (_, n) => n === 1 ? calls(["work"]) : { text, hold: open.promise });
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  using first = eventClient(events(it, id));
  await until(() => first.got.some(({ event }) => event === "tool_execution_start"));
  hold.release();
  const isPiece = ({ event }: Got) => event === "message_update";
  await until(() => first.got.filter(isPiece).length > 2);
  first.close();
  const seen = first.got.slice(0, first.got.findIndex(isPiece) + 2);
  using second = eventClient(events(it, id), { lastEventId: seen.at(-1)!.id });
  await until(() => second.got.some(isPiece));
  open.resolve();
  await until(() => second.got.at(-1)?.event === "agent_end");
  const got = [...seen, ...second.got];
  const pieces = got.filter(isPiece).map(({ data }) => data.delta.text);
  assert.equal(pieces.join(""), text.slice(0, pieces.length).join(""), "no piece is missing or comes twice");
  assert.ok(pieces.length >= 10, `${pieces.length} pieces`);
  assert.deepEqual(withoutPieces(got).map(named), (await whole(it, id)).map(named));
});

Deno.test("B24 after an id that nobody gave comes one resync with the state, then what happens next", async () => {
  const open = gate();
  await using it = await scene("openai-chat", async (_, n) => {
    if (n === 1) return calls(["look"]);
    await open.promise;
    return "Done";
  });
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.model.requests.length === 2);
  const clients = ["999999.0", "0.1999", "abc", "-1.0", "1e3.0"].map((lastEventId) =>
    eventClient(events(it, id), { lastEventId })
  );
  await until(() => clients.every(({ got }) => got.length > 0));
  open.resolve();
  await until(() => clients.every(({ got }) => got.at(-1)?.event === "agent_end"));
  for (const { got } of clients) {
    const [{ event, data }, ...rest] = got as [Got, ...Got[]];
    assert.deepEqual([event, data.state.status, data.state.id], ["resync", "running", id]);
    assert.deepEqual(data.messages.map(({ role }: { role: string }) => role), ["user", "assistant", "tool"]);
    assert.deepEqual(withoutPieces(rest).map(named).map((name) => name.split(" ")[0]), [
      "message_start",
      "message_end",
      "turn_end",
      "agent_end",
    ]);
  }
  clients.forEach((client) => client.close());
});

Deno.test("B24 the events of a killed process are continued by the next one's, exactly once", async () => {
  await using it = await scene("anthropic", (_, n) => n <= 4 ? calls(["look", { n }]) : "Done", {
    PAWL_SLICE_TURNS: "1",
  });
  const hold = it.effects.hold("look", ({ n }) => n === 2);
  const { id } = await it.service.start({ content: "Go" });
  using first = eventClient(events(it, id));
  await until(() => it.effects.effects.length === 2);
  await until(() => first.got.filter(({ event }) => event === "tool_execution_start").length === 2);
  first.close();
  await it.service.kill9();
  hold.release();
  await it.service.restart();
  using second = eventClient(events(it, id), { lastEventId: first.got.at(-1)!.id });
  await until(() => second.got.at(-1)?.event === "agent_end");
  const got = [...first.got, ...second.got];
  assert.deepEqual(withoutPieces(got).map(named), (await whole(it, id)).map(named));
  assert.ok(!got.some(({ event }) => event === "resync"));
});

Deno.test("F22 a client that starts a run, sees its first words and leaves changes nothing of it", async () => {
  const open = gate();
  await using it = await scene("openai-chat", (_, n) => {
    return n === 1 ? calls(["work"]) : { text: ["One ", "two ", "three ", "four"], hold: open.promise };
  });
  const hold = it.effects.hold("work");
  const { id } = await it.service.start({ content: "Go" });
  await until(() => it.effects.effects.length === 1);
  const gone = new AbortController();
  const answer = await fetch(events(it, id), { signal: gone.signal });
  hold.release();
  let seen = "";
  for await (const text of answer.body!.pipeThrough(new TextDecoderStream())) {
    seen += text;
    if (seen.includes("message_update")) break;
  }
  gone.abort();
  open.resolve();
  const run = await it.service.ended(id);
  assert.deepEqual([run.status, run.text], ["completed", "One two three four"]);
  assert.equal(it.model.requests.length, 2);
  assert.doesNotMatch(it.service.output, /error/i);
});

Deno.test("F22 many clients that come and go do not slow a run down, nor does one that never reads", async () => {
  await using it = await scene("openai", (_, n) => n <= 20 ? calls(["look", { n }]) : "Done");
  const { id } = await it.service.start({ content: "Go", max_iterations: 30 });
  const gone = new AbortController();
  const lazy = await Promise.all(
    Array.from({ length: 20 }, () => fetch(events(it, id), { signal: gone.signal })),
  );
  const busy = Array.from({ length: 10 }, () => eventClient(events(it, id), { leaveAfter: 5 }));
  assert.equal((await it.service.ended(id)).text, "Done");
  await until(() => busy.every(({ got }) => got.length === 5));
  gone.abort();
  await Promise.all(lazy.map((answer) => answer.body!.cancel().catch(() => {})));
});
