// The broker of sdk/typescript/test/broker.ts, smaller: a process, a port, a SQLite database.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "handoffd";
import { binaryPath } from "handoffd/local";

export interface Broker {
  readonly url: string;
  readonly admin: Client;
  stop(): Promise<void>;
}

export async function startBroker(): Promise<Broker> {
  const folder = mkdtempSync(join(tmpdir(), "handoffd-adapters-"));
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  if (address === null || typeof address === "string") throw new Error("no port");
  const url = `http://127.0.0.1:${address.port}`;
  const env = {
    PATH: process.env.PATH,
    HANDOFFD_LISTEN: `127.0.0.1:${address.port}`,
    HANDOFFD_DATA_DIR: folder,
  };
  const child = spawn(binaryPath(), ["serve"], { env, cwd: folder, stdio: "ignore" });
  for (const deadline = Date.now() + 60_000; ; ) {
    if (
      await fetch(`${url}/readyz`).then(
        ({ ok }) => ok,
        () => false,
      )
    )
      break;
    if (child.exitCode !== null || Date.now() > deadline) throw new Error("the broker does not start");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const admin = new Client({ url, key: readFileSync(join(folder, "admin.key"), "utf8").trim() });
  const stop = async (): Promise<void> => {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  return { url, admin, stop };
}
