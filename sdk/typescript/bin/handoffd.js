#!/usr/bin/env node
// Runs the broker's binary of this platform with the same arguments, signals and exit code.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { binaryEnvironment, binaryPath } from "../dist/local.js";

let binary;
try {
  binary = binaryPath();
} catch (error) {
  console.error(`handoffd: ${error.message}`);
  process.exit(3);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit", env: binaryEnvironment() });
// A terminal sends its signals to both; a supervisor sends them here alone.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`handoffd: ${binary}: ${error.message}`);
  process.exit(3);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
