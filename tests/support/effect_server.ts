/** Where the tools of `service_main.ts` have their effects: it counts them, and can keep a tool waiting in the middle of one. */
import { systemClock } from "../../src/clock.ts";

export interface Effect {
  tool: string;
  key: string;
  args: any;
}

export interface EffectServer extends AsyncDisposable {
  env: Record<string, string>;
  effects: Effect[];
  /** From now on these effects happen, but their tools hear nothing until they are released. */
  hold(tool: string, which?: (args: any) => boolean): { release(): void };
}

/** `delayMs`: between the effect and its answer. */
export function effectServer(delayMs: () => number = () => 0): EffectServer {
  const effects: Effect[] = [], held: { holds(effect: Effect): boolean; until: Promise<void> }[] = [];
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const effect: Effect | undefined = await request.json().catch(() => undefined);
    if (!effect) return new Response(); // Whoever sent it died over it.
    effects.push(effect);
    await held.find(({ holds }) => holds(effect))?.until;
    await systemClock.sleep(delayMs());
    return new Response(`${effect.tool} done`);
  });
  const { promise: closing, resolve: close } = Promise.withResolvers<void>();
  return {
    env: { TEST_EFFECTS: `http://127.0.0.1:${server.addr.port}` },
    effects,
    hold(tool, which = () => true) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const hold = {
        holds: (effect: Effect) => effect.tool === tool && which(effect.args),
        until: Promise.race([promise, closing]),
      };
      held.push(hold);
      return {
        release() {
          held.splice(held.indexOf(hold), 1);
          resolve();
        },
      };
    },
    async [Symbol.asyncDispose]() {
      close();
      await server.shutdown();
    },
  };
}
