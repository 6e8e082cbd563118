/**
 * The service on Cloudflare Workers. Everything that does I/O is made anew for each request, for it may not be shared between them; only
 * transcripts outlive one, which are plain data.
 */
import { notSetUp, serviceFrom } from "./service.ts";
import type { Environment } from "./src/environment.ts";
import { Warm } from "./src/slice.ts";

const warm = new Warm();

/** What a Worker may ask of the network in one invocation, unless the setting says otherwise. */
const subrequests = "900";

/** What wrangler.toml and the dashboard give a Worker: settings, and things of the platform. */
type Bindings = { readonly [name: string]: unknown };
type Context = { waitUntil(work: Promise<unknown>): void };

/** A number in wrangler.toml is one here, too. */
function settingsOf(env: Bindings): Environment {
  const plain = Object.entries(env).filter(([, value]) => /^(string|number|boolean)$/.test(typeof value));
  return Object.fromEntries(plain.map(([name, value]) => [name, String(value)]));
}

function report(error: unknown): void {
  // deno-lint-ignore no-console
  console.error(error);
}

export default {
  async fetch(request: Request, env: Bindings, context: Context): Promise<Response> {
    try {
      const { pawl } = serviceFrom({ PAWL_SLICE_SUBREQUESTS: subrequests, ...settingsOf(env) }, {
        warm,
        waitUntil: (work) => context.waitUntil(work),
        onError: report,
      });
      return await pawl.fetch(request);
    } catch (error) {
      return notSetUp(error, report);
    }
  },
};
