/**
 * The AI SDK (`ai` 7): a remote agent as a tool that waits; a run that is suspended at a handoff and resumed in another
 * process from the broker's checkpoint; a worker that runs a model on handoffs.
 *
 * Nothing of the framework is imported: its types are met by structure.
 *
 * @packageDocumentation
 */

import type { Client, Given } from "../client.js";
import { requiredAgent } from "../client.js";
import { folded, plain, runKey, unfolded } from "../guarded.js";
import { derivedExecutionId, derivedId } from "../ids.js";
import type { WaitOptions } from "../services.js";
import { Completed, Fail, type Job, type JobHandler, Reject } from "../worker.js";
import {
  frameworkCode,
  outcomeText,
  type Route,
  TRANSFER_SCHEMA,
  type TransferInput,
  type TransferSchema,
  toJson,
} from "./transfer.js";

export type { Issue, Route, StandardJsonSchema, TransferInput, TransferSchema } from "./transfer.js";

/** A message of the AI SDK (`ModelMessage`), as far as the adapter reads it. */
export interface AnyMessage {
  readonly role: string;
  readonly content: unknown;
}

interface Part {
  readonly type: string;
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly input?: unknown;
}

/** A tool of the AI SDK. Without `execute` the run stops at its call. */
export interface TransferTool {
  readonly description: string;
  readonly inputSchema: TransferSchema;
}

/** A tool whose call hands off and waits for the result. */
export interface RemoteAgentTool extends TransferTool {
  /** Called by the framework with the model's arguments; what it returns is what the model reads. */
  readonly execute: (
    input: TransferInput,
    options: {
      readonly toolCallId: string;
      readonly messages: readonly AnyMessage[];
      readonly abortSignal?: AbortSignal | undefined;
    },
  ) => Promise<string>;
}

/**
 * A remote agent as a tool: the call hands off, waits for the end, and the model reads the result
 * as the broker's guarded turn. The conversation goes along.
 *
 * @param run The application's name of the run: the same call of the same run is the same handoff.
 */
export function remoteAgent(
  client: Client,
  route: Route,
  run: string,
  options: Pick<WaitOptions, "withinMs"> = {},
): RemoteAgentTool {
  return {
    description: route.description,
    inputSchema: TRANSFER_SCHEMA,
    execute: async (input, { toolCallId, messages, abortSignal }) => {
      const given = { ...(await givenOf(client, route, input, messages)), run, step: toolCallId };
      const signal = { signal: abortSignal };
      const sent = await client.handOff(route.target, given, { constraints: route.constraints, ...signal });
      const ended = await client.handoffs.waitEnded(sent.handoffId, { ...options, ...signal });
      return outcomeText(ended, client, signal);
    },
  };
}

async function givenOf(
  client: Client,
  route: Route,
  input: TransferInput,
  messages: readonly AnyMessage[],
): Promise<Given> {
  const history = (await plain(toJson(messages), client)).map(turnOf);
  return {
    task: input.task,
    reason: input.reason,
    history,
    completed: [
      {
        subtaskId: "conversation",
        description: "The conversation so far",
        result: { turns: history.length },
      },
    ],
    ...route.given?.(input),
  };
}

/** A turn with its role, tool calls and approvals; the bytes of files and images stay with the sender. */
function turnOf({ role, content }: AnyMessage): { role: string; content: unknown } {
  if (!Array.isArray(content)) return { role, content };
  const parts = (content as Record<string, unknown>[]).map((part) => {
    const data = part.data ?? part.image;
    if (typeof data !== "string" || /^https?:/.test(data)) return part;
    const { data: _, image: __, ...rest } = part;
    return { ...rest, omitted: `${data.length} characters of base64` };
  });
  return { role, content: parts };
}

/** One handoff of a suspended run. */
interface PendingCall {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly input: TransferInput;
}

/** A run's state at the broker, in the checkpoint of its handoffs. */
interface SavedRun {
  readonly [name: string]: unknown;
  readonly framework: "ai-sdk";
  /** Names the placeholders of guarded turns in `messages`. */
  readonly key: string;
  readonly messages: AnyMessage[];
  readonly pending: PendingCall[];
}

/** Hand-offs of runs that outlive their process. */
export interface DurableHandoffs {
  /** For `generateText({tools})`: a call of one stops the run. */
  readonly tools: Readonly<Record<string, TransferTool>>;
  /**
   * Hands off for each open call of a tool of {@link tools} in the last message; the messages are the checkpoint. Returns whether there was
   * one. The same run suspended again at the same calls sends nothing.
   */
  suspend(run: string, messages: readonly AnyMessage[]): Promise<boolean>;
  /**
   * The messages with which a run goes on, in this or another process: those of the last checkpoint, and the outcome of each
   * handoff. `undefined` for a run that was never suspended. Waits for the handoffs that are open.
   *
   * @throws WaitTimeoutError after `withinMs`.
   */
  // biome-ignore lint/suspicious/noExplicitAny: the caller's framework has the type of messages
  resume(run: string, options?: WaitOptions): Promise<any[] | undefined>;
}

/**
 * Suspend and resume for the AI SDK: the run's messages are the broker's checkpoint, so that a crash in between loses nothing.
 *
 * @param routes Receivers by the name of the tool that hands off to them.
 */
