// Runs a binary of this platform's package with the same arguments, signals and exit code.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { binaryEnvironment, binaryPath } from "../dist/local.js";

/** @param {string} name `handoffd`, or the name of a program beside it. */
export function run(name) {
  let binary;
  try {
    binary = name === "handoffd" ? binaryPath() : join(dirname(binaryPath()), name);
    if (!existsSync(binary)) throw new Error(`this installation has no ${binary}`);
  } catch (error) {
    console.error(`${name}: ${error.message}`);
    process.exit(3);
  }
  const child = spawn(binary, process.argv.slice(2), { stdio: "inherit", env: binaryEnvironment() });
  // A terminal sends its signals to both; a supervisor sends them here alone.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    console.error(`${name}: ${binary}: ${error.message}`);
    process.exit(3);
  });
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}
