/** Transcripts in short, and what of one goes over each vendor's wire. */
import { messagesBody } from "../../providers/anthropic.ts";
import { converseBody } from "../../providers/bedrock.ts";
import { geminiRequest } from "../../providers/gemini.ts";
import { sendable } from "../../providers/history.ts";
import { responsesBody } from "../../providers/openai.ts";
import { chatBody } from "../../providers/openai_chat.ts";
import type { AssistantBlock, AssistantMessage, Message, Text, ToolCall } from "../../src/message.ts";
import type { ModelRequest } from "../../src/model.ts";
import { asking } from "../contract/model.ts";
import type { Wire } from "./strict.ts";

export const bodies: Record<Wire, (model: string, request: ModelRequest) => unknown> = {
  "openai": responsesBody,
  "openai-chat": chatBody,
  "anthropic": messagesBody,
  "gemini": geminiBody,
  "bedrock": converseBody,
};
export const wires = Object.keys(bodies) as Wire[];

/** As the SDK takes a request apart. */
function geminiBody(model: string, request: ModelRequest) {
  const { contents, config = {} } = geminiRequest(model, request);
  const { systemInstruction, tools, toolConfig, ...generationConfig } = config;
  return { contents, systemInstruction, tools, toolConfig, generationConfig };
}

/** The body that is sent for these messages, as the vendor reads it. */
export function sent(wire: Wire, messages: Message[], more: Partial<ModelRequest> = {}): any {
  const request = sendable(asking(messages, more), `${wire}/m`);
  return JSON.parse(JSON.stringify(bodies[wire]("m", request)));
}

export function assistant(content: AssistantBlock[], more: Partial<AssistantMessage> = {}): AssistantMessage {
  return {
    role: "assistant",
    id: "m",
    content,
    stopReason: "tool_calls",
    model: "anthropic/m",
    usage: { input: 0, output: 0 },
    at: 1,
    ...more,
  };
}

export function call(id: string, more: Partial<ToolCall> = {}): ToolCall {
  return { type: "tool_call", id, name: "add", arguments: {}, ...more };
}

export function text(text: string): Text {
  return { type: "text", text };
}
