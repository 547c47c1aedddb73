import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import {
  Client,
  Completed,
  Fail,
  ForbiddenError,
  HandoffEndedBadlyError,
  type Job,
  LeaseLostError,
  Reject,
  WaitTimeoutError,
  Worker,
  type WorkerEvent,
  type WorkerOptions,
} from "../src/index.js";
import { Broker } from "./broker.js";

let broker: Broker;
let sender: Client;
before(async () => {
  broker = await Broker.start({
    HANDOFFD_DELIVERY__LEASE_MS: "8000",
    HANDOFFD_DELIVERY__CLAIM_TTL_MS: "2000",
  });
  sender = await broker.agent("sender");
});
after(() => broker.stop());

/** A receiver of its own name, on the sender's allowlist. */
async function receiver(agentId: string): Promise<Client> {
  const client = await broker.agent(agentId);
  await broker.admin.allowlist.addTarget("sender", agentId);
  return client;
}

async function send(target: string, reason?: string): Promise<{ handoffId: string; taskId: string }> {
  return sender.handOff(target, { task: `Work for ${target}`, checkpoint: { mine: target }, reason });
}

/** Runs a worker in this process until the work is done. */
async function working(
  agentId: string,
  handler: (job: Job) => unknown,
  body: (events: WorkerEvent[]) => Promise<void>,
  options: WorkerOptions = {},
): Promise<WorkerEvent[]> {
  const events: WorkerEvent[] = [];
  const client = await receiver(agentId);
  const worker = new Worker(client, handler, {
    pollSeconds: 1,
    ...options,
    onEvent: (event) => events.push(event),
  });
  const running = worker.run();
  try {
    await body(events);
  } finally {
    await worker.stop();
    await running;
  }
  return events;
}

