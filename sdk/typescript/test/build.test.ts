import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, describe, it } from "node:test";
import {
  type AgentState,
  buildHandoffMessage,
  type Client,
  ConflictError,
  derivedExecutionId,
  derivedId,
  estimateTokens,
  measureHandoffMessage,
  nameId,
  SchemaInvalidError,
  stepDigest,
  traceparent,
  validateHandoffMessage,
  WindowExceededError,
} from "../src/index.js";
import { Broker } from "./broker.js";

const state: AgentState = { agentId: "intake", task: "Score the clauses", run: "order-7", step: "score" };
describe("buildHandoffMessage", () => {
  it("fills what it can, so that a name and a task are a valid message", async () => {
    const message = await buildHandoffMessage({ agentId: "intake", task: "Score the clauses" }, "legal");
    assert.deepEqual(validateHandoffMessage(message).valid, true);
    assert.equal(message.schemaVersion, "2.1");
    assert.equal(message.taskDescription, "INITIAL");
    assert.deepEqual(message.remainingSubtasks, [{ subtaskId: "task", description: "Score the clauses" }]);
    assert.deepEqual(message.toAgent, { agentId: "legal" });
  });

  it("drops members that are null, and keeps the nulls of the state", async () => {
    const message = await buildHandoffMessage(
      {
        ...state,
        state: { risk: null },
        completed: [{ subtaskId: "s1", description: null, result: { a: 1 }, completedAt: null }],
        history: [{ role: "tool", content: "x", name: null, tool_call_id: null, timestamp: undefined }],
        toolCalls: [],
        context: [{ source: "mail", excerpt: "…", relevanceScore: null }],
      },
      { agentType: "scorer", agentVersion: ">=1.5.0" },
      { constraints: { returnJSON: true, maxResponseTokens: 2000 } },
    );
    assert.equal(
      validateHandoffMessage(message).valid,
      true,
      JSON.stringify(validateHandoffMessage(message)),
    );
    assert.deepEqual(message.currentState, { risk: null });
    assert.deepEqual(message.conversationHistoryVerbatim, [{ role: "tool", content: "x" }]);
    assert.deepEqual(message.constraints, ["returnJSON:true", "maxResponseTokens:2000"]);
    assert.equal(message.relevantContext[0]?.relevanceScore, 1);
    assert.equal(message.taskDescription, "Score the clauses");
  });

  it("names targets by id, type and capability", async () => {
    const to = async (target: string) => (await buildHandoffMessage(state, target)).toAgent;
    assert.deepEqual(await to("legal"), { agentId: "legal" });
    assert.deepEqual(await to("type:scorer"), { agentType: "scorer", agentVersion: "*" });
    assert.deepEqual(await to("capability:score clauses: all"), { capability: "score clauses: all" });
    assert.deepEqual(await to("team:a"), { agentId: "team:a" });
    await assert.rejects(to(""), TypeError);
  });

  it("gives a repeated step the same ids, and another step another", async () => {
    const id = async (more: Partial<AgentState>): Promise<string> =>
      (await buildHandoffMessage({ ...state, ...more }, "legal")).handoffId;
    assert.equal(await id({}), await id({ state: { n: 2 }, traceparent: traceparent() }));
    const all = [
      await id({}),
      await id({ step: "b" }),
      await id({ run: "order-8" }),
      await id({ agentId: "x" }),
    ];
    assert.equal(new Set(all).size, all.length);
    const [one, two] = [await buildHandoffMessage(state, "legal"), await buildHandoffMessage(state, "legal")];
    assert.equal(one.taskId, two.taskId);
    assert.equal(one.fromAgent.executionId, two.fromAgent.executionId);
    assert.equal(one.schemaVersion, "2.2");
    assert.equal(validateHandoffMessage(one).valid, true);
    const random = { agentId: "intake", task: "Score" };
    assert.notEqual(
      (await buildHandoffMessage(random, "a")).handoffId,
      (await buildHandoffMessage(random, "a")).handoffId,
    );
  });

  it("derives ids as RFC 9562 says, the same as the other SDKs", async () => {
    // Appendix A.4: www.example.com in the namespace of DNS.
    const id = await nameId("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "www.example.com");
    assert.equal(id, "2ed6657d-e927-568b-95e1-2665a8aea6a2");
    assert.equal(await derivedId("task", "intake", "order-7"), "ef7c9b64-5094-5a18-bde3-b8198443ffe5");
    assert.equal(await derivedExecutionId("run", "intake", "x"), "39a6e2ae-d070-496c-8a54-19a818c59fe3");
  });

  it("counts amounts exactly, and takes a budget of its own where none is said", async () => {
    const cost = async (more: Partial<AgentState>) =>
      (await buildHandoffMessage({ ...state, ...more }, "legal")).costTracking;
    assert.deepEqual(await cost({ spentUSD: 0.1 + 0.2, promptTokens: 10 }), {
      costSpentSoFarUSD: 0.3,
      costBudgetRemainingUSD: 0.7,
      tokenSpent: { prompt: 10, completion: 0 },
    });
    assert.equal((await cost({ spentUSD: 3, budgetUSD: 0.25 })).costBudgetRemainingUSD, 0.25);
  });

  // Finding G4 of 0.3.0: an id by position let the fourth honest hop fail with LOOP_DETECTED.
  it("gives a completed subtask the id of its content at every hop", async () => {
    const ids = async (...completed: NonNullable<AgentState["completed"]>) => {
      const message = await buildHandoffMessage({ ...state, completed }, "legal");
      return message.completedSubtasks.map((one) => one.subtaskId);
    };
    const [read] = await ids("read");
    const [write] = await ids("write");
    assert.notEqual(read, write);
    assert.deepEqual(await ids("write", "read"), [write, read]);
    assert.notDeepEqual(await ids({ description: "read", result: { n: 2 } }), [read]);
    assert.deepEqual(await ids("read", "read"), [read, `${read}-2`]);
    // The same as the doors' and the Python SDK's.
    assert.equal(read, "done-4510fe93a2a93e68");
  });

  it("takes texts for turns, subtasks and excerpts, and hashes what a tool was given", async () => {
    const message = await buildHandoffMessage(
      {
        ...state,
        completed: ["Read the contract"],
        remaining: ["Score it", { subtaskId: "x", description: null }],
        history: [
          "Is 4.2 safe?",
          { role: "assistant", tool_calls: [{ id: "c1" }] },
          { tool_call_id: "c1", content: 7 },
        ],
        context: ["Clause 4.2"],
        toolCalls: [{ tool: "pdf", input: { b: 1, a: [] }, output: "twelve clauses" }],
      },
      "legal",
    );
    assert.equal(
      validateHandoffMessage(message).valid,
      true,
      JSON.stringify(validateHandoffMessage(message)),
    );
    assert.equal(message.taskDescription, "Score the clauses");
    assert.equal(message.completedSubtasks[0]?.subtaskId, "done-9e4e90b57f173107");
    assert.deepEqual(message.remainingSubtasks, [
      { subtaskId: "open-1", description: "Score it" },
      { subtaskId: "x", description: "x" },
    ]);
    assert.deepEqual(message.conversationHistoryVerbatim, [
      { role: "user", content: "Is 4.2 safe?" },
      { role: "assistant", content: { tool_calls: [{ id: "c1" }] } },
      { role: "tool", tool_call_id: "c1", content: "7" },
    ]);
    const digest = createHash("sha256").update('{"a":[],"b":1}').digest("hex");
    assert.equal(message.toolCallHistory[0]?.inputHash, `sha256:${digest}`);
    assert.equal(message.toolCallHistory[0]?.outputTokens, estimateTokens("twelve clauses"));
  });

  it("sends every turn, and what a limit pushes out stands in an extract", async () => {
    const facts = Array.from(
      { length: 803 },
      (_, n) => `Order ${n} costs ${n * 3} EUR, and must not be shipped.`,
    );
    const given = {
      ...state,
      history: facts,
      toolState: { cached_results: { a: 1 }, active_calls: [] },
      metadata: { mine: 1 },
    };
    const whole = await buildHandoffMessage(given, "legal");
    assert.equal(whole.conversationHistoryVerbatim.length, 803);
    assert.deepEqual([whole.metadata, whole.historyStrategy], [{ mine: 1 }, undefined]);
    assert.deepEqual(whole.toolState, given.toolState);
    const few = await buildHandoffMessage(given, "legal", { maxTurns: 50 });
    assert.equal(few.conversationHistoryVerbatim.length, 50);
    assert.deepEqual(few.metadata, { mine: 1, original_history_length: 803, trimmed: true });
    assert.deepEqual(few.toolState, { active_calls: [] });
    const [head, ...lines] = few.conversationHistorySummary.split("\n");
    assert.match(head ?? "", /^Extract of 753 earlier turns that do not fit: \d+ of 753 statements\.$/);
    assert.ok(lines.length > 200 && lines.every((line) => line.startsWith("user: Order ")), head);
    const small = await buildHandoffMessage(given, "legal", { maxBytes: 40_000 });
    assert.ok(Buffer.byteLength(JSON.stringify(small)) <= 40_000);
    assert.ok(small.conversationHistoryVerbatim.length > 50 && small.conversationHistorySummary.length > 500);
    await assert.rejects(buildHandoffMessage({ ...state, task: " \n" }, "legal"), /without a task/);
  });

  it("digests a step as the Python SDK does", async () => {
    const given = {
      agentId: "intake",
      task: "Check clause 4.2",
      step: "s",
      completed: ["Read it"],
      history: ["Hello"],
    };
    const message = await buildHandoffMessage({ ...given, state: { clause: "4.2" } }, "legal", {
      constraints: { tone: "formal" },
    });
    const digest = await stepDigest(message);
    assert.deepEqual(message.extensions, { handoffd: { stepDigest: digest } });
    assert.equal(digest, "sha256:307f9c751ead2d02299592e036f79a905fddc2c0b54b67dbe6d6338bde95c35a");
    const other = await buildHandoffMessage({ ...given, state: { clause: "4.3" } }, "legal");
    assert.notEqual(await stepDigest(other), digest);
    const unnamed = await buildHandoffMessage({ agentId: "intake", task: "x" }, "legal");
    assert.equal(unnamed.extensions, undefined);
  });

  it("takes options where constraints were, and names a mixture", async () => {
    const constraints = ["tone:formal"];
    const forms = [
      await buildHandoffMessage(state, "legal", { constraints }),
      await buildHandoffMessage(state, "legal", constraints),
      await buildHandoffMessage(state, "legal", constraints, { maxTurns: 3 }),
      await buildHandoffMessage(state, "legal", { tone: "formal" }, {}),
    ];
    for (const each of forms) assert.deepEqual(each.constraints, constraints);
    // An object alone is options: the compiler refuses a misspelt one.
    const mixed = { maxTurns: 3, tone: "formal" } as object;
    await assert.rejects(buildHandoffMessage(state, "legal", mixed), /tone is not an option/);
  });

  it("condenses older turns until the message fits 80 % of the window", async () => {
    const history = Array.from({ length: 40 }, (_, index) => ({
      role: "user",
      content: `${index} ${"word ".repeat(200)}`,
    }));
    const window = 2_500;
    const seen: number[] = [];
    const message = await buildHandoffMessage({ ...state, history }, "legal", {
      windowTokens: window,
      summarize: (older) => {
        seen.push(older.length);
        return `${older.length} turns were about words`;
      },
    });
    const { tokens, turns: verbatim, summary } = measureHandoffMessage(message);
    assert.ok(tokens <= 0.8 * window, `${tokens}`);
    assert.ok(message.conversationHistoryVerbatim.length >= 5);
    assert.equal(message.conversationHistoryVerbatim.at(-1)?.content, history.at(-1)?.content);
    assert.equal(message.conversationHistorySummary, `${seen.at(-1)} turns were about words`);
    assert.equal(message.historyStrategy, "summary");
    assert.ok(verbatim > summary && summary > 0);
    await assert.rejects(
      buildHandoffMessage({ ...state, history }, "legal", { windowTokens: 500 }),
      (error) => {
        assert.ok(error instanceof WindowExceededError);
        assert.equal(error.limit, 400);
        return error.measured.tokens > 400;
      },
    );
  });
});

describe("handOff", () => {
  let broker: Broker;
  let intake: Client;
  before(async () => {
    broker = await Broker.start();
    await broker.agent("legal");
    intake = await broker.agent("intake", { handoffTargets: ["legal"] });
  });
  after(() => broker.stop());

  it("sends a repeated step once, also from another process at another time", async () => {
    const first = await intake.handOff("legal", { task: "Score", run: "order-7", step: "score" });
    assert.equal(first.replayed, false);
    assert.deepEqual(first.status, "PENDING");
    const again = await intake.handOff("legal", { task: "Score", run: "order-7", step: "score" });
    assert.equal(again.replayed, true);
    assert.equal(again.handoffId, first.handoffId);
    assert.equal(again.executionId, first.executionId);
    assert.deepEqual(again.receipt?.recordHash, first.receipt?.recordHash);
    const listed = await broker.admin.handoffs.list({ taskId: first.taskId });
    assert.equal(listed.items.length, 1);
    const exact = await buildHandoffMessage({ agentId: "intake", task: "Score" }, "legal");
    assert.equal((await intake.handoffs.submit(exact)).replayed, false);
    assert.equal((await intake.handoffs.submit(exact)).replayed, true);
  });

  it("counts a step that is done again as sent, although its money is set aside", async () => {
    const given = { task: "Score", run: "order-8", step: "score" };
    const first = await intake.handOff("legal", { ...given, budgetUSD: 1 }, ["budgetUSD:1"]);
    const again = await intake.handOff("legal", { ...given, budgetUSD: 0 }, ["budgetUSD:1"]);
    assert.deepEqual([again.replayed, again.handoffId], [true, first.handoffId]);
  });

  it("does not take another task's handoff of the same id for its own", async () => {
    const message = await buildHandoffMessage({ ...state, run: "order-9" }, "legal");
    await intake.handoffs.submit(message);
    const other = { ...message, taskId: await derivedId("another") };
    await assert.rejects(intake.handoffs.submit(other), ConflictError);
  });

  it("names everything that the gate refuses, by a typed error", async () => {
    const broken = { ...(await buildHandoffMessage(state, "legal")), taskDescription: "", timestamp: "now" };
    await assert.rejects(intake.handoffs.submit(broken), (error) => {
      assert.ok(error instanceof SchemaInvalidError);
      assert.deepEqual(error.failures.map(({ pointer }) => pointer).sort(), [
        "/taskDescription",
        "/timestamp",
      ]);
      assert.match(error.message, /422 SCHEMA_INVALID.*taskDescription/s);
      return error.requestId !== "";
    });
    await assert.rejects(intake.handOff("nobody", "Anything"), { code: "FORBIDDEN", status: 403 });
  });

  it("signs for an agent that has to sign", async () => {
    const spec = { agentId: "signer", requireSignature: true, handoffTargets: ["legal"] };
    const { apiKey, signingSecret } = await broker.admin.agents.create(spec);
    const unsigned = broker.admin.as("signer", apiKey);
    await assert.rejects(unsigned.handOff("legal", "Sign"), {
      code: "SIGNATURE_INVALID",
      name: "SignatureInvalidError",
    });
    const signing = broker.admin.as("signer", apiKey, { signingSecret });
    const sent = await signing.handOff("legal", {
      task: "Sign §4.2 — 12.50 €",
      state: { ö: [1e21, 0.1, "\u2028"], due: new Date(0) },
    });
    assert.equal(sent.status, "PENDING");
  });
});
