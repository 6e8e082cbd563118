/**
 * Upstash Redis over REST: one request, one answer. Nothing is sent twice by itself, for a request whose answer was lost may have been
 * applied; and no error says what was sent, for that holds what users wrote.
 */
import { errors, Redis } from "@upstash/redis/cloudflare";
import { digest, hex } from "../digest.ts";
import { FatalError, messageOf, RetryableError } from "../errors.ts";
import { newerVersion, version } from "./upstash_thread.ts";

export type Reply = null | string | number | Reply[];

/** A script with what it is given. */
export interface Call {
  script: string;
  keys: string[];
  args: string[];
}

type Pipeline = ReturnType<Redis["pipeline"]>;
/** Adds commands to a request. */
export type Commands = (pipeline: Pipeline) => unknown;

interface Answer {
  error?: string;
  result?: Reply;
}

export interface ConnectionOptions {
  url: string;
  token: string;
  timeoutMs: number;
  keyLocking: boolean;
}

/** Upstash takes 10 MB; some is kept for what is around the arguments. */
const requestLimit = 10_000_000;

/** It holds no socket, stream or promise, so one object may serve several requests of a Worker. */
export class Connection {
  readonly #redis: Redis;
  readonly #head: string;
  readonly #timeoutMs: number;
  readonly #digests = new Map<string, string>();

  constructor({ url, token, timeoutMs, keyLocking }: ConnectionOptions) {
    this.#timeoutMs = timeoutMs;
    // Without it a script locks the whole database.
    this.#head = keyLocking ? "#!lua flags=allow-key-locking\n" : "";
    this.#redis = new Redis({
      url,
      token,
      automaticDeserialization: false,
      enableAutoPipelining: false,
      enableTelemetry: false,
      // All that is stored is text. In base64, for bytes that are none, it is a third longer, and slow to decode for a whole thread.
      responseEncoding: false,
      retry: { retries: 0 },
      // A plain signal makes the client answer as if there were no value.
      signal: () => AbortSignal.timeout(timeoutMs),
    });
  }

  /** Runs a script. `before`: commands in the same request whose failure hurts nobody. */
  async run(call: Call, before?: Commands): Promise<Reply> {
    refuseTooLarge(call);
    const { script, keys, args } = call, digest = await this.#digest(script);
    const answer = before
      ? (await this.pipeline((p) => [before(p), p.evalsha(digest, keys, args)])).at(-1)!
      : await this.#attempt(() => this.#redis.evalsha(digest, keys, args));
    if (!isUnknown(answer)) return this.#result(answer);
    return this.#result(await this.#attempt(() => this.#redis.eval(this.#head + script, keys, args)));
  }

  /** Runs one script on many threads, in one request. */
  async all(script: string, calls: Omit<Call, "script">[]): Promise<Reply[]> {
    const digest = await this.#digest(script);
    const answers = await this.pipeline((p) => calls.map(({ keys, args }) => p.evalsha(digest, keys, args)));
    const again = calls.filter((_, i) => isUnknown(answers[i]!)), text = this.#head + script;
    const late = await this.pipeline((p) => again.map(({ keys, args }) => p.eval(text, keys, args)));
    return answers.map((answer) => this.#result(isUnknown(answer) ? late.shift()! : answer));
  }

  async pipeline(commands: Commands): Promise<Answer[]> {
    const pipeline = this.#redis.pipeline();
    commands(pipeline);
    if (pipeline.length() === 0) return [];
    const { error, result } = await this.#attempt(() => pipeline.exec({ keepErrors: true }));
    if (error !== undefined) throw this.#refusal(error);
    return result as unknown as Answer[];
  }

  /** By this name a server knows a script that it has run before. */
  async #digest(script: string): Promise<string> {
    let name = this.#digests.get(script);
    if (name === undefined) {
      name = hex(await digest(this.#head + script, "SHA-1"));
      this.#digests.set(script, name);
    }
    return name;
  }

  #result({ error, result }: Answer): Reply {
    if (error !== undefined) throw this.#refusal(error);
    return result!;
  }

  /** What the server said, be it an error. Throws when it said nothing. */
  async #attempt(send: () => Promise<unknown>): Promise<Answer> {
    try {
      return { result: await send() as Reply };
    } catch (error) {
      // No cause is kept: the client's errors hold the whole command.
      if (error instanceof errors.UpstashJSONParseError) throw unanswered("answered no JSON");
      if (error instanceof errors.UpstashError) return { error: error.message };
      if (error instanceof Error && error.name === "TimeoutError") {
        throw unanswered(`did not answer within ${this.#timeoutMs} ms`);
      }
      throw new RetryableError(`Upstash Redis cannot be reached: ${messageOf(error).slice(0, 200)}`);
    }
  }

  #refusal(error: string): Error {
    const said = saying(error), [, newer] = new RegExp(`${newerVersion} (\\d+)`).exec(said) ?? [];
    if (newer) {
      return new FatalError(
        "schema",
        `Read the thread: it has schema version ${newer}, this version of Pawl reads ${version}. Run a newer Pawl`,
      );
    }
    return /^(WRONGPASS|NOAUTH|NOPERM|Unauthorized)/i.test(said)
      ? new FatalError("store", `Upstash Redis refuses the token: ${said}`)
      : new RetryableError(`Upstash Redis: ${said}`);
  }
}

function isUnknown({ error }: Answer): boolean {
  return error?.startsWith("NOSCRIPT") ?? false;
}

function unanswered(how: string): RetryableError {
  return new RetryableError(`Upstash Redis ${how}, so nobody knows whether the change was made`);
}

/** What a server's error says, without the command and without anything it quotes. */
function saying(error: string): string {
  const [line] = error.split(/, command was: |, with args beginning with|\n/);
  return line!.replace(/(["'`]).*?\1/g, "…").slice(0, 200);
}

function refuseTooLarge({ args }: Call): void {
  const units = args.reduce((sum, arg) => sum + arg.length, 0);
  // As JSON a UTF-16 unit takes at most six bytes; few requests need the exact count.
  if (units * 6 < requestLimit) return;
  const bytes = new TextEncoder().encode(JSON.stringify(args)).length;
  if (bytes <= requestLimit) return;
  throw new FatalError(
    "too_large",
    `Write to Upstash Redis: ${
      (bytes / 1e6).toFixed(1)
    } MB at once, of which one request takes 10. Nothing was written`,
  );
}
