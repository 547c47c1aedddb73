// An agent as the official JavaScript SDK (npm `@a2a-js/sdk`) has it, which knows nothing of the broker.
//
// Usage: node strangers_a2a_agent.mjs PORT FILE GATE BINDING
// Tasks are kept in the JSON file FILE, so the agent can be killed and started again. A task that says `"do": "slow"` is worked on
// until the file GATE is there; one that was cut off by a kill is gone on with at the next start.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [port, file, gate, binding] = process.argv.slice(2);
const from = createRequire(`${process.env.STRANGERS_NPM}/package.json`);
const load = (name) => import(pathToFileURL(from.resolve(name)).href);
const plain = (module) => module.default ?? module;
const { TaskState } = plain(await load("@a2a-js/sdk"));
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = plain(await load("@a2a-js/sdk/server"));
const { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } = plain(await load("@a2a-js/sdk/server/express"));
const express = plain(await load("express"));

const url = `http://127.0.0.1:${port}`;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const opened = async () => {
  while (!existsSync(gate)) await sleep(50);
};
const data = (value) => ({ content: { $case: "data", value }, metadata: undefined, filename: "", mediaType: "" });
const text = (value) => ({ content: { $case: "text", value }, metadata: undefined, filename: "", mediaType: "" });
const handed = (message) => message.parts.find((part) => part.content?.$case === "data")?.content.value ?? {};
const sumOf = (state) => ({ artifactId: "sum", name: "sum", description: "", parts: [data({ sum: state.invoices.reduce((a, b) => a + b, 0) })], metadata: undefined, extensions: [] });

// The SDK's store, with a copy in a file.
class FileTaskStore extends InMemoryTaskStore {
  all = new Map();

  async save(task, context) {
    await super.save(task, context);
    this.all.set(task.id, { task: structuredClone(task), tenant: context.tenant, user: context.user?.userName });
    writeFileSync(`${file}.new`, JSON.stringify([...this.all.values()]));
    renameSync(`${file}.new`, file);
  }
}

class Clerk {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const status = (state, parts) => ({
      state,
      message: parts && { messageId: crypto.randomUUID(), contextId, taskId, role: 2, parts, metadata: undefined, extensions: [], referenceTaskIds: [] },
      timestamp: new Date().toISOString(),
    });
    const update = (state, parts) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state, parts), metadata: undefined }));
    const artifact = (one) => bus.publish(AgentEvent.artifactUpdate({ taskId, contextId, artifact: one, append: false, lastChunk: true, metadata: undefined }));
    bus.publish(AgentEvent.task(task ?? { id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [], history: [userMessage], metadata: undefined }));
    const state = handed(userMessage).currentState ?? {};
    update(TaskState.TASK_STATE_WORKING);
    switch (state.do ?? "answered") {
      case "refuse":
        update(TaskState.TASK_STATE_REJECTED, [text("NOT_MY_TRADE")]);
        break;
      case "fail":
        update(TaskState.TASK_STATE_FAILED, [text("no paper left")]);
        break;
      case "ask":
        update(TaskState.TASK_STATE_INPUT_REQUIRED, [text("Which currency?")]);
        break;
      case "answered": {
        const said = userMessage.parts.find((part) => part.content?.$case === "text").content.value;
        artifact({ artifactId: "currency", name: "", description: "", parts: [data({ currency: said })], metadata: undefined, extensions: [] });
        update(TaskState.TASK_STATE_COMPLETED);
        break;
      }
      default:
        if (state.do === "slow") await opened();
        artifact(sumOf(state));
        update(TaskState.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId: "", status: { state: TaskState.TASK_STATE_CANCELED, message: undefined, timestamp: new Date().toISOString() }, metadata: undefined }));
    bus.finished();
  }
}

const card = {
  name: "Clerk",
  description: "Adds up invoices",
  version: "1.0.0",
  supportedInterfaces: [{ url: `${url}/${binding === "JSONRPC" ? "rpc" : "rest"}`, protocolBinding: binding, protocolVersion: "1.0", tenant: "" }],
  capabilities: { streaming: true, pushNotifications: false, extensions: [], extendedAgentCard: false },
  securitySchemes: {},
  securityRequirements: [],
  defaultInputModes: ["text/plain", "application/json"],
  defaultOutputModes: ["application/json"],
  skills: [{ id: "sums", name: "sums", description: "Adds up invoices", tags: ["sums"], examples: [], inputModes: [], outputModes: [], securityRequirements: [] }],
  signatures: [],
};

const store = new FileTaskStore();
// Finishes what a kill cut off.
if (existsSync(file)) {
  for (const { task, tenant, user } of JSON.parse(readFileSync(file))) {
    const context = { tenant, user: { isAuthenticated: false, userName: user ?? "" } };
    await store.save(task, context);
    if (task.status.state !== TaskState.TASK_STATE_WORKING) continue;
    const state = handed(task.history[0]).currentState ?? {};
    (async () => {
      if (state.do === "slow") await opened();
      if (state.invoices) task.artifacts = [sumOf(state)];
      task.status = { state: TaskState.TASK_STATE_COMPLETED, message: undefined, timestamp: new Date().toISOString() };
      await store.save(task, context);
    })();
  }
}
const requestHandler = new DefaultRequestHandler(card, store, new Clerk());
const app = express();
app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
app.use("/rpc", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.use("/rest", restHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
app.listen(Number(port), "127.0.0.1");
