// A specialist: node build/specialist.js test|deploy, with HANDOFFD_URL and HANDOFFD_API_KEY. Its model is scripted.

import { type AgentResponse, Jazz, serve, type SpecialistRun } from "./pattern.js";

const kind = process.argv[2] ?? "";
const jazz = new Jazz(process.env.HANDOFFD_URL ?? "", process.env.HANDOFFD_API_KEY ?? "");

/** The lines of a section of the specialist's input. */
function section(input: string, title: string): string {
  const from = input.indexOf(`## ${title}\n`);
  const body = from < 0 ? "" : input.slice(from).split("\n\n")[0];
  const lines = body?.split("\n").filter((line) => line.startsWith("| ")) ?? [];
  return lines.map((line) => line.slice(2)).join("\n");
}

/** Runs the tests; a slow suite takes its time. */
async function test(run: SpecialistRun): Promise<AgentResponse> {
  const task = section(run.userInput, "Your Specific Task");
  if (task.includes("slow")) await new Promise((resolve) => setTimeout(resolve, 3_000));
  if (task.includes("broken")) throw new Error("the suite does not compile");
  const branch = /"branch": "([^"]+)"/.exec(section(run.userInput, "Work Completed So Far"))?.[1];
  return { response: `All tests passed on ${branch ?? "no branch"}`, iterations: 3, toolCalls: 5 };
}

/** Deploys; asks the test specialist to look at the result where it may, as a handoff of its own. */
async function deploy(run: SpecialistRun): Promise<AgentResponse> {
  const task = section(run.userInput, "Your Specific Task");
  const available = await jazz.listAvailableAgents();
  const tester = available.find((agent) => agent.specialization === "testing");
  if (!tester) return { response: `Deployed: ${task}`, iterations: 2, toolCalls: 1 };
  const checked = await jazz.executeHandoff({
    id: `${run.handoffId}-smoke`,
    fromAgentId: run.agent.id,
    toAgentId: tester.agentId,
    reason: "What was deployed has to be seen at work",
    task: "Run the smoke tests",
    context: {
      originalRequest: section(run.userInput, "Original User Request"),
      conversationHistory: [],
      completedWork: { branch: "production" },
      requiredCapabilities: ["run-tests"],
    },
    // The same moment when it is asked again: the request has to be the same.
    timestamp: new Date(0),
    conversationId: run.conversationId,
  });
  if (!checked.success) throw new Error(`smoke tests: ${checked.error}`);
  return { response: `Deployed: ${task}; ${String(checked.result)}`, iterations: 2, toolCalls: 2 };
}

console.log(JSON.stringify({ specialist: kind }));
await serve(jazz, kind, kind === "test" ? test : deploy);
