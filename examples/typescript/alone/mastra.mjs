import { openai } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";

const model = openai("gpt-5");
const clerk = { id: "intake", name: "intake", instructions: "Route to legal.", model };
const lawyer = { id: "legal", name: "legal", description: "Knows contracts.", instructions: "Review clauses.", model };
const intake = new Agent({ ...clerk, agents: { legal: new Agent(lawyer) } });
console.log((await intake.generate("Is clause 4.2 safe?")).text);
