/**
 * Which addresses the service may be sent to by a model or a caller. It judges what a URL says, not what a name resolves to: a deployment
 * whose network must not be reached by names of somebody else's DNS has to keep that network closed. It connects to nothing.
 */
import ipaddr from "ipaddr.js";

/**
 * Why `url` must not be fetched, or undefined. Only http and https, without a password, to public hosts; `allow` lists hosts that are
 * reached all the same, as `host` or `host:port`. Whoever follows redirects asks again for each of them (CASES H02).
 */
export function refusal(url: URL, allow: readonly string[]): string | undefined {
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    return `${url.protocol} is not allowed, only http: and https:`;
  }
  if (url.username !== "" || url.password !== "") return "a URL with a user name or password is not allowed";
  const host = bare(url.hostname);
  const port = url.port || (url.protocol === "http:" ? "80" : "443");
  if (allow.some((entry) => admits(entry, host, port))) return undefined;
  return ipaddr.isValid(host) ? addressRefusal(host) : nameRefusal(host);
}

/** The hosts in PAWL_ALLOW_HOSTS. */
export function hostList(setting: string | undefined): string[] {
  return (setting ?? "").split(",").map((host) => host.trim()).filter((host) => host !== "");
}

function addressRefusal(host: string): string | undefined {
  // `process` takes the IPv4 address out of ::ffff:0:0/96. URL has made dotted decimals of hex, octal and short spellings before.
  const address = ipaddr.process(host);
  const range = address.range();
  // What lies outside of 2000::/3 is not in public use, and may carry an IPv4 address, as ::127.0.0.1 does.
  const isPublic = range === "unicast" &&
    (address.kind() === "ipv4" || address.match(ipaddr.parseCIDR("2000::/3")));
  return isPublic ? undefined : `${host} is not a public address (${range})`;
}

/** Top-level names for private use. */
const local = new Set(["localhost", "internal", "local", "localdomain", "home", "lan", "corp", "intranet"]);

function nameRefusal(host: string): string | undefined {
  const labels = host.split(".");
  const isPublic = labels.length > 1 && !labels.includes("") && !local.has(labels.at(-1)!) &&
    !host.endsWith(".home.arpa");
  return isPublic ? undefined : `${host} is not a public host`;
}

function admits(entry: string, host: string, port: string): boolean {
  const [, name = "", only] = entry.match(/^(\[.*\]|[^:]*)(?::(\d+))?$/) ?? [undefined, `[${entry}]`];
  if (only !== undefined && only !== port) return false;
  try {
    return bare(new URL(`http://${name}`).hostname) === host;
  } catch {
    return false;
  }
}

/** A host without brackets and trailing dots. */
function bare(hostname: string): string {
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return host.endsWith(".") ? host.slice(0, -1) : host;
}
