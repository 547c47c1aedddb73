use super::resource::{Action, Arg, CURSOR, Column, Kind, REASON, Resource, Shape, Verb};

const ESCALATION: Arg = Arg::path("ESCALATION", "The escalation's UUID");

pub(super) const RESOURCE: Resource = Resource {
    name: "escalations",
    about: "Escalations: questions that wait for a person",
    actions: &[
        Action {
            name: "list",
            about: "List escalations, newest first",
            path: "/escalations",
            args: &[
                Arg::query(
                    "status",
                    "status",
                    Kind::Choice(&["OPEN", "RESOLVED", "TIMED_OUT"]),
                    "In this state",
                ),
                Arg::query("task", "taskId", Kind::Text, "Of this task"),
            ],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("ESCALATION", "/escalationId"),
                    Column("TASK", "/taskId"),
                    Column("FROM", "/fromAgent"),
                    Column("TO", "/toAgent"),
                    Column("REASON", "/reason"),
                    Column("STATUS", "/status"),
                    Column("DUE", "/timeoutAt"),
                    Column("CHANNEL", "/channel"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one escalation",
            path: "/escalations/{ESCALATION}",
            args: &[ESCALATION],
            ..Action::READ
        },
        Action {
            name: "resolve",
            about: "Decide on an escalation",
            verb: Verb::Post,
            path: "/escalations/{ESCALATION}/resolve",
            args: &[
                ESCALATION,
                Arg::body(
                    "action",
                    "/action",
                    Kind::Choice(&["retry", "reassign", "rollback", "cancel", "complete"]),
                    "What to do",
                )
                .needed(),
                Arg::body("agent", "/agentId", Kind::Text, "To whom; for reassign"),
                REASON,
            ],
            ..Action::READ
        },
    ],
};
