/**
 * The HTTP face of the verbs: a Hono app. What it owns: who may ask, what a request must look like, how answers and failures are spelled.
 * What happens to runs it leaves to the verbs.
 */
import { type Context, Hono } from "hono";
import type { Clock } from "../clock.ts";
import { InputError } from "../errors.ts";
import type { Verbs } from "../verbs.ts";
import { type From, tenantOf, type Tenants } from "./auth.ts";
import { failed, failure, isUnexpected } from "./failure.ts";
import { describe } from "./openapi.ts";
import { page } from "./page.ts";
import { routes } from "./routes.ts";

export interface FaceOptions {
  tenants: Tenants;
  clock: Clock;
  /** Verifies what a queue sends (POST /slices, /slices/failed, /sweep) and does it. Absent: no queue delivers over HTTP, all are 401. */
  deliveries?: (request: Request) => Promise<Response>;
  /** Hears of every failure that is not the caller's; the caller is told nothing of its inside. */
  onError?: (error: unknown) => void;
}

/** `fetch(request, {remoteAddress})` answers one request; without an address, a face without keys answers nobody. */
export type Face = Hono<{ Bindings: From }>;
type Asking = Context<{ Bindings: From }>;

export function httpFace(
  verbs: Verbs,
  { tenants, clock, deliveries, onError = () => {} }: FaceOptions,
): Face {
  const app: Face = new Hono();
  const methods = new Map<string, string[]>();
  const refuse = (thrown: unknown) => {
    if (isUnexpected(thrown)) onError(thrown);
    return failed(thrown);
  };
  const on = (method: string, path: string, answer: (c: Asking) => Response | Promise<Response>) => {
    methods.set(path, [...methods.get(path) ?? [], method.toUpperCase()]);
    app.on(method.toUpperCase(), path, async (c) => {
      try {
        return await answer(c);
      } catch (thrown) {
        // Here and not only in onError, to which Hono brings nothing that is not an Error.
        return refuse(thrown);
      }
    });
  };

  const table = routes(verbs, { clock, onError: refuse });
  for (const route of table) {
    on(route.method, route.path.replace(/\{(\w+)\}/g, ":$1"), async (c) => {
      // Before anything of the body is read (CASES H07).
      const tenant = await tenantOf(c.req.raw, c.env, tenants);
      const { path } = c.req;
      const answer = await route.handle({
        tenant,
        request: c.req.raw,
        path,
        params: c.req.param(),
        query: c.req.query(),
      });
      // Nobody will read it, and an event stream is let go only by its reader.
      if (c.req.method === "HEAD") await answer.body?.cancel();
      return answer;
    });
  }

  for (const path of ["/slices", "/slices/failed", "/sweep"]) {
    on("post", path, (c) => {
      if (!deliveries) throw new InputError("unauthorized", "No queue delivers to this service");
      return deliveries(c.req.raw);
    });
  }

  let description: unknown;
  on("get", "/openapi.json", () => Response.json(description ??= describe(table)));
  on("get", "/healthz", () => Response.json({ ok: true }));
  on("get", "/", (c) => {
    c.header("content-security-policy", "default-src 'none'");
    return c.html(page);
  });

  for (const [path, allowed] of methods) {
    const allow = allowed.join(", ");
    const message = `This path takes ${allow}`;
    app.all(path, () => failure(405, { code: "method_not_allowed", message }, { allow }));
  }
  app.notFound(() =>
    failure(404, { code: "not_found", message: "There is no such path; /openapi.json names all there are" })
  );
  app.onError(refuse);
  return app;
}
