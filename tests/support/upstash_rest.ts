/**
 * Stands in for Upstash Redis: its REST API before a plain redis-server. It refuses what Upstash refuses: scripts that touch a key they were
 * not given or that use commands unknown here, requests that are too large, wrong tokens. It counts, and it can misbehave.
 */
import { createHash } from "node:crypto";
import { Hono } from "hono";
import { Redis } from "ioredis";

/** What goes wrong with a request: it never arrives, its answer never does, it comes late, or it is refused. */
export type Fault = "drop request" | "drop response" | { delayMs: number } | {
  status: number;
  error: string;
};

export interface UpstashRest {
  url: string;
  token: string;
  /** For a service that shall use it. */
  env: Record<string, string>;
  /** To look at what is stored, and change it. */
  redis: Redis;
  /** Decides for each request; it is shown the path and the commands. */
  fault?: (path: string, commands: string[][]) => Fault | undefined | Promise<Fault | undefined>;
  /** Requests that ran commands, and bytes of their bodies. */
  requests: number;
  bytes: { in: number; out: number };
  readonly subscriptions: number;
  /** The same without a network. */
  fetch(request: Request): Promise<Response>;
  /** Resolves when the subscriptions that stand have been told all that was published so far. */
  heard(): Promise<void>;
  /** Commands run so far, those inside scripts included, as Upstash bills them. */
  commands(): Promise<number>;
  close(): Promise<void>;
}

const requestLimit = 10 * 1024 * 1024;
const shebang = "#!lua flags=allow-key-locking\n";
/** Upstash's REST API has none of these. */
const absent =
  /^(blpop|brpop|blmove|bzpop|wait|watch|unwatch|monitor|cluster|debug|config|shutdown|multi|exec)/;

