/** What must hold when a soak is over, whatever happened meanwhile; each thing that does not is one line. */
import { decode } from "../../../src/entry.ts";
import { keyOf, once, tenants } from "./plan.ts";
import type { Person } from "./people.ts";
import type { World } from "./world.ts";

type Redis = World["rest"]["redis"];

export async function verdict(world: World, people: Person[]): Promise<string[]> {
  const problems: string[] = [], { redis } = world.rest;
  for (const person of people) {
    const { plan: { n, tenant, thread } } = person;
    const say = (what: string) => problems.push(`#${n} (${tenant}/${thread}): ${what}`);
    const found = await ofThread(person, redis).catch((error) => [String(error)]);
    found.forEach(say);
  }
  const ran = new Map<string, number>();
  for (const { tool, key } of world.effects.effects) {
    if (once.includes(tool)) ran.set(key, (ran.get(key) ?? 0) + 1);
  }
  for (const [key, times] of ran) if (times > 1) problems.push(`the effect ${key} happened ${times} times`);
  problems.push(...await left(redis), ...await secrets(world, redis));
  return problems;
}

async function ofThread(person: Person, redis: Redis): Promise<string[]> {
  const { promised: { mail, answers, cancelled, runs }, plan } = person;
  const messages = await person.messages(), problems = pairs(messages);
  const said = messages.filter(({ role }) => role === "user").map(({ content }) => content);
  for (const text of mail) {
    const times = said.filter((one) => one === text).length;
    if (times !== 1) problems.push(`"${text}" was accepted and heard ${times} times`);
  }
  for (const text of said) if (!mail.includes(text)) problems.push(`"${text}" was heard and not accepted`);
  const results = new Map(messages.flatMap((one) => one.role === "tool" ? [[one.tool_call_id, one]] : []));
  for (const [id, content] of answers) {
    // A run is cancelled as it is: then what was answered, and not yet taken, is not told.
    const run = runs.get(`${plan.thread}~${id.slice(0, id.indexOf("-"))}`);
    if (run.status !== "cancelled" && results.get(id)?.content !== content) {
      problems.push(`the answer to ${id} was accepted and lost`);
    }
  }
  for (const run of cancelled) {
    if (runs.get(run).status !== "cancelled") {
      problems.push(`${run} was cancelled and is ${runs.get(run).status}`);
    }
  }
  for (const { id, status, error } of runs.values()) {
    if (status === "failed") problems.push(`${id} failed: ${error.code}: ${error.message}`);
  }
  const log = (await redis.lrange(`pawl:{${plan.tenant}~${plan.thread}}:log`, 0, -1)).map(decode);
  for (const kind of ["start", "end"]) {
    const seen = log.filter((entry) => entry.kind === kind).map(({ run }) => run);
    if (new Set(seen).size !== seen.length) problems.push(`a run has more than one ${kind}: ${seen}`);
  }
  return problems;
}

/** Every call has one result, right after its message. */
function pairs(messages: any[]): string[] {
  const problems: string[] = [];
  let open: string[] = [];
  for (const { role, content, tool_call_id: id } of messages) {
    if (role === "tool") {
      if (open[0] === id) open.shift();
      else problems.push(`a result for ${id}, where ${open[0] ?? "none"} was due`);
      continue;
    }
    if (open.length) problems.push(`no result for ${open} before the next message`);
    open = role === "assistant"
      ? content.filter(({ type }: any) => type === "tool_call").map((call: any) => call.id)
      : [];
  }
  if (open.length) problems.push(`no result for ${open} at the end`);
  return problems;
}

/** What only a run that goes on may have. */
async function left(redis: Redis): Promise<string[]> {
  const problems: string[] = [];
  for (const key of await redis.keys("pawl:*")) {
    if (key.endsWith("}:lease") || key.endsWith("}:live")) problems.push(`${key} is left`);
    if (key.endsWith("}:open") && await redis.hlen(key) > 1) problems.push(`${key} has calls without result`);
    if (key.endsWith("}:mail") && await redis.llen(key) > 1) problems.push(`${key} has mail`);
    if (!key.endsWith("}:meta")) continue;
    const { status = "", due } = await redis.hgetall(key);
    if (["queued", "running", "waiting"].includes(status)) problems.push(`${key} is ${status}, due ${due}`);
  }
  return problems;
}

async function secrets({ output, rest, qstash, model }: World, redis: Redis): Promise<string[]> {
  const keys = [rest.token, qstash.token, qstash.keys.current, qstash.keys.next, ...tenants.map(keyOf)];
  const secret = [...keys, ...Object.values(model.env).filter((value) => value.startsWith("SEKRIT"))];
  const places: [string, string][] = [["the log of a process", output()]];
  for (const key of await redis.keys("*")) {
    const type = await redis.type(key);
    const value = type === "hash"
      ? await redis.hgetall(key)
      : type === "list"
      ? await redis.lrange(key, 0, -1)
      : type === "zset"
      ? await redis.zrange(key, 0, "-1")
      : await redis.get(key);
    places.push([key, key + JSON.stringify(value)]);
  }
  return places.flatMap(([place, text]) =>
    secret.filter((one) => text.includes(one)).map((one) => `${one.slice(0, 6)}… is in ${place}`)
  );
}
