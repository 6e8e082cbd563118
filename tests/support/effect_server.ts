/** Where the tools of `service_main.ts` have their effects: it counts them, and can keep a tool waiting in the middle of one. */

export interface Effect {
  tool: string;
  key: string;
  args: any;
}

export interface EffectServer extends AsyncDisposable {
  env: Record<string, string>;
  effects: Effect[];
  /** From now on effects of this tool happen, but their tools hear nothing until they are released. */
  hold(tool: string): { release(): void };
}

export function effectServer(): EffectServer {
  const effects: Effect[] = [], held = new Map<string, Promise<void>>();
  const server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const effect: Effect = await request.json();
    effects.push(effect);
    await held.get(effect.tool);
    return new Response(`${effect.tool} done`);
  });
  const { promise: closing, resolve: close } = Promise.withResolvers<void>();
  return {
    env: { TEST_EFFECTS: `http://127.0.0.1:${server.addr.port}` },
    effects,
    hold(tool) {
      const { promise, resolve } = Promise.withResolvers<void>();
      held.set(tool, Promise.race([promise, closing]));
      return {
        release() {
          held.delete(tool);
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
