/** Runs one prompt against an embedded service, two turns a slice, and prints turns, tool calls and slices as they happen. */
import { modelFromEnv } from "./providers/mod.ts";
import { FatalError, InputError } from "./src/errors.ts";
import type { Event } from "./src/event.ts";
import { textOf } from "./src/message.ts";
import { createPawl } from "./src/mod.ts";
import { tools } from "./tools/mod.ts";

const usual = "What is 6 * 7, and what time is it? Then wait 2 seconds, then tell me what 2^10 is";

/** One line for what a reader wants to know; nothing for the rest. */
function line(event: Event): string | undefined {
  switch (event.type) {
    case "slice_start":
      return `\n── slice ${event.slice} ${"─".repeat(60)}`;
    case "slice_end":
      return event.status === "queued"
        ? "   handed over to the next slice"
        : "   the run waits; no function is held";
    case "turn_start":
      return `  turn ${event.turn}`;
    case "message_end": {
      if (event.message.role === "tool") return undefined;
      const text = textOf(event.message.content).trim();
      return text && `    ${event.message.role}: ${text.replaceAll("\n", "\n      ")}`;
    }
    case "tool_execution_start":
      return `    → ${event.toolName}(${JSON.stringify(event.args)})`;
    case "tool_execution_end":
      return `    ← ${event.isError ? "error: " : ""}${textOf(event.result)}`;
    case "message_retry":
      return `    the model call failed (${event.code}): ${event.message}`;
    case "agent_end":
      return `\n${event.status}${event.error ? `: ${event.error.code}: ${event.error.message}` : ""}`;
  }
}

if (import.meta.main) {
  const say = (text: string) => {
    // deno-lint-ignore no-console
    console.log(text);
  };
  try {
    const env = Deno.env.toObject(), models = modelFromEnv(env);
    const pawl = createPawl({
      models,
      tools: tools.flatMap((tool) => typeof tool === "function" ? tool(env) : tool),
      budget: { turns: 2 },
    });
    say(`model ${models.default}`);
    const { run } = await pawl.start(Deno.args.join(" ") || usual);
    for await (const { event } of pawl.watch(run)) {
      const text = line(event);
      if (text) say(text);
    }
    const { status, iterations, slices, usage } = await pawl.read(run);
    say(`${iterations} turns in ${slices} slices, ${usage.input} tokens in, ${usage.output} out`);
    await pawl.close();
    Deno.exit(status === "completed" ? 0 : 1);
  } catch (error) {
    if (!(error instanceof FatalError || error instanceof InputError)) throw error;
    say(error.message);
    Deno.exit(1);
  }
}
