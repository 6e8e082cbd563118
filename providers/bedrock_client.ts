/**
 * One signed request, and the frames that answer it: 6 KB gzipped of others' code, where AWS's SDK has 63. Imported where it is first needed.
 *
 * The frames: https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html
 */
import { EventStreamCodec } from "@smithy/core/event-streams";
import { AwsV4Signer } from "aws4fetch";
import { systemClock } from "../src/clock.ts";
import { fetchDirect, noStream, parsed } from "./answer.ts";
import type { BedrockOptions } from "./bedrock.ts";
import type { ConverseEvent } from "./bedrock_reader.ts";

const utf8 = new TextDecoder(), bytesOf = (text: string) => new TextEncoder().encode(text);
const codec = new EventStreamCodec(
  (bytes) => typeof bytes === "string" ? bytes : utf8.decode(bytes),
  bytesOf,
);

/** Asks the model, and answers its events. Throws in the shape that the other vendors' SDKs give to errors. */
export async function converse(
  model: string,
  body: string,
  { region, accessKeyId, secretAccessKey, sessionToken, baseURL }: BedrockOptions,
  signal: AbortSignal,
): Promise<AsyncIterable<ConverseEvent>> {
  const base = (baseURL || `https://bedrock-runtime.${region}.${domain(region)}`).replace(/\/+$/, "");
  const signer = new AwsV4Signer({
    method: "POST",
    // An id may hold colons, and that of a profile slashes.
    url: `${base}/model/${encodeURIComponent(model)}/converse-stream`,
    headers: { "content-type": "application/json", accept: "application/vnd.amazon.eventstream" },
    body,
    service: "bedrock",
    region,
    accessKeyId,
    secretAccessKey,
    sessionToken,
    datetime: new Date(systemClock.now()).toISOString().replace(/[:-]|\.\d{3}/g, ""),
  });
  const { url, headers } = await signer.sign();
  const answer = await fetchDirect(url, { method: "POST", headers, body, signal });
  if (!answer.ok) throw failed(await answer.text(), answer);
  return events(answer);
}

function domain(region: string): string {
  return region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
}

async function* events(answer: Response): AsyncGenerator<ConverseEvent> {
  for await (const frame of frames(answer)) {
    const { headers, body } = codec.decode(frame);
    const said = (name: string) => String(headers[name]?.value ?? "");
    const type = said(":message-type"), text = utf8.decode(body);
    if (type === "exception") throw failed(text, {}, said(":exception-type"));
    if (type === "error") throw failed(said(":error-message"), {}, said(":error-code"));
    yield { [said(":event-type")]: JSON.parse(text || "{}") };
  }
}

/** A frame begins with its length, which is far below what would make the first of its four bytes anything but 0. */
async function* frames(answer: Response): AsyncGenerator<Uint8Array> {
  let held = new Uint8Array();
  for await (const chunk of answer.body ?? []) {
    const joined = new Uint8Array(held.length + chunk.length);
    joined.set(held);
    joined.set(chunk, held.length);
    held = joined;
    if (held[0]) continue;
    for (let length; (length = lengthOf(held)) <= held.length; held = held.subarray(length)) {
      yield held.subarray(0, length);
    }
  }
  if (held[0]) throw noFrames(utf8.decode(held), answer.headers.get("content-type") ?? "");
  if (held.length) throw new Error("the stream ended within a frame");
}

function lengthOf(bytes: Uint8Array): number {
  if (bytes.length < 4) return Infinity;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);
  if (length < 16) throw new Error(`a frame of ${length} bytes: the stream is damaged`);
  return length;
}

/** A 200 that is text: an error all the same, or what some gateway says (CASES B11). */
function noFrames(text: string, type: string): Error {
  const { __type, error, message } = bodyOf(text);
  return __type ?? error ?? message ? failed(text) : noStream(type, text);
}

function failed(text: string, { status, headers }: Partial<Response> = {}, word = ""): Error {
  const body = bodyOf(text);
  const type = typed(word || headers?.get("x-amzn-errortype") || body.__type || body.error?.type || "");
  const plain = text.trim().startsWith("{") ? "" : text;
  const said = [body.message, body.Message, body.error?.message, body.error, plain, type, text];
  const message: string = said.find((one) => typeof one === "string" && one) ?? "no reason given";
  return Object.assign(new Error(status ? `${status} ${message}` : message), {
    status,
    headers,
    error: { type, message },
  });
}

/** One name for what comes as `throttlingException`, `ThrottlingException:http://…` and `com.amazon.coral#ThrottlingException`. */
function typed(word: unknown): string {
  const name = `${word}`.replace(/:.*/, "").replace(/.*#/, "");
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

function bodyOf(text: string): Record<string, any> {
  const body = parsed(text);
  return typeof body === "object" && body ? body : {};
}
