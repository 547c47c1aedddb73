import { sha256, toHex, utf8 } from "./bytes.js";
import { canonicalize } from "./canonical.js";
import { condense, MOST_CHARS } from "./condense.js";
import { HandoffdError } from "./errors.js";
import { Exchanges } from "./exchanges.js";
import { currentTraceparent, derivedExecutionId, derivedId, randomId, traceparent } from "./ids.js";
import { withDigest } from "./step.js";
import { COMPRESS_AT, estimateTokens, type Measured, measureHandoffMessage } from "./tokens.js";
import type {
  CompletedSubtask,
  ContextExcerpt,
  HandoffMessage,
  HistoryTurn,
  RemainingSubtask,
  ToolCall,
} from "./types.js";
import { INITIAL } from "./validate/index.js";
import { toDollars, toNanos } from "./validate/money.js";

/** Turns of the conversation that a message can carry. The broker measures and compresses it for its receiver's window. */
export const MAX_TURNS = 10_000;
/** Bytes of a message that the broker takes unless set otherwise (`server.max_body_bytes`). */
export const MAX_BYTES = 10 * 1024 * 1024;
/** Turns that stay verbatim whatever the window. */
export const KEEP_TURNS = 5;
/** US dollars of a task whose opener names no budget. */
export const DEFAULT_BUDGET_USD = 1;

/** Any JSON object. */
export type Free = Record<string, unknown>;

/** A subtask, a turn or an excerpt as the caller has it: members may lack, or be null. */
export type Loose<T> = { readonly [K in keyof T]?: T[K] | null | undefined };

/** A tool call; `input` and `output` in the place of hash and size are hashed and measured. */
export type LooseToolCall = Loose<ToolCall> & {
  readonly tool: string;
  readonly input?: unknown;
  readonly output?: unknown;
};

/**
 * An agent's knowledge at a handoff. Only `agentId` and `task` are needed.
 *
 * Ids: with `step`, `handoffId`, `executionId` and (without `run`) `taskId` are derived from it, so that the same step, done
 * again after a crash, is the same handoff. Without it they are random.
 */
export interface AgentState {
  /** The registered id of the sender. */
  readonly agentId: string;
  /** Semantic version of the sender; `1.0.0` unless said. */
  readonly agentVersion?: string | undefined;
  /** The work for the receiver. */
  readonly task: string;
  /** `currentState`: from what the receiver goes on. */
  readonly state?: Free | undefined;
  /** Finished work, as texts or subtasks; what is missing is filled in. With none, a task's first handoff is marked `INITIAL`. */
  readonly completed?: readonly (string | Loose<CompletedSubtask>)[] | undefined;
  /** Open work, as texts or subtasks. */
  readonly remaining?: readonly (string | Loose<RemainingSubtask>)[] | undefined;
  /** The older turns in condensed form. */
  readonly summary?: string | undefined;
  /** Turns, oldest first; a text is a user's turn. */
  readonly history?: readonly (string | Loose<HistoryTurn> | Free)[] | undefined;
  readonly toolCalls?: readonly LooseToolCall[] | undefined;
  /** State of tools; `cached_results` is left out of a trimmed message. */
  readonly toolState?: Free | undefined;
  /** Excerpts, as texts or with source and score. */
  readonly context?: readonly (string | Loose<ContextExcerpt>)[] | undefined;
  /** The sender's own state, restored by a rollback; never sent to the receiver. */
  readonly checkpoint?: Free | undefined;
  /** US dollars spent on the task so far, cumulative. */
  readonly spentUSD?: number | undefined;
  /** US dollars left; {@link DEFAULT_BUDGET_USD} less `spentUSD` unless said. */
  readonly budgetUSD?: number | undefined;
  /** Tokens read on the task so far, cumulative. */
  readonly promptTokens?: number | undefined;
  /** Tokens written on the task so far, cumulative. */
  readonly completionTokens?: number | undefined;
  /** The task; derived or new unless said. */
  readonly taskId?: string | undefined;
  /** The handoff by which the sender came to the task; none for the task's first. */
  readonly parentHandoffId?: string | undefined;
  /** Derived or new unless said. */
  readonly handoffId?: string | undefined;
  /** The sender's run, a version 4 UUID; derived or new unless said. */
  readonly executionId?: string | undefined;
  /** The sender's own name of its run (a thread, a session): the same run is the same task. */
  readonly run?: string | undefined;
  /** The sender's own name of this step within the run, such as a tool call's id. */
  readonly step?: string | undefined;
  /** W3C traceparent; the current span's where OpenTelemetry is in use, else a new trace. */
  readonly traceparent?: string | undefined;
  readonly tracestate?: string | undefined;
  readonly reason?: string | undefined;
  readonly conversationId?: string | undefined;
  readonly correlationId?: string | undefined;
  readonly userId?: string | undefined;
  readonly priority?: "low" | "normal" | "high" | "urgent" | undefined;
  readonly preferredAgents?: readonly string[] | undefined;
  readonly capabilitiesRequired?: readonly string[] | undefined;
  readonly maxIterations?: number | undefined;
  readonly contractId?: string | undefined;
  readonly provenance?: Free | undefined;
  readonly personalDataPayload?: HandoffMessage["personalDataPayload"] | undefined;
  /** `source`: the task comes back when the receiver completes the handoff. */
  readonly returnTo?: "source" | undefined;
  readonly metadata?: Free | undefined;
  readonly extensions?: Free | undefined;
}

