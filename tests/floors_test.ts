/** The shape of the code: imports point one way, drivers are named by the root alone, and nothing reaches past the clock (DESIGN §5). */
import assert from "node:assert/strict";

const cwd = new URL("..", import.meta.url);

/** "Reading order" in the README: a file may import only what stands before it there. */
const floors = await (async () => {
  const readme = await Deno.readTextFile(new URL("README.md", cwd)), at = readme.indexOf("## Reading order");
  const names = readme.slice(at, readme.indexOf("drivers", at)).match(/(?<=`)\w+(?=`)/g)!;
  return names.map((name) => `src/${name}.ts`);
})();

const lastPort = floors.indexOf("src/address.ts");
/** Folders whose files stand on words, ports and their own folder. */
const drivers = ["src/store/", "src/queue/", "providers/", "tools/"];
/** Who may name a driver. */
const roots = ["main.ts", "worker.ts", "service.ts", "demo.ts", "setup_schedule.ts", "src/mod.ts"];

interface Info {
  modules: { specifier: string; dependencies?: { code?: Edge; type?: Edge }[] }[];
}
type Edge = { specifier?: string };

async function imports(): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  const root = cwd.href;
  for (const entry of ["main.ts", "worker.ts", "demo.ts", "setup_schedule.ts"]) {
    for (const { specifier, dependencies = [] } of await graph(entry)) {
      if (!specifier.startsWith(root)) continue;
      const targets = dependencies.flatMap(({ code, type }) => [code?.specifier, type?.specifier])
        .filter((target) => target?.startsWith(root)).map((target) => target!.slice(root.length));
      found.set(specifier.slice(root.length), targets.filter((target) => !target.includes("node_modules")));
    }
  }
  assert.ok(found.size > 50, "the graph was read");
  return found;
}

async function graph(entry: string): Promise<Info["modules"]> {
  const command = new Deno.Command(Deno.execPath(), { args: ["info", "--json", entry], cwd });
  const { stdout, success } = await command.output();
  assert.ok(success);
  return (JSON.parse(new TextDecoder().decode(stdout)) as Info).modules;
}

Deno.test("imports point from later floors to earlier ones only, so there are no cycles", async () => {
  const wrong: string[] = [];
  for (const [file, targets] of await imports()) {
    const floor = floors.indexOf(file);
    if (floor < 0) continue;
    for (const target of targets) {
      const other = floors.indexOf(target);
      if (other < 0 || other >= floor) wrong.push(`${file} → ${target}`);
    }
  }
  assert.deepEqual(wrong, []);
});

Deno.test("every file of src/ has its floor, or is a driver or a face", async () => {
  const faces = ["src/http/", "src/pawl.ts", "src/mod.ts", "src/environment.ts", ...drivers];
  const homeless = [...(await imports()).keys()]
    .filter((file) =>
      file.startsWith("src/") && !floors.includes(file) && !faces.some((face) => file.startsWith(face))
    );
  assert.deepEqual(homeless, [], 'name it in "Reading order" of README.md, after what it imports');
});

Deno.test("every file of the reading order is there, once", async () => {
  for (const file of floors) await Deno.stat(new URL(file, cwd));
  assert.equal(new Set(floors).size, floors.length);
});

Deno.test("drivers, providers and tools stand on words and ports only", async () => {
  const wrong: string[] = [];
  for (const [file, targets] of await imports()) {
    const folder = drivers.find((driver) => file.startsWith(driver));
    if (!folder) continue;
    for (const target of targets) {
      const floor = floors.indexOf(target);
      if (!target.startsWith(folder) && (floor < 0 || floor > lastPort)) wrong.push(`${file} → ${target}`);
    }
  }
  assert.deepEqual(wrong, []);
});

Deno.test("only the roots name a driver", async () => {
  const wrong: string[] = [];
  for (const [file, targets] of await imports()) {
    if (roots.includes(file)) continue;
    for (const target of targets) {
      const folder = drivers.find((driver) => target.startsWith(driver));
      if (folder && !file.startsWith(folder)) wrong.push(`${file} → ${target}`);
    }
  }
  assert.deepEqual(wrong, []);
});

Deno.test("a Worker holds nothing of what is embedded: no SQLite, and no queue in the process", async () => {
  const all = (await graph("worker.ts")).map(({ specifier }) => specifier.replace(cwd.href, ""));
  assert.ok(all.includes("src/store/upstash.ts"), "the graph was read");
  assert.deepEqual(
    all.filter((one) => /^(node:sqlite|src\/store\/sqlite|src\/queue\/in_process|main)/.test(one)),
    [],
  );
});

Deno.test("time, chance and timers come through the clock; no platform is named outside drivers and roots", async () => {
  const reach =
    /\b(?:Date\.now|new Date\(\)|Math\.random|randomUUID|setTimeout|setInterval|Deno\.|process\.|caches\.)/;
  const wrong: string[] = [];
  for (const file of (await imports()).keys()) {
    if (
      !file.startsWith("src/") || file === "src/clock.ts" || drivers.some((driver) => file.startsWith(driver))
    ) continue;
    const text = await Deno.readTextFile(new URL(`../${file}`, import.meta.url));
    text.split("\n").forEach((line, n) => {
      if (!/^\s*(?:\/?\*|\/\/)/.test(line) && reach.test(line)) {
        wrong.push(`${file}:${n + 1}: ${line.trim()}`);
      }
    });
  }
  assert.deepEqual(wrong, []);
});

Deno.test("no file is much over 300 lines", async () => {
  const long: string[] = [];
  for (const file of (await imports()).keys()) {
    const lines = (await Deno.readTextFile(new URL(`../${file}`, import.meta.url))).split("\n").length;
    if (lines > 320) long.push(`${file}: ${lines}`);
  }
  assert.deepEqual(long, []);
});
