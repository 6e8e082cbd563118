/** Calls of MCP tools that fail, break off, take too long or are cut by a crash: each has one result, and says what is known of its effect. */
import assert from "node:assert/strict";
import { systemClock } from "../src/clock.ts";
import { sqliteStore } from "../src/store/sqlite.ts";
import { type McpFake, mcpFake, text } from "./support/mcp_server.ts";
import { headers, local, run, secret, shop } from "./support/mcp_run.ts";
import { calls as modelCalls, modelServer } from "./support/model_server.ts";
import { calls } from "./support/scripted_model.ts";
import { startService, until } from "./support/service.ts";

Deno.test("a call gets its idempotency key; what it answers is shown and stored without what it was sent", async () => {
  await using fake = mcpFake(["pay"], ({ meta, progress }) => {
    progress(1, undefined, `with ${secret}`);
    return text(`key ${meta["pawl/idempotencyKey"]} Bearer ${secret} and ${secret}`);
  });
  const store = sqliteStore(":memory:", { clock: systemClock });
  const { results, events, view } = await run([shop(fake)], [calls(["shop_pay", { eur: 5 }]), "Done"], {
    store,
  });
  assert.match(results[0] as string, /^key \S+ \[redacted\] and \[redacted\]$/);
  assert.deepEqual(fake.sent.find(({ method }) => method === "tools/call")!.params.arguments, { eur: 5 });
  assert.ok(fake.sent.every(({ headers }) => headers.get("authorization") === `Bearer ${secret}`));
  assert.ok(!JSON.stringify([view, events]).includes(secret));
});

Deno.test("errors of a call are results: the tool's own, the protocol's, a lost connection's", async () => {
  const ends: { [name: string]: McpFake["answer"] } = {
    own: () => text("no such article", { isError: true }),
    protocol: () => {
      throw new Error("unknown tool");
    },
    lost: async ({ breakOff }) => {
      breakOff();
      await new Promise(() => {});
    },
  };
  await using fake = mcpFake([
    ...Object.keys(ends),
    { name: "lookup", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } },
  ], (call) => (ends[call.name] ?? ends.lost!)(call));
  const started = performance.now();
  const { view, results } = await run([shop(fake), local], [
    calls(["shop_own"], ["shop_protocol"], ["shop_lost"], ["shop_lookup"], ["local"]),
    "Done",
  ]);
  assert.equal(view.status, "completed");
  assert.deepEqual(results, [
    "!no such article",
    "!The MCP server: unknown tool",
    "!The MCP server: the connection was lost. What the call did is unknown: check before you ask for it again",
    "!The MCP server: the connection was lost",
    "ok",
  ]);
  assert.ok(performance.now() - started < 5_000, "a lost connection is noticed at once");
});

Deno.test("a server that dies in the middle of a run costs what it was asked from then on", async () => {
  await using fake = mcpFake(["pay"]);
  fake.answer = async ({ name }) => {
    if (fake.calls.length === 2) {
      fake.die();
      await new Promise(() => {});
    }
    return text(name);
  };
  const { view, results, warnings } = await run([shop(fake), local], [
    calls(["shop_pay"], ["shop_pay"], ["shop_pay"], ["local"]),
    calls(["local"]),
    "Done",
  ], { budget: { turns: 1 } });
  assert.equal(view.status, "completed");
  assert.equal(results[0], "pay");
  assert.match(
    results[1] as string,
    /^!The MCP server: the connection was lost\. What the call did is unknown/,
  );
  assert.match(results[2] as string, /^!The MCP server: it cannot be reached/);
  assert.deepEqual(results.slice(3), ["ok", "ok"]);
  assert.match(warnings[0]!, /it cannot be reached$/);
});

Deno.test("a server that has forgotten its sessions is greeted again, and the call made once", async () => {
  await using fake = mcpFake(["pay"]);
  fake.answer = ({ name }) => {
    fake.forget();
    return text(name);
  };
  const { results } = await run([shop(fake)], [calls(["shop_pay"], ["shop_pay"], ["shop_pay"]), "Done"]);
  assert.deepEqual(results, ["pay", "pay", "pay"]);
  const greeted = fake.sent.filter(({ method }) => method === "initialize").length;
  assert.equal(greeted, 3);
});

Deno.test("a stream that its server resumes is asked for the rest", async () => {
  await using fake = mcpFake(["slow"]);
  const id = (sent: string) => `id: 7\ndata: {"jsonrpc":"2.0",${sent}}\n\n`;
  let resumed = "";
  const proxy = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
    const type = { "content-type": "text/event-stream" };
    if (request.method === "GET") {
      resumed = request.headers.get("last-event-id")!;
      return new Response(id(`"id":2,"result":{"content":[{"type":"text","text":"late"}]}`), {
        headers: type,
      });
    }
    const body = await request.text();
    if (body.includes("tools/call")) {
      return new Response(`retry: 20\n${id('"method":"notifications/message","params":{}')}`, {
        headers: type,
      });
    }
    return await fetch(fake.url, {
      method: request.method,
      headers: request.headers,
      ...(body && { body }),
    });
  });
  const { results } = await run([shop({ url: `http://127.0.0.1:${proxy.addr.port}/` })], [
    calls(["shop_slow"]),
    "Done",
  ]);
  assert.deepEqual([results, resumed], [["late"], "7"]);
  await proxy.shutdown();
});

