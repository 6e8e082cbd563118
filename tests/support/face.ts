/** The HTTP face over fake verbs, with two tenants, and a way to call it that reads every answer to its end. */
import { systemClock } from "../../src/clock.ts";
import { type FaceOptions, httpFace } from "../../src/http/app.ts";
import { FakeVerbs } from "./fake_verbs.ts";

const tenants = [{ tenant: "a", key: "key-a" }, { tenant: "b", key: "key-b" }];

/** Calls are tenant a's, with key-a, unless `headers` say otherwise. */
export function setUp(options: Partial<FaceOptions> = {}) {
  const verbs = new FakeVerbs();
  const reported: unknown[] = [];
  const app = httpFace(verbs, {
    tenants,
    clock: systemClock,
    onError: (error) => reported.push(error),
    ...options,
  });
  const call = async (
    method: string,
    path: string,
    body?: BodyInit | object,
    headers: Record<string, string> = {},
  ) => {
    const sent = body === undefined || typeof body === "string" || body instanceof Uint8Array ||
        body instanceof ReadableStream
      ? body as BodyInit | undefined
      : JSON.stringify(body);
    const answer = await app.request(path, {
      method,
      ...(sent === undefined ? {} : { body: sent }),
      headers: { authorization: "Bearer key-a", ...headers },
    });
    const text = await answer.text();
    const json = answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : undefined;
    return { status: answer.status, headers: answer.headers, json, text };
  };
  return { verbs, app, call, reported };
}
