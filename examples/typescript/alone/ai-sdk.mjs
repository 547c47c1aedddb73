import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

const model = openai("gpt-5");
const legal = tool({
  description: "Knows contracts.",
  inputSchema: z.object({ task: z.string() }),
  execute: async ({ task }) => (await generateText({ model, system: "Review clauses.", prompt: task })).text,
});
const tools = { legal };
const done = await generateText({ model, tools, stopWhen: isStepCount(3), prompt: "Is clause 4.2 safe?" });
console.log(done.text);
