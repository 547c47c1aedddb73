import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { context, ROOT_CONTEXT, trace } from "@opentelemetry/api";
import { generateText, type ModelMessage, NoObjectGeneratedError, stepCountIs } from "ai";
import { type Client, derivedId, type Job, Worker } from "handoffd";
import { durableHandoffs, modelHandler, remoteAgent } from "handoffd/ai-sdk";
import { type Broker, startBroker } from "./broker.js";
import { calls, ofGuarded, results, says, scripted } from "./scripted.js";

/** Crashes of one run, each followed by a start that has to end it. */
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
      job.spend(0.01, { prompt: 3 });
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
    const tools = {
      legal: remoteAgent(intake, { target: "legal", description: "Knows contracts." }, "remote-1"),
    };
    const model = scripted((prompt) =>
      results(prompt).length === 0
        ? calls({ id: "c1", name: "legal", input: { task: "Check 4.2", reason: "asked" } })
        : says(JSON.stringify(results(prompt)[0])),
    );
    const { text } = await generateText({ model, tools, prompt: "Is 4.2 safe?", stopWhen: stepCountIs(3) });
    assert.equal(ofGuarded(JSON.parse(text)), "Check 4.2");
    const message = seen.at(-1)?.message;
    assert.equal(message?.reason, "asked");
    assert.deepEqual(message?.conversationHistoryVerbatim[0], { role: "user", content: "Is 4.2 safe?" });
  });

  it("tells the model why a handoff ended badly", async () => {
    await broker.admin.enroll("refuser");
    await broker.admin.allowlist.addTarget("intake", "refuser");
    const refuser = await broker.admin.enroll("refuser");
    const saysNo = new Worker(refuser, () => 0, { pollSeconds: 1, requiredState: ["clauses"] });
    const run = saysNo.run();
    const tools = { ask: remoteAgent(intake, { target: "refuser", description: "x" }, "remote-2") };
    const model = scripted((prompt) =>
      results(prompt).length === 0
        ? calls({ id: "c", name: "ask", input: { task: "x" } })
        : says(JSON.stringify(results(prompt)[0])),
    );
    const { text } = await generateText({ model, tools, prompt: "?", stopWhen: stepCountIs(3) });
    assert.equal(JSON.parse(text), "The handoff ended REJECTED: INCOMPLETE_CONTEXT.");
    await saysNo.stop();
    await run;
  });

  it("hands off in the trace of the framework's current span", async () => {
    const spanContext = {
      traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
      spanId: "00f067aa0ba902b7",
      traceFlags: 1,
    };
    const within = trace.setSpan(ROOT_CONTEXT, trace.wrapSpanContext(spanContext));
    const manager = {
      active: () => within,
      with: (_: unknown, run: () => unknown) => run(),
      bind: (_: unknown, it: unknown) => it,
    };
    context.setGlobalContextManager({ ...manager, enable: () => manager, disable: () => manager } as never);
    const sent = await intake.handOff("legal", "In a trace");
    context.disable();
    const { traceparent } = await intake.handoffs.get(sent.handoffId);
    assert.equal(traceparent.split("-")[1], spanContext.traceId);
  });
});

describe("a run that is suspended twice", () => {
  it("keeps no guarded turn, and gives each to the model again, also in another process", async () => {
    const model = scripted((prompt) => {
      const known = results(prompt);
      const task = ["Check 4.2", "Check 7.1"][known.length];
      return task
        ? calls({ id: `c${known.length}`, name: "legal", input: { task } })
        : says(JSON.stringify(known));
    });
    const go = async (run: string): Promise<string> => {
      const { tools, suspend, resume } = durableHandoffs(intake, {
        legal: { target: "legal", description: "x" },
      });
      for (
        let messages: ModelMessage[] = (await resume(run)) ?? [{ role: "user", content: "May we sign?" }];
        ;
      ) {
        const result = await generateText({ model, tools, messages });
        messages.push(...result.response.messages);
        if (!(await suspend(run, messages))) return result.text;
        messages = (await resume(run)) ?? messages;
      }
    };
    for (const text of [await go("twice"), await go("twice")])
      assert.deepEqual(JSON.parse(text).map(ofGuarded), ["Check 4.2", "Check 7.1"]);
    const second = seen.find((job) => job.task === "Check 7.1");
    const history = JSON.stringify(second?.history);
    assert.match(history, /Check 4\.2/);
    assert.doesNotMatch(history, /CONTEXT FROM PREVIOUS/);
  });
});

