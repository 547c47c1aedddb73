// Workers of one agent in two languages: what one began, the other ends.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import type { Client } from "../src/index.js";
import { Broker, ROOT } from "./broker.js";

const python = join(ROOT, "target/sdk-python/bin/python");
const skip = existsSync(python) ? false : `no ${python}: scripts/sdk-python makes it`;

/** The same worker as worker-process.ts: four steps, each saved, each a line of the journal. */
const PYTHON_WORKER = `
import sys, time
from handoffd import Client, Worker

def work(handoff):
    start = (handoff.restore() or {}).get("step", 0)
    def note(line):
        with open(sys.argv[1], "a") as journal:
            journal.write(f"{handoff.handoff_id} {line}\\n")
    note(f"from {start} by python")
    for step in range(start + 1, 5):
        if handoff.message.get("reason") == "stall" and step == 3 and start == 0:
            time.sleep(3600)
        handoff.save({"step": step})
        note(f"step {step}")
    return {"steps": 4, "from": start}

Worker(Client(), work, heartbeat=0.25, poll=1).run()
`;

describe("workers of two languages", { skip }, () => {
  let broker: Broker;
  let sender: Client;
  const children: ChildProcess[] = [];
  before(async () => {
    broker = await Broker.start();
    sender = await broker.admin.enroll("sender");
  });
  after(async () => {
    for (const child of children) child.kill("SIGKILL");
    await broker.stop();
  });

  const script = fileURLToPath(new URL("worker-process.js", import.meta.url));
  const journal = (agentId: string): string => join(broker.folder, `${agentId}.journal`);
  const lines = (agentId: string): string[] =>
    existsSync(journal(agentId)) ? readFileSync(journal(agentId), "utf8").trim().split("\n") : [];

  async function start(language: "python" | "typescript", agentId: string): Promise<ChildProcess> {
    const key = (await broker.admin.keys.create({ role: "agent", agentId, label: "test" })).apiKey ?? "";
    const own = { HANDOFFD_URL: broker.url, HANDOFFD_AGENT_ID: agentId, HANDOFFD_API_KEY: key };
    const [command, program] =
      language === "python" ? [python, ["-c", PYTHON_WORKER]] : [process.execPath, [script]];
    const child = spawn(command, [...program, journal(agentId)], {
      env: { ...process.env, ...own },
      stdio: ["ignore", "ignore", "inherit"],
    });
    children.push(child);
    return child;
  }

  async function until(condition: () => boolean, what: string): Promise<void> {
    for (const deadline = Date.now() + 60_000; !condition(); ) {
      if (Date.now() > deadline) throw new Error(`not within 60 s: ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  for (const [first, others] of [
    ["python", ["typescript"]],
    ["typescript", ["python"]],
    ["python", ["typescript", "python", "typescript"]],
  ] as const)
    it(`a ${first} worker dies, and of ${others.join(", ")} one goes on from its state`, async () => {
      const agentId = `shared-${first}-${others.length}`;
      await broker.admin.agents.create({ agentId });
      await broker.admin.allowlist.addTarget("sender", agentId);
      const dying = await start(first, agentId);
      const { handoffId, taskId } = await sender.handOff(agentId, { task: "Four steps", reason: "stall" });
      await until(() => lines(agentId).some((line) => line.endsWith("step 2")), "two steps are done");
      dying.kill("SIGKILL");
      await once(dying, "exit");
      for (const other of others) await start(other, agentId);
      const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
      assert.deepEqual([ended.status, ended.result], ["COMPLETED", { steps: 4, from: 2 }]);
      const steps = lines(agentId).filter((line) => line.includes(" step "));
      assert.deepEqual(
        steps.map((line) => line.split(" ")[2]),
        ["1", "2", "3", "4"],
        "each step once",
      );
      assert.equal(lines(agentId).filter((line) => line.includes(" from 2")).length, 1, "taken up once");
      const trace = await broker.admin.tasks.trace(taskId);
      assert.equal(trace.verification.ok, true);
    });
});