export function durableHandoffs(client: Client, routes: Readonly<Record<string, Route>>): DurableHandoffs {
  const agentId = requiredAgent(client);
  const tools = Object.fromEntries(
    Object.entries(routes).map(([name, { description }]) => [
      name,
      { description, inputSchema: TRANSFER_SCHEMA },
    ]),
  );

  async function send(run: string, saved: SavedRun, call: PendingCall): Promise<string> {
    const route = routes[call.toolName];
    if (!route) throw new TypeError(`no route has the tool ${call.toolName}`);
    const given = {
      ...(await givenOf(client, route, call.input, await unfolded(saved.messages, saved.key, client))),
      checkpoint: saved,
      run,
      step: call.toolCallId,
    };
    return (await client.handOff(route.target, given, { constraints: route.constraints })).handoffId;
  }

  return {
    tools,
    async suspend(run, messages) {
      const key = runKey();
      const kept = folded(toJson(messages) as AnyMessage[], key);
      const pending = openCalls(kept, routes);
      const saved: SavedRun = { framework: "ai-sdk", key, messages: kept, pending };
      for (const call of pending) await send(run, saved, call);
      return pending.length > 0;
    },
    async resume(run, options = {}) {
      const taskId = await derivedId("task", agentId, run);
      const saved = (await client.restore(taskId, await derivedExecutionId("run", agentId, taskId, run))) as
        | SavedRun
        | undefined;
      if (!saved) return undefined;
      // A crash between two handoffs of one step leaves some unsent: sending again is without effect for the others.
      const ids = await Promise.all(saved.pending.map((call) => send(run, saved, call)));
      const ended = await Promise.all(ids.map((id) => client.handoffs.waitEnded(id, options)));
      const texts = await Promise.all(ended.map((handoff) => outcomeText(handoff, client, options)));
      const content = saved.pending.map(({ toolCallId, toolName }, index) => {
        const type = ended[index]?.status === "COMPLETED" ? "text" : "error-text";
        return { type: "tool-result", toolCallId, toolName, output: { type, value: texts[index] } };
      });
      return [...(await unfolded(saved.messages, saved.key, client)), { role: "tool", content }];
    },
  };
}

/** Calls of our tools that have no result yet. */
function openCalls(messages: readonly AnyMessage[], routes: Readonly<Record<string, Route>>): PendingCall[] {
  const parts = messages.flatMap(({ content }) => (Array.isArray(content) ? (content as Part[]) : []));
  const answered = new Set(
    parts.filter(({ type }) => type === "tool-result").map(({ toolCallId }) => toolCallId),
  );
  return parts
    .filter(
      ({ type, toolCallId, toolName }) =>
        type === "tool-call" && !answered.has(toolCallId) && toolName && Object.hasOwn(routes, toolName),
    )
    .map(({ toolCallId = "", toolName = "", input }) => ({
      toolCallId,
      toolName,
      input: input as TransferInput,
    }));
}

/** The arguments of a worker's model call: the guarded context as messages, and the signal that aborts with the lease. */
export interface WorkerTurn {
  readonly messages: { role: "user"; content: string }[];
  readonly abortSignal: AbortSignal;
}

/** The answer of `generateText` and of agents of the AI SDK, as far as the adapter reads it. */
export interface Generated {
  readonly text: string;
  readonly output?: unknown;
  readonly finishReason: string;
  readonly steps: readonly unknown[];
  readonly totalUsage: {
    readonly inputTokens?: number | undefined;
    readonly outputTokens?: number | undefined;
  };
}

/** The figures of a model's run in a handoff's verdict. */
export interface ModelHandlerOptions {
  /** US dollars of a call by its tokens. Without it tokens alone are told. */
  readonly price?: (tokens: { readonly prompt: number; readonly completion: number }) => number;
  /** The result of the handoff; `{text}` unless said. */
  readonly result?: (generated: Generated) => unknown;
  /** A code for an error: the handoff is rejected with it, or fails after its acceptance. */
  readonly code?: (error: unknown) => string | undefined;
}

/**
 * A worker's handler that runs a model: `new Worker(client, modelHandler((turn) => generateText({model, ...turn})))`. Tokens are told
 * with the verdict. A filtered answer is `CONTENT_FILTERED`, and an error of the framework has its name as code.
 */
export function modelHandler(
  generate: (turn: WorkerTurn, job: Job) => PromiseLike<Generated>,
  options: ModelHandlerOptions = {},
): JobHandler {
  return async (job) => {
    const messages = (await job.promptMessages()).map(({ content }) => ({ role: "user" as const, content }));
    let generated: Generated;
    try {
      generated = await generate({ messages, abortSignal: job.signal }, job);
    } catch (error) {
      job.check();
      const code = options.code?.(error);
      if (code) throw new Reject(code);
      const own = frameworkCode(error, /^AI_(\w+)Error$/);
      throw own ? new Fail(own) : error;
    }
    const { inputTokens, outputTokens } = generated.totalUsage;
    const [prompt, completion] = [counted(inputTokens), counted(outputTokens)];
    job.spend(options.price?.({ prompt, completion }) ?? 0, { prompt, completion });
    if (generated.finishReason === "content-filter") throw new Reject("CONTENT_FILTERED");
    const result = options.result ? options.result(generated) : { text: generated.text };
    return new Completed(result, { iterations: generated.steps.length });
  };
}

/** Tokens as a provider counts them; 0 where it does not. */
function counted(tokens: number | undefined): number {
  return tokens !== undefined && Number.isSafeInteger(tokens) && tokens >= 0 ? tokens : 0;
}
