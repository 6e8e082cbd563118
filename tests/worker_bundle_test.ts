/** What `deno task worker:build` makes: small enough to start fast, and without what a Worker lacks. */
import assert from "node:assert/strict";
import { bundle } from "./bench/workerd.ts";

Deno.test("the Worker's bundle has at most 400 KB, gzipped, and holds no SQLite", async () => {
  const folder = await Deno.makeTempDir({ prefix: "pawl_bundle_" });
  try {
    const { path, gzipped } = await bundle("worker.ts", folder);
    assert.ok(gzipped <= 400_000, `it has ${gzipped} bytes; deno task bench says what each vendor adds`);
    const text = await Deno.readTextFile(path);
    assert.ok(text.includes("allow-key-locking"), "the store over Redis is in it");
    assert.ok(!/node:sqlite|DatabaseSync/.test(text));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
