// A worker's verdicts: each reaches the broker, once, whatever the handler, the broker or a proxy does.

import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { wordsOf } from "../src/client.js";
import {
  Client,
  Fail,
  HandoffEndedBadlyError,
  InvalidRequestError,
  type Job,
  LeaseLostError,
  Reject,
  StaleLeaseError,
  StepReusedError,
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
    HANDOFFD_DELIVERY__CLAIM_TTL_MS: "4000",
  });
  sender = await broker.agent("sender");
});
after(() => broker.stop());

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A receiver of its own name, on the sender's allowlist. */
async function receiver(agentId: string): Promise<Client> {
  const client = await broker.agent(agentId);
  await broker.admin.allowlist.addTarget("sender", agentId);
  return client;
}

/** Runs a worker until the work is done. */
async function working<T>(worker: Worker, work: () => Promise<T>): Promise<T> {
  const running = worker.run();
  try {
    return await work();
  } finally {
    await worker.stop();
    await running;
  }
}

interface Outcome {
  readonly status: string;
  readonly said: unknown;
  /** How often the handler ran. */
  readonly runs: number;
}

/** Sends a handoff for each task, all at once, to one worker, and tells by the task how it ended. */
async function outcomes(
  client: Client,
  tasks: readonly string[],
  handler: (job: Job) => unknown,
  options: WorkerOptions = {},
): Promise<Record<string, Outcome>> {
  const runs: Record<string, number> = {};
  const counting = (job: Job): unknown => {
    runs[job.task] = (runs[job.task] ?? 0) + 1;
    return handler(job);
  };
  const more = { pollSeconds: 1, concurrency: tasks.length, heartbeatMs: 500, ...options };
  return working(new Worker(client, counting, more), async () => {
    const ended = tasks.map(async (task) => {
      const { handoffId } = await sender.handOff(client.agentId ?? "", task);
      const { status, reason, result } = await sender.handoffs.waitEnded(handoffId, { withinMs: 20_000 });
      return [task, { status, said: reason ?? result, runs: runs[task] ?? 0 }] as const;
    });
    return Object.fromEntries(await Promise.all(ended));
  });
}

describe("a failure", () => {
  it("that the broker refuses, or that JSON cannot hold, goes as its code, and no handler runs twice", async () => {
    const thrown: Record<string, () => unknown> = {
      huge: () => new Error("x".repeat(11 << 20)),
      halved: () => new Error(`${"x".repeat(499)}\u{1f600}`),
      lone: () => new Error("bad \ud800 text"),
      nothing: () => Object.create(null),
      "large number": () => new Fail("NUMBER", { t: 2 ** 60 }),
      "no number": () => new Fail("NUMBER", { t: Number.NaN }),
    };
    const ended = await outcomes(await receiver("thrower"), Object.keys(thrown), ({ task }) => {
      throw thrown[task]?.();
    });
    assert.deepEqual(ended, {
      huge: { status: "FAILED", said: "x".repeat(500), runs: 1 },
      halved: { status: "FAILED", said: `${"x".repeat(499)}\ufffd`, runs: 1 },
      lone: { status: "FAILED", said: "bad \ufffd text", runs: 1 },
      nothing: { status: "FAILED", said: "the handler failed", runs: 1 },
      "large number": { status: "FAILED", said: "NUMBER", runs: 1 },
      "no number": { status: "FAILED", said: "NUMBER", runs: 1 },
    });
  });

  it("before the acceptance goes as its code, too", async () => {
    const decide = (): never => {
      throw new Reject("NOT_MINE", { t: 2 ** 60 });
    };
    const ended = await outcomes(await receiver("decider"), ["one"], () => 1, { decide });
    assert.deepEqual(ended.one, { status: "REJECTED", said: "NOT_MINE", runs: 0 });
  });

  it("is what comes of a cost that is none", async () => {
    const costs: Record<string, Parameters<Job["spend"]>> = {
      negative: [-0.5],
      nan: [Number.NaN],
      endless: [Number.POSITIVE_INFINITY],
      "negative tokens": [0, { prompt: -1 }],
      "half a token": [0, { completion: 0.5 }],
    };
    const ended = await outcomes(await receiver("spender"), Object.keys(costs), (job) =>
      job.spend(...(costs[job.task] ?? [0])),
    );
    for (const [task, { status, said, runs }] of Object.entries(ended))
      assert.deepEqual([status, /^spent /.test(String(said)), runs], ["FAILED", true, 1], task);
  });

  it("is what comes of a result that JSON would change", async () => {
    const results: Record<string, [unknown, string]> = {
      nan: [{ scores: [1, Number.NaN] }, "NaN at /result/scores/1"],
      function: [() => 1, "a function at /result"],
      symbol: [{ "a/b": Symbol("s") }, "a symbol at /result/a~1b"],
      map: [{ seen: new Map([[1, 2]]) }, "a Map at /result/seen"],
      set: [new Set([1]), "a Set at /result"],
    };
    const ended = await outcomes(
      await receiver("odd"),
      Object.keys(results),
      ({ task }) => results[task]?.[0],
    );
    for (const [task, [, words]] of Object.entries(results))
      assert.deepEqual(ended[task], { status: "FAILED", said: `JSON cannot hold ${words}`, runs: 1 });
  });

  it("is told of a state that JSON would change", async () => {
    const ended = await outcomes(await receiver("saver"), ["one"], (job) =>
      job.save({ score: Number.NaN, at: new Date(0) }),
    );
    assert.deepEqual(ended.one, { status: "FAILED", said: "JSON cannot hold NaN at /score", runs: 1 });
  });
});

