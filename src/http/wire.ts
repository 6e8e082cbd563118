/**
 * Between the words inside (camelCase) and on the wire (snake_case), written out per shape: a general renaming would also rename what
 * belongs to others, the keys of arguments, metadata and parameters.
 */
import * as z from "zod";
import type { Answer } from "../entry.ts";
import type { Placed } from "../event.ts";
import type { AssistantBlock, Json, Message, UserBlock } from "../message.ts";
import type { RunError, Settings, WaitingCall } from "../run.ts";
import type { Tool } from "../tool.ts";
import type { Accepted, Content, RunView, StartOptions, Verbs } from "../verbs.ts";
import type * as schema from "./schema.ts";

type Wire<S extends z.ZodType> = z.output<S>;

// --- in

export function contentIn(content: Wire<typeof schema.Content>): Content {
  if (typeof content === "string") return content;
  return content.map((block) => {
    if (block.type === "text") return block;
    const { type, media_type: mediaType, data, url } = block;
    return given({ type, mediaType, data, url });
  });
}

export function settingsIn(body: Wire<typeof schema.StartRun>): Settings {
  return given({
    model: body.model,
    system: body.system,
    tools: body.tools,
    toolset: body.toolset,
    toolsSource: body.tools_source,
    toolsAllow: body.tools_allow,
    toolsDeny: body.tools_deny,
    toolChoice: body.tool_choice,
    toolChoiceScope: body.tool_choice_scope,
    parallelToolCalls: body.parallel_tool_calls,
    maxIterations: body.max_iterations,
    choices: body.choices,
    responseFormat: body.response_format,
    steering: body.steering,
    steeringMode: body.steering_mode,
    followUpMode: body.follow_up_mode,
    callbackUrl: body.callback_url,
    metadata: body.metadata,
    limits: body.limits &&
      given({ maxTokensTotal: body.limits.max_tokens_total, maxCostUsd: body.limits.max_cost_usd }),
  });
}

export function startIn(body: Wire<typeof schema.StartRun>): StartOptions {
  return given({ thread: body.thread, ifBusy: body.if_busy, source: body.source });
}

export function answerIn(body: Wire<typeof schema.ToolAnswer>): Answer {
  return "approve" in body
    ? given({
      approve: body.approve,
      reason: body.reason,
      arguments: body.arguments,
      always: body.always,
    })
    : given({ content: body.content, isError: body.is_error });
}

/** Without the fields that were not given: "not given" must not look like a change of settings. */
function given<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

// --- out

export function acceptedOut({ run, thread, status, messageId }: Accepted): Wire<typeof schema.Accepted> {
  return { id: run, thread, status, message_id: messageId };
}

export function mailOut({ run, thread, status, messageId }: Accepted): Wire<typeof schema.MailAccepted> {
  return { run, thread, status, message_id: messageId };
}

export function runOut(view: RunView): Wire<typeof schema.Run> {
  return {
    id: view.id,
    thread: view.thread,
    status: view.status,
    finish_reason: view.finishReason,
    text: view.text,
    choice: view.choice,
    output: view.output,
    error: view.error && errorOut(view.error),
    iterations: view.iterations,
    slices: view.slices,
    usage: view.usage,
    cost_usd: view.usd,
    booked: view.booked && { tokens: view.booked.tokens, cost_usd: view.booked.usd },
    waiting_for: view.waitingFor?.map(waitingOut),
    successor: view.successor,
    created_at: view.createdAt,
    updated_at: view.updatedAt,
    metadata: view.metadata,
    tools_removed: view.toolsRemoved,
  };
}

function errorOut({ code, message, details }: RunError) {
  return { code, message, details };
}

function waitingOut(call: WaitingCall): Wire<typeof schema.WaitingCall> {
  const { toolCallId, name, until, reason } = call;
  return { tool_call_id: toolCallId, name, for: call.for, until, reason, arguments: call.arguments };
}

