/**
 * Mastra (`@mastra/core` 1): a remote agent as a tool that waits; an agent's run that is suspended at a handoff and resumed in
 * another process from the broker's checkpoint; a worker that runs an agent on handoffs.
 *
 * Nothing of the framework is imported: its types are met by structure.
 *
 * @packageDocumentation
 */

import { type Client, type Given, requiredAgent } from "../client.js";
import { folded, plain, runKey, unfolded } from "../guarded.js";
import { derivedExecutionId, derivedId } from "../ids.js";
import type { WaitOptions } from "../services.js";
import { type JobHandler, Reject } from "../worker.js";
import { type Generated, type ModelHandlerOptions, modelHandler } from "./ai-sdk.js";
import {
  ANY_SCHEMA,
  type AnySchema,
  outcomeText,
  type Route,
  TRANSFER_SCHEMA,
  type TransferInput,
  type TransferSchema,
  toJson,
} from "./transfer.js";

export type { ModelHandlerOptions } from "./ai-sdk.js";
export type {
  AnySchema,
  Issue,
  Route,
  StandardJsonSchema,
  TransferInput,
  TransferSchema,
} from "./transfer.js";

/** Mastra's arguments of an agent's tool, as far as the adapter reads them. */
export interface ToolContext {
  readonly abortSignal?: AbortSignal | undefined;
  readonly agent?:
    | {
        readonly toolCallId: string;
        // biome-ignore lint/suspicious/noExplicitAny: the framework's own type
        readonly messages: any[];
        /** Ends this part of the run; its result has the payload. */
        // biome-ignore lint/suspicious/noExplicitAny: the framework's own type
        readonly suspend: (payload: any) => Promise<void>;
        readonly resumeData?: unknown;
      }
    | undefined;
}

/** The arguments of `createTool`. */
export interface TransferToolConfig<Result> {
  readonly id: string;
  readonly description: string;
  readonly inputSchema: TransferSchema;
  /** Called by the framework with the model's arguments; what it returns is what the model reads. */
  readonly execute: (input: TransferInput, context: ToolContext) => Promise<Result>;
}

function callOf(context: ToolContext): NonNullable<ToolContext["agent"]> {
  if (!context.agent) throw new TypeError("a handoff's tool is called by an agent");
  return context.agent;
}

/**
 * A remote agent as a tool: `createTool(remoteAgent(…))`. The call hands off and waits for the end.
 *
 * @param run The application's name of the run: the same call of the same run is the same handoff.
 */
export function remoteAgent(
  client: Client,
  id: string,
  route: Route,
  run: string,
  options: Pick<WaitOptions, "withinMs"> = {},
): TransferToolConfig<string> {
  return {
    id,
    description: route.description,
    inputSchema: TRANSFER_SCHEMA,
    execute: async (input, context) => {
      const { toolCallId, messages } = callOf(context);
      const given = { ...(await givenOf(client, route, input, messages)), run, step: toolCallId };
      const signal = { signal: context.abortSignal };
      const sent = await client.handOff(route.target, given, { constraints: route.constraints, ...signal });
      const ended = await client.handoffs.waitEnded(sent.handoffId, { ...options, ...signal });
      return outcomeText(ended, client, signal);
    },
  };
}

/** The arguments of `createTool` for a tool that suspends. */
export interface SuspendingToolConfig extends TransferToolConfig<string | undefined> {
  readonly suspendSchema: AnySchema;
  readonly resumeSchema: AnySchema;
}

/** A tool whose call suspends the agent's run: `createTool(transferTool(…))`. {@link durableRuns} hands off and resumes. */
export function transferTool(id: string, route: Route): SuspendingToolConfig {
  return {
    id,
    description: route.description,
    inputSchema: TRANSFER_SCHEMA,
    // Mastra tells of a suspension only where both are there.
    suspendSchema: ANY_SCHEMA,
    resumeSchema: ANY_SCHEMA,
    execute: async (input, context) => {
      const call = callOf(context);
      if (call.resumeData !== undefined) return (call.resumeData as { readonly text: string }).text;
      await call.suspend({ input, messages: toJson(call.messages) });
      return undefined;
    },
  };
}

