/** Judges a scenario at all its cut points: the run comes to the same end (DESIGN §3). */
import assert from "node:assert/strict";
import { type MakeStore, play, type Played, type Scenario } from "./crash.ts";
import type { Fate } from "./simulation/world.ts";

const fates: Fate[] = ["killed before", "killed after", "dropped", "lost", "late", "outage"];

export async function cutEverywhere(scenario: Scenario, store?: MakeStore): Promise<void> {
  const calm = await play(scenario, () => "well", store);
  assert.equal(calm.status, "completed");
  assert.equal(calm.transcript.at(-1), "assistant: Done");
  assert.equal(calm.transcript.filter((line) => line.includes("Hurry")).length, 1);

  let points = 0, unknown = 0;
  for (const fate of fates) {
    for (let cut = 1; cut <= calm.requests; cut++) {
      const played = await play(scenario, (n) => n === cut ? fate : "well", store);
      const where = `${fate} at request ${cut} (${calm.kinds[cut - 1]})`;
      unknown += judge(played, calm, where);
      points++;
    }
  }
  assert.ok(unknown > 0, "some cut falls into a payment");
  // deno-lint-ignore no-console
  console.log(
    `${points} cut points: ${calm.requests} requests, ${fates.length} fates; ${unknown} payments unknown`,
  );
}

/** In tokens, of one call: what it may say, and far more than it is asked. */
const mostBooked = 8_192 + 7_000;
/** Calls of loops side by side. */
const mostAtOnce = 2;

/** Answers how many payments are unknown. */
function judge(played: Played, calm: Played, where: string): number {
  const unknown = new Set<string>();
  let payments = 0;
  const results = new Map<string, number>();
  for (const entry of played.log) {
    if (entry.kind !== "result") continue;
    results.set(entry.path, (results.get(entry.path) ?? 0) + 1);
    if (entry.body.toolName === "pay") payments++;
    if (entry.body.unknown) unknown.add(`${entry.body.content}`);
  }
  assert.ok([...results.values()].every((times) => times === 1), `${where}: a call has two results`);
  if (unknown.size) assert.ok(played.paying, `${where}: the outcome is unknown, but no payment was cut off`);
  assert.ok(unknown.size <= 1, where);
  const [text] = unknown;

  // The same, but for the payment's result where nobody can know it.
  const known = calm.transcript.map((line, i) =>
    text !== undefined && line.startsWith("tool: pay") && played.transcript[i] === `tool!: ${text}`
      ? played.transcript[i]!
      : line
  );
  assert.deepEqual(played.transcript, known, where);
  assert.equal(played.status, "completed", where);
  // What each message used counts once; what nobody knows stays booked.
  assert.deepEqual(played.usage, calm.usage, where);
  assert.ok((played.booked?.tokens ?? 0) <= played.cuts * mostAtOnce * mostBooked, where);

  const { pay = [], look = [], save = [] } = played.ran;
  assert.equal(new Set(pay).size, pay.length, `${where}: paid twice`);
  assert.ok(pay.length <= payments, where);
  if (text === undefined) assert.equal(pay.length, payments, `${where}: not paid`);
  for (const [name, keys] of Object.entries({ look, save })) {
    // The run's own id is another each time.
    const once = new Set(calm.ran[name]?.map(pathOf));
    assert.deepEqual(new Set(keys.map(pathOf)), once, `${where}: keys of ${name}`);
    assert.equal(new Set(keys).size, once.size, `${where}: keys of ${name}`);
    assert.ok(keys.length <= once.size + played.cuts, `${where}: ${name} ran ${keys.length} times`);
  }
  return unknown.size;
}

function pathOf(key: string): string {
  return key.slice(key.indexOf("/") + 1);
}
