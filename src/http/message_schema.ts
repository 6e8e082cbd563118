/** The shapes of what is said in a thread, and the words that all shapes are made of. */
import * as z from "zod";
import type { Json } from "../message.ts";

/** JSON that belongs to the caller: it is checked to be an object and goes on untouched. */
export const object = (description: string) =>
  z.custom<{ [key: string]: Json }>(
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
    "expected object",
  ).meta({ type: "object", description });

export const json = (description: string) =>
  z.custom<Json>((value) => value !== undefined, "expected JSON").meta({ description });

export const time = () => z.int().meta({ description: "Unix milliseconds" });
export const count = () => z.int().min(0);

const Text = z.strictObject({ type: z.literal("text"), text: z.string() });
// What a vendor would refuse is refused here: once in the transcript, it would go out, and be refused, with every request.
const Image = z.strictObject({
  type: z.literal("image"),
  media_type: z.string().regex(
    /^image\/(png|jpeg|gif|webp)$/,
    "expected image/png, image/jpeg, image/gif or image/webp",
  ),
  data: z.base64("expected base64").min(1).optional().meta({ description: "base64" }),
  url: z.url({ protocol: /^https?$/, error: "expected an http or https URL" }).optional(),
}).refine(
  (image) => (image.data === undefined) !== (image.url === undefined),
  "expected exactly one of data and url",
);
export const UserBlock = z.discriminatedUnion("type", [Text, Image]).meta({ id: "UserBlock" });
export const Content = z.union([z.string().min(1), z.array(UserBlock).min(1)])
  .meta({ id: "Content", description: "Text, or blocks" });
/** What was said need not be what may be said: a tool can be silent. */
const Said = z.union([z.string(), z.array(UserBlock)]).meta({ id: "Said", description: "Text, or blocks" });

export const Usage = z.object({
  input: count(),
  output: count(),
  cached: count().optional().meta({ description: "The part of input that the vendor's cache served" }),
  written: count().optional().meta({ description: "The part of input that the vendor's cache took in" }),
  reasoning: count().optional().meta({ description: "The part of output that is not shown" }),
}).meta({ id: "Usage", description: "Tokens" });

const said = { id: z.string(), at: time() };

const UserMessage = z.object({
  role: z.literal("user"),
  ...said,
  content: Said,
  source: z.string().optional().meta({ description: "Where it came from, when not from a user" }),
});

const AssistantMessage = z.object({
  role: z.literal("assistant"),
  ...said,
  content: z.array(z.discriminatedUnion("type", [
    Text,
    z.object({ type: z.literal("thinking"), text: z.string(), vendor: z.string() }),
    z.object({
      type: z.literal("tool_call"),
      id: z.string().meta({ description: "Pawl's own, unique in the thread" }),
      name: z.string(),
      arguments: object("What the model asks the tool for"),
      raw: z.string().optional().meta({ description: "The model's own text, where it differs" }),
      invalid: z.string().optional().meta({ description: "Why the arguments are no JSON object; never run" }),
    }),
  ])),
  stop_reason: z.enum(["stop", "tool_calls", "length", "refusal", "other"]),
  stop_detail: z.string().optional(),
  model: z.string(),
  usage: Usage,
});

const ToolMessage = z.object({
  role: z.literal("tool"),
  ...said,
  tool_call_id: z.string(),
  tool_name: z.string(),
  content: Said,
  is_error: z.boolean(),
});

export const Message = z.discriminatedUnion("role", [UserMessage, AssistantMessage, ToolMessage])
  .meta({ id: "Message" });
export const Messages = z.object({
  messages: z.array(Message),
  next: z.string().optional().meta({ description: "The `after` of the next page" }),
}).meta({ id: "Messages" });
