// AI SDK: puts a judgement into words. Its window is small, so what reaches it was compressed.
import { generateText } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { Client, Worker } from "handoffd";
import { modelHandler } from "handoffd/ai-sdk";

const usage = {
  inputTokens: { total: 900, noCache: 900, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 30, text: 30, reasoning: undefined },
};
// What a model would do here.
const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt }) => {
    if (!JSON.stringify(prompt).includes("9.3 has no cap")) throw new Error("the task is in the prompt");
    const text = "Clause 4.2 is fair. Clause 9.3 leaves the liability for data without a cap.";
    return { content: [{ type: "text", text }], finishReason: { unified: "stop", raw: undefined }, usage, warnings: [] };
  },
});
const handler = modelHandler((turn) => generateText({ model, ...turn }), { price: () => 0.002 });
const worker = new Worker(new Client(), handler, { pollSeconds: 2 });
process.on("SIGTERM", () => worker.stop());
await worker.run();