/** A client of a new agent, whose first request to each of these paths of a handoff meets something else than the broker. */
async function interrupted(agentId: string, path: RegExp, instead: () => Response): Promise<Client> {
  await receiver(agentId);
  const key = (await broker.admin.keys.create({ role: "agent", agentId })).apiKey ?? "";
  const met = new Set<string>();
  const through: typeof fetch = async (url, init) => {
    if (!path.test(String(url)) || met.has(String(url))) return fetch(url, init);
    met.add(String(url));
    return instead();
  };
  // The client gives up at once here, so that only the worker's own patience brings the verdict.
  return new Client({ url: broker.url, key, agentId, retries: 0, fetch: through });
}

const away = (): never => {
  throw new TypeError("fetch failed");
};

describe("a verdict", () => {
  const handler = ({ task }: Job): unknown => {
    if (task === "fails") throw new Fail("NOPE");
    return "precious";
  };
  const decide = ({ task }: Job): void => {
    if (task === "rejects") throw new Reject("NOT_MINE");
  };
  const all = {
    completes: { status: "COMPLETED", said: "precious", runs: 1 },
    fails: { status: "FAILED", said: "NOPE", runs: 1 },
    rejects: { status: "REJECTED", said: "NOT_MINE", runs: 0 },
  };

  it("waits for a broker that is away, and so does an acceptance", async () => {
    const client = await interrupted("patient", /\/(accept|complete|fail|reject)$/, away);
    assert.deepEqual(await outcomes(client, Object.keys(all), handler, { decide }), all);
  });

  for (const status of [400, 403, 404])
    it(`waits behind a proxy's page with ${status}`, async () => {
      const page = (): Response =>
        new Response("<html>", { status, headers: { "content-type": "text/html" } });
      const client = await interrupted(`behind-${status}`, /\/(complete|fail|reject)$/, page);
      assert.deepEqual(await outcomes(client, Object.keys(all), handler, { decide }), all);
    });

  it("does not wait behind a proxy that takes no body of that size", async () => {
    const page = (): Response => new Response("<html>", { status: 413 });
    const client = await interrupted("large", /\/complete$/, page);
    const ended = await outcomes(client, ["completes"], handler);
    assert.equal(ended.completes?.status, "FAILED");
  });

  it("comes from a handler that began before its acceptance met no broker", async () => {
    const client = await interrupted("late", /\/accept$/, away);
    const events: WorkerEvent[] = [];
    const slow = async (): Promise<string> => {
      await sleep(3_500);
      return "precious";
    };
    const ended = await outcomes(client, ["one"], slow, {
      acceptWithinMs: 100,
      onEvent: (event) => events.push(event),
    });
    assert.deepEqual(ended.one, all.completes);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["claimed", "accepted", "completed"],
    );
  });
});

