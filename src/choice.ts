/** What an `exec` may be asked to end with: one of some choices, or a value of a given form. Words and types; what they mean is `decision.ts`. */
import type * as z from "zod";
import type { Json, UserBlock } from "./message.ts";

/** JSON Schema of type object, or a zod object. */
export type Schema = z.ZodType | { [key: string]: Json };

/** Values that stand for themselves; an object as a value is written `{ value }`, for a bare one is a JSON Schema. */
type Bare = string | number | boolean | null | readonly unknown[];

/** A choice with more to say; of `value`, `parameters` and `run` it has what it needs. See `defineChoice`. */
export interface Described {
  description?: string;
  /** What is to be filled in. */
  parameters?: Schema;
  /** What `exec` answers. */
  value?: unknown;
  /** Run with the filled arguments once the choice is made; what it returns is what `exec` answers. */
  run?(args: any): unknown;
}

/**
 * Names; or a mapping of names to values, to functions that run with the filled arguments, or to schemas that are to be filled.
 *
 * A function runs here, when the loop has ended: it is not repeated if this process dies, while the run says what was chosen. In the body
 * of an agentic function it is a part of that body, which is run again in each slice: its effects belong into `step`.
 */
export type Choices =
  | readonly string[]
  | { readonly [name: string]: Bare | Schema | Described | ((args: any) => unknown) };

/** What `exec` answers where it was given these choices. */
export type Chosen<C> = C extends readonly (infer Name)[] ? Name
  : { [Name in keyof C]: ChosenOne<Name, C[Name]> }[keyof C];

type ChosenOne<Name, Option> = Option extends (...args: any[]) => infer R ? Awaited<R>
  : Option extends z.ZodType ? { name: Name; args: Filled<Option> }
  : Option extends { run(...args: any[]): infer R } ? Awaited<R>
  : Option extends { value: infer Value } ? Value
  : Option extends { parameters: infer S } ? { name: Name; args: Filled<S> }
  : Option extends Bare ? Option
  : { name: Name; args: { [key: string]: any } };

/** What a filled schema puts out. */
export type Filled<S> = S extends z.ZodType ? z.output<S> : { [key: string]: any };

/** A choice whose function receives what its schema puts out. */
export function defineChoice<const S extends Schema, R>(
  choice: { description?: string; parameters: S; run(args: Filled<S>): R },
): { description?: string; parameters: S; run(args: Filled<S>): R } {
  return choice;
}

/** `exec`, which takes the options `O` besides. */
export interface Exec<O> {
  /** Answers the text. */
  (content: string | UserBlock[], options?: O): Promise<string>;
  /** Answers what was chosen. Throws DecisionError if the model, asked once more, makes no valid choice. */
  <const C extends Choices>(content: string | UserBlock[], options: O & { choices: C }): Promise<Chosen<C>>;
  /** Answers a value that suits the schema. Throws DecisionError if the model, asked once more, gives none. */
  <S extends Schema>(content: string | UserBlock[], options: O & { responseFormat: S }): Promise<Filled<S>>;
}
