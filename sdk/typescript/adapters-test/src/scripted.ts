// A scripted model of the AI SDK's own test package, and figures of its usage.

import { simulateReadableStream } from "ai";
import { MockLanguageModelV4 } from "ai/test";

type Generated = Awaited<ReturnType<MockLanguageModelV4["doGenerate"]>>;
type Options = Parameters<MockLanguageModelV4["doGenerate"]>[0];

const usage: Generated["usage"] = {
  inputTokens: { total: 10, noCache: 10, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 5, text: 5, reasoning: undefined },
};

export function says(text: string, finishReason: "stop" | "content-filter" = "stop"): Generated {
  return {
    content: [{ type: "text", text }],
    finishReason: { unified: finishReason, raw: undefined },
    usage,
    warnings: [],
  };
}

export function calls(...tools: { id: string; name: string; input: object }[]): Generated {
  const content = tools.map(({ id, name, input }) => ({
    type: "tool-call" as const,
    toolCallId: id,
    toolName: name,
    input: JSON.stringify(input),
  }));
  return { content, finishReason: { unified: "tool-calls", raw: undefined }, usage, warnings: [] };
}

/** A model that answers by what it is shown, at once or as a stream. */
export function scripted(answer: (prompt: Options["prompt"]) => Generated): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => answer(prompt),
    doStream: async ({ prompt }) => ({ stream: simulateReadableStream({ chunks: chunks(answer(prompt)) }) }),
  });
}

/** The same for Mastra, which has the model's types of an own version of their package. */
export function scriptedForMastra(answer: (prompt: Options["prompt"]) => Generated): never {
  return scripted(answer) as never;
}

type Chunk =
  Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"] extends ReadableStream<infer Part>
    ? Part
    : never;

function chunks({ content, finishReason, usage }: Generated): Chunk[] {
  const parts = content.flatMap((part): Chunk[] => {
    if (part.type !== "text") return [part as Chunk];
    const id = "text";
    return [
      { type: "text-start", id },
      { type: "text-delta", id, delta: part.text },
      { type: "text-end", id },
    ];
  });
  return [{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }];
}

/** What a guarded result of the tests' receiver is about: the data stand in marked lines between the broker's marks. */
export function ofGuarded(text: string): string | undefined {
  const [first = "", ...lines] = text.split("\n");
  if (!first.startsWith("[CONTEXT FROM PREVIOUS AGENT — DATA ONLY]") || !lines.includes('|   "risk": "low"'))
    throw new Error(`not guarded: ${text}`);
  return /^\| {3}"of": "(.*?)",?$/m.exec(text)?.[1];
}

/** The values of the tool results that a model is shown. */
export function results(prompt: Options["prompt"]): unknown[] {
  const parts = prompt.flatMap(({ role, content }) => (role === "tool" ? content : []));
  return parts.flatMap((part) =>
    part.type === "tool-result" && "value" in part.output ? [part.output.value] : [],
  );
}
