// A client as the official JavaScript SDK (npm `@a2a-js/sdk`) has it: a message to an agent behind the broker, and its result.
//
// Usage: node strangers_a2a_client.mjs URL ADMIN_KEY     (STRANGERS_NPM names the folder with the SDK)
// Both bindings are taken, waiting and as a stream. The agent is a plain receiver of the broker that looks into its inbox.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, adminKey] = process.argv.slice(2);
const from = createRequire(`${process.env.STRANGERS_NPM}/package.json`);
const load = async (name) => {
  const module = await import(pathToFileURL(from.resolve(name)).href);
  return module.default ?? module;
};
const { Role, TaskState } = await load("@a2a-js/sdk");
const { ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } = await load("@a2a-js/sdk/client");

async function call(key, method, path, body) {
  const answer = await fetch(url + path, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

const register = async (agentId, more = {}) => (await call(adminKey, "POST", "/agents", { agentId, ...more })).apiKey;

// Takes one handoff and completes it.
async function work(agent, key) {
  const [item] = (await call(key, "GET", `/agents/${agent}/inbox?wait=20`)).items;
  const path = `/handoffs/${item.message.handoffId}`;
  const token = { fencingToken: item.fencingToken };
  await call(key, "POST", `${path}/accept`, token);
  const sum = item.message.currentState.invoices.reduce((a, b) => a + b, 0);
  await call(key, "POST", `${path}/complete`, { ...token, result: { sum } });
}

const part = (content) => ({ content, metadata: undefined, filename: "", mediaType: "" });

let number = 0;
for (const binding of ["JSONRPC", "HTTP+JSON"]) {
  for (const streaming of [false, true]) {
    number += 1;
    const name = `js-clerk-${number}`;
    const receiver = await register(name, { card: {}, description: "Adds up invoices", capabilities: ["sums"] });
    const sender = await register(`js-client-${number}`, { handoffTargets: [name] });
    const withKey = (input, init = {}) => {
      const headers = new Headers(init.headers);
      headers.set("authorization", `Bearer ${sender}`);
      return fetch(input, { ...init, headers });
    };
    const factory = new ClientFactory(
      ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
        transports: [new JsonRpcTransportFactory({ fetchImpl: withKey }), new RestTransportFactory({ fetchImpl: withKey })],
        cardResolver: new DefaultAgentCardResolver({ fetchImpl: withKey }),
        preferredTransports: [binding],
      }),
    );
    const client = await factory.createFromUrl(`${url}/a2a/${name}/`);
    const working = work(name, receiver);
    const request = {
      tenant: "",
      message: {
        messageId: `js-${number}`,
        contextId: "",
        taskId: "",
        role: Role.ROLE_USER,
        parts: [part({ $case: "text", value: "Add up the invoices" }), part({ $case: "data", value: { invoices: [3, 4] } })],
        metadata: undefined,
        extensions: [],
        referenceTaskIds: [],
      },
      configuration: undefined,
      metadata: undefined,
    };
    let id;
    if (streaming) {
      for await (const event of client.sendMessageStream(request)) {
        const { $case, value } = event.payload;
        id ??= $case === "task" ? value.id : undefined;
      }
    } else {
      id = (await client.sendMessage(request)).id;
    }
    await working;
    const task = await client.getTask({ tenant: "", id, historyLength: undefined });
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.deepEqual(task.artifacts[0].parts[0].content.value, { sum: 7 });
    console.log(`@a2a-js/sdk: ${binding}, ${streaming ? "stream" : "wait"}: ${task.id} completed`);
  }
}
