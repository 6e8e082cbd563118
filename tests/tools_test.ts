import { deepStrictEqual as equal, match, ok, rejects, throws } from "node:assert/strict";
import { hostList, refusal } from "../src/address.ts";
import { Registry } from "../src/registry.ts";
import { type AgenticContext, type Tool, ToolOutput } from "../src/tool.ts";
import { check } from "../src/validate.ts";
import { calculate, evaluate } from "../tools/calculate.ts";
import { fetchUrl } from "../tools/fetch_url.ts";
import { tools } from "../tools/mod.ts";
import { now, nowFrom } from "../tools/now.ts";
import { readable } from "../tools/readable.ts";
import { wait } from "../tools/wait.ts";

const context = { signal: new AbortController().signal, fetch } as AgenticContext;
const run = async (tool: Tool, args: unknown, use = context) => await tool.execute(args, use);

Deno.test("The default list can be registered, and reads PAWL_ALLOW_HOSTS", async () => {
  const resolved = (env: Record<string, string>) =>
    tools.flatMap((tool) => typeof tool === "function" ? tool(env) : tool);
  const registry = new Registry(resolved({}));
  equal(registry.all().map(({ name }) => name), ["calculate", "now", "fetch_url", "wait", "ask_user"]);
  ok(registry.all().every(({ replay }) => replay === "safe"));
  await rejects(run(registry.get("fetch_url")!, { url: "http://127.0.0.1:1/" }), /refused/);
  const open = new Registry(resolved({ PAWL_ALLOW_HOSTS: "x.example, 127.0.0.1:1" })).get("fetch_url")!;
  await rejects(run(open, { url: "http://127.0.0.1:1/" }), (error: Error) => !/refused:/.test(error.message));
});

Deno.test("calculate knows precedence, signs, functions and constants", async () => {
  const cases: [string, number][] = [
    ["1 + 2 * 3", 7],
    ["(1 + 2) * 3", 9],
    ["-2^2", -4],
    ["2^3^2", 512],
    ["2^-1", 0.5],
    ["2 * -3", -6],
    ["--4", 4],
    ["7 % 4 * 2", 6],
    [".5 + 1.5e2", 150.5],
    ["6 × 7 ÷ 2 − 1", 20],
    ["min(3, 1, 2) + max(4)", 5],
    ["round(2.5) + floor(-1.5) + ceil(1.2) + abs(-1)", 4],
    ["SQRT(16) + log(1000) + ln(e)", 8],
    ["cos(pi) + sin(0) + tan(0) + exp(0)", 0],
  ];
  for (const [expression, value] of cases) equal(evaluate(expression), value, expression);
  const text: [string, string][] = [["0.1 + 0.2", "0.3"], ["2^40", "1099511627776"], [
    "2^64",
    "1.84467440737096e+19",
  ], ["0 * -1", "0"]];
  for (const [expression, shown] of text) equal(await run(calculate, { expression }), shown);
});

Deno.test("calculate names position and problem", () => {
  const cases: [string, RegExp][] = [
    ["1 + ", /^Error: Position 5: expected a number, at the end$/],
    ["1 + )", /^Error: Position 5: expected a number, at "\)"$/],
    ["(1 + 2", /^Error: Position 7: expected \), at the end$/],
    ["1,000 + 1", /^Error: Position 2: expected an operator, at ",000 \+ 1"$/],
    ["4 / (2 - 2)", /^Error: Position 5: division by zero, at "\(2 - 2\)"$/],
    ["sqrt(-1)", /^Error: Position 1: sqrt of -1 is undefined/],
    ["sqrt(1, 2)", /^Error: Position 1: sqrt takes one number/],
    ["2 + foo(1)", /^Error: Position 5: there is no "foo"; there are sqrt, /],
    ["constructor", /there is no "constructor"/],
    ["", /^Error: Position 1: expected a number, at the end$/],
    ["10^400", /too large/],
    ["process.exit()", /there is no "process"/],
  ];
  for (const [expression, problem] of cases) throws(() => evaluate(expression), problem, expression);
});

