/**
 * What the log says: a fold over its entries, one at a time, so that its cost does not grow with the thread. It owns nothing else: what is
 * not in the log does not exist for the loop.
 *
 * T1. Only entries that the store answered are applied, in order; so a transcript is always a true beginning of its incarnation's log.
 * T2. Results are put into `messages` in source order once the last of them is there; before that no model call can happen (DESIGN rule 9).
 */
import { type Bodies, callPath, decode, type Entry, type EntryOf, frameOf, publicId, root } from "./entry.ts";
import { idempotencyKey, signature } from "./fingerprint.ts";
import { type CallState, type Frame, type Kept, newFrame, type Remembered } from "./frame.ts";
import { type AssistantMessage, callsOf, textOf, type ToolMessage, type UserMessage } from "./message.ts";

export class Transcript {
  /** How many entries of the log are in it, and how many characters they have. */
  length = 0;
  size = 0;
  /** The run whose entries came last. */
  run = "";
  /** Steps of agentic functions, by path. */
  readonly steps: Map<string, { value?: unknown }> = new Map();
  /** Idempotency keys of calls whose outcome is unknown, by what they did; kept across runs (DESIGN rule 5). */
  readonly unknown: Map<string, string> = new Map();
  /** Tools whose calls are approved, or refused, without asking again; kept across runs. */
  readonly always: Map<string, boolean> = new Map();
  /** Effects that tools have keys for; kept across runs. */
  readonly effects: Map<string, Remembered> = new Map();
  /** The last result of each call that may answer the same call again, by what it did; kept across runs. */
  readonly reusable: Map<string, Bodies["result"]> = new Map();
  readonly #frames = new Map<string, Frame>();
  readonly #calls = new Map<string, CallState>();

  constructor(readonly incarnation: string) {
    this.#open(root);
  }

  append(entries: readonly string[]): void {
    for (const text of entries) {
      this.#apply(decode(text));
      this.length++;
      this.size += text.length;
    }
  }

  frame(path: string): Frame | undefined {
    return this.#frames.get(path);
  }

  get root(): Frame {
    return this.#frames.get(root)!;
  }

  /** Every call of the present run that has no result yet; those inside others before them. */
  openCalls(): CallState[] {
    const depth = ({ path }: CallState) => path.split("/").length;
    return [...this.#calls.values()].filter(({ state }) => state !== "done")
      .sort((a, b) => depth(b) - depth(a));
  }

  /** The calls inside of which a call was made, the innermost first. */
  around(path: string): CallState[] {
    const outer: CallState[] = [];
    for (let frame = frameOf(path); frame !== root;) {
      // A frame's path is its call's path and a key.
      const call = this.#calls.get(frame.slice(0, frame.lastIndexOf("/")));
      if (!call) break;
      outer.push(call);
      frame = frameOf(call.path);
    }
    return outer;
  }

  #open(path: string, kept?: Kept): void {
    this.#frames.set(path, newFrame(path, kept));
  }

