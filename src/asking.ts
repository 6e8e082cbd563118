/** What an `exec` asks for, as settings of a run, and what it answers when the run, or the nested loop, has ended. */
import type { Choices, Described, Schema } from "./choice.ts";
import {
  type Asked,
  checkAsked,
  DecisionError,
  type Fault,
  isObject,
  type JsonObject,
  named,
} from "./decision.ts";
import { InputError, RunFailedError } from "./errors.ts";
import type { RunView } from "./run.ts";
import { check, schemaOf } from "./validate.ts";

/** What an `exec` may ask for, in the words of a program. */
export interface Wanted {
  choices?: Choices;
  responseFormat?: Schema;
}

/** Options with what they ask for as settings have it: JSON. Throws InputError for what cannot be asked for. */
export function settingsOf<O extends Wanted>(
  { choices, responseFormat, ...rest }: O,
): Omit<O, keyof Wanted> & Asked {
  const asked = {
    ...(choices && { choices: Array.isArray(choices) ? [...choices] : offered(choices) }),
    ...(responseFormat && { responseFormat: named("responseFormat", () => schemaOf(responseFormat)) }),
  } as Asked;
  checkAsked(asked);
  return { ...rest, ...asked };
}

function offered(choices: Choices): { [name: string]: JsonObject } {
  return Object.fromEntries(
    Object.entries(choices).map(([name, option]) => {
      const { description, parameters = {} } = described(option);
      const schema = named(`choices.${name}`, () => schemaOf(parameters));
      return [name, { ...schema, ...(description === undefined ? {} : { description }) }];
    }),
  );
}

function described(option: unknown): Described {
  if (typeof option === "function") return { run: option as Described["run"] };
  if (option === undefined) throw new InputError("bad_input", "choices: undefined is no value");
  if (!isObject(option)) return { value: option };
  const more = !("_zod" in option) && ["value", "parameters", "run"].some((key) => key in option);
  return more ? option as Described : { parameters: option as Schema };
}

type Ended = Pick<RunView, "choice" | "output" | "error" | "finishReason" | "text">;

/**
 * What `exec` answers: the text, the value, or what the choice stands for, whose function is run. Throws RunFailedError, DecisionError among
 * them, if the run ended without it.
 */
export async function resultOf(
  { choices, responseFormat }: Wanted,
  ended: Ended,
  run: string,
): Promise<unknown> {
  const { error, finishReason, text = "", choice, output } = ended;
  if (error) {
    const fault = error.details as Partial<Fault> | undefined;
    throw fault?.kind
      ? new DecisionError({ ...fault, message: error.message } as Fault, error.code, run)
      : new RunFailedError(error.code, error.message, run);
  }
  if (!choices && !responseFormat) return text;
  if (choices ? !choice : output === undefined) {
    throw new RunFailedError(
      finishReason!,
      `The run ended without an answer (${finishReason}): ${text}`,
      run,
    );
  }
  if (responseFormat) return filled(responseFormat, output, "structured_output", run);
  if (Array.isArray(choices)) return choice!.name;
  const { name, args } = choice!, option = described((choices as { [name: string]: unknown })[name]);
  if ("value" in option) return option.value;
  const given = option.parameters ? filled(option.parameters, args, "decision", run) : args;
  return option.run ? await option.run(given) : { name, args: given };
}

/** What JSON Schema cannot say, refinements and conversions, is done here: the model is not asked again for it. */
function filled(schema: Schema, value: unknown, code: string, run: string): unknown {
  if (!("_zod" in schema)) return value;
  const checked = check({ name: "", parameters: schema }, value);
  if (checked.ok) return checked.args;
  const kind = code === "decision" ? "bad_args" : "bad_value";
  throw new DecisionError(
    { kind, message: checked.message.slice(checked.message.indexOf("\n") + 1) },
    code,
    run,
  );
}
