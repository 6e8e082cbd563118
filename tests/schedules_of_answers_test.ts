/** Schedules about answers to calls that wait: what they race with, and where the function dies meanwhile. */
import assert from "node:assert/strict";
import * as z from "zod";
import { textOf } from "../src/message.ts";
import type { ModelRequest } from "../src/model.ts";
import { agenticFunction, defineTool, type Tool, ToolPending } from "../src/tool.ts";
import { calls } from "./support/scripted_model.ts";
import { hour, tenant } from "./support/simulation/world.ts";
import { Stage } from "./support/stage.ts";

const anything = z.looseObject({});
const day = 24 * hour;
const to = (name: string): [string, { to: string }] => ["pay", { to: name }];

function pay(more: Partial<Tool> = {}) {
  const paid: string[] = [];
  const tool = defineTool({
    name: "pay",
    description: "",
    parameters: z.object({ to: z.string() }),
    approval: true,
    execute: ({ to }) => {
      paid.push(to);
      return `paid ${to}`;
    },
  });
  return { paid, tool: { ...tool, ...more } };
}

/** A stage on which a run waits for the calls of its first message. */
async function waiting(script: ConstructorParameters<typeof Stage>[0], tools: Tool[], ttlMs?: number) {
  const stage = new Stage(script, { tools, ttlMs });
  const { run } = await stage.start("Go");
  await stage.deliver();
  const { status, waitingFor } = await stage.view(run);
  assert.equal(status, "waiting");
  const ids = waitingFor!.map(({ toolCallId }) => toolCallId);
  const approve = (n = 0) => stage.ask((pawl) => pawl.resolve(tenant, run, ids[n]!, { approve: true }));
  const finish = (content: string) => stage.ask((pawl) => pawl.resolve(tenant, run, ids[0]!, { content }));
  const results = async () =>
    (await stage.transcript()).flatMap((line) => line.startsWith("tool: ") ? [line.slice(6)] : []);
  return { stage, run, ids, approve, finish, results, until: waitingFor![0]!.until };
}

/** Something happens in the very moment in which a commit that says `text` is made. */
function inTheMomentOf(stage: Stage, text: string, happens: () => Promise<unknown>): () => boolean {
  const { commit } = stage.world.store;
  let happened = false;
  stage.world.store.commit = async (lease, change) => {
    if (!happened && JSON.stringify(change).includes(text)) {
      happened = true;
      await happens();
    }
    return await commit(lease, change);
  };
  return () => happened;
}

Deno.test("two approvals at once let the call run once, as it was shown, without asking the model again (CASES F13)", async () => {
  const { paid, tool } = pay();
  const { stage, run, ids, results } = await waiting([calls(to("ann")), calls(to("bob")), "done"], [tool]);
  const doors = [stage.world.isolate("left"), stage.world.isolate("right")];
  const click = ({ pawl }: typeof doors[0]) => pawl.resolve(tenant, run, ids[0]!, { approve: true });
  const answers = await stage.time.until(Promise.all(doors.map(click)));
  assert.deepEqual(answers.map(({ repeat }) => repeat).toSorted(), [false, true]);
  for (const wrong of ["nobody", ids[0]!.replace(/1-0$/, "1-1"), ids[0]!.replace(/1-0$/, "2-0")]) {
    const other = stage.ask((pawl) => pawl.resolve(tenant, run, wrong, { approve: true }));
    await assert.rejects(other, { code: "not_found" }, wrong);
  }
  assert.equal(stage.model.requests.length, 1);
  await stage.deliver();
  assert.deepEqual(paid, ["ann"]);
  assert.deepEqual(await results(), ["paid ann"]);
  // What the model asks for next is another call, though its tool is the same: the first approval is used up.
  const { status, waitingFor } = await stage.view(run);
  assert.deepEqual([status, waitingFor![0]!.arguments], ["waiting", { to: "bob" }]);
  await assert.rejects(
    stage.ask((pawl) => pawl.resolve(tenant, run, ids[0]!, { approve: true }, { name: "k", hash: "h" })),
    { code: "conflict" },
  );
  assert.deepEqual(paid, ["ann"]);
});

