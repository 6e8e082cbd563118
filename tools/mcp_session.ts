/**
 * The conversation with one MCP server in one slice. It owns the connection and the words for what goes wrong with it: what the SDK or the
 * platform says may hold addresses and credentials, so none of it is passed on.
 */
import * as streamableHttp from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as protocol from "@modelcontextprotocol/sdk/shared/protocol.js";
import * as types from "@modelcontextprotocol/sdk/types.js";
import * as z from "zod";
import { messageOf } from "../src/errors.ts";
import { CallResult } from "./mcp_result.ts";
import { watched } from "./mcp_stream.ts";

/** What went wrong, in words that may be shown. `unsure`: the server may have done what it was asked all the same. */
export class Failure extends Error {
  constructor(message: string, readonly unsure = false) {
    super(message);
  }
}

export interface Server {
  url: string;
  headers?: { [name: string]: string };
}

export interface CallOptions {
  signal: AbortSignal;
  idempotencyKey: string;
  onUpdate(text: string): void;
}

/** Rejects with Failure. */
export interface Session {
  /** All tools, each as the server describes it; within `ms`. */
  list(signal: AbortSignal, ms: number): Promise<unknown[]>;
  /** A call whose signal aborts is given up, and the server told so. */
  call(tool: string, args: unknown, options: CallOptions): Promise<CallResult>;
  /** Ends the server's session too, if it answers soon. */
  close(): Promise<void>;
}

// Not lazily, as vendors' SDKs are: it shares zod with the rest, and esbuild would then set up zod too late on Workers.
// Its packing names no types for the modules that run, so they are those of the same modules under the names that have some.
type Sdk =
  & typeof import("@modelcontextprotocol/sdk/shared/protocol")
  & typeof import("@modelcontextprotocol/sdk/client/streamableHttp")
  & typeof import("@modelcontextprotocol/sdk/types");

const sdk = { ...protocol, ...streamableHttp, ...types } as unknown as Sdk;

type Connection = Awaited<ReturnType<typeof connect>>;
type Asked = { signal: AbortSignal; onprogress?(progress: Progress): void };
type Progress = { progress: number; total?: number; message?: string };

const mostPages = 50;
/** How long a server may take to hear of the end. */
const closeMs = 1_000;
/** Whoever asks has a signal, and the SDK's own limit would only be a second one. */
const noTimeout = 2_147_483_647;

const Page = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });

/** It is connected to with the first question, and again if the server has forgotten it meanwhile. */
export function openSession(server: Server, fetch: typeof globalThis.fetch): Session {
  const clean = redaction(server), opened: Promise<Connection>[] = [];
  let current: Promise<Connection> | undefined, closed = false;

  const ask = async <T>(method: string, params: object, schema: z.ZodType<T>, it: Asked): Promise<T> => {
    for (let tries = 1;; tries++) {
      if (closed) throw new Failure("the connection is closed");
      if (!current) opened.push(current = connect(server, fetch, it.signal));
      const mine = current;
      try {
        return clean(await (await mine).ask(method, params, schema, it)) as T;
      } catch (error) {
        const failure = worded(error, it.signal);
        if (failure.gone && current === mine) current = undefined;
        // It refused to listen, so nothing has been done.
        if (failure.gone !== "forgotten" || tries > 1) {
          throw new Failure(clean(failure.message).slice(0, 1_000), failure.unsure);
        }
      }
    }
  };

  return {
    async list(signal, ms) {
      return await within(ms, async (limit) => {
        const tools: unknown[] = [], both = AbortSignal.any([signal, limit]);
        for (let cursor: string | undefined, pages = 0; pages < mostPages; pages++) {
          const page = await ask("tools/list", cursor ? { cursor } : {}, Page, { signal: both });
          tools.push(...page.tools);
          cursor = page.nextCursor;
          if (!cursor) return tools;
        }
        throw new Failure(`its list of tools has more than ${mostPages} pages`);
      });
    },
    call(name, args, { signal, idempotencyKey, onUpdate }) {
      const params = { name, arguments: args, _meta: { "pawl/idempotencyKey": idempotencyKey } };
      const onprogress = ({ progress, total, message }: Progress) =>
        onUpdate(clean([total ? `${progress}/${total}` : progress, message ?? ""].join(" ").trim()));
      return ask("tools/call", params, CallResult, { signal, onprogress });
    },
    async close() {
      closed = true;
      await Promise.allSettled(opened.map(async (connection) => await (await connection).close()));
    },
  };
}

