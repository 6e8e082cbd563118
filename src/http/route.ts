/** One route: what it takes and answers, said once, for validation and for the description (`openapi.ts`). */
import * as z from "zod";
import { digest, hex } from "../digest.ts";
import { type InputCode, InputError } from "../errors.ts";
import type { Key } from "../verbs.ts";
import { parseJson, readBody } from "./body.ts";

/** What a route's `run` is given, all of it checked. */
export interface Given<P, Q, B> {
  tenant: string;
  params: P;
  query: Q;
  body: B;
  /** Only where the route is `keyed` and the client sent one. */
  key?: Key;
  headers: Headers;
  /** Aborts when the client is gone. Asked for only where it is used: Deno warns of its own meaning of it once it was read. */
  signal(): AbortSignal;
}

export interface Answer<O> {
  status: number;
  body?: O;
  headers?: Record<string, string>;
}

export interface Spec<
  P extends z.ZodObject,
  Q extends z.ZodObject,
  B extends z.ZodType,
  O extends z.ZodType,
> {
  /** For generated clients: the name of the call. */
  name: string;
  method: "get" | "post" | "delete";
  /** "/runs/{id}" */
  path: string;
  summary: string;
  params?: P;
  query?: Q;
  body?: B;
  /** Takes an Idempotency-Key. */
  keyed?: true;
  /** Each good status and what it means; the schema of the body, if there is one. */
  out: { statuses: { [status: number]: string }; schema?: O; type?: string };
  /** Besides those that every route may answer. */
  errors?: InputCode[];
  run(given: Given<z.output<P>, z.output<Q>, z.output<B>>): Promise<Answer<z.output<O>> | Response>;
}

/** What a request is, before it is checked. */
export interface Asked {
  tenant: string;
  request: Request;
  path: string;
  params: Record<string, string>;
  query: Record<string, string>;
}

export interface Route extends Omit<Spec<z.ZodObject, z.ZodObject, z.ZodType, z.ZodType>, "run"> {
  /** Checks and runs; throws InputError naming every field that is wrong. */
  handle(asked: Asked): Promise<Response>;
}

export function route<
  P extends z.ZodObject = z.ZodObject<Record<never, never>>,
  Q extends z.ZodObject = z.ZodObject<Record<never, never>>,
  B extends z.ZodType = z.ZodUndefined,
  O extends z.ZodType = z.ZodUndefined,
>({ run, ...spec }: Spec<P, Q, B, O>): Route {
  return {
    ...spec,
    async handle({ tenant, request, path, params, query }) {
      const checked = {
        params: check(spec.params ?? nothing, params, "path") as z.output<P>,
        query: check(spec.query ?? nothing, query, "query") as z.output<Q>,
      };
      const name = spec.keyed ? keyName(request.headers) : undefined;
      const bytes = spec.body && await readBody(request);
      const body = spec.body && bytes && check(spec.body, parseJson(bytes), "body");
      const key = name && { name, hash: await hashOf(`${request.method} ${path}\n`, bytes) };
      const answer = await run({
        tenant,
        ...checked,
        body: body as z.output<B>,
        ...(key ? { key } : {}),
        headers: request.headers,
        signal: () => request.signal,
      });
      if (answer instanceof Response) return answer;
      const init = { status: answer.status, headers: { "cache-control": "no-store", ...answer.headers } };
      return answer.body === undefined ? new Response(null, init) : Response.json(answer.body, init);
    },
  };
}

const nothing = z.strictObject({});

/** A query parameter that is a whole number. */
export function whole(min: number, max: number, description: string) {
  return z.preprocess(
    (text) => typeof text === "string" && /^\d{1,9}$/.test(text) ? Number(text) : text,
    z.int(`expected a whole number from ${min} to ${max}`).min(min).max(max).meta({ description }),
  ).optional();
}

function keyName(headers: Headers): string | undefined {
  const name = headers.get("idempotency-key");
  if (name !== null && !/^[\x21-\x7e]{1,255}$/.test(name)) {
    throw new InputError("bad_input", "Idempotency-Key: expected 1 to 255 visible ASCII characters");
  }
  return name ?? undefined;
}

/** Method, path and body: the same key for anything else is a conflict. */
async function hashOf(head: string, body = new Uint8Array()): Promise<string> {
  const bytes = new Blob([head, body]);
  return hex(await digest(await bytes.arrayBuffer()));
}

interface Problem {
  field: string;
  problem: string;
}

function check<S extends z.ZodType>(schema: S, value: unknown, what: "path" | "query" | "body"): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const problems = result.error.issues.flatMap((issue) => problemsOf(issue, [], what)).slice(0, 20);
  throw new InputError(
    "bad_input",
    problems.map(({ field, problem }) => `${field}: ${problem}`).join("; "),
    problems,
  );
}

/** A union's own issue says only that nothing fits: the branch that the value was meant for says what is wrong. */
function problemsOf(issue: z.core.$ZodIssue, above: PropertyKey[], what: string): Problem[] {
  const path = [...above, ...issue.path];
  const field = spelled(path) || what;
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({ field: spelled([...path, key]), problem: "there is no such field" }));
  }
  if (issue.code === "invalid_union" && issue.errors.length > 0) {
    const meant = meantOf(issue.errors);
    if (meant) return meant.flatMap((inner) => problemsOf(inner, path, what));
    const wanted = issue.errors.flat().filter((inner) => inner.path.length === 0).map(wantedOf);
    return [{ field, problem: `expected ${[...new Set(wanted)].join(" or ")}` }];
  }
  return [{ field, problem: issue.message.replace(/^Invalid input: |^(Invalid option|Too \w+): /, "") }];
}

/** The branch whose kind of value it is; of several, the one with the fewest problems. */
function meantOf(branches: z.core.$ZodIssue[][]): z.core.$ZodIssue[] | undefined {
  const isOther = (issue: z.core.$ZodIssue) =>
    issue.path.length === 0 && (issue.code === "invalid_type" || issue.code === "invalid_value");
  return branches.filter((branch) => !branch.some(isOther)).sort((a, b) => a.length - b.length)[0];
}

function wantedOf(issue: z.core.$ZodIssue): string {
  if (issue.code === "invalid_type") return issue.expected;
  if (issue.code === "invalid_value") return issue.values.map((value) => JSON.stringify(value)).join(" or ");
  return issue.message;
}

function spelled(path: PropertyKey[]): string {
  return path.map((part) => typeof part === "number" ? `[${part}]` : `.${String(part)}`).join("").replace(
    /^\./,
    "",
  );
}
