// A run of a Mastra agent in a process of its own: `node mastra-run.js RUN [CRASH]`. Each process has an empty store.

import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { InMemoryStore } from "@mastra/core/storage";
import { createTool } from "@mastra/core/tools";
import { Client, derivedId } from "handoffd";
import { durableRuns, transferTool } from "handoffd/mastra";
import { calls, results, says, scriptedForMastra } from "./scripted.js";

const [run = "", crash = ""] = process.argv.slice(2);
const die = (): void => void process.kill(process.pid, "SIGKILL");
const client = new Client();
const routes = { transfer_to_legal: { target: "legal", description: "Knows contracts." } };
const model = scriptedForMastra((prompt) => {
  const known = results(prompt);
  console.log(`model sees ${known.length} results`);
  if (known.length > 0 && crash === "resumed") die();
  const ask = (id: string) => ({
    id,
    name: "transfer_to_legal",
    input: { task: `Check clause ${id}`, reason: "clauses" },
  });
  return known.length === 0 ? calls(ask("4.2"), ask("7.1")) : says(`Legal says: ${JSON.stringify(known)}`);
});
const storage = new InMemoryStore();
const tools = { transfer_to_legal: createTool(transferTool("transfer_to_legal", routes.transfer_to_legal)) };
const intake = new Agent({ id: "intake", name: "intake", instructions: "Route.", model, tools });
const agent = new Mastra({ agents: { intake }, storage, logger: false }).getAgent("intake");
const store = await storage.getStore("workflows");
if (!store) throw new Error("the storage keeps no runs");

const generate = durableRuns(client, agent, store, routes);
if (crash === "called") {
  const plain = agent.generate.bind(agent);
  // biome-ignore lint/suspicious/noExplicitAny: a crash between the suspension and the handoff
  agent.generate = (async (...given: [any, any]) => {
    await plain(...given);
    die();
  }) as never;
}
if (crash === "suspended") {
  const taskId = await derivedId("task", "intake", run);
  setInterval(async () => (await client.handoffs.list({ taskId })).items.length > 0 && die(), 1);
}
const result = await generate(run, "May we sign?");
console.log(`final: ${result.text}`);
process.exit(0);
