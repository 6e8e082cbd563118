/** What every store promises. A driver's test file calls this with a way to open the driver. */
import type { Clock } from "../../src/clock.ts";
import type { Store } from "../../src/store.ts";
import { manualClock } from "../support/clock.ts";
import { claiming } from "./store_claim.ts";
import { committing } from "./store_commit.ts";
import { ending } from "./store_end.ts";
import { reading } from "./store_read.ts";
import { Scene, type Test, ttlMs } from "./store_scene.ts";
import { submitting } from "./store_submit.ts";
import { waiting } from "./store_wait.ts";

export { ttlMs };

/** `open` gives an empty store that knows no time but the clock's, and whose threads live for `ttlMs`. */
export function storeContract(
  name: string,
  open: (clock: Clock) => Promise<Store>,
  { ignore = false }: { ignore?: boolean } = {},
): void {
  const test: Test = (behaviour, body) =>
    Deno.test({
      name: `${name}: ${behaviour}`,
      ignore,
      async fn() {
        const clock = manualClock();
        const store = await open(clock);
        try {
          await body(new Scene(store, clock));
        } finally {
          await store.close();
        }
      },
    });
  submitting(test);
  claiming(test);
  committing(test);
  waiting(test);
  ending(test);
  reading(test);
}
