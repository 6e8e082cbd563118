/**
 * What model calls may use in a run with limits. The most that a call can use is booked in a commit before it is made, and the commit with its
 * message puts what it did use in that place (DESIGN rule 7). Nested loops share the run's limits.
 *
 * A1. No call is made that is not booked; usually the commit before it does that, so that limits cost no commit of their own.
 * A2. What is booked is never less than what can be used: of the input an upper bound is counted, and the output is limited on the wire.
 */
import { InputError } from "./errors.ts";
import type { Frame } from "./frame.ts";
import type { Booking, Counts, Journal } from "./journal.ts";
import type { Message, UserBlock } from "./message.ts";
import { modelNames, type ModelRequest, type Models, type Price } from "./model.ts";
import type { Settings } from "./run.ts";

/** Under limits no message gets longer, in tokens: else one call could book all that is left. */
export const longestOutput = 8192;
/** With less a call is not worth its input; OpenAI takes no less. */
const leastOutput = 16;
/** Two bytes of text hold no more than a token, in no language; of a picture no vendor makes more than this. */
const bytesPerToken = 2, tokensPerImage = 5000;

export interface Limited {
  journal: Journal;
  /** What models cost; absent: nobody asks. */
  prices?: (name: string) => Price | undefined;
}

/** Why a call cannot be made, as a run's error. */
export type Refusal = { code: "max_tokens_total" | "max_cost_usd"; message: string };

/** The most that a frame's next call can use, if that is still allowed. `input`: what it has at most. */
export function allowed(
  { journal, prices }: Limited,
  { path }: Frame,
  model: string,
  input: number,
): Booking | Refusal {
  const { maxTokensTotal = Infinity, maxCostUsd } = journal.settings.limits ?? {};
  const own = journal.booking(path), used = journal.used;
  const most = maxTokensTotal - used.tokens + (own?.tokens ?? 0) - input;
  let output = Math.min(longestOutput, most), usd = 0;
  let limit: Booking["limit"] = output < longestOutput ? "max_tokens_total" : undefined;
  if (output < leastOutput) {
    const message =
      `The run may use ${maxTokensTotal} tokens and has used ${used.tokens - (own?.tokens ?? 0)}: ` +
      `the next call, of up to ${input} and its answer, could pass that`;
    return { code: "max_tokens_total", message };
  }
  if (maxCostUsd !== undefined) {
    const price = prices?.(model);
    if (!price) return { code: "max_cost_usd", message: `No price is known for the model "${model}"` };
    const left = maxCostUsd - used.usd + (own?.usd ?? 0),
      each = dearest(price, input, 1000) - dearest(price, input, 0);
    const affordable = Math.floor((left - dearest(price, input, 0)) / each * 1000);
    if (each > 0 && affordable < output) {
      output = affordable;
      limit = "max_cost_usd";
    }
    usd = dearest(price, input, output);
    if (output < leastOutput || usd > left) {
      const message = `The run may cost ${maxCostUsd} USD, of which ${left.toFixed(6)} are left: ` +
        `the next call, of up to ${input} tokens and its answer, could pass that`;
      return { code: "max_cost_usd", message };
    }
  }
  return { tokens: input + output, usd, output, ...(limit ? { limit } : {}) };
}

/** Caches make input dearer before they make it cheaper. */
function dearest(price: Price, input: number, output: number): number {
  return Math.max(price({ input, output }), price({ input, output, written: input }));
}

/** A limit that nobody can hold is refused, rather than found out in the middle of the run. */
export async function checkPrice(
  models: Models,
  { limits, model = models.default }: Settings,
): Promise<void> {
  if (limits?.maxCostUsd === undefined) return;
  const prices = await models.prices?.(), unpriced = modelNames(model).find((name) => !prices?.(name));
  if (unpriced === undefined) return;
  throw new InputError(
    "bad_input",
    `limits.max_cost_usd: no price is known for the model "${unpriced}". Use max_tokens_total, or another model`,
  );
}

/** What rides on the commit that begins a turn, so that the call after it is booked already; nothing where that needs to be looked at. */
export function bookedAhead(it: Limited, at: Frame, model: string, said = 0): Counts {
  const { message } = at;
  if (!it.journal.settings.limits || !message?.usage.input) return {};
  const { input, output } = message.usage;
  const results = at.calls.map(({ result }) => result?.content ?? "");
  const most = input + output + said + results.reduce((sum, content) => sum + bound(content), 0) + margin;
  const booking = allowed(it, at, model, most);
  return "code" in booking ? {} : { book: { frame: at.path, booking } };
}

/** For what stands around results. */
const margin = 100;

/** What a request has at most: what the vendor counted of what it begins with, else bytes. */
export function inputBound(
  { messages, system, tools, responseFormat }: ModelRequest,
  at: Frame,
  model: string,
): number {
  const last = messages.findLastIndex(({ role }) => role === "assistant"), said = messages[last];
  const counted = at.turn > 1 && said?.role === "assistant" && said.model === model && at.used > 0;
  const around = counted ? 0 : boundOfText(JSON.stringify([system, tools, responseFormat]));
  return messages.slice(counted ? last + 1 : 0).reduce(
    (sum, message) => sum + boundOfMessage(message),
    around + (counted ? at.used : 0),
  );
}

function boundOfMessage(message: Message): number {
  const { content } = message;
  return (message.role === "assistant" ? boundOfText(JSON.stringify(content)) : bound(message.content)) + 10;
}

function bound(content: string | UserBlock[]): number {
  if (typeof content === "string") return boundOfText(content);
  return content.reduce(
    (sum, block) => sum + (block.type === "text" ? boundOfText(block.text) : tokensPerImage),
    0,
  );
}

function boundOfText(text: string): number {
  return Math.ceil(new TextEncoder().encode(text).length / bytesPerToken);
}
