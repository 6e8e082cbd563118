/** A vendor, a place for effects, and a service between them. */
import { type EffectServer, effectServer } from "./effect_server.ts";
import { type Asked, type ModelServer, modelServer, type Reply } from "./model_server.ts";
import { type Service, startService } from "./service.ts";
import type { Wire } from "./strict.ts";

export interface Scene extends AsyncDisposable {
  model: ModelServer;
  effects: EffectServer;
  service: Service;
}

export type Script = (asked: Asked, n: number) => Reply | Promise<Reply>;

/** `script` is a function, or what the model says in order; past its end the last line is said again. */
export async function scene(
  wire: Wire,
  script: Reply[] | Script,
  env: Record<string, string> = {},
): Promise<Scene> {
  await using stack = new AsyncDisposableStack();
  const answer = typeof script === "function"
    ? script
    : (_: Asked, n: number) => script[n - 1] ?? script.at(-1)!;
  const model = stack.use(modelServer(wire, answer));
  const effects = stack.use(effectServer());
  const service = stack.use(await startService({ ...model.env, ...effects.env, ...env }));
  const all = stack.move();
  return { model, effects, service, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/** What a script may wait for. */
export function gate(): { promise: Promise<void>; resolve(): void } {
  return Promise.withResolvers<void>();
}
