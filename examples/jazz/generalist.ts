// A generalist: node build/generalist.js "TASK FOR THE TESTS", with HANDOFFD_URL and HANDOFFD_API_KEY. It speaks with the
// user, and hands off what it lacks the expertise for. Its model is scripted: it reads the guidance, and what the tool says.

import { Jazz, type ExecutionContext, type ToolArguments, type ToolResult } from "./pattern.js";

const jazz = new Jazz(process.env.HANDOFFD_URL ?? "", process.env.HANDOFFD_API_KEY ?? "");
const testTask = process.argv[2] ?? "Run the tests";
const conversationId = process.argv[3] ?? "conv-123";
const tell = (what: object): void => console.log(JSON.stringify(what));

const guidance = await jazz.guidance("general");
const tool = (await jazz.tools()).find((one) => one.name === "handoff_to_specialist");
if (!tool || !guidance.includes(tool.name)) throw new Error("this agent may hand off to nobody");
tell({ specialists: guidance.split("\n").filter((line) => /^- .*\((testing|deployment)\)/.test(line)).length });

const userInput = "I need to deploy the app but make sure all tests pass first";
const history: { role: "user" | "assistant"; content: string }[] = [{ role: "user", content: userInput }];

/** One call of the tool. Its id is the conversation's and the step's: a generalist that begins anew finds its handoffs. */
async function call(step: string, args: ToolArguments): Promise<ToolResult> {
  const context: ExecutionContext = {
    agentId: "general",
    conversationId,
    userInput,
    conversationHistory: [...history],
    userId: "user-1",
    requestId: `${conversationId}/${step}`,
  };
  const result = await jazz.handoffToSpecialist(args, context);
  tell({ step, ...result });
  history.push({ role: "assistant", content: result.success ? result.result.handoff_summary : result.error });
  return result;
}

const reason = "It needs an expertise that I do not have";
const tests = await call("tests", {
  specialist_type: "testing",
  task: testTask,
  reason,
  context: { branch: "main" },
  required_capabilities: ["run-tests"],
});
if (tests.success) {
  await call("deployment", {
    specialist_type: "deployment",
    task: "Deploy main to production",
    reason,
    context: { tests: tests.result.specialist_response },
  });
}
// Nobody is there for this: the answer says what to do instead.
const audit = await call("audit", { specialist_type: "security", task: "Audit the login", reason });
tell({ answer: tests.success && !audit.success ? "Successfully deployed; nobody audits here." : "Not deployed." });
