/** The loop that one would write by hand on the same SDK: nothing is kept, nothing is limited, nothing can interrupt it. */
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

export function bareLoop(baseURL: string): (prompt: string) => Promise<string> {
  const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
  return async (prompt) => {
    const messages: Messages = [{ role: "user", content: prompt }];
    for (;;) {
      const { text, calls } = await reply(client, messages);
      if (!calls.length) return text;
      messages.push({ role: "assistant", content: text || null, tool_calls: calls });
      for (const call of calls) {
        messages.push({ role: "tool", tool_call_id: call.id, content: await result(call) });
      }
    }
  };
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
