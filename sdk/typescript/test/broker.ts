// A real broker for a test file: its own process, port and SQLite database.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "../src/index.js";

/** The repository's root; this file runs as sdk/typescript/build/test/broker.js. */
export const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));

export const BINARY = process.env.HANDOFFD_BINARY ?? join(ROOT, "target/debug/handoffd");

export class Broker {
  readonly url: string;
  readonly folder: string;
  readonly #settings: Record<string, string>;
  #process: ChildProcess | undefined;
  #admin: Client | undefined;

  private constructor(url: string, folder: string, settings: Record<string, string>) {
    this.url = url;
    this.folder = folder;
    this.#settings = settings;
  }

  /** Starts a broker and waits until it is ready. `settings` are `HANDOFFD_…` variables. */
  static async start(settings: Record<string, string> = {}): Promise<Broker> {
    const folder = mkdtempSync(join(tmpdir(), "handoffd-sdk-"));
    const port = await freePort();
    const own = { HANDOFFD_LISTEN: `127.0.0.1:${port}`, HANDOFFD_DATA_DIR: folder };
    const broker = new Broker(`http://127.0.0.1:${port}`, folder, { ...own, ...settings });
    await broker.restart();
    return broker;
  }

  /** Starts the process over the same folder. */
  async restart(): Promise<void> {
    const env = { PATH: process.env.PATH, ...this.#settings };
    const child = spawn(BINARY, ["serve"], { env, stdio: ["ignore", "pipe", "pipe"], cwd: this.folder });
    this.#process = child;
    let log = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (text) => {
        log = (log + text).slice(-20_000);
      });
    const ready = (): Promise<boolean> =>
      fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(5_000) }).then(
        (answer) => answer.ok,
        () => false,
      );
    for (const deadline = Date.now() + 60_000; !(await ready()); ) {
      if (child.exitCode !== null) throw new Error(`the broker ended with ${child.exitCode}:\n${log}`);
      if (Date.now() > deadline) throw new Error(`the broker is not ready after 60 s:\n${log}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** A client under the admin's key. */
  get admin(): Client {
    const key = (): string => readFileSync(join(this.folder, "admin.key"), "utf8").trim();
    this.#admin ??= new Client({ url: this.url, key: key() });
    return this.#admin;
  }

  /** A client under the key of a new agent. */
  agent(agentId: string, spec: Parameters<Client["agents"]["create"]>[0] = {}): Promise<Client> {
    return this.admin.enroll(agentId, spec);
  }

  /** Ends the process at once. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A port that nothing listens on now, below those that the system gives to connections: a broker that restarts gets it again. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000);
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
