/** What Bedrock's Converse refuses. */
import { demand, nameTaken, Pairs, parametersTaken, said } from "./demand.ts";

/** The members of a union, of which each block has one. */
function only(block: any, names: string, where: string): void {
  const [key, ...more] = Object.keys(block);
  demand(key && !more.length && names.split(" ").includes(key), `${where}: ${key} and ${more} are no block`);
}

function imageTaken({ format, source }: any): void {
  demand(/^(png|jpeg|gif|webp)$/.test(format), `no image format ${format}`);
  only(source, "bytes s3Location", "image source");
  if (source.s3Location) demand(/^s3:\/\//.test(source.s3Location.uri), "uri must be of S3");
  else demand(/^[A-Za-z0-9+/]+=*$/.test(source.bytes), "image bytes are no base64");
}

function toolsTaken({ toolConfig }: any): void {
  if (!toolConfig) return;
  const { tools, toolChoice } = toolConfig;
  demand(tools?.length, "toolConfig.tools must not be empty");
  const names = tools.flatMap((tool: any) => {
    only(tool, "toolSpec cachePoint", "tools");
    if (tool.cachePoint) return [];
    const { name, description, inputSchema } = tool.toolSpec;
    nameTaken(name);
    if (description !== undefined) said(description, "toolSpec.description");
    only(inputSchema, "json", "inputSchema");
    parametersTaken(inputSchema.json);
    return [name];
  });
  demand(names.length, "the value at toolConfig.tools holds no tool");
  demand(new Set(names).size === names.length, "tool names must be unique");
  if (!toolChoice) return;
  only(toolChoice, "auto any tool", "toolChoice");
  demand(!toolChoice.tool || names.includes(toolChoice.tool.name), "toolChoice names no tool");
}

function resultTaken({ toolUseId, content, status, ...rest }: any, pairs: Pairs): void {
  demand(!Object.keys(rest).length, `toolResult: unknown ${Object.keys(rest)}`);
  pairs.result(toolUseId);
  demand(content?.length, "toolResult.content must not be empty");
  demand(status === undefined || /^(success|error)$/.test(status), `no status ${status}`);
  for (const block of content) {
    only(block, "text image", "toolResult");
    if (block.image) imageTaken(block.image);
    else said(block.text, "The text field in the ContentBlock object");
    demand(!block.image || status !== "error", "all content must be text if the status is error");
  }
}

function thoughtTaken(thought: any): void {
  only(thought, "reasoningText redactedContent", "reasoningContent");
  demand(thought.redactedContent || thought.reasoningText.signature?.trim(), "reasoning: signature required");
}

export function bedrock(body: any): void {
  const { inferenceConfig, outputConfig, system = [], messages, toolConfig, ...rest } = body;
  demand(!Object.keys(rest).length, `extraneous key [${Object.keys(rest)}] is not permitted`);
  const { maxTokens = 1, ...unknown } = inferenceConfig ?? {};
  demand(maxTokens > 0 && !Object.keys(unknown).length, "inferenceConfig");
  if (outputConfig) {
    const { type, structure } = outputConfig.textFormat;
    demand(type === "json_schema" && JSON.parse(structure.jsonSchema.schema), "outputConfig.textFormat");
  }
  toolsTaken(body);
  const marks = JSON.stringify(body).split('"cachePoint":').length - 1;
  demand(marks <= 4, `at most 4 cache points, not ${marks}`);
  for (const block of system) {
    only(block, "text cachePoint", "system");
    if (!block.cachePoint) said(block.text, "system");
  }
  demand(messages?.[0]?.role === "user", "A conversation must start with a user message");
  const pairs = new Pairs();
  let before: string | undefined;
  for (const { role, content } of messages) {
    demand(role !== before, "A conversation must alternate between user and assistant roles");
    before = role;
    demand(
      content?.length && !content[0].cachePoint,
      "content must not be empty, nor begin with a cache point",
    );
    let texts = 0;
    for (const block of content) {
      only(block, "text image toolUse toolResult reasoningContent cachePoint", role);
      if ("text" in block) {
        said(block.text, "The text field in the ContentBlock object");
        texts++;
      } else if (block.toolResult) {
        demand(role === "user" && !texts, "toolResult blocks must come before text");
        resultTaken(block.toolResult, pairs);
      } else if (block.image) {
        demand(role === "user", "only the user shows images");
        imageTaken(block.image);
      } else if (!block.cachePoint) {
        demand(role === "assistant", "only the model thinks and calls");
        if (block.reasoningContent) thoughtTaken(block.reasoningContent);
      }
      if (!block.toolUse) continue;
      pairs.call(block.toolUse.toolUseId, 64);
      nameTaken(block.toolUse.name);
      const { input } = block.toolUse;
      demand(input && typeof input === "object" && !Array.isArray(input), "input must be an object");
    }
    demand(!content.at(-1).reasoningContent, "the final block cannot be reasoning");
    if (role === "user") pairs.settled();
    demand(
      toolConfig || !content.some((block: any) => block.toolUse || block.toolResult),
      "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    );
  }
  demand(before === "user", "The model does not support assistant message prefill");
}
