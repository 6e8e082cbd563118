/** Clients over HTTP that do not give up: each starts its run, says and answers what its plan has, and follows what comes of it to the end. */
import { systemClock } from "../../../src/clock.ts";
import { Dice } from "../simulation/dice.ts";
import { type Deed, keyOf, offered, type Plan } from "./plan.ts";

/** What one client was promised. */
export interface Promised {
  plan: Plan;
  /** Texts of which a 2xx said that they are accepted. */
  mail: string[];
  /** Accepted answers, by the id of their call. */
  answers: Map<string, string>;
  cancelled: Set<string>;
  /** Every run that it knows of, as it was seen last. */
  runs: Map<string, any>;
}

const over = ["completed", "failed", "cancelled"];

export class Person {
  readonly promised: Promised;
  readonly #dice: Dice;
  #current = "";

  /** It throws at the deadline, and when the service says what it must not. */
  constructor(readonly url: string, readonly plan: Plan, seed: number, readonly deadline: number) {
    this.promised = { plan, mail: [], answers: new Map(), cancelled: new Set(), runs: new Map() };
    this.#dice = new Dice(seed, `person ${plan.n}`);
  }

  /** Resolves when all its runs have ended. */
  async live(): Promise<void> {
    const { plan: { n, thread, afterMs, deeds } } = this;
    await systemClock.sleep(afterMs);
    await this.#say("/runs", `#${n} prompt.`, { thread, tools: offered, max_iterations: 30 });
    let busy = true;
    const doing = Promise.all(deeds.map((deed, i) => this.#do(deed, i))).finally(() => busy = false);
    await this.#follow(() => busy);
    await doing;
  }

  /** What a cancelled or failed run has left in the box comes before the next prompt. */
  async collect(): Promise<void> {
    const { thread, n } = this.plan, heard = JSON.stringify(await this.messages());
    if (this.promised.mail.every((text) => heard.includes(text))) return;
    await this.#say("/runs", `#${n} closing.`, { thread });
    await this.#follow(() => false);
  }

  /** The whole transcript of its thread. */
  async messages(): Promise<any[]> {
    const all: any[] = [];
    for (let after = "";;) {
      const page = `/threads/${this.plan.thread}/messages?limit=200${after}`;
      const { json } = await this.#ask("GET", page, [200]);
      all.push(...json.messages);
      if (!json.next) return all;
      after = `&after=${encodeURIComponent(json.next)}`;
    }
  }

  async #do({ is, afterMs }: Deed, i: number): Promise<void> {
    await systemClock.sleep(afterMs);
    const text = `#${this.plan.n} ${is} ${i}.`, run = this.#current;
    if (is === "prompt") return await this.#say("/runs", text, { thread: this.plan.thread });
    if (is !== "cancel") {
      return await this.#say(`/runs/${run}/${is === "steering" ? is : "follow_ups"}`, text);
    }
    const { status } = await this.#ask("POST", `/runs/${run}/cancel`, [202, 409]);
    if (status === 202) this.promised.cancelled.add(run);
  }

  async #say(path: string, text: string, more: object = {}): Promise<void> {
    const { json } = await this.#ask("POST", path, [202], { content: text, ...more }, text);
    this.promised.mail.push(text);
    this.#current = json.id ?? json.run;
    this.promised.runs.set(this.#current, undefined);
  }

  async #answer(run: string, id: string): Promise<void> {
    const content = `answer to ${id}`, body = { tool_call_id: id, content };
    const { status } = await this.#ask("POST", `/runs/${run}/tool_results`, [200, 202, 409], body);
    if (status !== 409) this.promised.answers.set(id, content);
  }

  async #follow(more: () => boolean): Promise<void> {
    const { runs } = this.promised;
    for (let going = true; going; await systemClock.sleep(this.#dice.between(200, 600))) {
      going = more();
      for (const [run, seen] of [...runs]) {
        if (seen && over.includes(seen.status)) continue;
        going = true;
        const wait = this.#dice.chance(0.2) ? "?wait=2" : "";
        const { json } = await this.#ask("GET", `/runs/${run}${wait}`, [200]);
        runs.set(run, json);
        if (json.successor && !runs.has(json.successor)) runs.set(json.successor, undefined);
        for (const call of json.waiting_for ?? []) {
          if (call.for === "answer") await this.#answer(run, call.tool_call_id);
        }
      }
    }
  }

  /** Asks until it is answered: processes die, and 5xx says "again". */
  async #ask(method: string, path: string, expected: number[], body?: object, key?: string) {
    const headers = {
      authorization: `Bearer ${keyOf(this.plan.tenant)}`,
      ...(key && { "idempotency-key": key.replaceAll(" ", "_") }),
    };
    for (;;) {
      const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) })
        .then(async (answer) => ({ status: answer.status, text: await answer.text() }), () => undefined);
      if (answer && expected.includes(answer.status)) {
        return { status: answer.status, json: JSON.parse(answer.text) };
      }
      if (answer && answer.status < 500) {
        throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
      }
      if (Date.now() > this.deadline) {
        throw new Error(`${method} ${path}: still ${answer?.status ?? "no answer"} at the end`);
      }
      await systemClock.sleep(this.#dice.between(50, 250));
    }
  }
}
