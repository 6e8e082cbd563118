/** The loop that one would write by hand on the same SDK: nothing is limited, nothing can interrupt it. */
import { DatabaseSync } from "node:sqlite";
import { OpenAI } from "openai";
import * as z from "zod";

type Messages = OpenAI.Chat.ChatCompletionMessageParam[];
type Call = OpenAI.Chat.ChatCompletionMessageFunctionToolCall;

const parameters = z.object({ a: z.number(), b: z.number() });

/** The one tool of all measurements. */
export const add = {
  name: "add",
  description: "Adds two numbers.",
  parameters,
  execute: ({ a, b }: z.infer<typeof parameters>) => ({ sum: a + b }),
};

const { $schema: _, ...schema } = z.toJSONSchema(parameters);
const tools = [{
  type: "function" as const,
  function: { name: add.name, description: add.description, parameters: schema },
}];

/** `keep` gets each message before the loop goes on. */
export function bareLoop(
  baseURL: string,
  keep: (message: Messages[number]) => void = () => {},
): (prompt: string) => Promise<string> {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  return async (prompt) => {
    const messages: Messages = [];
    const say = (message: Messages[number]) => {
      keep(message);
      messages.push(message);
    };
    say({ role: "user", content: prompt });
    for (;;) {
      const { text, calls } = await reply(client, messages);
      if (!calls.length) return text;
      say({ role: "assistant", content: text || null, tool_calls: calls });
      for (const call of calls) say({ role: "tool", tool_call_id: call.id, content: await result(call) });
    }
  };
}

/** Keeps messages in a file, as safe from power failures as Pawl's store. */
export function messageFile(path: string): { keep(message: Messages[number]): void; close(): void } {
  const db = new DatabaseSync(path);
  db.exec("pragma journal_mode = wal; pragma synchronous = full; create table message (body text not null)");
  const insert = db.prepare("insert into message values (?)");
  return { keep: (message) => void insert.run(JSON.stringify(message)), close: () => db.close() };
}

async function reply(client: OpenAI, messages: Messages): Promise<{ text: string; calls: Call[] }> {
  const stream = await client.chat.completions.create({
    model: "m",
    messages,
    tools,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  const calls: Call[] = [];
  for await (const { choices: [choice] } of stream) {
    text += choice?.delta.content ?? "";
    for (const { index, id, function: said } of choice?.delta.tool_calls ?? []) {
      const call = calls[index] ??= { id: id!, type: "function", function: { name: "", arguments: "" } };
      call.function.name += said?.name ?? "";
      call.function.arguments += said?.arguments ?? "";
    }
  }
  return { text, calls };
}

async function result({ function: asked }: Call): Promise<string> {
  const args = parameters.safeParse(JSON.parse(asked.arguments));
  return args.success ? JSON.stringify(await add.execute(args.data)) : z.prettifyError(args.error);
}