Deno.test("an approval accepted in the very moment of the expiry holds; one that comes later is refused", async () => {
  for (const first of ["approval", "expiry"] as const) {
    const { paid, tool } = pay({ approvalExpiresMs: 3 * day });
    const { stage, approve, results, until } = await waiting([calls(to("ann")), "done"], [tool], 7 * day);
    await stage.until(until);
    const met = inTheMomentOf(stage, "expired", () => first === "approval" ? approve() : Promise.resolve());
    await stage.deliver();
    assert.ok(met());
    if (first === "expiry") await assert.rejects(approve(), { code: "conflict" });
    assert.deepEqual(paid, first === "approval" ? ["ann"] : []);
    assert.match((await results())[0]!, first === "approval" ? /^paid ann$/ : /expired/);
  }
});

Deno.test("a cancel after an approval is accepted leaves nothing of it: the call does not run", async () => {
  for (const when of ["before the slice", "in the moment in which the call begins"] as const) {
    const { paid, tool } = pay();
    const { stage, run, approve, results } = await waiting([calls(to("ann")), "done"], [tool]);
    await approve();
    const cancel = () => stage.door.pawl.cancel(tenant, run);
    if (when === "before the slice") await stage.ask(cancel);
    else inTheMomentOf(stage, "call ", cancel);
    await stage.deliver();
    assert.equal((await stage.view(run)).status, "cancelled");
    assert.deepEqual(paid, [], when);
    assert.match((await results())[0]!, /^Cancelled while it waited. It was not run$/);
    assert.equal((await approve()).repeat, true);
    assert.deepEqual(paid, []);
  }
});

Deno.test("steering after an approval: what was approved runs, what was not is skipped", async () => {
  const { paid, tool } = pay();
  const { stage, run, approve, results } = await waiting([calls(to("ann"), to("bob")), "done"], [tool]);
  await approve(1);
  await stage.ask((pawl) => pawl.send(tenant, run, "steering", "Hurry"));
  await stage.deliver();
  await stage.play(run);
  assert.deepEqual(paid, ["bob"]);
  assert.deepEqual(await results(), ["Skipped due to queued user message", "paid bob"]);
  await assert.rejects(approve(0), { code: "conflict" });
});

Deno.test("wherever the function dies after an approval, the call runs once or has an unknown outcome", async () => {
  const fates = [
    ["killed before", '"call ', 1, /^paid ann$/],
    ["killed after", '"call ', 0, /outcome is unknown/],
    ["killed before", '"result ', 1, /outcome is unknown/],
    ["killed after", '"result ', 1, /^paid ann$/],
    ["lost", '"call ', 1, /^paid ann$/],
    ["lost", '"result ', 1, /^paid ann$/],
  ] as const;
  for (const [fate, text, times, result] of fates) {
    const { paid, tool } = pay();
    const { stage, run, approve, results } = await waiting([calls(to("ann")), "done"], [tool]);
    await approve();
    stage.commitMeets(fate, text);
    await stage.deliver(undefined, { message: "q" });
    await stage.deliver(undefined, { message: "q" });
    await stage.play(run);
    assert.ok(stage.met);
    assert.equal(paid.length, times, `${fate} ${text}`);
    assert.match((await results())[0]!, result, `${fate} ${text}`);
    assert.equal(stage.model.requests.length, 2);
  }
});

/** A tool that begins something elsewhere. */
function print() {
  const begun: string[] = [];
  const tool = defineTool({
    name: "print",
    description: "",
    parameters: anything,
    execute: (_args, { toolCallId }) => {
      begun.push(toolCallId);
      return new ToolPending();
    },
  });
  return { tool, begun };
}

