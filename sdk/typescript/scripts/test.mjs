// Compiles src/ and test/ to build/ and runs the tests there with node:test; arguments name test files without their
// ending: `npm test -- worker receipt`.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const home = fileURLToPath(new URL("..", import.meta.url));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const run = (...args) => spawnSync(process.execPath, args, { cwd: home, stdio: "inherit" }).status ?? 1;

rmSync(`${home}/build/test`, { recursive: true, force: true });
rmSync(`${home}/build/src`, { recursive: true, force: true });
process.exitCode = run(tsc, "-p", "tsconfig.test.json");
if (!process.exitCode) {
  const named = process.argv.slice(2);
  const files = readdirSync(`${home}/build/test`)
    .filter((name) => name.endsWith(".test.js"))
    .filter((name) => named.length === 0 || named.some((each) => name === `${each}.test.js`));
  process.exitCode = run(
    "--test",
    "--test-concurrency=2",
    "--test-timeout=300000",
    ...files.map((name) => `build/test/${name}`),
  );
}
