/** What Gemini refuses, as its newest models do. */
import { demand, Pairs, said } from "./demand.ts";

/** Google's parser refuses a request for any name it does not know. */
function known(value: object, names: string, where: string): void {
  for (const key of Object.keys(value)) {
    demand(names.split(" ").includes(key), `Unknown name "${key}" at '${where}': Cannot find field`);
  }
}

const words = new Set(
  ("type format title description enum items prefixItems minItems maxItems minimum maximum anyOf properties " +
    "additionalProperties required").split(" "),
);
const types = new Set(["string", "number", "integer", "boolean", "array", "object", "null"]);

/** JSON Schema: the documented words alone. */
export function schemaTaken(schema: any, where: string): void {
  if (typeof schema === "boolean") return;
  demand(schema && typeof schema === "object" && !Array.isArray(schema), `${where} is no schema`);
  for (const key of Object.keys(schema)) demand(words.has(key), `${where}: ${key} is not supported`);
  for (const type of [schema.type ?? []].flat()) demand(types.has(type), `${where}: no type ${type}`);
  for (const value of schema.enum ?? []) {
    demand(
      typeof value === "number" || (typeof value === "string" && value),
      `${where}: enum holds ${JSON.stringify(value)}`,
    );
  }
  if (schema.format) {
    demand(/^(date|time|date-time)$/.test(schema.format), `${where}: format ${schema.format}`);
  }
  for (const name of schema.required ?? []) {
    demand(Object.hasOwn(schema.properties ?? {}, name), `${where}: required ${name} is not defined`);
  }
  for (const [name, part] of Object.entries(schema.properties ?? {})) {
    demand(typeof part === "object", `${where}.${name} is no schema`);
    schemaTaken(part, `${where}.${name}`);
  }
  if (schema.items !== undefined) schemaTaken(schema.items, `${where}[]`);
  if (schema.additionalProperties !== undefined) schemaTaken(schema.additionalProperties, `${where}.*`);
  for (const part of [...schema.prefixItems ?? [], ...schema.anyOf ?? []]) schemaTaken(part, where);
}

function rootTaken(schema: any, where: string): void {
  schemaTaken(schema, where);
  demand(schema.type === "object" && schema.properties && !schema.anyOf, `${where}: no plain object`);
}

function toolsTaken({ tools, toolConfig }: any): void {
  demand(tools === undefined || tools[0]?.functionDeclarations?.length, "tools must not be empty");
  demand(tools || toolConfig === undefined, "function calling config is set without function declarations");
  if (!tools) return;
  const declared = tools[0].functionDeclarations;
  for (const declaration of declared) {
    known(declaration, "name description parametersJsonSchema", "function_declarations");
    demand(/^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/.test(declaration.name), "Invalid function name");
    rootTaken(declaration.parametersJsonSchema, declaration.name);
  }
  const names = declared.map(({ name }: any) => name);
  demand(new Set(names).size === names.length, "Duplicate function declaration found");
  if (!toolConfig) return;
  const { mode, allowedFunctionNames: allowed } = toolConfig.functionCallingConfig;
  known(toolConfig.functionCallingConfig, "mode allowedFunctionNames", "function_calling_config");
  demand(/^(AUTO|ANY|NONE)$/.test(mode), `no mode ${mode}`);
  demand(!allowed || mode === "ANY", "Allowed function names should only be set with mode ANY");
  demand((allowed ?? []).every((name: string) => names.includes(name)), "allowed function is not declared");
}

/** What a call waits for: the same number of responses, in its order, with its name. */
function responsesTaken(calls: any[], responses: any[]): void {
  demand(
    calls.length === responses.length,
    "the number of function response parts must equal that of the function call parts of the function call turn",
  );
  calls.forEach(({ id, name }, n) => {
    demand(responses[n].id === id && responses[n].name === name, `response ${n} is not of ${name} ${id}`);
  });
}

function blobTaken({ inlineData, fileData }: any): void {
  if (inlineData) demand(inlineData.mimeType && inlineData.data, "inlineData lacks mimeType or data");
  else demand(fileData.mimeType && fileData.fileUri, "fileData lacks mimeType or fileUri");
}

function partTaken(part: any, role: string): void {
  const { thought, thoughtSignature: signature, ...rest } = part;
  demand(Object.keys(rest).length === 1, "required oneof field 'data' must have one initialized field");
  known(rest, "text inlineData fileData functionCall functionResponse", "parts");
  demand(role === "model" || !(signature || thought || rest.functionCall), "only the model thinks and calls");
  demand(role === "user" || !rest.functionResponse, "only the user answers calls");
  if (signature !== undefined) {
    demand(/^[A-Za-z0-9+/_-]+=*$/.test(signature), "Base64 decoding failed for thought_signature");
  }
  if ("text" in rest) said(rest.text, `parts of ${role}`);
  if (rest.inlineData || rest.fileData) blobTaken(rest);
  if (rest.functionCall) {
    const { name, args } = rest.functionCall;
    known(rest.functionCall, "id name args", "function_call");
    demand(/^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$/.test(name), `Invalid function name ${name}`);
    demand(args && typeof args === "object" && !Array.isArray(args), "args must be an object");
  }
  if (rest.functionResponse) {
    const { response, parts = [] } = rest.functionResponse;
    known(rest.functionResponse, "id name response parts", "function_response");
    demand(
      response && typeof response === "object" && !Array.isArray(response),
      "response must be an object",
    );
    Object.values(response).forEach((value) => said(value, "function response"));
    parts.forEach(blobTaken);
  }
}

export function gemini(body: any): void {
  known(body, "contents tools toolConfig systemInstruction generationConfig", "");
  toolsTaken(body);
  for (const part of body.systemInstruction?.parts ?? []) said(part.text, "systemInstruction");
  const { responseMimeType, responseJsonSchema, ...config } = body.generationConfig ?? {};
  known(config, "maxOutputTokens", "generation_config");
  if (responseJsonSchema) {
    demand(responseMimeType === "application/json", "a response schema needs a JSON mime type");
    rootTaken(responseJsonSchema, "response_json_schema");
  }
  demand(body.contents?.length, "contents are required");
  demand(body.contents[0].role === "user", "a function call turn comes after a user turn");
  const pairs = new Pairs();
  let calls: any[] = [], before: string | undefined;
  for (const { role, parts, ...rest } of body.contents) {
    known(rest, "", "contents");
    demand(role === "user" || role === "model", "Please use a valid role: user, model");
    demand(role !== before, "multiturn requests alternate between user and model");
    before = role;
    demand(parts?.length, "contents.parts must not be empty");
    for (const part of parts) partTaken(part, role);
    const responses = parts.flatMap((part: any) => part.functionResponse ?? []);
    if (role === "user") {
      responsesTaken(calls, responses);
      demand(
        parts.slice(0, responses.length).every((part: any) => part.functionResponse),
        "function responses come right after the function calls",
      );
    }
    const called = parts.filter((part: any) => part.functionCall);
    demand(
      !called.length || called[0].thoughtSignature,
      "Function call is missing a thought_signature in functionCall parts",
    );
    calls = called.map((part: any) => part.functionCall);
    for (const { id } of calls) pairs.call(id, 64);
  }
  demand(before === "user", "this suite wants no prefill");
}
