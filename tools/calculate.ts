/** Arithmetic, by recursive descent: nothing of the expression is ever run as code. */
import * as z from "zod";
import { defineTool } from "../src/tool.ts";

export const calculate = defineTool({
  name: "calculate",
  description:
    "Evaluates an arithmetic expression: numbers (1.5, 2e3), + - * / % ^, parentheses, pi, e, and " +
    "sqrt, abs, round, floor, ceil, min, max, log (base 10), ln, exp, sin, cos, tan (radians). % is the remainder.",
  parameters: z.object({ expression: z.string().describe("For example (2 + 3) * sqrt(16)") }),
  replay: "safe",
  parallel: true,
  execute: ({ expression }) => spell(evaluate(expression)),
});

const longest = 1000;
const deepest = 100;

type Fn = (...values: number[]) => number;
const functions = new Map<string, Fn>([
  ["sqrt", Math.sqrt],
  ["abs", Math.abs],
  ["round", Math.round],
  ["floor", Math.floor],
  ["ceil", Math.ceil],
  ["min", Math.min],
  ["max", Math.max],
  ["log", Math.log10],
  ["ln", Math.log],
  ["exp", Math.exp],
  ["sin", Math.sin],
  ["cos", Math.cos],
  ["tan", Math.tan],
]);
const variadic = new Set(["min", "max"]);
const constants = new Map([["pi", Math.PI], ["e", Math.E]]);

/** The value of an expression, always finite. Throws an Error that says what is wrong and at which position (from 1). */
export function evaluate(expression: string): number {
  if (expression.length > longest) throw new Error(`The expression is longer than ${longest} characters`);
  const value = new Parser(expression).parse();
  if (!Number.isFinite(value)) {
    throw new Error(`The result is ${Number.isNaN(value) ? "undefined" : "too large"}`);
  }
  return value;
}

class Parser {
  #at = 0;
  #depth = 0;
  constructor(readonly text: string) {}

  parse(): number {
    const value = this.#sum();
    if (this.#peek() !== "") this.#fail(this.#at, "expected an operator");
    return value;
  }

  #sum(): number {
    let value = this.#product();
    for (;;) {
      if (this.#take("+")) value += this.#product();
      else if (this.#take("-", "−")) value -= this.#product();
      else return value;
    }
  }

  #product(): number {
    let value = this.#unary();
    for (;;) {
      if (this.#take("*", "×", "·")) value *= this.#unary();
      else if (this.#take("/", "÷")) value /= this.#divisor();
      else if (this.#take("%")) value %= this.#divisor();
      else return value;
    }
  }

  #divisor(): number {
    const at = this.#at;
    const value = this.#unary();
    if (value === 0) this.#fail(at, "division by zero");
    return value;
  }

  #unary(): number {
    if (++this.#depth > deepest) this.#fail(this.#at, `nested deeper than ${deepest}`);
    const value = this.#take("-", "−") ? -this.#unary() : this.#take("+") ? this.#unary() : this.#power();
    this.#depth--;
    return value;
  }

  /** Binds tighter than a sign before it and is grouped from the right: -2^2 is -4, 2^3^2 is 512. */
  #power(): number {
    const base = this.#primary();
    return this.#take("^") ? base ** this.#unary() : base;
  }

  #primary(): number {
    if (this.#take("(")) {
      const value = this.#sum();
      if (!this.#take(")")) this.#fail(this.#at, "expected )");
      return value;
    }
    this.#skipSpace();
    const start = this.#at;
    const number = this.#match(/(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/y);
    if (number !== "") return Number(number);
    const name = this.#match(/[A-Za-z]+/y).toLowerCase();
    const constant = constants.get(name), apply = functions.get(name);
    if (constant !== undefined) return constant;
    if (apply !== undefined) return this.#call(name, apply, start);
    if (name === "") this.#fail(start, "expected a number");
    throw new Error(
      `Position ${start + 1}: there is no "${name}"; there are ${
        [...functions.keys(), ...constants.keys()].join(", ")
      }`,
    );
  }

  #call(name: string, apply: Fn, start: number): number {
    if (!this.#take("(")) this.#fail(this.#at, `expected ( after ${name}`);
    const values = [this.#sum()];
    while (this.#take(",")) values.push(this.#sum());
    if (!this.#take(")")) this.#fail(this.#at, "expected )");
    if (values.length > 1 && !variadic.has(name)) this.#fail(start, `${name} takes one number`);
    const value = apply(...values);
    if (Number.isNaN(value)) this.#fail(start, `${name} of ${values.join(", ")} is undefined`);
    return value;
  }

  #skipSpace(): void {
    this.#match(/\s+/y);
  }

  #peek(): string {
    this.#skipSpace();
    return this.text[this.#at] ?? "";
  }

  #take(...symbols: string[]): boolean {
    const found = symbols.includes(this.#peek());
    if (found) this.#at++;
    return found;
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.#at += found.length;
    return found;
  }

  #fail(at: number, problem: string): never {
    const found = this.text.slice(at).trimStart();
    const where = found === "" ? "at the end" : `at "${found.slice(0, 10)}"`;
    throw new Error(`Position ${this.text.length - found.length + 1}: ${problem}, ${where}`);
  }
}

/** Whole numbers exactly, others to 15 digits: 0.1 + 0.2 is 0.3. What is too large to be exact says so by its exponent. */
function spell(value: number): string {
  if (Number.isSafeInteger(value)) return String(value + 0);
  const rounded = Number(value.toPrecision(15));
  return Math.abs(rounded) > Number.MAX_SAFE_INTEGER ? rounded.toExponential() : String(rounded);
}
