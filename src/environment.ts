/** The environment's settings, read once where a process or a request begins. A wrong one is one line that names the variable. */
import type { Budget } from "./budget.ts";
import { FatalError } from "./errors.ts";
import type { Patience } from "./patience.ts";
import { parseApiKeys, type Tenants } from "./http/auth.ts";

export type Environment = { readonly [name: string]: string | undefined };

export interface Deployment {
  port: number;
  /** The embedded store's file. */
  database: string;
  budget: Partial<Budget>;
  leaseMs: number;
  ttlMs: number;
  compactTokens?: number;
  patience: Partial<Patience>;
  tenants: Tenants;
  /** Set: the store is Upstash Redis and the queue QStash. Absent: both are embedded. */
  upstash?: Upstash;
}

export interface Upstash {
  redis: { url: string; token: string };
  qstash: Qstash;
}

export interface Qstash {
  token: string;
  /** Absent: the default region's. */
  url?: string;
  currentSigningKey: string;
  nextSigningKey: string;
  /** Where QStash finds this service; ends without "/". */
  publicUrl: string;
}

export function deploymentFrom(env: Environment): Deployment {
  const softMs = whole(env, "PAWL_SLICE_MS", { min: 1 }),
    hardMs = whole(env, "PAWL_SLICE_MAX_MS", { min: 1 });
  if ((softMs ?? 25_000) > (hardMs ?? 600_000)) {
    throw new FatalError("setting", "PAWL_SLICE_MS: it is larger than PAWL_SLICE_MAX_MS; make it smaller");
  }
  const tenants = parseApiKeys(env.PAWL_API_KEYS), upstash = upstashFrom(env);
  if (upstash && !tenants.length) {
    throw new FatalError(
      "setting",
      "PAWL_API_KEYS: set it; with Upstash and QStash others reach this service",
    );
  }
  return {
    port: whole(env, "PORT", { min: 0, max: 65_535 }) ?? 8000,
    database: env.PAWL_DB || "pawl.db",
    budget: present({
      softMs,
      hardMs,
      turns: whole(env, "PAWL_SLICE_TURNS", { min: 1 }),
      subrequests: whole(env, "PAWL_SLICE_SUBREQUESTS", { min: 20 }),
    }),
    leaseMs: whole(env, "PAWL_LEASE_MS", { min: 1000 }) ?? 60_000,
    ttlMs: (whole(env, "PAWL_TTL_S", { min: 60 }) ?? 604_800) * 1000,
    ...present({ compactTokens: whole(env, "PAWL_COMPACT_TOKENS", { min: 1000 }) }),
    patience: present({
      firstMs: whole(env, "PAWL_FIRST_TOKEN_MS", { min: 1 }),
      idleMs: whole(env, "PAWL_IDLE_MS", { min: 1 }),
    }),
    tenants,
    ...(upstash && { upstash }),
  };
}

/** The one is of no use without the other: QStash calls any process there is, and all of them must find the same runs. */
function upstashFrom(env: Environment): Upstash | undefined {
  const redis = together(env, ["UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN"]),
    qstash = qstashFrom(env);
  if (!redis && !qstash) return undefined;
  if (!redis || !qstash) {
    const [there, missing] = redis
      ? ["UPSTASH_REDIS_REST_URL", "QSTASH_TOKEN"]
      : ["QSTASH_TOKEN", "UPSTASH_REDIS_REST_URL"];
    throw new FatalError(
      "setting",
      `${missing}: it is missing, but ${there} is set; Upstash Redis and QStash go together: set both, or neither`,
    );
  }
  const [url, token] = redis;
  return { redis: { url: address("UPSTASH_REDIS_REST_URL", url), token }, qstash };
}

/** Undefined: nothing of QStash is set. Throws FatalError if only part of it is, or if something of it cannot be right. */
export function qstashFrom(env: Environment): Qstash | undefined {
  const all = together(
    env,
    ["QSTASH_TOKEN", "QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY", "PAWL_PUBLIC_URL"],
    ["QSTASH_URL"],
  );
  if (!all) return undefined;
  const [token, currentSigningKey, nextSigningKey, publicUrl] = all, url = env.QSTASH_URL;
  return {
    token,
    ...(url && { url: address("QSTASH_URL", url) }),
    currentSigningKey,
    nextSigningKey,
    publicUrl: address("PAWL_PUBLIC_URL", publicUrl),
  };
}

/** The values of settings of which either all are needed or none is; `more` may accompany them. */
function together<const Names extends readonly string[]>(
  env: Environment,
  names: Names,
  more: string[] = [],
): { [at in keyof Names]: string } | undefined {
  const set = [...names, ...more].filter((name) => env[name]);
  if (!set.length) return undefined;
  for (const name of names) {
    if (!env[name]) {
      throw new FatalError("setting", `${name}: it is missing, but ${set[0]} is set; set it too`);
    }
    // What was pasted with a line break would fail much later, in a header.
    if (!/^[\x21-\x7e]+$/.test(env[name])) {
      throw new FatalError(
        "setting",
        `${name}: it holds spaces, line breaks or characters that are not ASCII`,
      );
    }
  }
  return names.map((name) => env[name]!) as { [at in keyof Names]: string };
}

/** Secrets go there: https, or this machine. */
function address(name: string, text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const loopback = url !== undefined && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  const fits = url?.protocol === "https:" || (loopback && url.protocol === "http:");
  if (!fits || url.search || url.hash || url.username || url.password) {
    throw new FatalError(
      "setting",
      `${name}: expected a URL with https (http on this machine only), and without query or user`,
    );
  }
  return url.href.replace(/\/+$/, "");
}

function whole(
  env: Environment,
  name: string,
  { min, max = Number.MAX_SAFE_INTEGER }: { min: number; max?: number },
) {
  const text = env[name];
  if (!text) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= min && value <= max) return value;
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  throw new FatalError("setting", `${name}: expected a whole number ${range}, got "${text}"`);
}

function present<T extends object>(all: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}