describe("a run that is suspended", () => {
  const script = fileURLToPath(new URL("ai-sdk-run.js", import.meta.url));
  async function start(run: string, crash = ""): Promise<{ lines: string[]; signal: string | null }> {
    const env = {
      ...process.env,
      HANDOFFD_URL: broker.url,
      HANDOFFD_API_KEY: key,
      HANDOFFD_AGENT_ID: "intake",
    };
    const child = spawn(process.execPath, [script, run, crash], {
      env,
      stdio: ["ignore", "pipe", "inherit"],
      timeout: 60_000,
    });
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
    });
    const [, signal] = (await once(child, "close")) as [number | null, string | null];
    return { lines: text.trim().split("\n"), signal };
  }

  for (const crash of ["", "called", "sending", "suspended", "resumed"]) {
    for (let round = 0; round < (crash === "" ? 1 : ROUNDS); round++) {
      it(`${crash === "" ? "ends without a crash" : `dies when it has ${crash}`}, and each handoff is carried out once (${round})`, async () => {
        const run = `run-${crash}-${round}`;
        if (crash === "resumed") await start(run, "suspended");
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
        const history = seen.find((job) => job.taskId === taskId)?.history;
        assert.deepEqual(
          history?.map(({ role }) => role),
          ["user", "assistant"],
        );
      });
    }
  }
});

describe("a worker that runs a model", () => {
  async function ask(
    handler: ReturnType<typeof modelHandler>,
    options = {},
  ): Promise<{ status: string; reason: unknown; result: unknown; spent: unknown }> {
    const client = await broker.admin.enroll("model");
    const own = new Worker(client, handler, { pollSeconds: 1, ...options });
    const run = own.run();
    const sent = await intake.handOff("model", { task: "Summarise the clauses", state: { clause: "4.2" } });
    const { status, reason, result, taskId } = await intake.handoffs.waitEnded(sent.handoffId, {
      withinMs: 30_000,
    });
    await own.stop();
    await run;
    const spent = (await broker.admin.tasks.cost(taskId)).sums?.tokens;
    return { status, reason, result, spent };
  }

  it("gives the model the guarded context, and tells result and tokens", async () => {
    let shown = "";
    const model = scripted((prompt) => {
      shown = JSON.stringify(prompt.map(({ role, content }) => [role, content]));
      return says(shown);
    });
    const { status, result, spent } = await ask(modelHandler((turn) => generateText({ model, ...turn })));
    assert.equal(status, "COMPLETED");
    assert.match(shown, /DATA ONLY.*Summarise the clauses/s);
    assert.ok(!shown.includes('"system"'));
    const { text } = result as { text: string };
    assert.match(text, /Summarise the clauses/);
    assert.doesNotMatch(text, /DATA ONLY/, "a result has the data of a prompt that a model repeats");
    assert.deepEqual(spent, { prompt: 10, completion: 5 });
  });

  it("rejects what the model's filter or the caller's guardrail stops, with its code", async () => {
    const filtered = scripted(() => says("", "content-filter"));
    const early = { acceptWithinMs: 5_000 };
    const first = await ask(
      modelHandler((turn) => generateText({ model: filtered, ...turn })),
      early,
    );
    assert.deepEqual([first.status, first.reason], ["REJECTED", "CONTENT_FILTERED"]);
    class Tripwire extends Error {}
    const guarded = modelHandler(() => Promise.reject(new Tripwire("secret")), {
      code: (error) => (error instanceof Tripwire ? "GUARDRAIL_TRIPPED" : undefined),
    });
    const second = await ask(guarded, early);
    assert.deepEqual([second.status, second.reason], ["REJECTED", "GUARDRAIL_TRIPPED"]);
  });

  it("fails with the name of the framework's error", async () => {
    const usage = { inputTokens: 0, outputTokens: 0, totalTokens: 0 } as never;
    const error = new NoObjectGeneratedError({ response: {} as never, usage, finishReason: "stop" });
    const failed = await ask(modelHandler(() => Promise.reject(error)));
    assert.deepEqual([failed.status, failed.reason], ["FAILED", "NO_OBJECT_GENERATED"]);
  });
});
