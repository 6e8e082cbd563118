/** What a soak's runs are made of, drawn from its seed: what the model asks for in each turn, and what people do meanwhile. */
import { type Asked, calls, type Reply } from "../model_server.ts";
import { Dice } from "../simulation/dice.ts";

export interface Deed {
  afterMs: number;
  is: "steering" | "follow_up" | "prompt" | "cancel";
}

export interface Plan {
  n: number;
  tenant: string;
  thread: string;
  /** When its first prompt is sent. */
  afterMs: number;
  /** The calls of each turn; after the last the model answers in text. */
  turns: [name: string, args: object][][];
  deeds: Deed[];
}

export const tenants = ["red", "green", "blue", "grey"];
export const keyOf = (tenant: string) => `SEKRIT-${tenant}`;

/** `wait` and `ask` hold no function: the one is a durable wait, the other is answered by the client. */
const ask = {
  name: "ask",
  description: "Asks the user.",
  parameters: { type: "object", properties: {} },
};
export const offered = ["pay", "look", "work", "fast", "wait", ask];

/** Tools that must not run twice for one key. */
export const once = ["pay", "work", "fast"];

export function plansOf(seed: number, runs: number): Plan[] {
  return Array.from({ length: runs }, (_, n) => {
    const dice = new Dice(seed, `plan ${n}`), at = (low: number, high: number) => dice.between(low, high);
    const group = (turn: number): Plan["turns"][number] => {
      const one = (name: string, i = 0, more = {}): [string, object] => [name, { n, turn, i, ...more }];
      switch (at(0, 6)) {
        case 0:
          return [one("wait", 0, { seconds: at(1, 2) })];
        case 1:
          return [one("ask"), ...(dice.chance(0.5) ? [one("pay", 1)] : [])];
        case 2:
          return [one("fast", 0), one("fast", 1), one("fast", 2)];
        case 3:
          return [one("look"), one("pay", 1), one("work", 2)];
        case 4:
          return [one("look")];
        default:
          return [one("pay")];
      }
    };
    const deeds: Deed[] = [];
    const add = (is: Deed["is"], chance: number) => {
      if (dice.chance(chance)) deeds.push({ is, afterMs: at(0, 3_000) });
    };
    for (const chance of [0.5, 0.3, 0.2]) add("steering", chance);
    add("follow_up", 0.3);
    add("prompt", 0.2);
    add("cancel", 0.12);
    return {
      n,
      tenant: tenants[n % tenants.length]!,
      thread: `t${n}`,
      afterMs: at(0, 2_000),
      turns: Array.from({ length: at(2, 5) }, (_, turn) => group(turn)),
      deeds,
    };
  });
}

/** What the model says to this: only what it is shown counts, so a turn that is made again asks for the same. */
export function replyTo(plans: Plan[], { turns }: Asked): Reply {
  const prompt = turns.find(({ role }) => role === "user")!.text,
    plan = plans[Number(/#(\d+)/.exec(prompt)![1])]!;
  const said = turns.filter(({ role }) => role === "assistant").length, group = plan.turns[said];
  return group ? { text: [`Turn ${said}. `], ...calls(...group) } : `Done after ${said}.`;
}
