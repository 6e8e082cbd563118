/** What must never break (DESIGN §3), as far as it can be seen when everything is over. */
import { callPath, decode, type Entry, publicId, root } from "../../../src/entry.ts";
import { addUsage, callsOf } from "../../../src/message.ts";
import { signature } from "../../../src/fingerprint.ts";
import { isActive, noProgress, type Progress, threadKey } from "../../../src/run.ts";
import type { RunRecord } from "../../../src/store.ts";
import { logOf } from "./facts.ts";
import type { Request } from "./model.ts";
import { faultInside } from "./model.ts";
import type { Letter, People } from "./people.ts";
import type { Books, Execution } from "./tools.ts";
import { tenant, type World } from "./world.ts";

export interface Evidence {
  world: World;
  people: People;
  books: Books;
  requests: Request[];
  maxIterations: number;
}

type Bad = (rule: string, what: string) => void;

/** The rules about one thread and its log. */
export async function judgeThread(thread: string, it: Evidence): Promise<void> {
  const { world, people } = it, key = threadKey(tenant, thread);
  const bad: Bad = (rule, what) => world.problem(rule, `${what} on ${thread}`);
  const log = (await logOf(world.store, key)).map(decode);
  judgeLog(log, it.maxIterations, bad);

  const runs = new Map<string, RunRecord>();
  for (const run of new Set(log.map((entry) => entry.run))) {
    const record = (await world.store.read(key, { run }))?.run;
    if (record) runs.set(run, record);
    else if (log.some((entry) => entry.run === run && entry.kind === "start")) {
      bad("R2 runs", `${run} is gone`);
    }
  }
  for (const [run, { status, progress }] of runs) {
    if (isActive(status)) bad("R4 stranded", `${run} is ${status}`);
    else if (!log.some((entry) => entry.kind === "end" && entry.run === run)) {
      bad("R3 end", `${run} has none`);
    }
    if (people.cancelled.has(run) && status !== "cancelled") bad("R8 cancel", `${run} is ${status}`);
    if (world.facts.cancelled.has(run) && status !== "cancelled") {
      bad("R8 cancel", `${run} came back: ${status}`);
    }
    const { usage } = progress ? JSON.parse(progress) as Progress : noProgress;
    const used = log.reduce(
      (sum, entry) => entry.kind === "assistant" && entry.run === run ? addUsage(sum, entry.body.usage) : sum,
      noProgress.usage,
    );
    if (JSON.stringify(usage) !== JSON.stringify(used)) {
      bad("R7 usage", `${run} counts ${JSON.stringify(usage)}, its messages ${JSON.stringify(used)}`);
    }
    const claims = (world.facts.claims.get(run)?.length ?? 0) - (world.facts.waits.get(run) ?? 0);
    if (claims > 3 * it.maxIterations + 21) bad("R7 claims", `${run} was claimed ${claims} times`);
  }
  const gone = world.facts.deleted.findLast((deleted) => deleted.thread === key)?.at ?? -1;
  for (const letter of people.letters) {
    if (letter.thread === thread) judgeLetter(letter, log, runs, gone, bad);
  }
  for (const { run, toolCallId, text, first } of people.answers) {
    const ended = runs.get(run)?.status;
    if (!first || ended !== "completed") continue;
    const result = log.find((entry) =>
      entry.kind === "result" && entry.run === run && publicId(run, entry.path) === toolCallId
    );
    if (result?.kind !== "result" || result.body.content !== text) {
      bad("R2 answer", `${toolCallId} was answered ${text}, but got ${JSON.stringify(result?.body)}`);
    }
  }
  if (log.length) {
    const reader = world.isolate("reader").pawl;
    const { messages } = await world.time.until(reader.messages(tenant, { thread }, { limit: Infinity }));
    const fault = faultInside(messages);
    if (fault) bad("R9 sendable", `at the end ${fault}`);
  }
}

/** What the log says for itself. */
function judgeLog(log: Entry[], maxIterations: number, bad: Bad): void {
  const ended = new Set<string>(), asked = new Map<string, string>(), answered = new Set<string>();
  const begun = new Set<string>(), turns = new Map<string, number>(), started = new Set<string>();
  const last = new Map<string, string>();
  for (const entry of log) {
    const { run, path, kind } = entry, what = `${run} ${path}`;
    // Who takes mail back after the run's end leaves a word of it in the log.
    if (ended.has(run) && kind !== "withdrawn") bad("R3 end", `${kind} of ${what} after it`);
    if (kind === "end") ended.add(run);
    if (path === root && (kind === "user" || kind === "assistant")) last.set(run, kind);
    if (kind === "end" && entry.body.finishReason === "stop" && last.get(run) !== "assistant") {
      bad("R3 end", `${run} ended without a word on its last mail`);
    }
    if (kind === "start" && started.has(run)) bad("R1 writer", `${run} starts twice`);
    if (kind === "start") started.add(run);
    if (kind === "turn" && path === root) {
      turns.set(run, (turns.get(run) ?? 0) + 1);
      if (turns.get(run) !== entry.n) {
        bad("R1 writer", `turn ${entry.n} of ${run} after ${turns.get(run)! - 1}`);
      }
      if (entry.n > maxIterations) bad("R7 turns", `${run} has turn ${entry.n}`);
    }
    if (entry.kind === "assistant") {
      const message = { role: "assistant" as const, id: entry.id, ...entry.body };
      if (asked.has(`${what} ${entry.n}`)) bad("R1 writer", `turn ${entry.n} of ${what} has two messages`);
      asked.set(`${what} ${entry.n}`, "");
      callsOf(message).forEach((call, index) =>
        asked.set(`${run} ${callPath(path, entry.n, index)}`, signature(call))
      );
    }
    if (kind === "call") {
      if (begun.has(what) || answered.has(what)) bad("R5 once", `${what} begins again`);
      begun.add(what);
    }
    if (kind === "result") {
      if (!asked.get(what)) bad("R9 results", `${what} was not asked for`);
      if (answered.has(what)) bad("R9 results", `${what} has two`);
      if (entry.body.unknown && !begun.has(what)) bad("R5 unknown", `${what} never began`);
      answered.add(what);
    }
  }
  for (const [what, call] of asked) if (call && !answered.has(what)) bad("R9 results", `${what} has none`);
}

