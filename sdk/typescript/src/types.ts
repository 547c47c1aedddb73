import type { components } from "./generated/openapi.js";

/** The schemas of the API, by the names that its document gives them. */
export type ApiSchemas = components["schemas"];

/** A handoff message of the newest schema that this package knows. */
export type HandoffMessage = ApiSchemas["HandoffMessage2_2"];
/** One turn of a conversation. */
export type HistoryTurn = HandoffMessage["conversationHistoryVerbatim"][number];
/** One finished piece of work. */
export type CompletedSubtask = HandoffMessage["completedSubtasks"][number];
/** One open piece of work. */
export type RemainingSubtask = HandoffMessage["remainingSubtasks"][number];
/** One excerpt that the receiver should know. */
export type ContextExcerpt = HandoffMessage["relevantContext"][number];
/** One tool call. */
export type ToolCall = HandoffMessage["toolCallHistory"][number];

/** A registered agent. */
export type Agent = ApiSchemas["AgentView"];
/** The registration of an agent. */
export type AgentSpec = ApiSchemas["AgentSpec"];
/** A new agent with its key and secrets, which are shown this once. */
export type CreatedAgent = ApiSchemas["CreatedAgentView"];
/** A handoff as the broker sees it: state, parties, deadlines, result. */
export type Handoff = ApiSchemas["HandoffView"];
/** The state of a handoff. */
export type HandoffStatus = ApiSchemas["HandoffStatus"];
/** A handoff that a poll claimed, with its fencing token. */
export type InboxItem = ApiSchemas["InboxItem"];
/** A task that came back to the agent that asked for that (`returnTo`). */
export type ReturnItem = ApiSchemas["ReturnItem"];
/** One piece of a message: `{seq, append, set}`, numbered from 1; the last may have `close` or `abort`. */
export type ChunkBody = ApiSchemas["ChunkBody"];
/** A question of a receiver to the agent that sent it the handoff. */
export type QuestionItem = ApiSchemas["QuestionItem"];
/** Proof that a handoff's record is in the log. */
export type Receipt = ApiSchemas["Receipt"];
/** The answer to a submission. */
export type Submitted = ApiSchemas["SubmittedView"];
/** A task: state, holder, budget. */
export type Task = ApiSchemas["TaskView"];
/** Everything that happened on a task. */
export type Trace = ApiSchemas["TraceView"];
/** A stored state of a run, with its number. */
export type Checkpoint = ApiSchemas["CheckpointView"];
/** An event, as the feed and webhooks tell it. */
export type HandoffEvent = ApiSchemas["Event"];
/** The type of an event. */
export type EventType = ApiSchemas["EventType"];
/** A part of an accepted message that is not fully enforced. */
export type Warning = ApiSchemas["WarningView"];
