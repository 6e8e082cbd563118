/** What the vendors demand alike of a request. */

export class Fault extends Error {}

export function demand(holds: unknown, fault: string): asserts holds {
  if (!holds) throw new Fault(fault);
}

export function said(text: unknown, where: string): void {
  demand(typeof text === "string" && text.trim(), `${where}: text must be non-empty`);
}

export function nameTaken(name: unknown): void {
  demand(
    typeof name === "string" && /^[A-Za-z0-9_-]{1,64}$/.test(name),
    `tool name ${JSON.stringify(name)} does not match`,
  );
}

export function id(value: unknown, longest: number): asserts value is string {
  demand(
    typeof value === "string" && value.length <= longest && /^[A-Za-z0-9_-]+$/.test(value),
    `id ${JSON.stringify(value)} does not match or is longer than ${longest}`,
  );
}

export function jsonObject(text: unknown): void {
  let value: unknown;
  try {
    value = JSON.parse(text as string);
  } catch { /* the demand below says it */ }
  demand(typeof value === "object" && value && !Array.isArray(value), "arguments must be a JSON object");
}

/** What OpenAI and Anthropic say of a tool's schema, whoever serves them. */
export function parametersTaken(schema: any): void {
  demand(schema?.type === "object", "a tool's schema must be of type object");
  const word = ["anyOf", "oneOf", "allOf", "enum", "not"].find((word) => word in schema);
  demand(!word, `a tool's schema must not have ${word} at the top level`);
}

/** Schemas that answers are held to, letter by letter: everything is required, and nothing may be added. */
export function formatTaken(format: any, isStrict: boolean): void {
  demand(format.schema?.type === "object", "the format's schema must be of type object");
  const closed = (schema: any): boolean =>
    (schema.type !== "object" || (schema.additionalProperties === false &&
      Object.keys(schema.properties).every((key) => schema.required?.includes(key)))) &&
    Object.values(schema.properties ?? {}).every(closed) && (!schema.items || closed(schema.items)) &&
    (schema.anyOf ?? []).every(closed) && schema.minimum === undefined && schema.pattern === undefined;
  demand(!isStrict || closed(format.schema), "a strict schema must be closed");
}

/** Calls that wait for their results: each needs exactly one before anything else is said. */
export class Pairs {
  #seen = new Set<string>();
  #open = new Set<string>();
  call(call: unknown, longest: number): void {
    id(call, longest);
    demand(!this.#seen.has(call), `repeated call id ${call}`);
    this.#seen.add(call);
    this.#open.add(call);
  }
  result(call: unknown): void {
    demand(
      this.#open.delete(call as string),
      `a result for ${call}, which was not called right before or has one`,
    );
  }
  settled(): void {
    demand(!this.#open.size, `no result for ${[...this.#open]}`);
  }
}