/** What was accepted is in the transcript once, in the run that was named or one that took its mail over. */
function judgeLetter(
  { text, accepted, lastAt, sentAt }: Letter,
  log: Entry[],
  runs: Map<string, RunRecord>,
  gone: number,
  bad: Bad,
): void {
  const found = log.filter((entry) =>
    entry.kind === "user" && entry.path === root && entry.body.content === text
  );
  const nested = log.filter((entry) =>
    entry.kind === "user" && entry.path !== root && entry.body.content === text
  );
  const all = [...found, ...nested];
  if (all.length > 1) bad("R2 mail", `${text} came ${all.length} times`);
  // What was on the wire may come up to 40 s late, and makes the thread again.
  if (lastAt + 45_000 < gone && all.length) {
    bad("R1 incarnation", `${text} came after its thread's end`);
  }
  if (!accepted || sentAt <= gone) return;
  if (!all.length) return bad("R2 mail", `${text} was lost`);
  if (all[0]!.id !== accepted.messageId) {
    bad("R2 mail", `${text} has the id ${all[0]!.id}, promised ${accepted.messageId}`);
  }
  const seen = all[0]!.run;
  for (let run: string | undefined = accepted.run; run !== seen;) {
    const record: RunRecord | undefined = run === undefined ? undefined : runs.get(run);
    if (record?.status === "cancelled" || record?.status === "failed") return;
    if (!record) return bad("R3 run", `${text} was promised to ${accepted.run} but came to ${seen}`);
    run = record.successor;
  }
}

/** The rules about tools and models, over all threads. */
export async function judgeWork(threads: string[], { world, books, requests }: Evidence): Promise<void> {
  const bad: Bad = (rule, what) => world.problem(rule, what);
  const logs = world.facts.deleted.map(({ log }) => log.map(decode));
  for (const thread of threads) logs.push((await logOf(world.store, threadKey(tenant, thread))).map(decode));

  const unknown = new Map<string, number>(), runOf = new Map<string, string>();
  for (const log of logs) judgeKeys(log, unknown, runOf, bad);

  const byKey = Map.groupBy(books.executions, ({ tool, key }) => `${tool} ${key}`);
  for (const [what, times] of byKey) {
    const { tool, key, run } = times[0]!;
    if (tool === "pay" || tool === "approve") {
      const allowed = 1 + (unknown.get(key) ?? 0);
      if (times.length > allowed) bad("R5 once", `${what} ran ${times.length} times, ${allowed} allowed`);
    } else judgeSafe(what, times, world.facts.claims.get(run) ?? [], bad);
  }
  for (const { last, at, isolate } of requests) {
    const cancelledAt = world.facts.cancelled.get(runOf.get(last) ?? "");
    if (cancelledAt === undefined || at <= cancelledAt) continue;
    const blind = isolate.renewalsFailed.filter((moment) =>
      moment > cancelledAt - 1_000 && moment < at
    ).length;
    if (at - cancelledAt > 5_000 * (1 + blind)) {
      bad("R8 cancel", `a model request of ${runOf.get(last)} began ${at - cancelledAt} ms after`);
    }
  }
}

/** Once more only after one more claim. */
function judgeSafe(what: string, times: Execution[], claims: number[], bad: Bad): void {
  const first = times[0]!.at, last = times.at(-1)!.at;
  const since = claims.filter((at) => at >= first && at <= last).length;
  if (times.length > 1 + since) bad("R5 safe", `${what} ran ${times.length} times in ${1 + since} claims`);
}

/** A call that repeats one whose outcome is unknown has its key; and which run each message belongs to. */
function judgeKeys(log: Entry[], unknown: Map<string, number>, runOf: Map<string, string>, bad: Bad): void {
  const asked = new Map<string, string>(),
    keys = new Map<string, string>(),
    pending = new Map<string, string>();
  for (const entry of log) {
    const { run, path } = entry, what = `${run} ${path}`;
    if (entry.kind === "user") runOf.set(entry.id, run);
    if (entry.kind === "assistant") {
      callsOf({ role: "assistant", id: entry.id, ...entry.body }).forEach((call, index) =>
        asked.set(`${run} ${callPath(path, entry.n, index)}`, signature(call))
      );
    }
    if (entry.kind === "call") {
      const { key } = entry.body, inherited = pending.get(asked.get(what)!);
      if (inherited !== undefined && inherited !== key) bad("R5 key", `${what} has ${key}, not ${inherited}`);
      keys.set(what, key);
    }
    if (entry.kind === "result") {
      runOf.set(`${publicId(run, path)}-result`, run);
      const key = keys.get(what);
      if (entry.body.unknown && key !== undefined) {
        unknown.set(key, (unknown.get(key) ?? 0) + 1);
        pending.set(asked.get(what)!, key);
      } else if (entry.body.ran) pending.delete(asked.get(what)!);
    }
  }
}