/** An agent's id, `type:<agentType>`, `capability:<name>`, or the members of `toAgent`. */
export type Target = string | HandoffMessage["toAgent"];

/** Limits on the work: `key:value` texts, or an object of them. */
export type Constraints = readonly string[] | Readonly<Record<string, string | number | boolean>>;

/** The limits on the work, and what is left out of a message that is too large. */
export interface BuildOptions {
  /** Limits on the work: `key:value` texts, or an object of them. */
  readonly constraints?: Constraints | undefined;
  /** Turns to keep at most, the last ones; {@link MAX_TURNS} unless said. */
  readonly maxTurns?: number | undefined;
  /** Bytes of the message's JSON at most; older turns go where it is larger. {@link MAX_BYTES} unless said. */
  readonly maxBytes?: number | undefined;
  /** The receiver's window in tokens. Above {@link COMPRESS_AT} of it older turns are left out or condensed. */
  readonly windowTokens?: number | undefined;
  /** Counts tokens; an estimate unless said. */
  readonly countTokens?: ((text: string) => number) | undefined;
  /** Condenses turns that are left out, for the end of the summary, in place of the SDK's own extract of their statements. */
  readonly summarize?: ((turns: readonly HistoryTurn[]) => string | Promise<string>) | undefined;
}

/** The message does not fit the receiver's window, although all that may be left out is. */
export class WindowExceededError extends HandoffdError {
  override name = "WindowExceededError";
  readonly measured: Measured;
  /** Tokens. */
  readonly limit: number;

  constructor(measured: Measured, limit: number) {
    super(`the message has some ${measured.tokens} tokens and the limit is ${limit}`);
    this.measured = measured;
    this.limit = limit;
  }
}

/**
 * Builds a handoff message from an agent's state (seed 000, §7.1).
 *
 * All turns are sent, and the broker compresses them where its receiver's window asks for that. Only where `maxTurns`, `maxBytes` or
 * `windowTokens` is passed do the oldest go, and an extract of their statements takes their place: the summary ends with it, `metadata`
 * has `original_history_length` and `trimmed`, and `toolState.cached_results` is left out. With `windowTokens` the oldest go until the
 * message takes at most 80 % of it.
 * Optional members that are null are left out; free objects (`state`, `checkpoint`, results …) keep their nulls. The
 * message is of schema 2.1 where that can say it, so that older receivers read it; else of 2.2.
 *
 * @throws WindowExceededError where `windowTokens` is too small for what may not be left out.
 * @throws TypeError for a task without words, a target without a name, or a value that JSON cannot hold.
 */