Deno.test("calculate is bounded in length and depth", () => {
  throws(() => evaluate("1+".repeat(600) + "1"), /longer than 1000 characters/);
  for (const open of ["(", "-", "sqrt(", "2^"]) {
    throws(() => evaluate(open.repeat(150) + "1"), /nested deeper than 100/);
  }
  equal(evaluate("1" + "+1".repeat(499)), 500);
});

Deno.test("now tells date, weekday and time in the zone that was asked for", async () => {
  const at = nowFrom(() => new Date("2026-01-31T23:05:09Z"));
  equal(await run(at, {}), "2026-01-31T23:05:09Z (Saturday, UTC)");
  equal(await run(at, { time_zone: "Europe/Oslo" }), "2026-02-01T00:05:09+01:00 (Sunday, Europe/Oslo)");
  equal(await run(at, { time_zone: "Asia/Kolkata" }), "2026-02-01T04:35:09+05:30 (Sunday, Asia/Kolkata)");
  await rejects(run(at, { time_zone: "Mars/Base" }), /There is no time zone "Mars\/Base"\. Use an IANA name/);
  match(await run(now, {}) as string, /^\d{4}-\d\d-\d\dT/);
});

Deno.test("wait holds no function: it names the moment at which it is over", async () => {
  equal(wait.wait!({ seconds: 90 }, 1_000_000), { for: "time", until: 1_090_000 });
  equal(await run(wait, { seconds: 90 }), "Waited 90 seconds.");
  for (const seconds of [-1, 2_592_001, NaN]) equal(check(wait, { seconds }).ok, false);
  equal(check(wait, { seconds: "2592000" }), { ok: true, args: { seconds: 2_592_000 } });
});

const spellings = [
  "http://2852039166/",
  "http://0x7f.1/",
  "http://0x7f000001/",
  "http://017700000001/",
  "http://127.1/",
  "http://127.0.0.1./",
  "http://①②⑦.0.0.1/",
  "http://0/",
  "http://[::1]/",
  "http://[::]/",
  "http://[::ffff:127.0.0.1]/",
  "http://[::ffff:a9fe:a9fe]/",
  "http://[::127.0.0.1]/",
  "http://[64:ff9b::127.0.0.1]/",
  "http://[2002:7f00:1::]/",
  "http://[fe80::1]/",
  "http://[fc00::1]/",
  "http://[ff02::1]/",
  "http://10.0.0.1/",
  "http://172.16.0.1/",
  "http://192.168.1.1/",
  "http://100.64.0.1/",
  "http://169.254.169.254/latest/meta-data/",
  "http://[fd00:ec2::254]/",
  "http://224.0.0.1/",
  "http://255.255.255.255/",
  "http://198.18.0.1/",
  "http://localhost/",
  "http://LOCALHOST./",
  "http://%6cocalhost/",
  "http://localhost../",
  "http://a.localhost/",
  "http://metadata.google.internal/",
  "http://metadata.google.internal./",
  "http://printer.local/",
  "http://redis:6379/",
  "http://a@127.0.0.1/",
  "http://a@example.com/",
  "https://:secret@example.com/",
  "file:///etc/hosts",
  "ftp://example.com/",
  "data:text/plain,x",
];

Deno.test("Every spelling of an address that is not public is refused before connecting (H02)", async () => {
  let connections = 0;
  const counting = { ...context, fetch: () => Promise.reject(new Error(`connected ${++connections}`)) };
  for (const url of spellings) {
    ok(refusal(new URL(url), []) !== undefined, url);
    await rejects(run(fetchUrl([]), { url }, counting), /refused/, url);
  }
  equal(connections, 0);
});

