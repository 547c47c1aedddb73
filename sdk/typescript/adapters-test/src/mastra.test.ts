import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { type Client, derivedId, type Job, Worker } from "handoffd";
import { agentHandler, durableRuns, remoteAgent, transferTool } from "handoffd/mastra";
import { type Broker, startBroker } from "./broker.js";
import { calls, ofGuarded, results, says, scriptedForMastra } from "./scripted.js";

const ROUNDS = Number(process.env.CRASH_ROUNDS ?? 2);

let broker: Broker;
let intake: Client;
let key: string;
let worker: Worker;
let running: Promise<void>;
const seen: Job[] = [];
before(async () => {
  broker = await startBroker();
  const legal = await broker.admin.enroll("legal");
  intake = await broker.admin.enroll("intake", { handoffTargets: ["legal", "model"] });
  key = (await broker.admin.keys.create({ role: "agent", agentId: "intake" })).apiKey ?? "";
  worker = new Worker(
    legal,
    (job) => {
      seen.push(job);
      return { risk: "low", of: job.task };
    },
    { pollSeconds: 1, concurrency: 4 },
  );
  running = worker.run();
});
after(async () => {
  await worker.stop();
  await running;
  await broker.stop();
});

describe("a remote agent", () => {
  it("is a tool that hands off, waits, and gives the model the result", async () => {
    const legal = createTool(
      remoteAgent(intake, "legal", { target: "legal", description: "Knows contracts." }, "remote-1"),
    );
    const model = scriptedForMastra((prompt) =>
      results(prompt).length === 0
        ? calls({ id: "c1", name: "legal", input: { task: "Check 4.2", reason: "asked" } })
        : says(JSON.stringify(results(prompt)[0])),
    );
    const agent = new Agent({ id: "a", name: "a", instructions: "Route.", model, tools: { legal } });
    const { text } = await agent.generate("Is 4.2 safe?");
    assert.equal(ofGuarded(JSON.parse(text)), "Check 4.2");
    const message = seen.at(-1)?.message;
    assert.equal(message?.reason, "asked");
    assert.match(JSON.stringify(message?.conversationHistoryVerbatim), /Is 4\.2 safe/);
  });
});

describe("a run that is suspended twice", () => {
  it("keeps no guarded turn, and gives each to the model again, also in another process", async () => {
    const go = async (run: string): Promise<string> => {
      const model = scriptedForMastra((prompt) => {
        const known = results(prompt);
        const task = ["Check 4.2", "Check 7.1"][known.length];
        return task
          ? calls({ id: `c${known.length}`, name: "legal", input: { task } })
          : says(JSON.stringify(known));
      });
      const routes = { legal: { target: "legal", description: "Knows contracts." } };
      const storage = new InMemoryStore();
      const tools = { legal: createTool(transferTool("legal", routes.legal)) };
      const agent = new Agent({ id: "twice", name: "twice", instructions: "Route.", model, tools });
      const known = new Mastra({ agents: { agent }, storage, logger: false }).getAgent("agent");
      const store = await storage.getStore("workflows");
      assert.ok(store);
      return (await durableRuns(intake, known, store, routes)(run, "May we sign?")).text;
    };
    for (const text of [await go("twice"), await go("twice")])
      assert.deepEqual(JSON.parse(text).map(ofGuarded), ["Check 4.2", "Check 7.1"]);
    const second = seen.find((job) => job.task === "Check 7.1");
    assert.doesNotMatch(JSON.stringify(second?.message), /CONTEXT FROM PREVIOUS/);
  });
});