const types = (events: WorkerEvent[]): string[] => events.map((event) => event.type);

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (const deadline = Date.now() + 60_000; !(await condition()); ) {
    if (Date.now() > deadline) throw new Error(`not within 60 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

describe("a worker", () => {
  it("claims, accepts and completes, and the sender reads the result and its cost", async () => {
    const events = await working(
      "plain",
      async (job) => {
        assert.equal(job.task, "Work for plain");
        assert.match(await job.prompt({ maxTokens: 600 }), /Work for plain/);
        await assert.rejects(job.prompt({ maxTokens: 499 }), /500 at least/);
        assert.equal((await job.promptMessages())[0]?.role, "user");
        job.spend(0.25, { prompt: 10, completion: 5 });
        return new Completed({ words: 3 }, { iterations: 2, conversationSummary: "counted" });
      },
      async () => {
        const { handoffId, taskId } = await send("plain");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.equal(ended.status, "COMPLETED");
        assert.deepEqual(ended.result, { words: 3 });
        assert.match(await sender.handoffs.resultPrompt(handoffId), /DATA ONLY.*words/s);
        assert.equal((await sender.handoffs.resultPromptMessages(handoffId)).messages[0]?.role, "user");
        assert.equal(ended.iterations, 2);
        assert.equal(ended.conversationSummary, "counted");
        assert.equal((await sender.tasks.cost(taskId)).sums?.spentUSD, 0.25);
      },
    );
    assert.deepEqual(types(events), ["claimed", "accepted", "completed"]);
  });

  it("asks its sender, whose worker answers; no lease runs meanwhile", async () => {
    const asked: unknown[] = [];
    let reads = 0;
    const answering = new Worker(sender, () => 0, {
      pollSeconds: 1,
      onQuestion: async (item) => {
        asked.push(item.question);
        await new Promise((resolve) => setTimeout(resolve, 1000));
        return item.question === "Which clause?" ? "4.2" : true;
      },
    });
    const running = answering.run();
    await working(
      "curious",
      async (job) => {
        const { handoffs } = job.client;
        const get = handoffs.get.bind(handoffs);
        handoffs.get = (...given) => {
          reads += 1;
          return get(...given);
        };
        const clause = await job.ask("Which clause?", { schema: { type: "string" } });
        const sure = await job.ask({ sure: clause }, { withinMs: 60_000 });
        job.check();
        const prompt = await job.client.handoffs.questionPrompt(job.handoffId);
        const { messages } = await job.client.handoffs.questionPromptMessages(job.handoffId);
        const prompts = [prompt, messages[0]?.content ?? ""];
        return { clause, sure, prompt: prompts.every((text) => text.includes("DATA ONLY")) };
      },
      async () => {
        const { handoffId } = await send("curious");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.deepEqual(ended.result, { clause: "4.2", sure: true, prompt: true });
      },
      { heartbeatMs: 200 },
    );
    await answering.stop();
    await running;
    assert.deepEqual(asked, ["Which clause?", { sure: "4.2" }]);
    // Two of each question: before it, and the one that the broker holds until the answer.
    assert.equal(reads, 4);
  });

  it("answers who asks while its only job waits for that agent", async () => {
    const downstream = await broker.agent("downstream");
    const boss = await broker.agent("boss", { handoffTargets: ["downstream"] });
    await broker.admin.allowlist.addTarget("sender", "boss");
    const delegating = new Worker(
      boss,
      async (job) => {
        const { handoffId } = await job.client.handOff("downstream", "Which clause?");
        return (await job.client.handoffs.waitEnded(handoffId, { withinMs: 60_000 })).result;
      },
      { pollSeconds: 1, concurrency: 1, onQuestion: (item) => `${item.question} 4.2` },
    );
    const asking = new Worker(downstream, (job) => job.ask("Which?"), { pollSeconds: 1 });
    const running = [delegating.run(), asking.run()];
    try {
      const { handoffId } = await sender.handOff("boss", "Check it");
      const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
      assert.deepEqual([ended.status, ended.result], ["COMPLETED", "Which? 4.2"]);
    } finally {
      await Promise.all([delegating.stop(), asking.stop(), ...running]);
    }
  });

  it("stops a job whose question finds no answer in time", async () => {
    let reason: unknown;
    await working(
      "impatient",
      async (job) => {
        try {
          return await job.ask("Which clause?", { withinMs: 500 });
        } catch (error) {
          reason = error;
          throw error;
        }
      },
      async () => {
        const { handoffId } = await send("impatient");
        assert.equal((await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 })).status, "EXPIRED");
        await until(() => reason !== undefined, "the handler is told");
      },
    );
    assert.ok(reason instanceof LeaseLostError);
  });

  it("rejects by exception before the acceptance, and fails with the code after it", async () => {
    const options: WorkerOptions = {
      decide: (job) => {
        if (job.message.reason === "early") throw new Reject("MISSING_CLAUSE_TEXT", { clause: "4.2" });
      },
    };
    const handler = (job: Job): never => {
      if (job.message.reason === "late") throw new Fail("GUARDRAIL_TRIPPED", { by: "guard" });
      throw new Error("the model is away");
    };
    const events = await working(
      "strict",
      handler,
      async () => {
        const outcomes: unknown[] = [];
        for (const reason of ["early", "late", "broken"]) {
          const { handoffId, taskId } = await send("strict", reason);
          const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
          const task = await sender.tasks.get(taskId);
          outcomes.push([ended.status, ended.reason, task.status]);
          const executionId = ended.fromAgent.executionId ?? "";
          assert.deepEqual((await sender.tasks.checkpoint(taskId, executionId)).state, { mine: "strict" });
        }
        assert.deepEqual(outcomes, [
          ["REJECTED", "MISSING_CLAUSE_TEXT", "PENDING_HANDOFF"],
          ["FAILED", "GUARDRAIL_TRIPPED", "PENDING_HANDOFF"],
          ["FAILED", "the model is away", "PENDING_HANDOFF"],
        ]);
      },
      options,
    );
    assert.deepEqual(types(events), [
      "claimed",
      "rejected",
      "claimed",
      "accepted",
      "failed",
      "claimed",
      "accepted",
      "failed",
    ]);
  });

  it("lets a handler reject while it has not accepted, and accepts in time", async () => {
    const events = await working(
      "late",
      async (job) => {
        if (job.message.reason === "trips") throw new Reject("GUARDRAIL_TRIPPED");
        await new Promise((resolve) => setTimeout(resolve, 900));
        if (job.message.reason === "trips late") throw new Reject("GUARDRAIL_TRIPPED");
        return "fine";
      },
      async () => {
        const outcomes: unknown[] = [];
        for (const reason of ["trips", "trips late", "passes"]) {
          const { handoffId } = await send("late", reason);
          const {
            status,
            reason: why,
            result,
          } = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
          outcomes.push([status, why ?? result]);
        }
        assert.deepEqual(outcomes, [
          ["REJECTED", "GUARDRAIL_TRIPPED"],
          ["FAILED", "GUARDRAIL_TRIPPED"],
          ["COMPLETED", "fine"],
        ]);
        await assert.rejects(
          sender.handOffAndWait("late", { task: "x", reason: "trips" }),
          (error) => error instanceof HandoffEndedBadlyError && error.status === "REJECTED",
        );
      },
      { acceptWithinMs: 400 },
    );
    assert.equal(types(events).filter((type) => type === "accepted").length, 2);
  });

  it("rejects what lacks the state that it requires", async () => {
    await working(
      "picky",
      () => "done",
      async () => {
        const { handoffId } = await send("picky");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.deepEqual([ended.status, ended.reason], ["REJECTED", "INCOMPLETE_CONTEXT"]);
      },
      { requiredState: ["clauses"] },
    );
  });

  it("heartbeats, so that work may last longer than its lease", async () => {
    await working(
      "slow",
      () => new Promise((resolve) => setTimeout(() => resolve("done"), 10_000)),
      async () => {
        const { handoffId } = await send("slow");
        await assert.rejects(sender.handoffs.waitEnded(handoffId, { withinMs: 300 }), WaitTimeoutError);
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.deepEqual([ended.status, ended.result], ["COMPLETED", "done"]);
      },
    );
  });

  it("aborts the job where the handoff was withdrawn, and drops what it returns", async () => {
    let reason: unknown;
    const events = await working(
      "lost",
      (job) =>
        new Promise((resolve) => {
          job.signal.addEventListener("abort", () => {
            reason = job.signal.reason;
            resolve("too late");
          });
        }),
      async (seen) => {
        const { handoffId, taskId } = await send("lost");
        await until(() => types(seen).includes("accepted"), "accepted");
        await broker.admin.tasks.cancel(taskId, { reason: "not needed any more", graceMs: 0 });
        await until(() => types(seen).includes("lost"), "lost");
        assert.equal((await sender.handoffs.get(handoffId)).status, "CANCELED");
      },
    );
    assert.ok(reason instanceof LeaseLostError);
    assert.ok(!types(events).includes("completed"));
  });

  it("works on several handoffs at once, each once", async () => {
    let [now, most] = [0, 0];
    const seen: string[] = [];
    await working(
      "wide",
      async (job) => {
        seen.push(job.handoffId);
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 150));
        now -= 1;
        return job.handoffId;
      },
      async () => {
        const sent = await Promise.all(Array.from({ length: 12 }, () => send("wide")));
        const ended = await Promise.all(
          sent.map(({ handoffId }) => sender.handoffs.waitEnded(handoffId, { withinMs: 30_000 })),
        );
        assert.ok(
          ended.every((handoff) => handoff.status === "COMPLETED" && handoff.result === handoff.handoffId),
        );
      },
      { concurrency: 4 },
    );
    assert.ok(most > 1 && most <= 4, `${most} at once`);
    assert.equal(new Set(seen).size, seen.length);
  });

  it("hands the task on with lineage, budget and trace, and gets it back where it asks for that", async () => {
    const helper = await receiver("helper");
    await broker.admin.allowlist.addTarget("middle", "helper").catch(() => undefined);
    const helping = new Worker(helper, (job) => ({ helped: job.task }), { pollSeconds: 1 });
    const run = helping.run();
    await broker.agent("middle", { handoffTargets: ["helper"] });
    await working(
      "middle",
      async (job) => {
        job.spend(0.1);
        const sent = await job.handOn("helper", { task: "Help", completed: ["Asked"], returnTo: "source" });
        const ended = await job.client.handoffs.waitEnded(sent.handoffId, { withinMs: 60_000 });
        return { through: ended.result };
      },
      async () => {
        const { handoffId, taskId } = await send("middle");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.deepEqual(ended.result, { through: { helped: "Help" } });
        const trace = await broker.admin.tasks.trace(taskId);
        assert.equal(trace.handoffs.length, 2);
        const [first, second] = trace.handoffs;
        assert.equal(second?.parentHandoffId, handoffId);
        assert.equal(second?.costTracking?.costBudgetRemainingUSD, 0.9);
        assert.equal(first?.costTracking?.costBudgetRemainingUSD, 1);
        assert.equal(trace.verification.ok, true);
      },
    );
    await helping.stop();
    await run;
  });

  it("hands on without a word of what was done, and its handler ends in its own time", async () => {
    const second = await receiver("second");
    const helping = new Worker(second, (job) => job.message, { pollSeconds: 1 });
    const run = helping.run();
    await broker.agent("first", { handoffTargets: ["second"] });
    let sentOn = "";
    await working(
      "first",
      async (job) => {
        sentOn = (await job.handOn("second", "Help")).handoffId;
        const { handoffs } = job.client;
        await until(async () => (await handoffs.get(job.handoffId)).status === "COMPLETED", "handed on");
        // Several heartbeats meet a handoff that is handed on.
        await new Promise((resolve) => setTimeout(resolve, 600));
        job.check();
        return "done after all";
      },
      async () => {
        const { handoffId } = await sender.handOff("first", { task: "Work", history: ["Hello"] });
        await until(async () => {
          const { result } = await broker.admin.handoffs.get(handoffId);
          return result === "done after all";
        }, "the handler's result");
        const { result } = await broker.admin.handoffs.waitEnded(sentOn, { withinMs: 60_000 });
        const { completedSubtasks } = result as {
          completedSubtasks: { subtaskId: string; result: unknown }[];
        };
        assert.deepEqual(
          completedSubtasks.map((one) => [one.subtaskId, one.result]),
          [[handoffId, { turns: 1 }]],
        );
      },
      { heartbeatMs: 100 },
    );
    await helping.stop();
    await run;
  });

  it("fails the handoff where the broker refuses its handler something else, once", async () => {
    let runs = 0;
    const events = await working(
      "finder",
      (job) => {
        runs += 1;
        return job.client.handoffs.get(crypto.randomUUID());
      },
      async () => {
        const { handoffId } = await send("finder");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        assert.deepEqual([ended.status, ended.reason?.slice(0, 13)], ["FAILED", "404 NOT_FOUND"]);
      },
    );
    assert.equal(runs, 1);
    const last = events.at(-1);
    assert.ok(last?.type === "failed" && last.code === "HANDLER_ERROR");
  });

  it("fails the handoff where JSON cannot hold the result", async () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    await working(
      "odd",
      (job) => (job.message.reason === "cycle" ? cycle : { count: 1n }),
      async () => {
        for (const reason of ["cycle", "bigint"]) {
          const { handoffId } = await send("odd", reason);
          const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 20_000 });
          assert.equal(ended.status, "FAILED", reason);
        }
      },
    );
  });

  it("fails the handoff where the broker answers the result with 500", async () => {
    await receiver("defect");
    const key = (await broker.admin.keys.create({ role: "agent", agentId: "defect" })).apiKey ?? "";
    const problem = { code: "INTERNAL", detail: "a defect", failures: [], requestId: "r" };
    const headers = { "content-type": "application/problem+json" };
    const broken: typeof fetch = async (url, init) =>
      String(url).endsWith("/complete") ? Response.json(problem, { status: 500, headers }) : fetch(url, init);
    const client = new Client({ url: broker.url, key, agentId: "defect", retries: 0, fetch: broken });
    const worker = new Worker(client, () => "done", { pollSeconds: 1 });
    const running = worker.run();
    const { handoffId } = await send("defect");
    const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 20_000 });
    await worker.stop();
    await running;
    assert.deepEqual([ended.status, ended.reason], ["FAILED", "INTERNAL"]);
  });

  it("gives dates and URLs of a result as text, and its task for its prompt", async () => {
    await working(
      "dated",
      async (job) => ({
        at: new Date(0),
        page: [new URL("https://a.test/")],
        prompt: (await job.prompt()).trim(),
      }),
      async () => {
        const { handoffId } = await send("dated");
        const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
        const page = ["https://a.test/"];
        assert.deepEqual(ended.result, { at: "1970-01-01T00:00:00.000Z", page, prompt: "Work for dated" });
      },
    );
  });

  it("outlives what onReturn throws, and claims on meanwhile", async () => {
    const opener = await broker.agent("opener", { handoffTargets: ["returner"] });
    const seen: string[] = [];
    const events: WorkerEvent[] = [];
    let second = (): void => undefined;
    const arrived = new Promise<void>((resolve) => {
      second = resolve;
    });
    const opening = new Worker(opener, () => 0, {
      pollSeconds: 1,
      onEvent: (event) => events.push(event),
      onReturn: async ({ handoffId }, client) => {
        seen.push(handoffId);
        if (seen.length > 1) return second();
        await arrived;
        await client.agents.create({ agentId: "not-an-agents-call" });
      },
    });
    const running = opening.run();
    await working(
      "returner",
      () => 1,
      async () => {
        for (let count = 0; count < 2; count++)
          await opener.handOffAndWait(
            "returner",
            { task: "Work", returnTo: "source" },
            {
              withinMs: 60_000,
            },
          );
        await until(() => types(events).includes("unreachable"), "the refusal is told");
      },
    );
    const told = events.find((event) => event.type === "unreachable");
    assert.ok(told?.error instanceof ForbiddenError);
    await opening.stop();
    await running;
    assert.equal(new Set(seen).size, 2);
  });

  it("ends with the broker's refusal under a key that is not the agent's", async () => {
    await receiver("other");
    const key = (await broker.admin.keys.create({ role: "agent", agentId: "sender" })).apiKey ?? "";
    await assert.rejects(new Worker(broker.admin.as("other", key), () => 1).run(), ForbiddenError);
  });
});

describe("a worker's process", () => {
  const script = fileURLToPath(new URL("worker-process.js", import.meta.url));

  async function start(agentId: string): Promise<ChildProcess & { lines: () => string }> {
    const key = (await broker.admin.keys.create({ role: "agent", agentId, label: "test" })).apiKey ?? "";
    const env = {
      ...process.env,
      HANDOFFD_URL: broker.url,
      HANDOFFD_AGENT_ID: agentId,
      HANDOFFD_API_KEY: key,
    };
    const child = spawn(process.execPath, [script, journal(agentId)], {
      env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
    });
    return Object.assign(child, { lines: () => text });
  }
  const journal = (agentId: string): string => join(broker.folder, `${agentId}.journal`);
  const steps = (agentId: string): string[] =>
    existsSync(journal(agentId)) ? readFileSync(journal(agentId), "utf8").trim().split("\n") : [];

  it("is killed in the middle of a task, and its successor goes on from the saved state, once", async () => {
    await receiver("phoenix");
    const first = await start("phoenix");
    const { handoffId, taskId } = await send("phoenix", "stall");
    await until(() => steps("phoenix").some((line) => line.endsWith("step 2")), "two steps are done");
    first.kill("SIGKILL");
    await once(first, "exit");
    assert.equal((await sender.handoffs.get(handoffId)).status, "ACCEPTED");
    const second = await start("phoenix");
    const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
    assert.deepEqual([ended.status, ended.result], ["COMPLETED", { steps: 4, from: 2 }]);
    const done = steps("phoenix")
      .filter((line) => line.includes(" step "))
      .map((line) => line.split(" ")[2]);
    assert.deepEqual(done, ["1", "2", "3", "4"], "each step once");
    const trace = await broker.admin.tasks.trace(taskId);
    assert.equal(trace.records.filter((record) => record.kind === "COMPLETED").length, 1);
    assert.equal(trace.records.filter((record) => record.kind === "ROLLED_BACK").length, 0);
    assert.equal(trace.verification.ok, true);
    second.kill("SIGTERM");
    await once(second, "exit");
    assert.equal(second.exitCode, 0);
    assert.match(second.lines(), /"stopped"/);
  });

  it("is killed, and of several successors one goes on", async () => {
    await receiver("hydra");
    const first = await start("hydra");
    const { handoffId, taskId } = await send("hydra", "stall");
    await until(() => steps("hydra").some((line) => line.endsWith("step 2")), "two steps are done");
    const heirs = await Promise.all([start("hydra"), start("hydra"), start("hydra")]);
    first.kill("SIGKILL");
    const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
    assert.deepEqual(ended.result, { steps: 4, from: 2 });
    assert.equal(steps("hydra").filter((line) => line.includes(" from ")).length, 2, "begun twice in all");
    const trace = await broker.admin.tasks.trace(taskId);
    assert.equal(trace.records.filter((record) => record.kind === "COMPLETED").length, 1);
    for (const heir of heirs) heir.kill("SIGTERM");
    await Promise.all(heirs.map((heir) => heir.exitCode ?? once(heir, "exit")));
  });

  it("is killed without a successor: the lease ends, the task rolls back, and the sender sends again", async () => {
    await receiver("mortal");
    const first = await start("mortal");
    const { handoffId, taskId } = await send("mortal", "stall");
    await until(() => steps("mortal").some((line) => line.endsWith("step 2")), "two steps are done");
    first.kill("SIGKILL");
    await once(first, "exit");
    const ended = await sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 });
    assert.deepEqual([ended.status, ended.reason], ["EXPIRED", "LEASE_EXPIRED"]);
    const task = await sender.tasks.get(taskId);
    assert.equal(task.status, "PENDING_HANDOFF");
    assert.deepEqual(await sender.restore(taskId, ended.fromAgent.executionId ?? ""), { mine: "mortal" });
    const second = await start("mortal");
    const done = await sender.handOffAndWait("mortal", { task: "Again", taskId }, { withinMs: 60_000 });
    assert.deepEqual(done.result, { steps: 4, from: 0 });
    second.kill("SIGTERM");
    await once(second, "exit");
  });

  it("stops in good order: what is under way ends, and the exit code is 0", async () => {
    await receiver("polite");
    const child = await start("polite");
    const { handoffId } = await send("polite");
    await until(() => steps("polite").length > 0, "work has begun");
    child.kill("SIGTERM");
    await once(child, "exit");
    assert.equal(child.exitCode, 0);
    assert.equal((await sender.handoffs.get(handoffId)).status, "COMPLETED");
    const refused = await start("polite");
    const other = await send("polite", "refuse");
    const ended = await sender.handoffs.waitEnded(other.handoffId, { withinMs: 60_000 });
    assert.deepEqual([ended.status, ended.reason], ["REJECTED", "NOT_MINE"]);
    refused.kill("SIGINT");
    await once(refused, "exit");
  });
});
