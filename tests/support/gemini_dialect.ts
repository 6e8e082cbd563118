/** How Gemini says it. */
import { gemini } from "../../providers/gemini.ts";
import type { Dialect } from "./dialect.ts";

const data = (text: string) => `data: ${text}\n\n`;

/** A chunk with these parts, which are JSON text. */
export function partsChunk(parts: string[], more: object = {}): string {
  const rest = JSON.stringify(more).slice(1, -1);
  const content = `"content":{"role":"model","parts":[${parts.join()}]}`;
  return data(`{"candidates":[{${content},"index":0${rest ? `,${rest}` : ""}}],"responseId":"r"}`);
}

/** Words of other vendors for errors, in Google's. */
const statuses: Record<string, string> = {
  authentication_error: "UNAUTHENTICATED",
  insufficient_quota: "RESOURCE_EXHAUSTED",
  rate_limit_exceeded: "RESOURCE_EXHAUSTED",
};

const daily = {
  "@type": "type.googleapis.com/google.rpc.QuotaFailure",
  violations: [{ quotaId: "GenerateRequestsPerDayPerProjectPerModel-FreeTier", quotaValue: "20" }],
};

export const geminiDialect: Dialect = {
  wire: "gemini",
  counts: { reasoning: 2 },
  model: (url, apiKey = "key-1") => gemini("gemini/m", { apiKey, baseURL: url }),
  frames({ text = [], calls = [], thinking, stop = "STOP" }) {
    const signature = thinking ? `,"thoughtSignature":${JSON.stringify(thinking)}` : "";
    return [
      ...(thinking ? [partsChunk(['{"text":"hm","thought":true}'])] : []),
      ...text.map((piece) => partsChunk([`{"text":${JSON.stringify(piece)}}`])),
      ...calls.map(({ id, name, args }, n) => {
        // Arguments come whole, and as they are: no text in them, but JSON.
        const given = args.join("").trim();
        const call = JSON.stringify({ ...(id === undefined ? {} : { id }), name }).slice(0, -1);
        return partsChunk([`{"functionCall":${call}${given && `,"args":${given}`}}${n ? "" : signature}}`]);
      }),
      ...(stop === null ? [] : [data(JSON.stringify({
        candidates: [{ content: { role: "model", parts: [{ text: "" }] }, finishReason: stop, index: 0 }],
        usageMetadata: {
          promptTokenCount: 12,
          cachedContentTokenCount: 4,
          candidatesTokenCount: 5,
          thoughtsTokenCount: 2,
          totalTokenCount: 19,
        },
      }))]),
    ];
  },
  error(code, message) {
    const details = code === "insufficient_quota" ? { details: [daily] } : {};
    return JSON.stringify({ error: { message, status: statuses[code] ?? code, ...details } });
  },
  choice: (body) => body.toolConfig.functionCallingConfig,
  choices: {
    auto: { mode: "AUTO" },
    required: { mode: "ANY" },
    none: { mode: "NONE" },
    named: { mode: "ANY", allowedFunctionNames: ["add"] },
  },
  objects: true,
  // It has no word for it: the loop sees to it.
  single: (body) => !/parallel/i.test(JSON.stringify(body)),
  thoughts: (body) =>
    body.contents.flatMap((content: any) => content.parts)
      .filter((part: any) => part.thoughtSignature && !part.thoughtSignature.startsWith("skip_")),
};
