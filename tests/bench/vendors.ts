/** What each vendor's adapter adds to the SDK it stands on: the same request, the same answer, read to its end by both. */
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai/web";
import OpenAI from "openai";
import type { Message } from "../../src/message.ts";
import { asking, result, stored, user } from "../contract/model.ts";
import { type Dialect, dialects } from "../support/dialect.ts";
import { median, type Report, vendorSaying } from "./scene.ts";

const turns = 25, rounds = 200, warmUps = 50;

/** Sends a body that an adapter made, and answers the events. A vendor that is not here is held against plain `fetch`. */
const sdks: Record<string, (baseURL: string) => (body: any) => Promise<any>> = {
  "openai-chat": (baseURL) => {
    const { completions } = openai(baseURL).chat;
    return (body) => completions.create(body);
  },
  "openai": (baseURL) => {
    const { responses } = openai(baseURL);
    return (body) => responses.create(body);
  },
  "anthropic": (baseURL) => {
    const { messages } = new Anthropic({ apiKey: "none", baseURL, maxRetries: 0 });
    return (body) => messages.create(body);
  },
  "gemini": (baseUrl) => {
    const { models } = new GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl, apiVersion: "v1beta" } });
    return ({ contents, generationConfig, ...more }) =>
      models.generateContentStream({ model: "m", contents, config: { ...generationConfig, ...more } });
  },
};
const openai = (baseURL: string) => new OpenAI({ apiKey: "none", baseURL, maxRetries: 0 });

export async function vendors(report: Report): Promise<void> {
  report.title(
    `A turn of each adapter against its bare SDK, ms, after ${turns} turns (median of ${rounds}, interleaved)`,
  );
  for (const each of dialects) await one(report, each);
}

async function one(report: Report, { wire, model: make, frames }: Dialect): Promise<void> {
  const said = { text: words, calls: [{ id: "call_1", name: "add", args: ['{"a"', ": ", "7", "}"] }] };
  await using server = vendorSaying(frames(said));
  const model = make(server.url), request = asking(talk(model));
  const { signal } = new AbortController();
  const reply = () => model.reply(request, { signal, onDelta() {} });
  await reply();
  const body = JSON.parse(server.bodies[0]!), create = sdks[wire]?.(server.url);
  const contenders = {
    adapter: reply,
    bare: create ? () => drained(create(body)) : () => fetched(server.url, server.bodies[0]!),
  };
  const times = { adapter: [] as number[], bare: [] as number[] };
  for (let round = -warmUps; round < rounds; round++) {
    for (const name of ["adapter", "bare"] as const) {
      const begun = performance.now();
      await contenders[name]();
      if (round >= 0) times[name].push(performance.now() - begun);
    }
  }
  const adapter = median(times.adapter), bare = median(times.bare);
  const difference = `${adapter < bare ? "" : "+"}${(adapter - bare).toFixed(2)}`;
  const against = create ? "the SDK" : "plain fetch";
  report.line(`${wire}: ${adapter.toFixed(2)}, ${against} ${bare.toFixed(2)}: ${difference}`);
}

const words = "Now I add seven to it and look at what comes out.".split(/(?<= )/);

/** As a run has it after so many turns, each with text, a call and 200 bytes of result. */
function talk(model: Parameters<typeof stored>[0]): Message[] {
  const reply = {
    content: [{ type: "text", text: words.join("") }, {
      type: "tool_call",
      name: "add",
      arguments: { a: 7 },
    }],
    stopReason: "tool_calls",
    usage: { input: 0, output: 0 },
  } as const;
  const turn = (n: number): Message[] => [
    stored(model, { ...reply, content: [...reply.content] }, n),
    result(`run-${n}-0`, "seven ".repeat(33)),
  ];
  return [user("Add up what there is."), ...Array.from({ length: turns }, (_, n) => turn(n + 1)).flat()];
}

async function drained(events: Promise<AsyncIterable<unknown>>): Promise<void> {
  for await (const _ of await events);
}

async function fetched(url: string, body: string): Promise<void> {
  const answer = await fetch(url, { method: "POST", body });
  await answer.text();
}