export async function buildHandoffMessage(
  agentState: AgentState,
  target: Target,
  options?: BuildOptions,
): Promise<HandoffMessage>;
/** @deprecated Constraints are a member of the options. */
export async function buildHandoffMessage(
  agentState: AgentState,
  target: Target,
  constraints: readonly string[],
): Promise<HandoffMessage>;
/** @deprecated Constraints are a member of the options. */
export async function buildHandoffMessage(
  agentState: AgentState,
  target: Target,
  constraints: Constraints,
  options: BuildOptions,
): Promise<HandoffMessage>;
export async function buildHandoffMessage(
  agentState: AgentState,
  target: Target,
  third: BuildOptions | Constraints = {},
  fourth?: BuildOptions,
): Promise<HandoffMessage> {
  const options = optionsOf(third, fourth, BUILD_OPTIONS);
  const constraints = options.constraints ?? [];
  if (agentState.task.trim() === "")
    throw new TypeError("a handoff without a task: say what the receiver is to do");
  const now = new Date().toISOString();
  const seen = new Map<string, number>();
  const completed: CompletedSubtask[] = [];
  for (const each of agentState.completed ?? []) completed.push(await completedSubtask(each, seen, now));
  const open = (agentState.remaining ?? []).map(remainingSubtask);
  const initial = completed.length === 0 && agentState.parentHandoffId === undefined;
  const spent = toNanos(agentState.spentUSD ?? 0);
  const optional = dropNulls({
    taskSummary: initial ? cut(agentState.task, 500) : undefined,
    reason: agentState.reason,
    conversationId: agentState.conversationId,
    correlationId: agentState.correlationId,
    userId: agentState.userId,
    priority: agentState.priority,
    preferredAgents: agentState.preferredAgents && [...agentState.preferredAgents],
    capabilitiesRequired: agentState.capabilitiesRequired && [...agentState.capabilitiesRequired],
    maxIterations: agentState.maxIterations,
    contractId: agentState.contractId,
    provenance: agentState.provenance,
    personalDataPayload: agentState.personalDataPayload,
    returnTo: agentState.returnTo,
    tracestate: agentState.tracestate,
    toolState: agentState.toolState,
    metadata: agentState.metadata,
    extensions: agentState.extensions,
    checkpoint: agentState.checkpoint,
  });
  const message = {
    ...optional,
    ...(await ids(agentState)),
    schemaVersion: "2.2",
    toAgent: toTarget(target),
    timestamp: now,
    // Nothing was done yet: the schema marks such a handoff, and what is to be done is what remains.
    taskDescription: initial ? INITIAL : agentState.task,
    remainingSubtasks: initial ? [{ subtaskId: "task", description: agentState.task }, ...open] : open,
    completedSubtasks: completed,
    currentState: agentState.state ?? {},
    relevantContext: (agentState.context ?? []).map(excerpt),
    constraints: toConstraints(constraints),
    costTracking: {
      costSpentSoFarUSD: toDollars(spent),
      costBudgetRemainingUSD: toDollars(
        agentState.budgetUSD === undefined
          ? toNanos(DEFAULT_BUDGET_USD) - spent
          : toNanos(agentState.budgetUSD),
      ),
      tokenSpent: { prompt: agentState.promptTokens ?? 0, completion: agentState.completionTokens ?? 0 },
    },
    conversationHistorySummary: agentState.summary ?? "",
    conversationHistoryVerbatim: (agentState.history ?? []).map(turn),
    toolCallHistory: await Promise.all((agentState.toolCalls ?? []).map((call) => toolCall(call, now))),
    traceparent: agentState.traceparent ?? currentTraceparent() ?? traceparent(),
  } as HandoffMessage;
  const named = agentState.step !== undefined || agentState.handoffId !== undefined;
  const fitted = await fit(named ? await withDigest(message) : message, options);
  return isOldForm(fitted) ? { ...fitted, schemaVersion: "2.1" } : fitted;
}

/** The members of {@link BuildOptions}. @internal */
export const BUILD_OPTIONS = [
  "constraints",
  "maxTurns",
  "maxBytes",
  "windowTokens",
  "countTokens",
  "summarize",
];

/**
 * The options of a call whose third argument may be constraints, as until 0.3. An object alone is options where its members are.
 *
 * @throws TypeError where it has members of both kinds.
 * @internal
 */
export function optionsOf<T extends BuildOptions>(
  third: T | Constraints,
  fourth: T | undefined,
  known: readonly string[],
): T {
  if (fourth !== undefined || Array.isArray(third))
    return { ...(fourth as T), constraints: third as Constraints };
  const names = Object.keys(third);
  const own = names.filter((name) => known.includes(name));
  if (own.length === names.length) return third as T;
  if (own.length === 0) return { constraints: third as Constraints } as T;
  const other = names.find((name) => !known.includes(name));
  throw new TypeError(`${other} is not an option: constraints are in the option \`constraints\``);
}

/** Whether schema 2.1 can say the message: version 4 ids, and no return. */
function isOldForm(message: HandoffMessage): boolean {
  const all = [message.handoffId, message.taskId, message.parentHandoffId ?? message.taskId];
  return message.returnTo === undefined && all.every((id) => id[14] === "4");
}

