// What a user installs, from the tarballs: five minutes in an empty folder.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { VERSION } from "../src/index.js";
import { BINARY, freePort, ROOT } from "./broker.js";

const home = join(ROOT, "sdk/typescript");
const examples = join(ROOT, "examples/typescript");
const folder = mkdtempSync(join(tmpdir(), "handoffd-package-"));
const { HANDOFFD_BINARY: _, ...environment } = process.env;
const children: ChildProcess[] = [];

function run(command: string, args: string[], cwd = folder): string {
  return execFileSync(command, args, {
    cwd,
    env: environment,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
}

let tarballs: string[] = [];
before(() => {
  run(process.execPath, ["scripts/build.mjs"], home);
  // Without its symbols the binary of a development build is half as large.
  const stripped = join(folder, "handoffd.stripped");
  const slim = spawnSync("strip", ["-o", stripped, BINARY]).status === 0 ? stripped : BINARY;
  const out = ["--binary", slim, "--out", join(folder, "tarballs")];
  tarballs = run(process.execPath, ["scripts/pack.mjs", ...out], home)
    .trim()
    .split("\n");
  run("npm", ["init", "-y"]);
  // Packages of other platforms are optional and not in any registry yet: npm leaves them out.
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", ...tarballs]);
});
after(() => {
  for (const { pid } of children) {
    try {
      if (pid) process.kill(-pid, "SIGKILL");
    } catch {
      // The group has ended.
    }
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Starts a program of the folder; `text` grows with what it writes. */
function start(
  command: string,
  args: string[],
  env: Record<string, string>,
): { child: ChildProcess; text: () => string } {
  const child = spawn(command, args, {
    // A group of its own, so that what it starts ends with it.
    detached: true,
    cwd: folder,
    env: { ...environment, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  children.push(child);
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk) => {
      text += chunk;
    });
  return { child, text: () => text };
}

async function until(condition: () => boolean | Promise<boolean>, what: () => string): Promise<void> {
  for (const deadline = Date.now() + 30_000; !(await condition()); ) {
    if (Date.now() > deadline) throw new Error(`not within 30 s: ${what()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

describe("the package", () => {
  it("passes publint and attw", () => {
    const main = tarballs[0] ?? "";
    const tools = join(home, "node_modules/.bin");
    assert.match(run(join(tools, "publint"), [main, "--strict"]), /All good!/);
    // Its exit code says whether there is a problem that an import meets.
    run(join(tools, "attw"), [main, "--profile", "esm-only"]);
  });

  it("has no dependency but the binary of its platform", () => {
    const manifest = JSON.parse(readFileSync(join(folder, "node_modules/handoffd/package.json"), "utf8"));
    assert.equal(manifest.dependencies, undefined);
    assert.ok(Object.values(manifest.optionalDependencies).every((version) => version === VERSION));
    assert.ok(`@handoffd/${process.platform}-${process.arch}` in manifest.optionalDependencies);
  });

  it("brings the binary of its own version, with its arguments and exit codes", () => {
    assert.equal(run("npx", ["handoffd", "--version"]).trim(), `handoffd ${VERSION}`);
    assert.equal(
      spawnSync("npx", ["handoffd", "no-such-command"], { cwd: folder, env: environment }).status,
      2,
    );
  });

  it("runs the demo", () => {
    assert.match(run("npx", ["handoffd", "demo"]), /Everything came out as told/);
  });

  it("hands a task to a worker in another process, by the programs that the guide shows", async () => {
    const pages = ["docs/sdk/typescript.md", "README.md"];
    for (const name of ["hello-worker.mjs", "hello-sender.mjs"]) {
      const program = readFileSync(join(examples, name), "utf8");
      for (const page of pages) {
        const shown = readFileSync(join(ROOT, page), "utf8").includes(`\`\`\`js\n${program}\`\`\``);
        assert.ok(shown, `${page} shows ${name} as it is`);
      }
      assert.ok(program.trim().split("\n").length <= 15, `${name} has at most 15 lines`);
      copyFileSync(join(examples, name), join(folder, name));
    }
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const broker = start("node_modules/.bin/handoffd", ["serve"], { HANDOFFD_LISTEN: `127.0.0.1:${port}` });
    const isReady = (): Promise<boolean> =>
      fetch(`${url}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until(isReady, broker.text);
    assert.ok(existsSync(join(folder, "handoffd-data/admin.key")));
    const worker = start(process.execPath, ["hello-worker.mjs"], { HANDOFFD_URL: url });
    await until(() => worker.text().includes("waits"), worker.text);
    const sender = start(process.execPath, ["hello-sender.mjs"], { HANDOFFD_URL: url });
    await once(sender.child, "exit");
    assert.equal(sender.text(), "COMPLETED { words: 5 }\n");
    assert.match(worker.text(), /counter: Count the words/);
    // Other runtimes, where scripts/sdk-typescript found them: the path of each binary.
    for (const runtime of (process.env.SDK_TEST_RUNTIMES ?? "").split(":").filter(Boolean)) {
      const flags = runtime.endsWith("deno") ? ["run", "-A", "--node-modules-dir=manual"] : [];
      const other = start(runtime, [...flags, "hello-sender.mjs"], { HANDOFFD_URL: url });
      await once(other.child, "exit");
      assert.match(other.text(), /^COMPLETED \{\s*words: 5,?\s*\}\n$/, runtime);
    }
    // The launcher hands signals on: both stop in good order.
    for (const { child } of [worker, broker]) {
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      assert.deepEqual(await ended, [0, null]);
    }
  });
});