Deno.test("a call that takes too long, and one of a cancelled run, are taken back before the session ends", async () => {
  await using fake = mcpFake(["sleep"]);
  const taken: string[] = [];
  fake.answer = async ({ args, cancelled }) => {
    await cancelled;
    taken.push(args.why);
    return text("too late");
  };
  const timed = await run([shop(fake, { timeoutMs: 200 })], [calls(["shop_sleep", { why: "time" }]), "Done"]);
  assert.match(
    timed.results[0] as string,
    /^!Tool "shop_sleep" timed out after 0.2 s: what it did is unknown/,
  );
  const cancelled = await run([shop(fake)], [calls(["shop_sleep", { why: "cancel" }])], {
    on: async (event, pawl, run) => {
      if (event.type !== "tool_execution_start") return;
      await until(() => fake.calls.length === 2);
      await pawl.cancel(run);
    },
  });
  assert.equal(cancelled.view.status, "cancelled");
  await until(() => fake.sessions.size === 0);
  assert.deepEqual(taken, ["time", "cancel"]);
  assert.equal(fake.sent.filter(({ method }) => method === "notifications/cancelled").length, 2);
});

Deno.test("killed while a remote tool runs, a run repeats it only if its server says that it may", async () => {
  const never = new Promise(() => {});
  for (const down of [false, true]) {
    await using fake = mcpFake([
      "pay",
      { name: "look", inputSchema: { type: "object" }, annotations: { idempotentHint: true } },
    ]);
    const keys: string[] = [];
    // The first of each is never answered.
    fake.answer = async ({ name, meta }) => {
      keys.push(meta["pawl/idempotencyKey"]);
      if (fake.calls.filter((call) => call === name).length === 1) await never;
      return text(`${name} done`);
    };
    await using model = modelServer(
      "openai-chat",
      ({ results }) => [modelCalls(["shop_look"]), modelCalls(["shop_pay"]), "Done"][results.length]!,
    );
    await using service = await startService({
      ...model.env,
      PAWL_MCP_SERVERS: JSON.stringify({ shop: { url: fake.url, headers } }),
      PAWL_ALLOW_HOSTS: "127.0.0.1",
    });
    const { id } = await service.start({ content: "Go" });
    await until(() => fake.calls.length === 1);
    await service.kill9();
    if (down) await fake.die();
    await service.restart();
    if (!down) {
      await until(() => fake.calls.length === 3);
      await service.kill9();
      await service.restart();
    }
    assert.equal((await service.ended(id)).text, "Done");
    const results = (await service.messages(id)).filter(({ role }) => role === "tool");
    const texts = results.map(({ content, is_error }) => `${is_error ? "!" : ""}${content}`);
    if (down) {
      // Nobody can say any more that it may be repeated.
      assert.match(texts[0]!, /^!Interrupted while it ran: its outcome is unknown/);
      assert.match(texts[1]!, /^!There is no tool "shop_pay"/);
      assert.equal(keys.length, 1);
    } else {
      assert.equal(texts[0], "look done");
      assert.match(texts[1]!, /^!Interrupted while it ran: its outcome is unknown/);
      assert.deepEqual([keys.length, keys[0] === keys[1]], [3, true]);
    }
    assert.ok(!service.output.includes("SEKRIT-q7"), "no secret in what the service writes");
    const file = new TextDecoder().decode(await Deno.readFile(service.database));
    assert.ok(!file.includes("SEKRIT-q7"), "no secret in the store");
  }
});

Deno.test("calls of a server's tools wait for an approval where its setting says so", async () => {
  await using fake = mcpFake(["read", "write"]);
  const shops = [shop(fake, { approval: ["write"] }), shop(fake, { approval: true })];
  const waited: string[][] = [];
  for (const source of shops) {
    const names: string[] = [];
    const { view } = await run([source], [calls(["shop_read"]), calls(["shop_write"]), "Done"], {
      on: async (event, pawl, run) => {
        if (event.type !== "run_waiting") return;
        for (const { name, toolCallId } of event.waitingFor) {
          names.push(name);
          await pawl.resolve(run, toolCallId, { approve: true });
        }
      },
    });
    assert.equal(view.text, "Done");
    waited.push(names);
  }
  assert.deepEqual(waited, [["shop_write"], ["shop_read", "shop_write"]]);
});
