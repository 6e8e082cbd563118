/** A Worker as wrangler bundles it, and workerd alone with such a bundle: what it weighs, and how soon a fresh one answers. */
import { createRequire } from "node:module";
import { gzipSync } from "node:zlib";
import { median } from "./scene.ts";

const root = new URL("../../", import.meta.url).pathname;
const repetitions = 5;

export interface Bundle {
  path: string;
  /** Bytes, minified. */
  size: number;
  gzipped: number;
}

/** Milliseconds, medians of several processes. */
export interface Start {
  /** Until workerd listens, the bundle read and its top level run. */
  listens: number;
  /** Until the first answer, all from the start of the process on. */
  answers: number;
  /** What the same request takes afterwards. */
  again: number;
}

/** As `deno task worker:build` makes it; `entry` is a path from the repository's root, or an absolute one. */
export async function bundle(entry: string, folder: string): Promise<Bundle> {
  const outdir = await Deno.makeTempDir({ dir: folder });
  const { success, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "-A", "npm:wrangler", "deploy", entry, "--config", `${root}wrangler.toml`],
      ...["--dry-run", "--outdir", outdir],
    ],
    env: { WRANGLER_SEND_METRICS: "false", NO_COLOR: "1" },
    cwd: root,
  }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  const name = entry.replace(/^.*\//, "").replace(/ts$/, "js"), path = `${outdir}/${name}`;
  const bytes = await Deno.readFile(path);
  return { path, size: bytes.length, gzipped: gzipSync(bytes).length };
}

/** Without wrangler's proxies, so that nothing is measured but what runs at Cloudflare, too. `path` must answer 200. */
export async function starts(
  { path: file }: Bundle,
  path: string,
  bindings: Record<string, string> = {},
): Promise<Start> {
  const config = `${file}.capnp`;
  await Deno.writeTextFile(config, capnp(file, await settings(), bindings));
  const all: Start[] = [];
  for (let n = 0; n < repetitions; n++) all.push(await start(config, path));
  const of = (what: keyof Start) => median(all.map((one) => one[what]));
  return { listens: of("listens"), answers: of("answers"), again: of("again") };
}

async function start(config: string, path: string): Promise<Start> {
  const begun = performance.now(), sinceBegin = () => performance.now() - begun;
  const process = new Deno.Command(binary(), {
    args: ["serve", "--control-fd=1", config],
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  try {
    const reader = process.stdout.getReader();
    const said = new TextDecoder().decode((await reader.read()).value);
    const { port } = JSON.parse(said.split("\n")[0]!);
    const listens = sinceBegin();
    await ask(`http://127.0.0.1:${port}${path}`);
    const answers = sinceBegin();
    await ask(`http://127.0.0.1:${port}${path}`);
    await reader.cancel();
    return { listens, answers, again: sinceBegin() - answers };
  } finally {
    process.kill("SIGKILL");
    await process.status;
  }
}

async function ask(url: string): Promise<void> {
  const response = await fetch(url), text = await response.text();
  if (!response.ok) throw new Error(`workerd answered ${response.status}: ${text}`);
}

/** The one that comes with wrangler. */
function binary(): string {
  const wrangler = createRequire(import.meta.url).resolve("wrangler");
  return createRequire(wrangler)("workerd").default;
}

interface Settings {
  date: string;
  flags: string;
}

async function settings(): Promise<Settings> {
  const text = await Deno.readTextFile(`${root}wrangler.toml`);
  const of = (name: string) => new RegExp(`^${name} = (.*)$`, "m").exec(text)![1]!;
  return { date: of("compatibility_date"), flags: of("compatibility_flags") };
}

/** Strings and lists are written as JSON writes them. */
function capnp(file: string, { date, flags }: Settings, bindings: Record<string, string>): string {
  const given = Object.entries(bindings).map(([name, value]) => ({ name, value: JSON.stringify(value) }));
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed ${JSON.stringify(file.replace(/^.*\//, ""))})],
  compatibilityDate = ${date},
  compatibilityFlags = ${flags},
  bindings = [${given.map(({ name, value }) => `(name = "${name}", text = ${value})`).join(", ")}],
);
`;
}
