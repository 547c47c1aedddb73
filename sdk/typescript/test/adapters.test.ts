// The adapters without their frameworks: adapters-test has the tests with them.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { modelHandler } from "../src/adapters/ai-sdk.js";
import { durableRuns } from "../src/adapters/mastra.js";
import { Client, Completed, Job } from "../src/index.js";

describe("durableRuns", () => {
  it("names what a storage without suspended runs lacks", () => {
    const client = new Client({ agentId: "intake" });
    const agent = { generate: async () => ({}), resumeGenerate: async () => ({}) };
    assert.throws(() => durableRuns(client, agent, undefined, {}), /TypeError: .*`workflows`/);
  });
});

describe("modelHandler", () => {
  it("counts no tokens where the provider does not, and keeps the answer", async () => {
    const message = {
      costTracking: {
        costSpentSoFarUSD: 0,
        costBudgetRemainingUSD: 1,
        tokenSpent: { prompt: 0, completion: 0 },
      },
    };
    const parts = {
      handoffId: "h",
      taskId: "t",
      attempt: 1,
      fencingToken: 1,
      traceparent: "",
      resumed: false,
    };
    const job = new Job(new Client(), "run", { ...parts, message } as never);
    job.promptMessages = async () => [];
    const totalUsage = { inputTokens: Number.NaN, outputTokens: undefined };
    const generated = { text: "fine", finishReason: "stop", steps: [1], totalUsage };
    const done = await modelHandler(async () => generated as never)(job);
    assert.ok(done instanceof Completed);
    assert.deepEqual(job.cost.costTracking, {
      costSpentSoFarUSD: 0,
      tokenSpent: { prompt: 0, completion: 0 },
    });
  });
});
