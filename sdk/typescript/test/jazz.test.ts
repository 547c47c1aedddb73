// The programs of examples/jazz, written after the pattern's document, against a real broker: a generalist and two
// specialists, each a process of its own. The generalist is killed while it waits, and the broker too.

import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { BINARY, Broker, ROOT } from "./broker.js";

const SDK = join(ROOT, "sdk/typescript");
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");

type Line = { step?: string; success?: boolean; error?: string; result?: Record<string, unknown> } & Record<
  string,
  unknown
>;

type Requested = { id: string; context: { conversationHistory: object[] } };

describe("a generalist and two specialists after Jazz's pattern", () => {
  let broker: Broker;
  let built: string;
  const keys: Record<string, string> = {};
  const specialists: ChildProcess[] = [];

  const start = (program: string, agent: string, args: string[]): { child: ChildProcess; lines: Line[] } => {
    const env = { PATH: process.env.PATH, HANDOFFD_URL: broker.url, HANDOFFD_API_KEY: keys[agent] ?? "" };
    const stdio: ["ignore", "pipe", "inherit"] = ["ignore", "pipe", "inherit"];
    const child = spawn(process.execPath, [join(built, program), ...args], { env, stdio });
    const lines: Line[] = [];
    let rest = "";
    child.stdout?.on("data", (text) => {
      const parts = `${rest}${text}`.split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) lines.push(JSON.parse(part) as Line);
    });
    return { child, lines };
  };
  const generalist = (task: string, conversation: string) =>
    start("generalist.js", "general", [task, conversation]);
  const ended = async (child: ChildProcess): Promise<number | null> =>
    child.exitCode ?? new Promise((resolve) => child.on("close", resolve));
  const jazz = async <T>(
    path: string,
    method = "GET",
    body?: object,
  ): Promise<{ status: number; body: T }> => {
    const key = readFileSync(join(broker.folder, "admin.key"), "utf8").trim();
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    const sent = body ? { body: JSON.stringify(body) } : {};
    const answer = await fetch(`${broker.url}/adapters/jazz${path}`, { method, headers, ...sent });
    return { status: answer.status, body: (await answer.json()) as T };
  };
  /** Waits until the test specialist has accepted a handoff of the conversation. */
  const atWork = async (conversation: string): Promise<void> => {
    for (const deadline = Date.now() + 30_000; Date.now() < deadline; ) {
      const page = await broker.admin.handoffs.list({ conversationId: conversation });
      if (page.items.some((one) => one.status === "ACCEPTED")) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.fail("nobody accepted");
  };

  before(async () => {
    built = mkdtempSync(join(tmpdir(), "handoffd-jazz-"));
    const types = ["--typeRoots", join(SDK, "node_modules/@types")];
    const options = ["-p", join(ROOT, "examples/jazz"), "--outDir", built, ...types];
    const compiled = spawnSync(process.execPath, [tsc, ...options], { encoding: "utf8" });
    assert.equal(compiled.status, 0, compiled.stdout);
    copyFileSync(join(ROOT, "examples/jazz/package.json"), join(built, "package.json"));
    broker = await Broker.start();
    const profile = (agentId: string, specialization: string, capabilities: string[]) => ({
      agentId,
      agentName: `${agentId}-specialist`,
      specialization,
      capabilities,
      description: `Expert in ${specialization}`,
      examples: [],
      acceptsHandoffs: true,
    });
    for (const one of [
      profile("test", "testing", ["run-tests"]),
      profile("deploy", "deployment", ["production"]),
    ]) {
      const { status, body } = await jazz<{ apiKey: string }>("/agents", "PUT", one);
      assert.equal(status, 201);
      keys[one.agentId] = body.apiKey;
    }
    await broker.admin.agents.update("deploy", { handoffTargets: ["test"] });
    const handoffTargets = ["test", "deploy"];
    const general = await broker.admin.agents.create({ agentId: "general", handoffTargets });
    keys.general = general.apiKey;
    for (const kind of ["test", "deploy"]) specialists.push(start("specialist.js", kind, [kind]).child);
  });

  after(async () => {
    for (const child of specialists) child.kill("SIGKILL");
    await broker?.stop();
    rmSync(built, { recursive: true, force: true });
  });

  it("runs a chain of handoffs, one of them with a hop of its own", async () => {
    const { child, lines } = generalist("Run the tests", "conv-1");
    assert.equal(await ended(child), 0);
    const [specialists, tests, deployment, audit, answer] = lines;
    assert.deepEqual(specialists, { specialists: 2 });
    assert.deepEqual(tests, {
      step: "tests",
      success: true,
      result: {
        specialist_name: "test-specialist",
        specialist_response: "All tests passed on main",
        handoff_summary: "test-specialist (testing specialist) completed the task: Run the tests",
        conversation_summary: "Completed in 3 iterations, used 5 tool calls",
        iterations: 3,
      },
    });
    assert.equal(
      deployment?.result?.specialist_response,
      "Deployed: Deploy main to production; All tests passed on production",
    );
    assert.equal(
      audit?.error,
      "No specialist found for capability: security. Please handle this task yourself or ask the user for guidance.",
    );
    assert.deepEqual(answer, { answer: "Successfully deployed; nobody audits here." });
    const { body } = await jazz<Requested[]>("/conversations/conv-1/handoffs");
    assert.deepEqual(
      body.map((one) => one.id),
      ["conv-1/tests", "conv-1/deployment"],
    );
    assert.deepEqual(body[0]?.context.conversationHistory, [
      { role: "user", content: "I need to deploy the app but make sure all tests pass first" },
    ]);
  });

  it("tells the generalist why a specialist failed", async () => {
    const { child, lines } = generalist("Run the broken tests", "conv-2");
    assert.equal(await ended(child), 0);
    const error = "Handoff to test-specialist failed: the specialist failed: the suite does not compile";
    assert.deepEqual(lines[1], { step: "tests", success: false, result: null, error });
    assert.deepEqual(lines.at(-1), { answer: "Not deployed." });
  });

  it("finds the same handoff after generalist and broker were killed", async () => {
    const first = generalist("Run the slow tests", "conv-3");
    await atWork("conv-3");
    first.child.kill("SIGKILL");
    await ended(first.child);
    const again = generalist("Run the slow tests", "conv-3");
    await new Promise((resolve) => setTimeout(resolve, 500));
    await broker.kill();
    await broker.restart();
    assert.equal(await ended(again.child), 0);
    assert.equal(again.lines[1]?.result?.specialist_response, "All tests passed on main");
    const page = await broker.admin.handoffs.list({ conversationId: "conv-3" });
    assert.equal(page.items.length, 2, "one for the tests, one for the deployment");
    await broker.kill();
    const store = ["--database-url", `sqlite:${join(broker.folder, "handoffd.db")}`];
    const verified = spawnSync(BINARY, ["verify", ...store], { encoding: "utf8" });
    assert.equal(verified.status, 0, verified.stdout + verified.stderr);
  });
});