export function upstashRest(port: number, token = "SEKRIT-redis"): UpstashRest {
  const connect = () => new Redis({ port, host: "127.0.0.1", protocol: 2 });
  const redis = connect();
  /** What a script is called by those who send it, and by the server that runs it. */
  const digests = new Map<string, string>();

  const run = (command: string[]): Promise<unknown> => {
    const [name = "", ...args] = command, verb = name.toLowerCase();
    if (absent.test(verb)) throw new Error(`ERR Command is not available: '${verb}'`);
    if (verb === "eval") {
      const [text = "", ...rest] = args;
      const body = guarded(
        text.startsWith(shebang) ? text.slice(shebang.length) : text,
        text.startsWith(shebang),
      );
      digests.set(sha1(text), sha1(body));
      return redis.callBuffer("EVAL", body, ...rest);
    }
    if (verb === "evalsha") {
      const [digest = "", ...rest] = args;
      return redis.callBuffer("EVALSHA", digests.get(digest) ?? digest, ...rest);
    }
    return redis.callBuffer(verb, ...args);
  };
  /** Sent at once, so that nothing of another request comes between. */
  const together = (commands: string[][]) =>
    Promise.all(commands.map(async (command) => {
      try {
        return { result: await run(command) };
      } catch (error) {
        return { error: (error as Error).message };
      }
    }));

  const atomically = async (commands: string[][]) => {
    const begun = redis.call("MULTI"), queued = together(commands), done = redis.callBuffer("EXEC");
    await Promise.all([begun, queued]);
    return (await done as unknown[]).map((result) =>
      result instanceof Error ? { error: result.message } : { result }
    );
  };

  const subscribers = new Set<Redis>();
  const app = new Hono();
  app.use(async (c, next) => {
    if (c.req.header("authorization") === `Bearer ${token}`) return await next();
    return c.json({ error: "WRONGPASS invalid or missing auth token" }, 401);
  });
  app.post("/subscribe/:channel", (c) => {
    const channel = c.req.param("channel"), subscriber = connect(), encoder = new TextEncoder();
    const leave = () => {
      subscribers.delete(subscriber);
      subscriber.removeAllListeners("message").disconnect();
    };
    subscribers.add(subscriber);
    const body = new ReadableStream<Uint8Array>({
      async start(controller) {
        const say = (...parts: unknown[]) =>
          controller.enqueue(encoder.encode(`data: ${parts.join(",")}\n\n`));
        subscriber.on("message", (_, text) => say("message", channel, text));
        say("subscribe", channel, await subscriber.subscribe(channel));
      },
      cancel: leave,
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  });
  for (const path of ["/", "/pipeline", "/multi-exec"]) {
    app.post(path, async (c) => {
      const text = await c.req.text(), size = new TextEncoder().encode(text).length;
      rest.requests++;
      rest.bytes.in += size;
      if (size > requestLimit) {
        const error = `ERR max request size exceeded. Limit: ${requestLimit} bytes, Actual: ${size} bytes`;
        return c.json({ error }, 400);
      }
      const parsed = JSON.parse(text),
        commands = (path === "/" ? [parsed] : parsed).map((one: unknown[]) => one.map(String));
      const fault = await rest.fault?.(path, commands);
      if (fault === "drop request") return torn();
      if (typeof fault === "object" && "status" in fault) {
        return c.json({ error: fault.error }, fault.status as 400);
      }
      if (typeof fault === "object") await new Promise((resolve) => setTimeout(resolve, fault.delayMs));
      const replies = path === "/multi-exec" ? await atomically(commands) : await together(commands);
      if (fault === "drop response") return torn();
      const base64 = c.req.header("upstash-encoding") === "base64";
      const out = replies.map((reply) =>
        "error" in reply ? reply : { result: encoded(reply.result, base64) }
      );
      const answer = JSON.stringify(path === "/" ? out[0] : out), failed = path === "/" && "error" in out[0]!;
      rest.bytes.out += answer.length;
      return c.body(answer, failed ? 400 : 200, { "content-type": "application/json" });
    });
  }
  // Of a request whose sender has died the body cannot be read.
  app.onError((error, c) => c.json({ error: `ERR ${error.message}` }, 500));
  app.notFound((c) => c.json({ error: "ERR not found" }, c.req.method === "POST" ? 404 : 405));

  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, app.fetch);
  const rest: UpstashRest = {
    url: `http://127.0.0.1:${server.addr.port}`,
    token,
    get env() {
      return { UPSTASH_REDIS_REST_URL: this.url, UPSTASH_REDIS_REST_TOKEN: this.token };
    },
    redis,
    requests: 0,
    bytes: { in: 0, out: 0 },
    get subscriptions() {
      return subscribers.size;
    },
    fetch: async (request) => await app.fetch(request),
    async heard() {
      // Redis answers a connection in order.
      await Promise.all([...subscribers].map((subscriber) => subscriber.ping().catch(() => {})));
    },
    async commands() {
      const stats = await redis.info("commandstats");
      return [...stats.matchAll(/cmdstat_(\S+?):calls=(\d+)/g)]
        .reduce((sum, [, name, calls]) => sum + (name === "info" ? 0 : Number(calls)), 0);
    },
    async close() {
      await server.shutdown();
      redis.disconnect();
    },
  };
  return rest;
}

function sha1(text: string): string {
  return createHash("sha1").update(text).digest("hex");
}

/** Strings as Upstash writes them: in base64, but for the word OK. */
function encoded(value: unknown, base64: boolean): unknown {
  if (Array.isArray(value)) return value.map((item) => encoded(item, base64));
  if (!(value instanceof Uint8Array)) return value;
  const text = value.toString();
  return base64 && text !== "OK" ? (value as Buffer).toString("base64") : text;
}

/** A body shorter than was promised is how a torn connection looks, without the noise of an error in the server. */
function torn(): Response {
  return new Response(new ReadableStream({ start: (controller) => controller.close() }), {
    headers: { "content-length": "1000000000" },
  });
}

/** Commands by where their keys stand. */
const keysFirst =
  "get set pttl pexpire pexpireat exists incr hget hset hsetnx hmget hgetall hkeys hdel hexists hlen " +
  "lrange llen rpush lset lrem ltrim lindex zadd zrem zscore zrange zcard";
const keysOnly = "del";
const keysNone = "time publish";

/** The script in one that watches over its calls. It stays on one line, so that errors name the script's own. */
function guarded(script: string, locking: boolean): string {
  const table = (names: string) => `{${names.split(" ").map((name) => `${name}=1`).join(",")}}`;
  const guard = `local redis = (function(redis)
    local first, only, none, given = ${table(keysFirst)}, ${table(keysOnly)}, ${table(keysNone)}, {}
    for _, key in ipairs(KEYS) do given[key] = true end
    local function check(name, ...)
      local verb, keys = name:lower(), {...}
      if first[verb] then keys = {keys[1]} elseif none[verb] then keys = {} elseif not only[verb] then error('ERR unknown here: ' .. name) end
      for _, key in ipairs(keys) do
        if not given[key] then error('ERR ' .. name .. ' touches a key that the script was not given') end
      end
    end
    return {
      call = function(...) check(...) return redis.call(...) end,
      pcall = function(...) check(...) return redis.pcall(...) end,
    }
  end)(redis);`;
  return locking ? guard.replaceAll("\n", " ") + script : script;
}
