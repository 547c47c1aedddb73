// An agent that hands a task to `hello-receiver`, in another process, and prints the result.
// Node alone; the SDK (docs/sdk/typescript.md) does the same in five lines.
import { randomBytes, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";

const broker = process.env.HANDOFFD_URL ?? "http://127.0.0.1:8080";

// The agent's key, from the file that `handoffd apply --secrets-out` wrote.
const keys = readFileSync(new URL("hello-keys.jsonl", import.meta.url), "utf8");
const own = keys.trim().split("\n").map((line) => JSON.parse(line)).find((line) => line.name === "hello-sender");

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${own.apiKey}`, "Content-Type": "application/json" };
  const answer = await fetch(broker + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

const handoffId = randomUUID();
const now = new Date().toISOString();
await call("POST", "/handoffs", {
  schemaVersion: "2.1",
  handoffId,
  taskId: randomUUID(),
  parentHandoffId: null,
  fromAgent: { agentId: "hello-sender", agentVersion: "1.0.0", executionId: randomUUID() },
  toAgent: { agentId: "hello-receiver" },
  timestamp: now,
  taskDescription: "Greet the world",
  taskSummary: "A greeting by name",
  completedSubtasks: [{ subtaskId: "s0", description: "Hear the name", result: { name: "world" }, completedAt: now }],
  remainingSubtasks: [{ subtaskId: "s1", description: "Say hello" }],
  // The contract asks for these; see handoffd/contracts.
  currentState: { name: "world", provenance: { trajectory: "hello_sender.mjs" } },
  relevantContext: [],
  constraints: ["language:en"],
  costTracking: { costSpentSoFarUSD: 0, costBudgetRemainingUSD: 0.1, tokenSpent: { prompt: 0, completion: 0 } },
  conversationHistorySummary: "The world asked to be greeted.",
  conversationHistoryVerbatim: [],
  toolCallHistory: [],
  traceparent: `00-${randomBytes(16).toString("hex")}-${randomBytes(8).toString("hex")}-01`,
  checkpoint: { step: "asked" },
});

const ended = ["COMPLETED", "FAILED", "REJECTED", "EXPIRED", "DEAD_LETTERED", "CANCELED"];
let done = {};
while (!ended.includes(done.status)) {
  done = await call("GET", `/handoffs/${handoffId}?wait=60&until=ended&include=verdict`);
}
console.log(`hello-sender: ${done.status}: ${JSON.stringify(done.result)}`);
