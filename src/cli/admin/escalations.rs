use super::dead_letters::{BULK_OUTCOME, DRY_RUN, RATE, bulk, none_failed};
use super::resource::{Action, Arg, CURSOR, Column, Kind, Parts, REASON, Resource, Shape, Verb};

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
                    "The action",
                )
                .needed(),
                Arg::body("agent", "/agentId", Kind::Text, "To whom; for reassign"),
                REASON,
            ],
            ..Action::READ
        },
        Action {
            name: "resolve-all",
            about: "Decide on all that fit, with progress; exit 1 if one fails",
            verb: Verb::Post,
            path: "/escalations/resolve",
            args: &[
                Arg::body(
                    "action",
                    "/action",
                    Kind::Choice(&["retry", "reassign", "rollback", "cancel", "complete"]),
                    "The action on each",
                )
                .needed(),
                Arg::body("agent", "/agentId", Kind::Text, "To whom; for reassign"),
                Arg::body("task", "/filter/taskId", Kind::Text, "Of those open: of this task"),
                Arg::body(
                    "of-reason",
                    "/filter/reason",
                    Kind::Text,
                    "Of those open: for this reason",
                ),
                Arg::body(
                    "from-agent",
                    "/filter/fromAgent",
                    Kind::Text,
                    "Of those open: from this agent",
                ),
                Arg::body(
                    "to-agent",
                    "/filter/toAgent",
                    Kind::Text,
                    "Of those open: to this agent",
                ),
                Arg::body(
                    "after",
                    "/filter/from",
                    Kind::Text,
                    "Of those open: opened at this time or later, RFC 3339",
                ),
                Arg::body(
                    "before",
                    "/filter/to",
                    Kind::Text,
                    "Of those open: opened before this time, RFC 3339",
                ),
                Arg::body(
                    "escalation",
                    "/filter/ids",
                    Kind::List,
                    "Of those open: just this one; repeat for more",
                ),
                RATE,
                DRY_RUN,
                REASON,
            ],
            asks: Some("Decide so on all escalations that fit?"),
            parts: Some(Parts { trial: "escalations/resolve", id: "id" }),
            plan: bulk,
            shape: BULK_OUTCOME,
            well: none_failed,
            ..Action::READ
        },
    ],
};