Deno.test("Public addresses and names are reached (H02)", () => {
  const urls = [
    "http://example.com/",
    "https://93.184.216.34:8443/",
    "http://[2606:4700::1]/",
    "http://[::ffff:8.8.8.8]/",
  ];
  for (const url of [...urls, "http://localhost.example.com./"]) {
    equal(refusal(new URL(url), []), undefined, url);
  }
});

Deno.test("A host on the list is reached: on every port, or on the one that is named (H02)", () => {
  const reached = (url: string, ...allow: string[]) => refusal(new URL(url), allow) === undefined;
  ok(reached("http://localhost:1234/", "localhost"));
  ok(reached("http://LOCALHOST.:1234/", "localhost:1234"));
  ok(!reached("http://localhost:1235/", "localhost:1234"));
  ok(reached("https://redis/", "redis:443") && !reached("http://redis/", "redis:443"));
  ok(reached("http://0x7f.1/", "127.0.0.1") && reached("http://127.0.0.1/", "0x7f.1"));
  ok(reached("http://[::1]:80/", "[::1]:80") && reached("http://[0::1]/", "::1"));
  ok(
    !reached("http://a.localhost/", "localhost") && !reached("http://127.0.0.2/", "127.0.0.1", "", ":", "*"),
  );
  ok(!reached("http://a@localhost/", "localhost") && !reached("ftp://localhost/", "localhost"));
  equal(hostList(" a:1, ,b ,"), ["a:1", "b"]);
  equal(hostList(undefined), []);
});

/** A server on this machine, and a tool that may reach it. */
async function serving(
  handler: (request: Request) => Response | Promise<Response>,
  body: (
    base: string,
    get: (path: string, timeoutMs?: number, use?: AgenticContext) => Promise<unknown>,
  ) => Promise<void>,
) {
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, handler);
  const host = `127.0.0.1:${server.addr.port}`;
  try {
    await body(
      `http://${host}`,
      (path, timeoutMs, use) => run(fetchUrl([host], timeoutMs), { url: `http://${host}${path}` }, use),
    );
  } finally {
    await server.shutdown();
  }
}

const shown = (output: unknown) => {
  ok(output instanceof ToolOutput);
  return [output.content, output.isError];
};

Deno.test("fetch_url gives text as it is and a page as readable text", async () => {
  const html =
    "<!doctype html><title>T&amp;C</title><script>var x = '<p>';</script><p>One <b>two</b></p><ul><li>a<li>b</ul>";
  await serving((request) => {
    const path = new URL(request.url).pathname;
    if (path === "/json") return Response.json({ a: 1 });
    if (path === "/latin1") {
      return new Response(new Uint8Array([0xe9]), {
        headers: { "content-type": "text/plain; charset=latin1" },
      });
    }
    return new Response(html, { headers: { "content-type": "text/html" } });
  }, async (_, get) => {
    equal(shown(await get("/json")), ['{"a":1}', false]);
    equal(shown(await get("/latin1")), ["é", false]);
    equal(shown(await get("/")), ["T&C\n\nOne two\n\n- a\n- b", false]);
  });
});

Deno.test("fetch_url says what the server said, when it was no success or no text", async () => {
  await serving(
    (request) =>
      new URL(request.url).pathname === "/png"
        ? new Response(new Uint8Array([1]), { headers: { "content-type": "image/png" } })
        : new Response("gone fishing", { status: 404, statusText: "Not Found" }),
    async (_, get) => {
      equal(shown(await get("/")), ["HTTP 404 Not Found\n\ngone fishing", true]);
      equal(shown(await get("/png")), ["The answer is image/png, which is no text.", true]);
    },
  );
});

Deno.test("fetch_url follows five redirects and no more, and hands no headers on (H02)", async () => {
  const seen: string[] = [];
  await serving((request) => {
    const left = Number(new URL(request.url).pathname.slice(1));
    seen.push(...[...request.headers.keys()].filter((name) => /auth|cookie|referer/.test(name)));
    return left === 0
      ? new Response("here")
      : new Response(null, { status: 302, headers: { location: `/${left - 1}` } });
  }, async (_, get) => {
    equal(shown(await get("/5")), ["here", false]);
    await rejects(get("/6"), /redirects more than 5 times/);
  });
  equal(seen, []);
});