async function connect({ url, headers }: Server, fetch: typeof globalThis.fetch, signal: AbortSignal) {
  const {
    Protocol,
    StreamableHTTPClientTransport,
    LATEST_PROTOCOL_VERSION,
    SUPPORTED_PROTOCOL_VERSIONS,
  } = sdk;

  // The SDK's Client brings a validator that compiles schemas to code, which Workers forbid. All that is needed of it besides is below.
  class Client extends Protocol<any, any, any> {
    protected override assertCapabilityForMethod() {}
    protected override assertNotificationCapability() {}
    protected override assertRequestHandlerCapability() {}
    protected override assertTaskCapability() {}
    protected override assertTaskHandlerCapability() {}
  }
  const client = new Client(),
    transport = new StreamableHTTPClientTransport(new URL(url), {
      fetch: watched(async (input, init) => {
        try {
          return await fetch(input, init);
        } catch (error) {
          if (init?.signal?.aborted) throw error;
          throw error instanceof TypeError
            ? new Failure("it cannot be reached", true)
            : new Failure(messageOf(error));
        }
      }),
      requestInit: { headers },
    });
  // A call that is given up is one of these: the server must hear of it before the connection ends.
  const notices = new Set<Promise<void>>(), send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const sent = send(message, options);
    if (!("id" in message)) notices.add(sent);
    return sent;
  };
  // The SDK leaves the request of a stream that it could not resume without an answer.
  client.onerror = ({ message }) => {
    if (message.startsWith("Maximum reconnection attempts")) client.close();
  };
  const ask = async <T>(method: string, params: object, schema: z.ZodType<T>, it: Asked): Promise<T> => {
    // The SDK listens on after the answer, and would take back what has long been done when a slice's signal aborts at its end.
    const given = new AbortController(), abort = () => given.abort(it.signal.reason);
    if (it.signal.aborted) abort();
    it.signal.addEventListener("abort", abort);
    try {
      const options = { ...it, signal: given.signal, timeout: noTimeout };
      return await client.request({ method, params }, schema, options) as T;
    } finally {
      it.signal.removeEventListener("abort", abort);
    }
  };
  await client.connect(transport);
  try {
    const hello = {
      protocolVersion: LATEST_PROTOCOL_VERSION,
      capabilities: {},
      clientInfo: { name: "pawl", version: "0.1.0" },
    };
    const greeting = z.looseObject({ protocolVersion: z.string() });
    const { protocolVersion } = await ask("initialize", hello, greeting, { signal });
    if (!SUPPORTED_PROTOCOL_VERSIONS.includes(protocolVersion)) {
      throw new Failure("it speaks a version of MCP that is not known here");
    }
    transport.setProtocolVersion(protocolVersion);
    await client.notification({ method: "notifications/initialized" });
  } catch (error) {
    await client.close();
    throw error;
  }
  return {
    ask,
    async close() {
      const goodbye = Promise.allSettled(notices).then(() => transport.terminateSession()).catch(() => {});
      await within(closeMs, (limit) =>
        Promise.race([
          goodbye,
          new Promise<void>((resolve) => limit.addEventListener("abort", () => resolve())),
        ]));
      await client.close();
    },
  };
}

/** Runs `body` with a signal that aborts after `ms`; unlike AbortSignal.timeout it leaves no timer behind. */
async function within<T>(ms: number, body: (limit: AbortSignal) => Promise<T>): Promise<T> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(new DOMException("Too late", "TimeoutError")), ms);
  try {
    return await body(limit.signal);
  } finally {
    clearTimeout(timer);
  }
}

/** `gone`: the connection is of no use any more; "forgotten" if the server has refused it unheard. */
type Worded = Failure & { gone?: "lost" | "forgotten" };

function worded(error: unknown, signal: AbortSignal): Worded {
  const { McpError, StreamableHTTPError } = sdk;
  const as = (message: string, unsure: boolean, gone?: Worded["gone"]): Worded =>
    Object.assign(new Failure(message, unsure), { gone });
  if (error instanceof Failure) return as(error.message, error.unsure, "lost");
  if (signal.aborted) {
    return as(signal.reason?.name === "TimeoutError" ? "it did not answer in time" : "it was stopped", true);
  }
  if (error instanceof StreamableHTTPError && error.code !== undefined && error.code > 0) {
    const status = error.code, refused = status < 500;
    if (status === 401 || status === 403) return as(`it refuses the credentials (HTTP ${status})`, false);
    // 404 says that there is no such session; some servers say 400.
    const forgotten = status === 404 || status === 400;
    return as(`it answered HTTP ${status}`, !refused, forgotten ? "forgotten" : undefined);
  }
  if (error instanceof McpError) {
    if (error.message.endsWith("Connection closed")) return as("the connection was lost", true, "lost");
    return as(error.message.replace(/^MCP error -?\d+: /, ""), false);
  }
  return as("it does not answer as MCP servers do", true, "lost");
}

/** Headers that say nothing secret; they would be taken out of results that are about them. */
const harmless = /^(accept.*|content-type|user-agent)$/i;

/** Takes out of what a server says what it was sent in confidence: nobody knows where that would go. */
function redaction({ url, headers = {} }: Server): <T>(said: T) => T {
  const values = Object.entries(headers).flatMap(([name, value]) => harmless.test(name) ? [] : [value]);
  const secrets = [...values, ...new URL(url).searchParams.values()]
    // Of "Bearer TOKEN" also the token alone.
    .flatMap((value) => [value.trim(), value.trim().split(/\s+/).at(-1)!])
    .filter((value) => value.length >= 6).map((value) => JSON.stringify(value).slice(1, -1));
  return (said) => {
    const text = JSON.stringify(said);
    const shown = secrets.reduce((shown, secret) => shown.replaceAll(secret, "[redacted]"), text);
    return shown === text ? said : JSON.parse(shown);
  };
}
