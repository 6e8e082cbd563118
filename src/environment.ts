/** The environment's settings, read once where a process or a request begins. A wrong one is one line that names the variable. */
import type { Budget } from "./budget.ts";
import { FatalError } from "./errors.ts";
import { parseApiKeys, type Tenants } from "./http/auth.ts";

export type Environment = { readonly [name: string]: string | undefined };

export interface Deployment {
  port: number;
  /** The embedded store's file. */
  database: string;
  budget: Partial<Budget>;
  leaseMs: number;
  ttlMs: number;
  tenants: Tenants;
}

export function deploymentFrom(env: Environment): Deployment {
  const softMs = whole(env, "PAWL_SLICE_MS", { min: 1 }),
    hardMs = whole(env, "PAWL_SLICE_MAX_MS", { min: 1 });
  if ((softMs ?? 25_000) > (hardMs ?? 600_000)) {
    throw new FatalError("setting", "PAWL_SLICE_MS: it is larger than PAWL_SLICE_MAX_MS; make it smaller");
  }
  for (const name of ["UPSTASH_REDIS_REST_URL", "QSTASH_TOKEN"]) {
    if (env[name]) {
      throw new FatalError(
        "setting",
        `${name}: this version has the embedded store and queue only; unset it`,
      );
    }
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
    tenants: parseApiKeys(env.PAWL_API_KEYS),
  };
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