describe("a task that is canceled with a grace", () => {
  it("is completed by the handler within the grace, and its job is aborted after the grace", async () => {
    const client = await receiver("graced");
    const aborted: unknown[] = [];
    let began = (): void => undefined;
    const handler = async (job: Job): Promise<string> => {
      began();
      if (job.task === "short") await sleep(2_000);
      else await new Promise((resolve) => job.signal.addEventListener("abort", resolve));
      if (job.signal.aborted) aborted.push(job.signal.reason);
      return "in the grace";
    };
    const ended: unknown[] = [];
    const canceled = async (task: string, graceMs: number): Promise<void> => {
      const begun = new Promise<void>((resolve) => {
        began = resolve;
      });
      const { handoffId, taskId } = await sender.handOff("graced", task);
      await begun;
      await broker.admin.tasks.cancel(taskId, { reason: "not needed any more", graceMs });
      const { status, result } = await sender.handoffs.waitEnded(handoffId, { withinMs: 20_000 });
      ended.push([status, result]);
    };
    await working(new Worker(client, handler, { pollSeconds: 1, heartbeatMs: 200 }), async () => {
      await canceled("short", 30_000);
      await canceled("long", 1_500);
    });
    assert.deepEqual(ended, [
      ["COMPLETED", "in the grace"],
      ["CANCELED", undefined],
    ]);
    assert.equal(aborted.length, 1);
    assert.ok(aborted[0] instanceof LeaseLostError);
  });

  it("does not keep a worker from what else was left behind", async () => {
    const client = await receiver("heir");
    const sent = [await sender.handOff("heir", "older"), await sender.handOff("heir", "newer")];
    const { items } = await client.handoffs.inbox("heir", { wait: 5, max: 2 });
    assert.equal(items.length, 2);
    for (const { handoffId, fencingToken } of items)
      await client.handoffs.accept(handoffId, fencingToken, { heartbeatIntervalMs: 50 });
    await broker.admin.tasks.cancel(sent[1]?.taskId ?? "", { reason: "not needed", graceMs: 30_000 });
    const options: WorkerOptions = { pollSeconds: 1, heartbeatMs: 200, concurrency: 2 };
    const worker = new Worker(client, (job) => (job.resumed ? "taken up" : "new"), options);
    const older = sent[0]?.handoffId ?? "";
    const ended = await working(worker, () => sender.handoffs.waitEnded(older, { withinMs: 20_000 }));
    assert.deepEqual([ended.status, ended.result], ["COMPLETED", "taken up"]);
  });
});

describe("a worker that another one replaced", () => {
  it("can do nothing to the handoff any more", async () => {
    const client = await receiver("replaced");
    await broker.admin.allowlist.addTarget("replaced", "sender");
    const { handoffId, taskId } = await sender.handOff("replaced", "Check it");
    const { items } = await client.handoffs.inbox("replaced", { wait: 5, max: 1 });
    const old = items[0]?.fencingToken ?? 0;
    await client.handoffs.accept(handoffId, old, { heartbeatIntervalMs: 50 });
    const worker = new Worker(
      client,
      async (job) => {
        await job.save({ by: "the new one" });
        return job.executionId;
      },
      { pollSeconds: 1, heartbeatMs: 200 },
    );
    const ended = await working(worker, () => sender.handoffs.waitEnded(handoffId, { withinMs: 60_000 }));
    const run = String(ended.result);
    assert.ok(ended.fencingToken > old);
    const { handoffs, tasks } = client;
    const guard = { handoffId, fencingToken: old };
    const goOn = { task: "Go on", taskId, parentHandoffId: handoffId, completed: ["x"] };
    for (const late of [
      () => handoffs.heartbeat(handoffId, old),
      () => handoffs.complete(handoffId, old, { result: 1 }),
      () => tasks.putCheckpoint(taskId, run, { by: "the old one" }, guard),
      () => client.handOff("sender", goOn, { fencingToken: old }),
    ])
      await assert.rejects(late(), StaleLeaseError);
    assert.deepEqual(await client.restore(taskId, run), { by: "the new one" });
  });
});

describe("a step", () => {
  it("is refused under the name of another one, with both digests", async () => {
    await receiver("stepped");
    const step = { task: "Check clause 1", state: { clause: 1 }, run: "r", step: "s" };
    const sent = await sender.handOff("stepped", step);
    const again = await sender.handOff("stepped", step);
    assert.deepEqual([again.handoffId, again.replayed], [sent.handoffId, true]);
    for (const other of [{ task: "Check clause 2" }, { state: { clause: 2 } }])
      await assert.rejects(sender.handOff("stepped", { ...step, ...other }), (error) => {
        assert.ok(error instanceof StepReusedError && error.stepDigest !== error.storedDigest);
        return error.message.includes(error.stepDigest) && error.message.includes(error.storedDigest);
      });
  });
});