async function ids(
  state: AgentState,
): Promise<Pick<HandoffMessage, "handoffId" | "taskId" | "parentHandoffId" | "fromAgent">> {
  const { agentId, run, step } = state;
  const task =
    run === undefined && step !== undefined ? ["task", agentId, "step", step] : ["task", agentId, run ?? ""];
  const named = run !== undefined || step !== undefined;
  const taskId = state.taskId ?? (named ? await derivedId(...task) : randomId());
  const handoffId = step === undefined ? randomId() : await derivedId("handoff", agentId, taskId, step);
  const executionId = named
    ? await derivedExecutionId("run", agentId, taskId, run ?? step ?? "")
    : randomId();
  return {
    handoffId: state.handoffId ?? handoffId,
    taskId,
    parentHandoffId: state.parentHandoffId ?? null,
    fromAgent: {
      agentId,
      agentVersion: state.agentVersion ?? "1.0.0",
      executionId: state.executionId ?? executionId,
    },
  };
}

/** `toAgent` of a target. @internal */
export function toTarget(target: Target): HandoffMessage["toAgent"] {
  if (typeof target !== "string") return target;
  const [kind, name] = target.split(/:(.*)/s) as [string, string | undefined];
  if (target === "" || ((kind === "type" || kind === "capability") && name === ""))
    throw new TypeError(`a target without a name: ${target}`);
  if (kind === "type" && name) return { agentType: name, agentVersion: "*" };
  if (kind === "capability" && name) return { capability: name };
  return { agentId: target };
}

function toConstraints(constraints: Constraints): string[] {
  if (Array.isArray(constraints)) return [...constraints];
  return Object.entries(constraints).map(([name, value]) => `${name}:${value}`);
}

async function completedSubtask(
  given: string | Loose<CompletedSubtask>,
  seen: Map<string, number>,
  now: string,
): Promise<CompletedSubtask> {
  const known: Partial<CompletedSubtask> =
    typeof given === "string" ? { description: given } : dropNulls(given);
  const subtaskId = known.subtaskId ?? (await doneId(known, seen));
  return { subtaskId, description: subtaskId, result: {}, completedAt: now, ...known } as CompletedSubtask;
}

/**
 * The id of a completed subtask, from its content, as the broker's doors make it: what was done before keeps its id from hop to hop, and
 * what is new has a new one, which the loop guard counts as progress.
 */
async function doneId(known: Partial<CompletedSubtask>, seen: Map<string, number>): Promise<string> {
  const content = [known.description ?? null, known.result ?? {}];
  const digest = await sha256(utf8(canonicalize(content)));
  const name = `done-${toHex(digest).slice(0, 16)}`;
  const times = (seen.get(name) ?? 0) + 1;
  seen.set(name, times);
  // The same work twice is two entries.
  return times === 1 ? name : `${name}-${times}`;
}

function remainingSubtask(given: string | Loose<RemainingSubtask>, index: number): RemainingSubtask {
  const known: Partial<RemainingSubtask> =
    typeof given === "string" ? { description: given } : dropNulls(given);
  const subtaskId = known.subtaskId ?? `open-${index + 1}`;
  return { subtaskId, description: subtaskId, ...known } as RemainingSubtask;
}

function excerpt(given: string | Loose<ContextExcerpt>): ContextExcerpt {
  const known = typeof given === "string" ? { excerpt: given } : dropNulls(given);
  return { source: "agent", excerpt: "", relevanceScore: 1, ...known } as ContextExcerpt;
}

/** A turn. One that only calls tools has no text: the calls are its content. */
function turn(given: string | Loose<HistoryTurn> | Free): HistoryTurn {
  if (typeof given === "string") return { role: "user", content: given };
  const { role, name, timestamp, metadata, content, ...rest } = dropNulls(given as Free);
  const speaker = role ?? ("tool_call_id" in rest ? "tool" : "user");
  const kept = dropNulls({ role: speaker, name, timestamp, metadata });
  if (content === undefined) return { ...kept, content: rest } as HistoryTurn;
  const said = typeof content === "object" || typeof content === "string" ? content : String(content);
  return { ...rest, ...kept, content: said } as HistoryTurn;
}

async function toolCall(given: LooseToolCall, now: string): Promise<ToolCall> {
  const { input, output, ...call } = dropNulls(given);
  const digest = await sha256(utf8(canonicalize(input ?? null)));
  const written = typeof output === "string" ? output : canonicalize(output ?? null);
  const outputTokens = output === undefined ? 0 : estimateTokens(written);
  return { calledAt: now, inputHash: `sha256:${toHex(digest)}`, outputTokens, ...call } as ToolCall;
}