async function givenOf(
  client: Client,
  route: Route,
  input: TransferInput,
  messages: readonly unknown[],
): Promise<Given> {
  const turns = (await plain(toJson(messages), client)) as { role: string; content: unknown }[];
  const history = turns.map(({ role, content }) => ({ role, content }));
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

/** One snapshot of Mastra's storage. */
export interface Snapshot {
  readonly workflowName: string;
  readonly runId: string;
  // biome-ignore lint/suspicious/noExplicitAny: the framework's own type
  readonly snapshot: any;
}

/** The domain of Mastra's storage that keeps suspended runs: `await storage.getStore("workflows")`. */
export interface SnapshotStore {
  /** All suspended runs. */
  listWorkflowRuns(): Promise<{ readonly runs: readonly Snapshot[] }>;
  /** One of them. */
  loadWorkflowSnapshot(name: { workflowName: string; runId: string }): Promise<unknown>;
  /** Puts one back. */
  persistWorkflowSnapshot(snapshot: Snapshot): Promise<void>;
}

/** The answer of `agent.generate`, as far as the adapter reads it. */
export interface AgentResult {
  readonly finishReason?: string | undefined;
  readonly suspendPayload?: unknown;
}

/** The methods of an agent that the adapter calls: `generate` for the first part of a run, `resumeGenerate` for the others. */
export interface ResumableAgent<Result extends AgentResult> {
  /** The first part of a run. */
  // biome-ignore lint/suspicious/noExplicitAny: the framework's own types
  generate(messages: any, options: any): Promise<Result>;
  /** The part behind a suspension. */
  // biome-ignore lint/suspicious/noExplicitAny: the framework's own types
  resumeGenerate(resumeData: any, options: any): Promise<Result>;
}

interface SuspendedCall {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly suspendPayload: { readonly input: TransferInput; readonly messages: readonly unknown[] };
}

/** A run's state at the broker, in the checkpoint of its handoffs. */
interface SavedRun {
  readonly [name: string]: unknown;
  readonly framework: "mastra";
  /** Names the placeholders of guarded turns in `snapshots` and `call`. */
  readonly key: string;
  readonly snapshots: readonly Snapshot[];
  readonly call: SuspendedCall;
}

/**
 * Runs an agent whose handoffs outlive its process: `const generate = durableRuns(client, agent, store, routes)`, then
 * `await generate(run, "Is clause 4.2 safe?")`. If the agent is suspended at a {@link transferTool}, its snapshot goes into the
 * broker's checkpoint with the handoff; the run is resumed with the outcome. Called again with the same run, in this or another process with
 * an empty store, it goes on from the last checkpoint, and no handoff is sent twice.
 *
 * @param store The domain of Mastra's storage that keeps suspended runs, as `getStore` answers it.
 * @param routes Receivers by the name of the tool that hands off to them. A suspension of another tool is returned as it is.
 * @throws TypeError without a store.
 * @throws WaitTimeoutError after `withinMs`; a later call of the same run goes on.
 */
export function durableRuns<Result extends AgentResult>(
  client: Client,
  agent: ResumableAgent<Result>,
  store: SnapshotStore | undefined,
  routes: Readonly<Record<string, Route>>,
): (run: string, messages: unknown, options?: WaitOptions) => Promise<Result> {
  const agentId = requiredAgent(client);
  if (!store) throw new TypeError("the storage has no domain `workflows` for suspended runs");
  const workflows: SnapshotStore = store;

  async function send(run: string, saved: SavedRun): Promise<string> {
    const { toolName, toolCallId, suspendPayload } = saved.call;
    const route = routes[toolName];
    if (!route) throw new TypeError(`no route has the tool ${toolName}`);
    const messages = await unfolded(suspendPayload.messages, saved.key, client);
    const given = await givenOf(client, route, suspendPayload.input, messages);
    const identified = { ...given, checkpoint: saved, run, step: toolCallId };
    return (await client.handOff(route.target, identified, { constraints: route.constraints })).handoffId;
  }

  async function proceed(run: string, saved: SavedRun, options: WaitOptions): Promise<Result> {
    const handoff = await client.handoffs.waitEnded(await send(run, saved), options);
    for (const snapshot of await unfolded(saved.snapshots, saved.key, client))
      await workflows.persistWorkflowSnapshot(snapshot);
    const said = { text: await outcomeText(handoff, client, options) };
    return agent.resumeGenerate(said, { runId: run, toolCallId: saved.call.toolCallId });
  }

  return async (run, messages, options = {}) => {
    const taskId = await derivedId("task", agentId, run);
    const kept = await client.restore(taskId, await derivedExecutionId("run", agentId, taskId, run));
    let result = kept
      ? await proceed(run, kept as SavedRun, options)
      : await agent.generate(messages, { runId: run });
    for (;;) {
      const call = result.suspendPayload as SuspendedCall | undefined;
      if (result.finishReason !== "suspended" || !call || !Object.hasOwn(routes, call.toolName))
        return result;
      const { runs } = await workflows.listWorkflowRuns();
      const own = runs.filter(({ runId }) => runId === run);
      const snapshots = own.map(({ workflowName, runId, snapshot }) => ({ workflowName, runId, snapshot }));
      const key = runKey();
      const saved = folded(toJson({ framework: "mastra", key, snapshots, call }), key) as SavedRun;
      result = await proceed(run, saved, options);
    }
  };
}

/** The methods of an agent that the worker's handler calls. */
export interface GeneratingAgent {
  /** A whole run. */
  // biome-ignore lint/suspicious/noExplicitAny: the framework's own types
  generate(messages: any, options: any): Promise<unknown>;
}

/**
 * A worker's handler that runs an agent on the guarded context: `new Worker(client, agentHandler(agent))`. Tokens are told with the
 * verdict. A tripwire of the agent's processors is `GUARDRAIL_TRIPPED`.
 */
export function agentHandler(agent: GeneratingAgent, options: ModelHandlerOptions = {}): JobHandler {
  return modelHandler(async ({ messages, abortSignal }) => {
    const generated = (await agent.generate(messages, { abortSignal })) as Generated & {
      readonly tripwire?: unknown;
    };
    if (generated.tripwire) throw new Reject("GUARDRAIL_TRIPPED");
    return generated;
  }, options);
}
