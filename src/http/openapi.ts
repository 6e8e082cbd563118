/** The OpenAPI 3.1 description, made of the routes themselves. */
import * as z from "zod";
import { type InputCode, InputError } from "../errors.ts";
import type { Route } from "./route.ts";
import { ErrorAnswer, EventData } from "./schema.ts";

type Document = { [key: string]: unknown };

const meanings: Record<InputCode | "internal", string> = {
  bad_input: "The request is wrong; `details` names each field",
  unauthorized: "No key, or not a known one",
  not_found: "There is no such thing, or it is another tenant's",
  conflict: "The state does not allow it",
  too_large: "The body is larger than 1 MB",
  too_many: "Too much waits already",
  unavailable: "Nothing was accepted; send it again with the same Idempotency-Key",
  internal: "The service failed",
};

/** The document for these routes. */
export function describe(routes: readonly Route[]): Document {
  const schemas: Document = {};
  const shape = (schema: z.ZodType, io: "input" | "output") => jsonSchema(schema, io, schemas);
  const paths: { [path: string]: Document } = {};
  for (const route of routes) {
    (paths[route.path] ??= {})[route.method] = operation(route, shape);
  }
  // No operation's body refers to it: OpenAPI 3.1 has no word for the frames of an event stream.
  shape(EventData, "output");
  return {
    openapi: "3.1.0",
    info: {
      title: "Pawl",
      version: "1",
      description:
        "Durable tool-calling agent loops. Without PAWL_API_KEYS the service needs no key and answers only clients on its own machine.",
    },
    paths,
    components: {
      securitySchemes: { key: { type: "http", scheme: "bearer", description: "A key of PAWL_API_KEYS" } },
      schemas,
    },
  };
}

type Shape = (schema: z.ZodType, io: "input" | "output") => unknown;

function operation(route: Route, shape: Shape): Document {
  return {
    operationId: route.name,
    summary: route.summary,
    security: [{ key: [] }],
    parameters: [
      ...parameters(route.params, "path", shape),
      ...parameters(route.query, "query", shape),
      ...(route.keyed ? [idempotencyKey] : []),
      ...(route.out.type === "text/event-stream" ? [lastEventId] : []),
    ],
    ...(route.body ? { requestBody: requestBody(route.body, shape) } : {}),
    responses: { ...answers(route, shape), ...failures(route, shape) },
  };
}

function parameters(fields: z.ZodObject | undefined, place: "path" | "query", shape: Shape): Document[] {
  return Object.entries(fields?.shape ?? {}).map(([name, field]) => ({
    name,
    in: place,
    required: place === "path",
    schema: shape(field as z.ZodType, "output"),
  }));
}

const idempotencyKey = {
  name: "Idempotency-Key",
  in: "header",
  description:
    "Makes a repeat safe: the same key and body answer the same ids; with another body it is a conflict",
  schema: { type: "string", pattern: "^[\\x21-\\x7e]{1,255}$" },
};

const lastEventId = {
  name: "Last-Event-ID",
  in: "header",
  description: "Continue after this event; it goes before `after`",
  schema: { type: "string" },
};

function requestBody(body: z.ZodType, shape: Shape): Document {
  return {
    required: !body.safeParse({}).success,
    content: { "application/json": { schema: shape(body, "input") } },
  };
}

function answers({ out, method, path }: Route, shape: Shape): Document {
  return Object.fromEntries(
    Object.entries(out.statuses).map(([status, description]) => {
      const bodiless = status === "204" || (!out.schema && !out.type);
      const schema = out.schema ? shape(out.schema, "output") : { type: "string" };
      return [status, {
        description,
        ...(bodiless ? {} : { content: { [out.type ?? "application/json"]: { schema } } }),
        ...(method === "post" && path === "/runs"
          ? { headers: { Location: { schema: { type: "string" } } } }
          : {}),
      }];
    }),
  );
}

function failures(route: Route, shape: Shape): Document {
  const codes: InputCode[] = ["bad_input", "unauthorized", ...(route.errors ?? []), "unavailable"];
  if (route.body) codes.push("too_large");
  const answer = (description: string) => ({
    description,
    content: { "application/json": { schema: shape(ErrorAnswer, "output") } },
  });
  return Object.fromEntries([
    ...codes.map((code) => [new InputError(code, "").status, answer(meanings[code])]),
    [500, answer(meanings.internal)],
  ]);
}

/** A schema as JSON Schema; what it names goes into `named` and is referred to. */
function jsonSchema(schema: z.ZodType, io: "input" | "output", named: Document): unknown {
  const { $schema: _, $defs, ...rest } = z.toJSONSchema(schema, {
    io,
    unrepresentable: "any",
    override({ zodSchema, jsonSchema }) {
      // Answers may grow fields; only what was declared strict is closed.
      const { def } = zodSchema._zod;
      if (def.type === "object" && !def.catchall) delete jsonSchema.additionalProperties;
    },
  });
  Object.assign(named, placed($defs ?? {}));
  return placed(rest);
}

function placed<T>(schema: T): T {
  return JSON.parse(JSON.stringify(schema).replaceAll('"$ref":"#/$defs/', '"$ref":"#/components/schemas/'));
}