/** An object without its null and undefined members; what lies deeper is the caller's. */
function dropNulls<T extends object>(given: T): { [K in keyof T]?: Exclude<T[K], null | undefined> } {
  const kept = Object.entries(given).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(kept) as { [K in keyof T]?: Exclude<T[K], null | undefined> };
}

function cut(text: string, most: number): string {
  const letters = [...text];
  return letters.length <= most ? text : `${letters.slice(0, most - 1).join("")}…`;
}

/** Leaves out what the limits ask for, and says so in `metadata` (`original_history_length`, `trimmed`). */
async function fit(message: HandoffMessage, options: BuildOptions): Promise<HandoffMessage> {
  const all = message.conversationHistoryVerbatim;
  const maxTurns = options.maxTurns ?? MAX_TURNS;
  const limit = Math.floor((options.windowTokens ?? Number.POSITIVE_INFINITY) * COMPRESS_AT);
  const size = (candidate: HandoffMessage): number =>
    measureHandoffMessage(candidate, options.countTokens).tokens;
  // No cut leaves a tool's result without its call.
  const exchanges = new Exchanges(all);
  const wanted = Math.min(
    all.length,
    maxTurns,
    all.length - firstWithin(message, options.maxBytes ?? MAX_BYTES),
  );
  let keep = all.length - exchanges.cut(Math.max(0, all.length - wanted));
  let fitted = keep === all.length ? message : await trimmed(message, keep, options);
  if (size(fitted) > limit) fitted = withoutCachedResults(fitted);
  // The size of the summary is known only once it is made: each step leaves out half of the removable turns.
  while (size(fitted) > limit) {
    const least = all.length - exchanges.before(all.length - KEEP_TURNS);
    if (keep <= least)
      throw new WindowExceededError(measureHandoffMessage(fitted, options.countTokens), limit);
    const fewer = Math.max(least, keep - Math.max(1, Math.ceil((keep - least) / 2)));
    keep = Math.max(least, all.length - exchanges.cut(all.length - fewer));
    fitted = withoutCachedResults(await trimmed(message, keep, options));
  }
  return fitted;
}

async function trimmed(
  message: HandoffMessage,
  keep: number,
  options: BuildOptions,
): Promise<HandoffMessage> {
  const all = message.conversationHistoryVerbatim;
  const older = all.slice(0, all.length - keep);
  const condensed = options.summarize ? await options.summarize(older) : condense(older, extractOf(options));
  const summary = [message.conversationHistorySummary, condensed].filter((part) => part !== "").join("\n");
  return withoutCachedResults({
    ...message,
    conversationHistorySummary: summary,
    conversationHistoryVerbatim: all.slice(all.length - keep),
    historyStrategy: message.historyStrategy ?? (condensed === "" ? "last_k" : "summary"),
    metadata: { ...message.metadata, original_history_length: all.length, trimmed: true },
  });
}

/** Characters of an extract: so many that the last turns have room. */
function extractOf({ maxBytes = MAX_BYTES, windowTokens }: BuildOptions): number {
  const most = Math.min(MOST_CHARS, Math.floor(maxBytes / 16));
  // A tenth of the window, at some three characters a token.
  return windowTokens === undefined
    ? most
    : Math.min(most, Math.max(300, Math.floor((windowTokens * 3) / 10)));
}

/** How many of the oldest turns have to go so that the message, with an extract of them, has at most that many bytes. */
function firstWithin(message: HandoffMessage, maxBytes: number): number {
  const bytesOf = (value: unknown): number => utf8(JSON.stringify(value)).length;
  let size = bytesOf(message);
  if (size <= maxBytes) return 0;
  // Up to four bytes a character of the extract, and what `metadata` says of it.
  const room = maxBytes - 4 * Math.min(MOST_CHARS, Math.floor(maxBytes / 16)) - 1024;
  for (const [first, turn] of message.conversationHistoryVerbatim.entries()) {
    if (size <= room) return first;
    size -= bytesOf(turn) + 1;
  }
  return message.conversationHistoryVerbatim.length;
}

function withoutCachedResults(message: HandoffMessage): HandoffMessage {
  if (!message.toolState || !("cached_results" in message.toolState)) return message;
  const { cached_results: _, ...toolState } = message.toolState;
  return { ...message, toolState };
}