describe("a failure", () => {
  it("is told with the receiver's words, and a handler that throws is written out", async () => {
    const client = await receiver("wordy");
    const written: string[] = [];
    const { error: before } = console;
    console.error = (...words: unknown[]) => void written.push(words.map(String).join(" "));
    const worker = new Worker(client, () => Promise.reject(new Error("the model is away")), {
      pollSeconds: 1,
    });
    try {
      const waiting = working(worker, () => sender.handOffAndWait("wordy", "Check it", { withinMs: 60_000 }));
      await assert.rejects(waiting, (error) => {
        assert.ok(error instanceof HandoffEndedBadlyError);
        assert.equal(error.status, "FAILED");
        return error.message.includes("the model is away");
      });
    } finally {
      console.error = before;
    }
    assert.ok(
      written.some((line) => line.startsWith("handoffd.worker wordy: handoff ") && line.includes("away")),
    );
  });

  it("is told with the words beside its code", async () => {
    const client = await receiver("coded");
    for (const refused of [
      new Fail("PUMP_BROKEN", "the pump leaks"),
      new Reject("PUMP_BROKEN", "the pump leaks"),
    ]) {
      const worker = new Worker(client, () => Promise.reject(refused), { pollSeconds: 1 });
      const waiting = working(worker, () => sender.handOffAndWait("coded", "Check it", { withinMs: 60_000 }));
      await assert.rejects(waiting, (error) => {
        assert.ok(error instanceof HandoffEndedBadlyError);
        assert.equal(error.words, "the pump leaks");
        return error.message.endsWith(": PUMP_BROKEN: the pump leaks");
      });
    }
  });

  it("has its words in each form of a verdict, without their code", () => {
    const words = "the pump leaks";
    for (const verdict of [
      { error: "PUMP_BROKEN", details: words },
      { error: `PUMP_BROKEN: ${words}` },
      { error: { code: "PUMP_BROKEN", message: `PUMP_BROKEN: ${words}` } },
      { error: { code: "PUMP_BROKEN", message: words } },
      { error: { message: "PUMP_BROKEN" }, details: words },
      { reason: "PUMP_BROKEN", details: words },
      { error: words },
    ])
      assert.equal(wordsOf(verdict, "PUMP_BROKEN"), words, JSON.stringify(verdict));
    assert.equal(wordsOf({ error: "PUMP_BROKEN" }, "PUMP_BROKEN"), "PUMP_BROKEN");
    assert.equal(wordsOf({}, "PUMP_BROKEN"), undefined);
  });
});

describe("a worker", () => {
  it("asks onQuestion once for a question, however long the answer takes", async () => {
    const client = await receiver("curious");
    let calls = 0;
    const onQuestion = async (): Promise<number> => {
      calls += 1;
      // The broker offers an open question again after 4 s.
      await sleep(6_000);
      return calls;
    };
    const answering = new Worker(sender, () => 0, { pollSeconds: 1, onQuestion });
    const ended = await working(answering, () =>
      outcomes(client, ["one"], (job) => job.ask("Which clause?")),
    );
    assert.deepEqual([ended.one?.said, calls], [1, 1]);
  });

  it("polls by whole seconds, and ends where the broker refuses the poll", async () => {
    const client = await receiver("fraction");
    const ended = await outcomes(client, ["one"], () => 1, { pollSeconds: 0.4 });
    assert.equal(ended.one?.status, "COMPLETED");
    const { status } = await sender.handOff("fraction", "two", { waitSeconds: 0.4 });
    assert.equal(status, "PENDING");
    await assert.rejects(new Worker(client, () => 1, { pollSeconds: -1 }).run(), InvalidRequestError);
  });

  it("leaves no listener behind for each handoff", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error): void => void warnings.push(warning);
    process.on("warning", note);
    const client = await receiver("long-lived");
    const worker = new Worker(client, () => 1, { pollSeconds: 1 });
    await working(worker, async () => {
      for (let count = 0; count < 12; count++) await sender.handOffAndWait("long-lived", `Task ${count}`);
    });
    process.off("warning", note);
    assert.deepEqual(
      warnings.filter(({ name }) => name === "MaxListenersExceededWarning"),
      [],
    );
  });
});
