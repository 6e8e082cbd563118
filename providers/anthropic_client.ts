/** Of Anthropic's SDK what one call takes: all of it would be a quarter of what a Worker weighs. Imported where it is first needed. */
export { BaseAnthropic } from "@anthropic-ai/sdk/client";
export { Messages } from "@anthropic-ai/sdk/resources/messages";
