/**
 * The service on Cloudflare Workers. Everything that does I/O is made anew for each request, for it may not be shared between them; only
 * transcripts outlive one, which are plain data.
 */
import { serviceFrom } from "./service.ts";
import { FatalError, InputError } from "./src/errors.ts";
import type { Environment } from "./src/environment.ts";
import { Warm } from "./src/slice.ts";

const warm = new Warm();

/** What a Worker may ask of the network in one invocation, unless the setting says otherwise. */
const subrequests = "900";

function report(error: unknown): void {
  // deno-lint-ignore no-console
  console.error(error);
}

export default {
  async fetch(request: Request, env: Environment): Promise<Response> {
    try {
      const { pawl } = serviceFrom({ PAWL_SLICE_SUBREQUESTS: subrequests, ...env }, {
        warm,
        onError: report,
      });
      return await pawl.fetch(request);
    } catch (error) {
      if (!(error instanceof FatalError || error instanceof InputError)) throw error;
      report(error.message);
      return Response.json({
        error: { code: "setting", message: "The service is not set up; its log says why" },
      }, { status: 503 });
    }
  },
};
