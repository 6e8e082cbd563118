/**
 * The shapes of the HTTP face. The same schemas validate requests, type the answers (`wire.ts`) and become the OpenAPI description.
 * Requests are strict, so that a misspelt field is refused and not ignored; answers may grow fields.
 */
import * as z from "zod";
import type { Event } from "../event.ts";
import { threadPattern } from "../run.ts";
import { Content, count, json, object, time, Usage } from "./message_schema.ts";

export * from "./message_schema.ts";

export const ThreadId = z.string().regex(
  threadPattern,
  "expected 1 to 128 of A-Z a-z 0-9 _ . : -",
)
  .meta({ description: "Id of a thread" });

export const Status = z.enum(["queued", "running", "waiting", "completed", "failed", "cancelled"])
  .meta({ id: "Status" });

// --- what is asked for

const ToolName = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "expected 1 to 64 of A-Z a-z 0-9 _ -");
const ClientTool = z.strictObject({
  name: ToolName,
  description: z.string(),
  parameters: object("JSON Schema of type object"),
}).meta({
  id: "ClientTool",
  description: "A tool that the client runs: a call to it waits for tool_results",
});

const QueueMode = z.enum(["one_at_a_time", "all"]);

export const StartRun = z.strictObject({
  content: Content,
  thread: ThreadId.optional().meta({ description: "Absent: a new thread" }),
  if_busy: z.enum(["steer", "follow_up", "reject", "interrupt"]).optional()
    .meta({ description: "What to do when the thread has an active run; steer by default" }),
  source: z.string().regex(/^[A-Za-z0-9_.:-]{1,64}$/, "expected 1 to 64 of A-Z a-z 0-9 _ . : -").optional()
    .meta({ description: "Marks input that is not a user's: webhook, cron" }),
  model: z.string().min(1).optional().meta({
    description: "vendor/model, or a list of them: the next is asked where one cannot answer",
  }),
  system: z.string().optional(),
  tools: z.array(z.union([ToolName, ClientTool])).optional()
    .meta({ description: "Absent: all that are registered; empty: none" }),
  toolset: z.string().min(1).optional(),
  tools_source: z.string().min(1).optional(),
  tools_allow: z.array(z.string()).optional(),
  tools_deny: z.array(z.string()).optional(),
  tool_choice: z.union([
    z.enum(["auto", "required", "none"]),
    z.strictObject({ type: z.literal("function"), name: ToolName }),
  ]).optional(),
  tool_choice_scope: z.enum(["first", "every"]).optional(),
  parallel_tool_calls: z.boolean().optional(),
  max_iterations: z.int().optional().meta({ description: "Clamped to 1..50; 20 by default" }),
  choices: z.union([
    z.array(z.string()).min(1),
    z.record(z.string(), object("JSON Schema of type object: what is to be filled in")),
  ]).optional().meta({
    description:
      "The run ends with one of these, which is its `choice`: a list of names, or an object from names to JSON Schemas. " +
      "A model that makes no valid choice is asked once more, then the run fails with the code `decision`",
  }),
  response_format: object(
    "JSON Schema of type object: the run ends with such a value, which is its `output`. A model that gives no valid one is asked " +
      "once more, then the run fails with the code `structured_output`",
  ).optional(),
  steering: z.enum(["now", "after_batch"]).optional(),
  steering_mode: QueueMode.optional(),
  follow_up_mode: QueueMode.optional(),
  callback_url: z.url({ protocol: /^https?$/, error: "expected an http or https URL" }).optional(),
  metadata: object("Comes back with the run, unchanged").optional(),
  limits: z.strictObject({
    max_tokens_total: z.int().min(1).optional(),
    max_cost_usd: z.number().positive().optional().meta({
      description: "By the prices that are known of the run's model; without any the run is refused",
    }),
  }).optional().meta({
    description:
      "What the run may use in all. The most that a model call can use is booked before it is made; one that could pass a limit is not made, " +
      "and the run fails with the limit's name as its code",
  }),
}).meta({ id: "StartRun" });

export const Mail = z.strictObject({ content: Content }).meta({ id: "Mail" });
export const Nothing = z.strictObject({});

export const ToolAnswer = z.union([
  z.strictObject({ tool_call_id: z.string().min(1), content: z.string(), is_error: z.boolean().optional() }),
  z.strictObject({
    tool_call_id: z.string().min(1),
    approve: z.boolean(),
    reason: z.string().optional(),
    arguments: object("The call runs with these instead of the model's; only where it is approved")
      .optional(),
    always: z.boolean().optional().meta({
      description: "The same for all later calls of this tool in the thread, without asking",
    }),
  }),
]).meta({
  id: "ToolAnswer",
  description: "The result of a client tool's call, or the decision on an approval",
});

