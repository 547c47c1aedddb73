// An agent that greets: it waits for handoffs, and answers each with a greeting. With --once it ends after the first.
// Node alone; the SDK (docs/sdk/typescript.md) does the same in ten lines, with leases, retries and questions.
import { readFileSync } from "node:fs";

const broker = process.env.HANDOFFD_URL ?? "http://127.0.0.1:8080";

// The agent's key, from the file that `handoffd apply --secrets-out` wrote.
const keys = readFileSync(new URL("hello-keys.jsonl", import.meta.url), "utf8");
const own = keys.trim().split("\n").map((line) => JSON.parse(line)).find((line) => line.name === "hello-receiver");

async function call(method, path, body) {
  const headers = { Authorization: `Bearer ${own.apiKey}`, "Content-Type": "application/json" };
  const answer = await fetch(broker + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

for (let more = true; more; ) {
  const { items } = await call("GET", "/agents/hello-receiver/inbox?wait=30");
  for (const { handoffId, fencingToken, message } of items) {
    await call("POST", `/handoffs/${handoffId}/accept`, { fencingToken });
    const greeting = `Hello, ${message.currentState.name}!`;
    console.log(`hello-receiver: ${greeting}`);
    await call("POST", `/handoffs/${handoffId}/complete`, { fencingToken, result: { greeting } });
    more = !process.argv.includes("--once");
  }
}
