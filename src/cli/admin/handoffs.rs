use super::resource::{Action, Arg, CURSOR, Column, Kind, Resource, Shape, USER_REF};

const HANDOFF: Arg = Arg::path("HANDOFF", "The handoff's UUID");
const STATUS: Kind = Kind::Choice(&[
    "PENDING",
    "ACCEPTED",
    "INPUT_REQUIRED",
    "COMPLETED",
    "REJECTED",
    "EXPIRED",
    "FAILED",
    "DEAD_LETTERED",
    "CANCELED",
    "NO_OP",
]);

pub(super) const RESOURCE: Resource = Resource {
    name: "handoffs",
    about: "Handoffs: what was handed on, and what became of it",
    actions: &[
        Action {
            name: "list",
            about: "List handoffs, newest first",
            path: "/handoffs",
            args: &[
                Arg::query("status", "status", STATUS, "In this state"),
                Arg::query("task", "taskId", Kind::Text, "Of this task"),
                Arg::query("conversation", "conversationId", Kind::Text, "Of this conversation"),
                Arg::query("from-agent", "fromAgent", Kind::Text, "From this agent"),
                Arg::query("to-agent", "toAgent", Kind::Text, "To this agent"),
                Arg::query(
                    "after",
                    "from",
                    Kind::Text,
                    "Committed at this time or later, RFC 3339",
                ),
                Arg::query("before", "to", Kind::Text, "Committed before this time, RFC 3339"),
                USER_REF,
            ],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("HANDOFF", "/handoffId"),
                    Column("TASK", "/taskId"),
                    Column("FROM", "/fromAgent/agentId"),
                    Column("TO", "/toAgent/agentId"),
                    Column("STATUS", "/status"),
                    Column("REASON", "/reason"),
                    Column("ATTEMPTS", "/attempts"),
                    Column("CREATED", "/createdAt"),
                    Column("ENDED", "/endedAt"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one handoff",
            path: "/handoffs/{HANDOFF}",
            args: &[HANDOFF],
            watch: true,
            ..Action::READ
        },
        Action {
            name: "attempts",
            about: "List the last attempts at delivering a handoff, newest first",
            path: "/handoffs/{HANDOFF}/attempts",
            args: &[HANDOFF],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("ATTEMPT", "/attempt"),
                    Column("BEGUN", "/begunAt"),
                    Column("MS", "/durationMs"),
                    Column("TRANSPORT", "/transport"),
                    Column("OUTCOME", "/outcome"),
                    Column("STATUS", "/status"),
                    Column("ERROR", "/error"),
                    Column("ANSWER", "/answer"),
                ],
                foot: &[Column("begun so far", "/attempts")],
            },
            watch: true,
            ..Action::READ
        },
    ],
};
