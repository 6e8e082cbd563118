/** A run, seen from outside and from inside: its settings, its counters, its end. */
import type { Json, Usage } from "./message.ts";
import { FatalError, InputError } from "./errors.ts";

export type Status = "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled";
export type FinishReason = "stop" | "max_iterations" | "length" | "refusal" | "terminated" | "choice";

/** `code` is stable: auth, rate_limit, overloaded, quota, bad_request, network, attempts, decision, structured_output, … */
export interface RunError {
  code: string;
  message: string;
  /** What is known besides; of a decision its kind, path and position. */
  details?: { [key: string]: Json };
}

/** What was chosen. `args` are there where the choices have schemas. */
export interface Choice {
  name: string;
  args?: { [key: string]: Json };
}

export type ToolChoice = "auto" | "required" | "none" | { type: "function"; name: string };

/** A tool that the client runs: a call to it waits until the client answers. `parameters` is JSON Schema. */
export interface ClientTool {
  name: string;
  description: string;
  parameters: { [key: string]: Json };
}

/** What a run may use in all, nested loops included. A model call that could pass one of these is not made, and ends the run. */
export interface Limits {
  maxTokensTotal?: number;
  /** USD, by the prices that are known of its model; without any the run is refused. */
  maxCostUsd?: number;
}

export interface Amount {
  tokens: number;
  usd: number;
}

/** What a run was started with. Stored once, as JSON. */
export interface Settings {
  /** "vendor/model"; absent: the deployment's default. */
  model?: string;
  system?: string;
  /** Names from the registry, or client tools. Absent: all that are registered. Empty: none. */
  tools?: (string | ClientTool)[];
  toolset?: string;
  toolsSource?: string;
  toolsAllow?: string[];
  toolsDeny?: string[];
  toolChoice?: ToolChoice;
  /** "first" (default): a forced choice holds until one call has run. "every": for each turn. */
  toolChoiceScope?: "first" | "every";
  parallelToolCalls?: boolean;
  /** 1..50, default 20: turns of the whole run. */
  maxIterations?: number;
  /** The run ends with one of these: names, or what is to be filled in by name, as JSON Schemas of type object. */
  choices?: string[] | { [name: string]: { [key: string]: Json } };
  /** JSON Schema of type object: the run ends with such a value. */
  responseFormat?: { [key: string]: Json };
  /** "now" (default): steering skips the calls that have not begun. "after_batch": it waits for the batch. */
  steering?: "now" | "after_batch";
  /** How much of the mailbox one look takes. */
  steeringMode?: "one_at_a_time" | "all";
  followUpMode?: "one_at_a_time" | "all";
  callbackUrl?: string;
  metadata?: { [key: string]: Json };
  limits?: Limits;
}

/** What may take a tool out of a menu, in the order in which they are asked. */
export type Layer = "registration" | "exposure" | "preset" | "source" | "availability" | "deny" | "allow";

/** A tool that is missing from a menu, and the layer that took it out. */
export interface RemovedTool {
  name: string;
  layer: Layer;
  reason?: string;
}

/** What is stored beside the settings when a run is made. */
export interface Stored {
  v: 1;
  settings: Settings;
  createdAt: number;
}

/** What a run counts, durably: a new slice goes on from here (DESIGN rule 7). At most 4 KB as JSON. */
export interface Progress {
  iterations: number;
  slices: number;
  usage: Usage;
  /** What `usage` cost, where `limits` have a price. */
  usd?: number;
  /** The most that calls can have used whose usage is not known: those under way, and those of which it never came back. */
  booked?: Amount;
  /** Model calls whose usage never came back, because the slice died or the run was cancelled meanwhile. */
  unaccounted?: number;
  updatedAt: number;
  waitingFor?: WaitingCall[];
}

/** time: until a moment. answer: the answer is the call's result. approval: the call runs once it is approved. */
export type WaitFor = "time" | "answer" | "approval";

export interface WaitingCall {
  toolCallId: string;
  name: string;
  for: WaitFor;
  until: number;
  reason?: string;
  /** As the model gave them: what is to be approved or answered. Absent where they are too long here; the message has them. */
  arguments?: { [key: string]: Json };
}

/** How a run ended; stored once, as JSON. */
export interface Ending extends Progress {
  finishReason?: FinishReason;
  text?: string;
  choice?: Choice;
  /** The value, where a response format was asked for. */
  output?: Json;
  error?: RunError;
}

/** A run as its owner sees it. */
export interface RunView {
  id: string;
  thread: string;
  status: Status;
  finishReason?: FinishReason;
  text?: string;
  choice?: Choice;
  /** The value, where a response format was asked for. */
  output?: Json;
  error?: RunError;
  iterations: number;
  slices: number;
  usage: Usage;
  usd?: number;
  booked?: Amount;
  waitingFor?: WaitingCall[];
  successor?: string;
  createdAt: number;
  updatedAt: number;
  metadata: { [key: string]: Json };
  /** The tools that its settings keep from it, in the deployment as it is now; absent if there is none. For debugging. */
  toolsRemoved?: RemovedTool[];
}

export const noProgress: Progress = {
  iterations: 0,
  slices: 0,
  usage: { input: 0, output: 0 },
  updatedAt: 0,
};

/** Reads what a run was started with; refuses what another version wrote in a form that this one does not know. */
export function readStored(text: string): Stored {
  const stored = JSON.parse(text) as Stored;
  if (stored.v !== 1) {
    throw new FatalError("schema", `Read the run's settings: expected version 1, found ${stored.v}`);
  }
  return stored;
}

export function isActive(status: Status): status is "queued" | "running" | "waiting" {
  return status === "queued" || status === "running" || status === "waiting";
}

/** Limits of turns: default 20, clamped to 1..50. */
export function maxIterations(settings: Settings): number {
  return Math.max(1, Math.min(50, Math.trunc(settings.maxIterations ?? 20)));
}

/** Ids of threads that a client may choose (CASES H08). "~" separates tenant, thread and run, so no two of them can share a key. */
export const threadPattern = /^[A-Za-z0-9_.:-]{1,128}$/;

/** The store's name of a tenant's thread. */
export function threadKey(tenant: string, thread: string): string {
  if (!threadPattern.test(thread)) {
    throw new InputError(
      "bad_input",
      `thread: expected 1 to 128 of A-Z a-z 0-9 _ . : -, got ${JSON.stringify(thread.slice(0, 40))}`,
    );
  }
  return `${tenant}~${thread}`;
}

/** The id of a run on a thread, named as its tenant knows it; `id` is random. */
export function runId(thread: string, id: string): string {
  return `${thread}~${id}`;
}

/** A run's id holds its thread's. Returns the store's name of that thread; an id that cannot exist is "not_found". */
export function threadOfRun(tenant: string, run: string): string {
  const cut = run.indexOf("~");
  if (cut < 0 || !threadPattern.test(run.slice(0, cut)) || !/^[a-z0-9]{1,32}$/.test(run.slice(cut + 1))) {
    throw new InputError("not_found", "There is no such run");
  }
  return threadKey(tenant, run.slice(0, cut));
}

/** The id of a thread as its tenant knows it. */
export function publicThread(key: string): string {
  return key.slice(key.indexOf("~") + 1);
}
