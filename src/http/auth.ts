/**
 * Who calls. With keys, the bearer key names the tenant. Without, only programs on this machine are served, as the tenant "local": no
 * other client address, no other host name (DNS rebinding), no web page from elsewhere in a browser that runs here.
 */
import { digest } from "../digest.ts";
import { FatalError, InputError } from "../errors.ts";

export interface ApiKey {
  tenant: string;
  key: string;
}

/** Empty: there are no keys. A tenant may hold several, so that they can be exchanged. */
export type Tenants = readonly ApiKey[];

/** What the platform knows of a connection and a request does not say. */
export interface From {
  /** The client's IP address. Absent: unknown, which is never loopback. */
  remoteAddress?: string;
}

/** Reads PAWL_API_KEYS, "tenant:key,tenant:key"; absent or empty: no keys. Throws FatalError, which never quotes a key. */
export function parseApiKeys(text: string | undefined): Tenants {
  if (!text) return [];
  const tenants = text.split(",").map((pair, index) => {
    const [, tenant, key] = /^([A-Za-z0-9_.-]{1,64}):([\x21-\x7e]+)$/.exec(pair.trim()) ?? [];
    if (!tenant || !key) {
      throw new FatalError(
        "setting",
        `PAWL_API_KEYS: entry ${
          index + 1
        } is not tenant:key; a tenant is 1 to 64 of A-Z a-z 0-9 _ . -, a key visible ASCII without ","`,
      );
    }
    return { tenant, key };
  });
  tenants.forEach(({ tenant, key }, index) => {
    const other = tenants.slice(0, index).find((earlier) => earlier.key === key && earlier.tenant !== tenant);
    if (other) {
      throw new FatalError(
        "setting",
        `PAWL_API_KEYS: ${other.tenant} and ${tenant} have the same key; give each its own`,
      );
    }
  });
  return tenants;
}

/** Whether two secrets are the same, in a time that says nothing of where they differ nor of their lengths (CASES H11). */
export async function same(a: string, b: string): Promise<boolean> {
  const [left, right] = await Promise.all([digest(a), digest(b)]);
  return left.reduce((differing, byte, at) => differing | (byte ^ right[at]!), 0) === 0;
}

/** The tenant whose request this is; throws InputError "unauthorized". Reads headers only, so nobody is made to wait for a body. */
export async function tenantOf(request: Request, from: From | undefined, tenants: Tenants): Promise<string> {
  if (tenants.length === 0) {
    refuseStrangers(request, from);
    return "local";
  }
  const [, key] = /^Bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "") ?? [];
  if (!key) throw new InputError("unauthorized", 'Expected the header "Authorization: Bearer KEY"');
  // All are compared, whichever fits.
  const fits = await Promise.all(tenants.map((known) => same(known.key, key)));
  const tenant = tenants[fits.indexOf(true)]?.tenant;
  if (!tenant) throw new InputError("unauthorized", "The key is not one of PAWL_API_KEYS");
  return tenant;
}

function refuseStrangers(request: Request, from: From | undefined): void {
  if (!isLoopbackAddress(from?.remoteAddress ?? "")) {
    throw new InputError("unauthorized", "Without PAWL_API_KEYS only clients on this machine are served");
  }
  const origin = request.headers.get("origin");
  const named = [
    new URL(request.url).hostname,
    hostOf(`http://${request.headers.get("host") ?? "localhost"}`),
  ];
  if (!named.every(isLoopbackName)) {
    throw new InputError(
      "unauthorized",
      "Without PAWL_API_KEYS the host must be localhost, 127.0.0.1 or [::1]",
    );
  }
  if (origin !== null && !isLoopbackName(hostOf(origin))) {
    throw new InputError("unauthorized", "Without PAWL_API_KEYS no web page from elsewhere is served");
  }
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname : "";
}

function isLoopbackName(host: string): boolean {
  return host === "localhost" || host.endsWith(".localhost") ||
    isLoopbackAddress(host.replace(/^\[|\]$/g, ""));
}

function isLoopbackAddress(address: string): boolean {
  return address === "::1" || /^(::ffff:)?127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/i.test(address);
}
