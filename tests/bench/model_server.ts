/**
 * A model that takes no time: a process of its own that speaks Chat Completions. `POST /N/chat/completions` asks for one tool call per
 * turn until the request holds N - 1 results, then answers in text. It prints its port.
 */
import { chunk, done } from "../support/dialect.ts";

const words = (text: string) => text.split(/(?<= )/).map((content) => chunk({ content }));
const usage = { prompt_tokens: 1000, completion_tokens: 30, total_tokens: 1030 };
const counted = `data: ${JSON.stringify({ choices: [], usage })}\n\n`;

function answer(results: number, turns: number): string {
  if (results >= turns - 1) {
    return [...words("That is what the sums come to, taken together."), chunk({}, "stop"), counted, done]
      .join("");
  }
  const call = {
    index: 0,
    id: `call_${results}`,
    type: "function",
    function: { name: "add", arguments: "" },
  };
  const pieces = ['{"a"', ": ", String(results), ", ", '"b"', ": ", "7", "}"];
  return [
    ...words(`Now I add seven to ${results} and look at what comes out.`),
    chunk({ tool_calls: [call] }),
    ...pieces.map((piece) => chunk({ tool_calls: [{ index: 0, function: { arguments: piece } }] })),
    chunk({}, "tool_calls"),
    counted,
    done,
  ].join("");
}

const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
  const turns = Number(new URL(request.url).pathname.split("/")[1]);
  const results = (await request.text()).split('"role":"tool"').length - 1;
  return new Response(answer(results, turns), { headers: { "content-type": "text/event-stream" } });
});
await Deno.stdout.write(new TextEncoder().encode(`${server.addr.port}\n`));