describe("a run that is suspended", () => {
  const script = fileURLToPath(new URL("mastra-run.js", import.meta.url));
  async function start(run: string, crash = ""): Promise<{ lines: string[]; signal: string | null }> {
    const own = {
      HANDOFFD_URL: broker.url,
      HANDOFFD_API_KEY: key,
      HANDOFFD_AGENT_ID: "intake",
    };
    const stdio = ["ignore", "pipe", "inherit"] as const;
    const child = spawn(process.execPath, [script, run, crash], {
      env: { ...process.env, ...own },
      stdio: [...stdio],
      timeout: 60_000,
    });
    let text = "";
    child.stdout?.on("data", (chunk) => {
      text += chunk;
    });
    const [, signal] = (await once(child, "close")) as [number | null, string | null];
    return { lines: text.trim().split("\n"), signal };
  }

  for (const crash of ["", "called", "suspended", "resumed"]) {
    for (let round = 0; round < (crash === "" ? 1 : ROUNDS); round++) {
      it(`${crash === "" ? "ends without a crash" : `dies when it has ${crash}`}, and each handoff is carried out once (${round})`, async () => {
        const run = `run-${crash}-${round}`;
        if (crash !== "") assert.equal((await start(run, crash)).signal, "SIGKILL");
        const { lines, signal } = await start(run);
        assert.equal(signal, null);
        const said: string[] = JSON.parse(lines.at(-1)?.replace("final: Legal says: ", "") ?? "");
        assert.deepEqual(said.map(ofGuarded), ["Check clause 4.2", "Check clause 7.1"]);
        const taskId = await derivedId("task", "intake", run);
        const trace = await broker.admin.tasks.trace(taskId);
        assert.equal(trace.handoffs.length, 2, "two handoffs");
        assert.equal(seen.filter((job) => job.taskId === taskId).length, 2, "each carried out once");
        assert.equal(trace.verification.ok, true);
      });
    }
  }
});

describe("a worker that runs an agent", () => {
  async function ask(
    agent: Agent,
    options = {},
  ): Promise<{ status: string; reason: unknown; result: unknown; spent: unknown }> {
    const client = await broker.admin.enroll("model");
    const own = new Worker(client, agentHandler(agent), { pollSeconds: 1, ...options });
    const run = own.run();
    const sent = await intake.handOff("model", { task: "Summarise the clauses", state: { clause: "4.2" } });
    const { status, reason, result, taskId } = await intake.handoffs.waitEnded(sent.handoffId, {
      withinMs: 30_000,
    });
    await own.stop();
    await run;
    return { status, reason, result, spent: (await broker.admin.tasks.cost(taskId)).sums?.tokens };
  }

  it("gives the agent the guarded context, and tells result and tokens", async () => {
    let turns: [string, unknown][] = [];
    const model = scriptedForMastra((prompt) => {
      turns = prompt.map(({ role, content }) => [role, content]);
      return says(JSON.stringify(turns));
    });
    const { status, result, spent } = await ask(
      new Agent({ id: "m", name: "m", instructions: "Summarise.", model }),
    );
    assert.equal(status, "COMPLETED");
    const { text } = result as { text: string };
    assert.match(text, /Summarise the clauses/);
    assert.doesNotMatch(text, /DATA ONLY/, "a result has the data of a prompt that a model repeats");
    assert.deepEqual(
      turns.map(([role]) => role),
      ["system", "user"],
    );
    assert.equal(turns[0]?.[1], "Summarise.");
    assert.match(JSON.stringify(turns[1]), /DATA ONLY.*Summarise the clauses/s);
    assert.deepEqual(spent, { prompt: 10, completion: 5 });
  });

  it("rejects what a processor of the agent stops", async () => {
    const guard = {
      id: "guard",
      processInput: async ({ abort }: { abort: (reason: string) => never }) => abort("not this"),
    };
    const model = scriptedForMastra(() => says("never"));
    const agent = new Agent({
      id: "g",
      name: "g",
      instructions: "x",
      model,
      inputProcessors: [guard as never],
    });
    const { status, reason } = await ask(agent, { acceptWithinMs: 5_000 });
    assert.deepEqual([status, reason], ["REJECTED", "GUARDRAIL_TRIPPED"]);
  });
});
