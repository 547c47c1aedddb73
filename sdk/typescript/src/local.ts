// Functions that need the file system or the binary: Node, Deno and Bun.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { Client, type ClientOptions, environment } from "./client.js";
import { type Failure, HandoffdError } from "./errors.js";
import { toResult, type ValidationResult, validateHandoffMessage } from "./validate/index.js";

/**
 * A client of a broker on this machine, under the key in `HANDOFFD_API_KEY_FILE`, or the admin key that `handoffd
 * serve` wrote at its first start: `admin.key` in `HANDOFFD_DATA_DIR`, else in `./handoffd-data`.
 *
 * @throws HandoffdError without such a file.
 */
export function localClient(options: ClientOptions = {}): Client {
  const file =
    environment("HANDOFFD_API_KEY_FILE") ??
    join(environment("HANDOFFD_DATA_DIR") ?? "handoffd-data", "admin.key");
  try {
    return new Client({ apiKey: readFileSync(file, "utf8").trim(), ...options });
  } catch (cause) {
    throw new HandoffdError(`no key in ${file}: start the broker here with \`npx handoffd serve\``, {
      cause,
    });
  }
}

/**
 * The path of the broker's binary: `HANDOFFD_BINARY`, the package of this platform, or `handoffd` on the PATH.
 *
 * @throws HandoffdError where there is none.
 */
export function binaryPath(): string {
  const named = environment("HANDOFFD_BINARY");
  if (named) return named;
  const platform = `${process.platform}-${process.arch}`;
  const executable = process.platform === "win32" ? "handoffd.exe" : "handoffd";
  try {
    return createRequire(import.meta.url).resolve(`@handoffd/${platform}/bin/${executable}`);
  } catch {
    const folders = (environment("PATH") ?? "").split(delimiter);
    const found = folders
      .map((folder) => join(folder, executable))
      .find((path) => existsSync(path) && !isLauncher(path));
    if (found) return found;
  }
  throw new HandoffdError(
    `no binary for ${platform}: the package @handoffd/${platform} is not installed (were optional dependencies left out?), handoffd is not on the PATH, and HANDOFFD_BINARY is not set`,
  );
}

/** Variables of this package, which the binary would take for misspelt settings. */
const OWN_VARIABLES = ["HANDOFFD_BINARY", "HANDOFFD_AGENT_ID", "HANDOFFD_SIGNING_SECRET"];

/** The environment for the binary: without the variables of this package. */
export function binaryEnvironment(): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !OWN_VARIABLES.includes(name)));
}

/** Whether a file is a script, such as the launcher that npm puts on the PATH, and no binary. */
function isLauncher(path: string): boolean {
  return readFileSync(path).subarray(0, 2).toString() === "#!";
}

/**
 * Runs the broker's binary and gives its exit code, standard output and standard error.
 *
 * @throws HandoffdError where the binary cannot be started.
 */
export function runBinary(
  args: readonly string[],
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(binaryPath(), args, { stdio: ["ignore", "pipe", "pipe"], env: binaryEnvironment() });
    const read = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].setEncoding("utf8").on("data", (text: string) => {
        read[name] += text;
      });
    child.on("error", (cause) =>
      reject(new HandoffdError(`handoffd could not be started: ${cause.message}`, { cause })),
    );
    child.on("close", (code) => resolve({ code: code ?? 1, ...read }));
  });
}

/** Stages that the binary does not run over a file. */
const UNCHECKED = [
  "signature",
  "identity",
  "allowlist",
  "route",
  "contract",
  "lineage",
  "loop",
  "credentials",
] as const;

/**
 * The offline part of the gate as the broker's own binary runs it: that of `validateHandoffMessage`, and the safety
 * rules too. The message lies in a file of the temporary folder meanwhile, readable for this user alone.
 */
export async function validateWithBinary(message: unknown): Promise<ValidationResult> {
  const folder = await mkdtemp(join(tmpdir(), "handoffd-"));
  try {
    const file = join(folder, "message.json");
    await writeFile(file, typeof message === "string" ? message : JSON.stringify(message), { mode: 0o600 });
    const { code, stdout, stderr } = await runBinary(["--output", "json", "validate", file]);
    if (code !== 0 && code !== 1)
      throw new HandoffdError(`handoffd validate ended with ${code}: ${stderr.trim()}`);
    const { failures } = JSON.parse(stdout) as { failures: Failure[] };
    // A message that does not fit the schema gets no further there, too.
    const { checked } = validateHandoffMessage(message);
    return toResult(failures, UNCHECKED, checked.includes("budget") ? [...checked, "safety"] : checked);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
