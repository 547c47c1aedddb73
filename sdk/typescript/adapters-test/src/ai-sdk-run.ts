// A run of the AI SDK in a process of its own: `node ai-sdk-run.js RUN [CRASH]`. It hands off two questions at once, and ends by
// itself at the named point; started again, it goes on.

import { generateText, type ModelMessage } from "ai";
import { Client, derivedId } from "handoffd";
import { durableHandoffs } from "handoffd/ai-sdk";
import { calls, results, says, scripted } from "./scripted.js";

const [run = "", crash = ""] = process.argv.slice(2);
const client = new Client();
const { tools, suspend, resume } = durableHandoffs(client, {
  transfer_to_legal: { target: "legal", description: "Knows contracts." },
});
const model = scripted((prompt) => {
  const known = results(prompt);
  console.log(`model sees ${known.length} results`);
  const ask = (id: string) => ({
    id,
    name: "transfer_to_legal",
    input: { task: `Check clause ${id}`, reason: "clauses" },
  });
  return known.length === 0 ? calls(ask("4.2"), ask("7.1")) : says(`Legal says: ${JSON.stringify(known)}`);
});

/** Dies as soon as the broker has a handoff of the run: often between the first and the second. */
async function dieWhenSent(): Promise<void> {
  const taskId = await derivedId("task", "intake", run);
  while ((await client.handoffs.list({ taskId })).items.length === 0);
  process.kill(process.pid, "SIGKILL");
}

let messages: ModelMessage[] = (await resume(run)) ?? [{ role: "user", content: "May we sign?" }];
if (crash === "resumed") process.kill(process.pid, "SIGKILL");
for (;;) {
  const result = await generateText({ model, tools, messages });
  messages.push(...result.response.messages);
  if (crash === "called") process.kill(process.pid, "SIGKILL");
  if (crash === "sending") void dieWhenSent();
  const open = await suspend(run, messages);
  if (open && crash === "suspended") process.kill(process.pid, "SIGKILL");
  if (!open) {
    console.log(`final: ${result.text}`);
    break;
  }
  messages = (await resume(run)) ?? messages;
}