export function messageOut(message: Message): Wire<typeof schema.Message> {
  const { id, at } = message;
  switch (message.role) {
    case "user":
      return { role: "user", id, content: contentOut(message.content), source: message.source, at };
    case "assistant":
      return {
        role: "assistant",
        id,
        content: message.content.map(blockOut),
        stop_reason: message.stopReason,
        stop_detail: message.stopDetail,
        model: message.model,
        usage: message.usage,
        at,
      };
    case "tool":
      return {
        role: "tool",
        id,
        tool_call_id: message.toolCallId,
        tool_name: message.toolName,
        content: contentOut(message.content),
        is_error: message.isError,
        at,
      };
  }
}

function contentOut(content: string | UserBlock[]): Wire<typeof schema.Content> {
  if (typeof content === "string") return content;
  return content.map((block) => {
    if (block.type === "text") return { type: "text", text: block.text };
    const { type, mediaType, data, url } = block;
    return { type, media_type: mediaType, data, url };
  });
}

/** `opaque` is between Pawl and the vendor it came from, so it is left out. */
function blockOut(block: AssistantBlock) {
  switch (block.type) {
    case "text":
      return { type: block.type, text: block.text };
    case "thinking":
      return { type: block.type, text: block.text, vendor: block.vendor };
    case "tool_call": {
      const { type, id, name, arguments: args, raw, invalid } = block;
      return { type, id, name, arguments: args, raw, invalid };
    }
  }
}

export function menuOut(
  { tools, deferred, removed, warnings }: Awaited<ReturnType<Verbs["menu"]>>,
): Wire<typeof schema.Menu> {
  const shown = tools.map((tool) => ({
    ...toolOut(tool),
    ...(deferred.has(tool.name) && { deferred: true }),
  }));
  return { tools: shown, removed, warnings };
}

function toolOut({ name, description, parameters, replay }: Tool) {
  const described = "_zod" in parameters
    ? z.toJSONSchema(parameters as z.ZodType, { io: "input", unrepresentable: "any" })
    : parameters;
  return { name, description, parameters: described as { [key: string]: Json }, replay: replay ?? "never" };
}

/** The `data:` of an event. */
export function eventOut({ run, frame, event }: Placed): Wire<typeof schema.EventData> {
  return { run, frame, type: event.type, ...fieldsOut(event) };
}

function fieldsOut(event: Placed["event"]): { [field: string]: unknown } {
  switch (event.type) {
    case "agent_start":
      return {};
    case "agent_end":
      return {
        status: event.status,
        finish_reason: event.finishReason,
        error: event.error && errorOut(event.error),
      };
    case "turn_start":
      return { turn: event.turn };
    case "turn_end":
      return { turn: event.turn, message_id: event.messageId, tool_results: event.toolResults };
    case "message_start":
    case "message_end":
      return { message: "content" in event.message ? messageOut(event.message) : event.message };
    case "message_update":
      return { message_id: event.messageId, delta: event.delta };
    case "message_retry":
      return { message_id: event.messageId, code: event.code, message: event.message };
    case "warning":
      return { code: event.code, message: event.message };
    case "tool_execution_start":
      return { tool_call_id: event.toolCallId, tool_name: event.toolName, args: event.args };
    case "tool_execution_update":
      return { tool_call_id: event.toolCallId, text: event.text };
    case "tool_execution_end":
      return {
        tool_call_id: event.toolCallId,
        tool_name: event.toolName,
        result: contentOut(event.result),
        is_error: event.isError,
      };
    case "slice_start":
      return { slice: event.slice };
    case "slice_end":
      return { status: event.status };
    case "mail_queued":
      return { message_id: event.messageId, kind: event.kind };
    case "mail_taken":
      return { message_id: event.messageId };
    case "run_waiting":
      return { waiting_for: event.waitingFor.map(waitingOut), until: event.until };
    case "resync":
      // `run` beside it is the run's id, as in every event.
      return {
        messages: (event.messages as Message[]).map(messageOut),
        state: runOut(event.run as RunView),
      };
  }
}
