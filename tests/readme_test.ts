/** The README says what is there. */
import assert from "node:assert/strict";

const root = new URL("../", import.meta.url);
const read = (path: string) => Deno.readTextFile(new URL(path, root));
const readme = await read("README.md");

/** All files that may look at settings; drivers are handed theirs. */
async function sources(): Promise<string[]> {
  const found = ["main.ts", "worker.ts", "service.ts", "setup_schedule.ts"];
  const folders = ["src/", "providers/", "tools/"];
  for (const folder of folders) {
    for await (const { name, isDirectory } of Deno.readDir(new URL(folder, root))) {
      if (!isDirectory) found.push(`${folder}${name}`);
    }
  }
  return await Promise.all(found.map(read));
}

Deno.test("the settings in the README are those that are read", async () => {
  const name = /\b(?:PORT|(?:PAWL|OPENAI|ANTHROPIC|GEMINI|AWS|BEDROCK|UPSTASH|QSTASH)_[A-Z_]+)\b/g;
  const used = new Set((await sources()).flatMap((text) => text.match(name) ?? []));
  const table = readme.slice(readme.indexOf("\n## Settings"), readme.indexOf("\n## Adding a provider"));
  const told = [...table.matchAll(/^\| (`[^|]*)\|/gm)].flatMap(([, names]) => names!.match(name) ?? []);
  assert.deepEqual(told.toSorted(), [...used].toSorted());
});

Deno.test("the tasks in the README are there", async () => {
  const { tasks } = JSON.parse(await read("deno.json"));
  const told = [...readme.matchAll(/deno(?:@[\d.]+)? task ([\w:]+)/g)].map(([, task]) => task!);
  assert.ok(told.length > 5);
  assert.deepEqual(told.filter((task) => !(task in tasks)), []);
});

Deno.test("the files in the README are there", async () => {
  const told = new Set(
    [...readme.matchAll(/`((?:[\w.]+\/)*[\w.]+\.(?:ts|toml|md))`/g)].map(([, path]) => path!),
  );
  assert.ok(told.size > 5);
  for (const path of told) await Deno.stat(new URL(path, root));
});

const blocks = (text: string) => [...text.matchAll(/^```ts\n([^]*?)^```$/gm)].map(([, code]) => code!);

Deno.test("the program compiles, and runs as it stands", async () => {
  const [program] = blocks(readme);
  const file = await Deno.makeTempFile({ suffix: ".ts" });
  await Deno.writeTextFile(file, program!.replaceAll('from "./', `from "${root.href}`));
  try {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: ["run", "--check", "--allow-env", `--config=${new URL("deno.json", root).pathname}`, file],
      clearEnv: true,
      env: { HOME: Deno.env.get("HOME") ?? "/", NO_COLOR: "1" },
    }).output();
    assert.equal(code, 0, new TextDecoder().decode(stderr));
    assert.match(new TextDecoder().decode(stdout), /\S/);
  } finally {
    await Deno.remove(file);
  }
});