Deno.test("what was begun elsewhere is not begun again, wherever the function dies; without its wait its outcome is unknown", async () => {
  const fates = [["killed before", /outcome is unknown/], ["killed after", /^12 pages$/], [
    "lost",
    /^12 pages$/,
  ]] as const;
  for (const [fate, result] of fates) {
    const { tool, begun } = print();
    const stage = new Stage([calls(["print"]), "done"], { tools: [tool] });
    const { run } = await stage.start("Go");
    stage.commitMeets(fate, '"wait ');
    await stage.deliver(undefined, { message: "q" });
    await stage.deliver(undefined, { message: "q" });
    assert.ok(stage.met);
    const finished = stage.ask((pawl) => pawl.resolve(tenant, run, begun[0]!, { content: "12 pages" }));
    if (fate === "killed before") await assert.rejects(finished, { code: "conflict" });
    else await finished;
    await stage.play(run);
    assert.equal(begun.length, 1, fate);
    assert.match((await stage.transcript())[2]!.slice(6), result, fate);
  }
});

Deno.test("what functions have begun elsewhere ends there, for days, side by side, and no body begins it again", async () => {
  const { tool, begun } = print();
  const both = agenticFunction({
    name: "both",
    description: "",
    parameters: anything,
    execute: async (_args, { exec }) =>
      (await Promise.all(["a", "b"].map((key) => exec(`print ${key}`, { key, tools: ["print"] })))).join(),
  });
  const says = ({ messages }: ModelRequest) => {
    const last = messages.at(-1)!, first = textOf(messages[0]!.content);
    if (last.role === "tool") return `${textOf(last.content)}`;
    return calls([first === "Go" ? "both" : "print"]);
  };
  const stage = new Stage(Array(6).fill(says), { tools: [tool, both], ttlMs: 10 * day });
  const { run } = await stage.start("Go", { tools: ["both", "print"] });
  await stage.deliver();
  assert.equal((await stage.view(run)).waitingFor!.length, 2);
  for (const id of begun.slice()) {
    await stage.time.pass(2 * day);
    await stage.ask((pawl) => pawl.resolve(tenant, run, id, { content: `pages of ${begun.indexOf(id)}` }));
    await stage.deliver();
  }
  assert.equal((await stage.view(run)).text, "pages of 0,pages of 1");
  assert.equal(begun.length, 2);
});

Deno.test("a result that comes before its tool's wait is in the log is kept for it; for a tool that waits for none it is refused", async () => {
  for (const waits of [true, false]) {
    let early: Promise<{ repeat: boolean }> | undefined;
    const tool = defineTool({
      name: "print",
      description: "",
      parameters: anything,
      execute: async (_args, { run, toolCallId }) => {
        early = stage.door.pawl.resolve(tenant, run, toolCallId, { content: "12 pages" });
        early.catch(() => {});
        await stage.time.sleep(waits ? 2_000 : 20_000);
        return waits ? new ToolPending() : "printed";
      },
    });
    const stage: Stage = new Stage([calls(["print"]), "done"], { tools: [tool] });
    const { run } = await stage.start("Go");
    await stage.deliver();
    const settled = stage.time.until(early!);
    if (waits) assert.equal((await settled).repeat, false);
    else await assert.rejects(settled, { code: "conflict" });
    await stage.play(run);
    assert.equal((await stage.transcript())[2], waits ? "tool: 12 pages" : "tool: printed");
  }
});

Deno.test("a call that is approved and then ends elsewhere begins once; approval and result are told apart", async () => {
  const { tool, begun } = print();
  const { stage, run, ids, approve, finish, results } = await waiting([calls(["print", { n: 1 }]), "done"], [
    { ...tool, approval: true },
  ]);
  const edited = { approve: true, arguments: { n: 2 } };
  await assert.rejects(finish("forged"), { code: "bad_input" });
  await stage.ask((pawl) => pawl.resolve(tenant, run, ids[0]!, edited));
  await stage.deliver();
  const { status, waitingFor } = await stage.view(run);
  assert.deepEqual([status, waitingFor!.map((call) => call.for)], ["waiting", ["answer"]]);
  assert.equal((await approve()).repeat, true, "it has been approved");
  assert.equal((await stage.view(run)).status, "waiting");
  assert.equal((await finish("12 pages")).repeat, false);
  assert.equal((await finish("13 pages")).repeat, true);
  await stage.play(run);
  assert.equal(begun.length, 1);
  assert.match((await results())[0]!, /"n":2.*\n12 pages$/);
});
