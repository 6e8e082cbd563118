/** The contract on Upstash Redis, and what only Redis can show. */
import assert from "node:assert/strict";
import { upstashStore } from "../src/store/upstash.ts";
import { storeContract, ttlMs } from "./contract/store.ts";
import { upstash } from "./support/upstash.ts";

const rest = await upstash();
const ignore = rest === undefined;
let stores = 0;

storeContract("Upstash", (clock) => {
  const { url, token } = rest!;
  return Promise.resolve(upstashStore({ url, token, clock, ttlMs, prefix: `${++stores}:` }));
}, { ignore });