Deno.test("fetch_url judges each redirect before it connects (H02)", async () => {
  let target = "";
  await serving(
    () => new Response(null, { status: 302, headers: { location: target } }),
    async (base, get) => {
      for (const to of [...spellings, base.replace("127.0.0.1", "localhost"), "//127.0.0.1:1/"]) {
        // A header holds ASCII only.
        if (/[^ -~]/.test(to)) continue;
        target = to;
        const visited: string[] = [];
        const watching = {
          ...context,
          fetch: (url: any, init: any) => (visited.push(String(url)), fetch(url, init)),
        };
        await rejects(get("/", undefined, watching as AgenticContext), /redirects to .* is refused: /, to);
        equal(visited, [`${base}/`]);
      }
      target = "http://[";
      await rejects(get("/"), /redirects to what is no URL/);
    },
  );
});

Deno.test("fetch_url reads one megabyte and cuts between characters", async () => {
  let sent = 0, cancelled = false;
  const endless = () =>
    new ReadableStream({
      pull: (controller) => {
        sent += 64_000;
        controller.enqueue(new TextEncoder().encode("🦫".repeat(16_000)));
      },
      cancel: () => void (cancelled = true),
    });
  await serving(
    (request) => new Response(request.url.endsWith("/long") ? "🦫".repeat(50_001) : endless()),
    async (_, get) => {
      const [long] = shown(await get("/long"));
      equal(long, `${"🦫".repeat(50_000)}\n\n[These are the first 50000 characters of 50001 characters.]`);
      const [cut] = shown(await get("/endless"));
      match(cut as string, /🦫\n\n\[These are the first 50000 characters of a text longer than 1 MB\.\]$/u);
    },
  );
  ok(cancelled && sent < 20_000_000);
});

Deno.test("fetch_url gives up after its time, while waiting and while reading", async () => {
  const open: ReadableStreamDefaultController[] = [];
  const hanging = () => new ReadableStream({ start: (controller) => void open.push(controller) });
  await serving(
    (request) =>
      request.url.endsWith("/body")
        ? new Response(hanging())
        : new Promise((resolve) => request.signal.addEventListener("abort", () => resolve(new Response()))),
    async (_, get) => {
      await rejects(get("/headers", 100), /took longer than 0\.1 s/);
      await rejects(get("/body", 100), /took longer than 0\.1 s/);
    },
  );
});

Deno.test("fetch_url stops when the run is cancelled", async () => {
  await serving(
    (request) =>
      new Promise((resolve) => request.signal.addEventListener("abort", () => resolve(new Response()))),
    async (_, get) => {
      const cancel = new AbortController();
      const pending = get("/", 5000, { ...context, signal: cancel.signal });
      setTimeout(() => cancel.abort(new Error("cancelled")), 50);
      await rejects(pending, /cancelled/);
    },
  );
});

Deno.test("A relative or broken URL is answered with what to do", async () => {
  for (const url of ["/page", "example.com", "http://["]) {
    await rejects(run(fetchUrl([]), { url }), /is not a URL\. Give it in full/);
  }
});

Deno.test("A page is read in time proportional to its length, whatever it holds (H09)", () => {
  const start = performance.now();
  for (const piece of ["<", "<a", "< ", "</script", "<script>", "<!--", "&", "&#", " \n", "<svg></svg"]) {
    readable(piece.repeat(1_000_000 / piece.length));
    readable("<script>" + piece.repeat(1_000_000 / piece.length));
  }
  ok(performance.now() - start < 10_000);
});

Deno.test("Entities that mean nothing stay as they are", () => {
  equal(
    readable("&lt;b&gt; &#233;&#xe9; &nope; &constructor; &#0; &#x110000;"),
    "<b> éé &nope; &constructor; &#0; &#x110000;",
  );
});
