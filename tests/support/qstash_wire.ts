/** How QStash spells things: what a publish asks for in its headers, when a try comes again, how a delivery is signed. */

/** What a publish asks for. */
export interface Asked {
  destination: string;
  method: string;
  /** What goes on to the destination. */
  headers: Record<string, string>;
  body: Uint8Array<ArrayBuffer>;
  /** Unix ms. */
  notBefore: number;
  retries: number;
  retryDelay?: string;
  deduplicationId?: string;
  failureCallback?: { url: string; retries: number };
  flow?: { key: string; parallelism: number };
  scheduleId?: string;
}

/** A refusal, as the API answers it. */
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export const day = 86_400_000;

export interface Limits {
  /** Of the plan; the default is the free one's. */
  maxDelayMs: number;
  maxBytes: number;
  maxRetries: number;
}

export function readAsked(
  destination: string,
  headers: Headers,
  body: Uint8Array<ArrayBuffer>,
  now: number,
  limits: Limits,
): Asked {
  const get = (name: string) => headers.get(`upstash-${name}`) ?? undefined;
  if (!/^https?:\/\/./.test(destination)) {
    throw new Refused(400, "invalid destination url: endpoint does not start with http:// or https://");
  }
  if (body.length > limits.maxBytes) throw new Refused(413, "message is too large");
  const delay = get("delay"), notBefore = get("not-before"), id = get("deduplication-id");
  const at = notBefore ? Number(notBefore) * 1000 : now + (delay ? duration(delay) : 0);
  if (at - now > limits.maxDelayMs + 1000) throw new Refused(400, "delay is longer than the plan allows");
  if (id?.includes(":")) throw new Refused(400, "DeduplicationId cannot contain ':'");
  const retries = Number(get("retries") ?? 3);
  if (retries > limits.maxRetries) throw new Refused(400, "retries are more than the plan allows");
  const key = get("flow-control-key"), value = get("flow-control-value");
  if (key !== undefined && !/^[\w.-]+$/.test(key)) throw new Refused(400, "invalid flow control key");
  const parallelism = /parallelism=(\d+)/.exec(value ?? "")?.[1];
  if (key !== undefined && !parallelism) throw new Refused(400, "flow control value is missing");
  const failure = get("failure-callback");
  const onward = [...headers].filter(([name]) => name.startsWith("upstash-forward-"))
    .map(([name, text]) => [name.slice("upstash-forward-".length), text]);
  return {
    destination,
    method: get("method") ?? "POST",
    headers: { "content-type": headers.get("content-type") ?? "text/plain", ...Object.fromEntries(onward) },
    body,
    notBefore: at,
    retries,
    retryDelay: get("retry-delay"),
    deduplicationId: id,
    ...(failure && {
      failureCallback: { url: failure, retries: Number(get("failure-callback-retries") ?? retries) },
    }),
    ...(key && { flow: { key, parallelism: Number(parallelism) } }),
  };
}

/** "1d10h", "1m30s", "250ms", and seconds without a unit. */
export function duration(text: string): number {
  const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: day };
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1000;
  if (!/^(\d+(\.\d+)?(ms|[smhd]))+$/.test(text)) throw new Refused(400, "invalid duration");
  return [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhd])/g)]
    .reduce((sum, [, many, unit]) => sum + Number(many) * units[unit!]!, 0);
}

/** How long until the next try, after the one that was number `retried`: what the answer asks for, or the message, or e^(2.5 n) seconds. */
export function backoff(asked: Asked, retried: number, answer: Headers, now: number): number {
  const after = answer.get("retry-after");
  if (after) {
    const date = Date.parse(after);
    const ms = /^\d/.test(after) ? duration(after) : date - now;
    if (ms <= day) return Math.max(0, ms);
  }
  if (asked.retryDelay !== undefined) {
    const names = ["pow", "sqrt", "abs", "exp", "floor", "ceil", "round", "min", "max"] as const;
    const evaluate = new Function("retried", ...names, `return (${asked.retryDelay});`);
    return Math.min(day, evaluate(retried, ...names.map((name) => Math[name])));
  }
  return Math.min(day, Math.floor(Math.exp(2.5 * (retried + 1))) * 1000);
}

export interface Claims {
  iss?: string;
  sub?: string;
  iat?: number;
  nbf?: number;
  exp?: number;
  body?: string;
  jti?: string;
}

/** The signature of a delivery. `over` replaces claims; undefined leaves one out. */
export async function sign(
  key: string,
  { url, body, now = Date.now(), over = {} }: {
    url: string;
    body: Uint8Array<ArrayBuffer> | string;
    now?: number;
    over?: Claims;
  },
): Promise<string> {
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const iat = Math.floor(now / 1000);
  const claims: Claims = {
    iss: "Upstash",
    sub: url,
    iat,
    nbf: iat,
    exp: iat + 300,
    jti: `jwt_${crypto.randomUUID()}`,
    body: base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))) + "=",
    ...over,
  };
  const part = (value: unknown) => base64url(new TextEncoder().encode(JSON.stringify(value)));
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  const secret = await crypto.subtle.importKey(
    "raw",
    new TextEncoder().encode(key),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["sign"],
  );
  const mac = await crypto.subtle.sign("HMAC", secret, new TextEncoder().encode(signed));
  return `${signed}.${base64url(new Uint8Array(mac))}`;
}

export function base64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

function base64url(bytes: Uint8Array): string {
  return base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
