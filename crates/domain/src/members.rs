//! The members of a message by their readers: what agents say to each other, and what the broker works with.

/// Members of a message in which values may be marked and redacted: what agents say to each other. The
/// rest is what the broker and the log work with.
pub const CONTENT_MEMBERS: [&str; 17] = [
    "taskDescription",
    "completedSubtasks",
    "remainingSubtasks",
    "currentState",
    "relevantContext",
    "constraints",
    "conversationHistorySummary",
    "conversationHistoryVerbatim",
    "toolCallHistory",
    "taskSummary",
    "provenance",
    "reason",
    "userId",
    "toolState",
    "metadata",
    "extensions",
    "checkpoint",
];

/// Members that the broker and the log work with. A member besides them and [`CONTENT_MEMBERS`] is of a
/// newer minor version, and is taken for content.
pub const BROKER_MEMBERS: [&str; 26] = [
    "context",
    "schemaVersion",
    "handoffId",
    "taskId",
    "parentHandoffId",
    "fromAgent",
    "toAgent",
    "timestamp",
    "costTracking",
    "traceparent",
    "tracestate",
    "signature",
    "receiverList",
    "personalDataPayload",
    "contractId",
    "historyStrategy",
    "conversationId",
    "correlationId",
    "priority",
    "preferredAgents",
    "capabilitiesRequired",
    "maxIterations",
    "returnTo",
    "join",
    "onReject",
    "stream",
];