  #apply(entry: Entry): void {
    const { path, run } = entry;
    switch (entry.kind) {
      case "start": {
        const before = this.root;
        this.run = run;
        this.#frames.clear();
        this.#calls.clear();
        this.steps.clear();
        this.#open(root, before);
        return;
      }
      case "user": {
        const frame = this.#frames.get(path);
        frame?.messages.push({ role: "user", id: entry.id, ...entry.body });
        if (frame && entry.n === 1) frame.prompt = entry.id;
        return;
      }
      case "reask": {
        const frame = this.#frames.get(path);
        frame?.messages.push({ role: "user", id: entry.id, source: "pawl", ...entry.body });
        if (frame) frame.reasked = true;
        return;
      }
      case "enter":
        this.#frames.set(path, { ...newFrame(path), fingerprint: entry.body.fingerprint });
        return;
      case "turn": {
        const frame = this.#frames.get(path);
        if (frame) {
          Object.assign(frame, {
            turn: entry.n,
            message: undefined,
            calls: [],
            retries: 0,
            retryAt: 0,
            heard: false,
          });
        }
        return;
      }
      case "retry": {
        const frame = this.#frames.get(path);
        if (!frame) return;
        Object.assign(frame, { retries: entry.n, retryAt: entry.body.until });
        frame.heard ||= entry.body.heard ?? false;
        if (entry.body.passes) frame.passed++;
        if (entry.body.code === "context_overflow") frame.overflows++;
        return;
      }
      case "compact": {
        const frame = this.#frames.get(path);
        if (frame) this.#compact(frame, entry);
        return;
      }
      case "assistant": {
        const frame = this.#frames.get(path);
        if (!frame) return;
        const { menu = frame.menu, ...body } = entry.body;
        const message: AssistantMessage = { role: "assistant", id: entry.id, ...body };
        Object.assign(frame, {
          overflows: 0,
          menu,
          message,
          compacted: false,
          used: message.usage.input + message.usage.output,
        });
        frame.text = textOf(message.content) || frame.text;
        frame.messages.push(message);
        frame.calls = callsOf(message).map((call, index) => ({
          path: callPath(path, entry.n, index),
          call,
          state: "pending",
        }));
        for (const call of frame.calls) this.#calls.set(call.path, call);
        return;
      }
      case "wait": {
        const call = this.#calls.get(path);
        if (call) Object.assign(call, { state: "waiting", wait: entry.body, answer: undefined });
        return;
      }
      case "answer": {
        const call = this.#calls.get(path);
        // A late approval is none of what the call has begun elsewhere since.
        if (!call || ("approve" in entry.body) !== (call.wait?.for === "approval")) return;
        call.answer = entry.body;
        if (!("approve" in entry.body)) return;
        if (entry.body.approve) call.edited = entry.body.arguments;
        if (entry.body.always) this.always.set(call.call.name, entry.body.approve);
        return;
      }
      case "call": {
        const call = this.#calls.get(path);
        if (!call) return;
        const { key, effect, arguments: given, at } = entry.body;
        Object.assign(call, { state: "begun", key, effect: effect?.id, arguments: given, at });
        if (!effect) return;
        call.doubtful = this.effects.get(effect.id)?.state === "unknown";
        this.effects.set(effect.id, { args: effect.args, key, state: "begun" });
        return;
      }
      case "result":
        return this.#result(entry);
      case "step":
        this.steps.set(path, entry.body);
        return;
      case "return": {
        const frame = this.#frames.get(path);
        const { ended: _, ...returned } = entry.body;
        if (frame) frame.returned = returned;
        return;
      }
      default:
        return;
    }
  }

  #compact(frame: Frame, { id, body }: EntryOf<"compact">): void {
    Object.assign(frame, { compacted: true, overflows: 0, retries: 0, retryAt: 0 });
    if ("failed" in body) return;
    const content = `Summary of what was said before; those messages are no longer shown:\n\n${body.summary}`;
    const message: UserMessage = { role: "user", id, source: "pawl", content, at: body.at };
    const from = frame.messages.findIndex((kept) => kept.id === body.from);
    frame.summary = { message, from };
    frame.used = 0;
    // What a run is to end with is said in its prompt: from now on there.
    if (frame.messages.findIndex((said) => said.id === frame.prompt) < from) frame.prompt = id;
    frame.messages.push(message);
  }

  #result({ run, path, body }: { run: string; path: string; body: Bodies["result"] }): void {
    const call = this.#calls.get(path), frame = this.#frames.get(frameOf(path));
    if (!call || !frame || call.state === "done") return;
    call.state = "done";
    call.result = body;
    // Also one that somebody refused, or that was stopped: a model that is forced to ask for it again could never end.
    if (body.ran || body.reused || body.notRun === "stopped" || call.answer) {
      frame.released ??= frame.turn;
    }
    // Also a call that was wrong: the next request shows how it is right.
    if (!body.notRun) { for (const name of [...body.loads ?? [], call.call.name]) frame.loaded.add(name); }

    const what = signature(call.call), done = signature(call.call, call.arguments);
    if (body.reusable) this.reusable.set(done, body);
    if (body.unknown) this.unknown.set(done, call.key ?? idempotencyKey(run, path));
    else if (body.ran) this.unknown.delete(done);

    const effect = call.effect && this.effects.get(call.effect);
    if (effect) {
      effect.state = body.unknown ? "unknown" : body.isError ? "failed" : "done";
      if (effect.state === "done") effect.result = { content: body.content };
    }

    if (!body.isError) frame.failures.delete(what);
    else if (!body.notRun) {
      const text = textOf(body.content), before = frame.failures.get(what);
      frame.failures.set(what, { text, times: before?.text === text ? before.times + 1 : 1 });
    }
    if (frame.calls.every((other) => other.state === "done")) {
      for (const done of frame.calls) frame.messages.push(toolMessage(run, done));
    }
  }
}

export function toolMessage(run: string, { path, result }: CallState): ToolMessage {
  const { content, isError, toolName, at } = result!;
  const toolCallId = publicId(run, path);
  return { role: "tool", id: `${toolCallId}-result`, toolCallId, toolName, content, isError, at };
}