// --- what is answered

export const Accepted = z.object({
  id: z.string(),
  thread: z.string(),
  status: Status,
  message_id: z.string(),
})
  .meta({ id: "Accepted" });
export const MailAccepted = z.object({
  run: z.string().meta({ description: "The run that will see it" }),
  thread: z.string(),
  status: Status,
  message_id: z.string(),
}).meta({ id: "MailAccepted" });

export const WaitingCall = z.object({
  tool_call_id: z.string(),
  name: z.string(),
  for: z.enum(["time", "answer", "approval"]),
  until: time(),
  reason: z.string().optional(),
  arguments: object("As the model gave them; absent where they are long: the message has them").optional(),
}).meta({ id: "WaitingCall" });

const RemovedTool = z.object({
  name: z.string(),
  layer: z.enum(["registration", "exposure", "preset", "source", "availability", "deny", "allow"]),
  reason: z.string().optional(),
}).meta({ id: "RemovedTool", description: "A tool that is missing, and the layer that took it out" });

export const Run = z.object({
  id: z.string(),
  thread: z.string(),
  status: Status,
  finish_reason: z.enum(["stop", "max_iterations", "length", "refusal", "terminated", "choice"]).optional(),
  text: z.string().optional(),
  choice: z.object({
    name: z.string(),
    args: object("What was filled in, where the choices have schemas").optional(),
  }).optional().meta({ description: "What was chosen, where `finish_reason` is choice" }),
  output: json("The value, where a `response_format` was asked for").optional(),
  error: z.object({
    code: z.string(),
    message: z.string(),
    details: object(
      "What is known besides. Of decision and structured_output: the kind of fault, and where there is one its path, and its position in the text",
    ).optional(),
  }).optional(),
  iterations: count(),
  slices: count(),
  usage: Usage,
  cost_usd: z.number().optional().meta({ description: "What the usage cost; of runs with `max_cost_usd`" }),
  booked: z.object({ tokens: count(), cost_usd: z.number() }).optional()
    .meta({
      description: "The most that calls under way, or without an answer, can have used; of runs with limits",
    }),
  waiting_for: z.array(WaitingCall).optional(),
  successor: z.string().optional().meta({
    description: "The run that goes on with mail this one did not take",
  }),
  created_at: time(),
  updated_at: time(),
  metadata: object("As given at the start"),
  tools_removed: z.array(RemovedTool).optional().meta({
    description: "Of a single run, for debugging: the tools that its settings keep from it now",
  }),
}).meta({ id: "Run" });

export const Runs = z.object({
  runs: z.array(Run),
  next: z.string().optional().meta({ description: "The `after` of the next page" }),
}).meta({ id: "Runs" });

export const Menu = z.object({
  tools: z.array(z.object({
    name: z.string(),
    description: z.string(),
    parameters: object("JSON Schema"),
    replay: z.enum(["safe", "never"]),
    deferred: z.boolean().optional().meta({ description: "Not shown to the model before it finds it" }),
  })),
  removed: z.array(RemovedTool),
  warnings: z.array(z.object({ code: z.string(), message: z.string() })).meta({
    description: "Tools that are missing now, and why",
  }),
}).meta({ id: "Menu" });

export const ErrorAnswer = z.object({
  error: z.object({
    code: z.string(),
    message: z.string(),
    details: json("More, where there is more").optional(),
  }),
}).meta({ id: "Error" });

/** Every event there is; the compiler refuses one that is missing or unknown. */
const eventNames = Object.keys(
  {
    agent_start: 0,
    turn_start: 0,
    message_start: 0,
    message_update: 0,
    message_end: 0,
    tool_execution_start: 0,
    tool_execution_update: 0,
    tool_execution_end: 0,
    turn_end: 0,
    agent_end: 0,
    slice_start: 0,
    slice_end: 0,
    message_retry: 0,
    mail_queued: 0,
    mail_taken: 0,
    run_waiting: 0,
    warning: 0,
    resync: 0,
  } satisfies Record<Event["type"], 0>,
) as Event["type"][];

export const EventData = z.looseObject({
  run: z.string(),
  frame: z.string().meta({ description: '"." is the run\'s own loop; others are nested' }),
  type: z.enum(eventNames),
}).meta({
  id: "EventData",
  description: "The `data:` of one event; the event's own fields stand beside these",
});
