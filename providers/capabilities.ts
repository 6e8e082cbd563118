/** How servers that speak Chat Completions differ from OpenAI's own. A server, or a family of models, is one row. */

export interface Capabilities {
  /**
   * Every earlier answer brings its `reasoning_content` along, "" where there was none: such servers refuse the thread otherwise, and others
   * refuse the field (CASES A19). https://api-docs.deepseek.com/guides/thinking_mode
   */
  echoesReasoning: boolean;
  /** A tool choice other than "auto" and "none" is taken. Thinking models of some vendors refuse it (CASES D05). */
  forcedChoice: boolean;
  /** `parallel_tool_calls` is known. */
  parallelFlag: boolean;
  /** `stream_options` is known; without it usage comes by itself, or not at all. */
  streamOptions: boolean;
  /** Answers can be held to a JSON Schema. */
  formats: boolean;
  /** Ids of calls: "nine" letters and digits, no more and no less (CASES A13). */
  ids: "any" | "nine";
}

/** OpenAI itself, and whoever keeps to it. */
export const openais: Capabilities = {
  echoesReasoning: false,
  forcedChoice: true,
  parallelFlag: true,
  streamOptions: true,
  formats: true,
  ids: "any",
};

/** All rows that fit count, later ones more. */
const rows: { host?: RegExp; model?: RegExp; is: Partial<Capabilities> }[] = [
  { host: /(^|\.)deepseek\.com$/, is: { formats: false, parallelFlag: false } },
  { model: /(^|\/)deepseek-/i, is: { echoesReasoning: true } },
  { model: /(^|\/)deepseek-(reasoner|r1)/i, is: { forcedChoice: false } },
  { host: /(^|\.)moonshot\.(ai|cn)$/, is: { parallelFlag: false } },
  { model: /(^|\/)kimi-/i, is: { echoesReasoning: true } },
  { model: /(^|\/)(kimi-.*thinking|qwq|qwen.*thinking)/i, is: { forcedChoice: false } },
  { host: /(^|\.)mistral\.ai$/, is: { streamOptions: false } },
  { model: /(^|\/)(mistral|ministral|magistral|codestral|devstral|pixtral)-/i, is: { ids: "nine" } },
];

/** What the server at this base URL takes for this model. */
export function capabilitiesOf(baseURL: string, model: string): Capabilities {
  const { hostname } = new URL(baseURL);
  const fitting = rows.filter((row) =>
    (row.host === undefined || row.host.test(hostname)) && (row.model === undefined || row.model.test(model))
  );
  return Object.assign({}, openais, ...fitting.map(({ is }) => is));
}
