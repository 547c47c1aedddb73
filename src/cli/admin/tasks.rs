use super::dead_letters::{BULK_OUTCOME, DRY_RUN, RATE, bulk, none_failed};
use super::resource::{
    Action, Arg, CURSOR, Column, Kind, Parts, REASON, Resource, Shape, USER_REF, Verb,
};

const TASK: Arg = Arg::path("TASK", "The task's UUID");
const STATUS: Kind = Kind::Choice(&[
    "HANDING_OFF",
    "RUNNING",
    "PENDING_HANDOFF",
    "ESCALATED",
    "COMPLETED",
    "CANCELED",
]);

pub(super) const RESOURCE: Resource = Resource {
    name: "tasks",
    about: "Tasks: what the handoffs are about; what happened on one: handoffd trace",
    actions: &[
        Action {
            name: "list",
            about: "List tasks, newest first",
            path: "/tasks",
            args: &[
                Arg::query("status", "status", STATUS, "In this state"),
                Arg::query("after", "from", Kind::Text, "Begun at this time or later, RFC 3339"),
                Arg::query("before", "to", Kind::Text, "Begun before this time, RFC 3339"),
                Arg::query(
                    "left-at-most",
                    "leftAtMostUSD",
                    Kind::Text,
                    "With so much left or less, US dollars; 0: used up",
                ),
                Arg::query(
                    "spent-at-least",
                    "spentAtLeastUSD",
                    Kind::Text,
                    "On which so much was spent or more, US dollars",
                ),
                USER_REF,
            ],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("TASK", "/taskId"),
                    Column("STATUS", "/status"),
                    Column("HOLDER", "/holder"),
                    Column("HANDOFFS", "/handoffs"),
                    Column("WAITING", "/undelivered"),
                    Column("FAILURES", "/failures"),
                    Column("SPENT USD", "/costSpentSoFarUSD"),
                    Column("LEFT USD", "/costBudgetRemainingUSD"),
                    Column("UPDATED", "/updatedAt"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one task, and the checkpoint that a rollback made current",
            path: "/tasks/{TASK}",
            args: &[TASK],
            watch: true,
            ..Action::READ
        },
        Action {
            name: "cost",
            about: "Show what a task cost, by agent",
            path: "/tasks/{TASK}/cost",
            args: &[TASK],
            ..Action::READ
        },
        Action {
            name: "cancel",
            about: "Withdraw a task",
            verb: Verb::Post,
            path: "/tasks/{TASK}/cancel",
            args: &[
                TASK,
                Arg::body(
                    "grace-ms",
                    "/graceMs",
                    Kind::Whole,
                    "How long who works on it may still finish; recovery.cancel_grace_ms unless said",
                ),
                REASON,
            ],
            ..Action::READ
        },
        Action {
            name: "cancel-all",
            about: "Withdraw all that fit, with progress; exit 1 if one fails",
            verb: Verb::Post,
            path: "/tasks/cancel",
            args: &[
                Arg::body(
                    "status",
                    "/filter/status",
                    Kind::Choice(&["HANDING_OFF", "RUNNING", "PENDING_HANDOFF", "ESCALATED"]),
                    "Of those not ended: in this state",
                ),
                Arg::body("holder", "/filter/holder", Kind::Text, "Of those not ended: held by it"),
                Arg::body(
                    "after",
                    "/filter/from",
                    Kind::Text,
                    "Of those not ended: begun at this time or later, RFC 3339",
                ),
                Arg::body(
                    "before",
                    "/filter/to",
                    Kind::Text,
                    "Of those not ended: begun before this time, RFC 3339",
                ),
                Arg::body(
                    "user-ref",
                    "/filter/userRef",
                    Kind::Text,
                    "Of those not ended: for the user with this reference",
                ),
                Arg::body(
                    "task",
                    "/filter/ids",
                    Kind::List,
                    "Of those not ended: just this one; repeat for more",
                ),
                Arg::body(
                    "grace-ms",
                    "/graceMs",
                    Kind::Whole,
                    "How long who works on one may still finish; recovery.cancel_grace_ms unless said",
                ),
                RATE,
                DRY_RUN,
                REASON,
            ],
            asks: Some("Withdraw all tasks that fit?"),
            parts: Some(Parts { trial: "tasks/cancel", id: "id" }),
            plan: bulk,
            shape: BULK_OUTCOME,
            well: none_failed,
            ..Action::READ
        },
        Action {
            name: "top-up",
            about: "Add to a task's budget",
            verb: Verb::Post,
            path: "/tasks/{TASK}/budget",
            args: &[
                TASK,
                Arg::body("add-usd", "/addUSD", Kind::Number, "US dollars to add").needed(),
                REASON,
            ],
            ..Action::READ
        },
        Action {
            name: "complete",
            about: "Declare a task done",
            verb: Verb::Post,
            path: "/tasks/{TASK}/complete",
            args: &[
                TASK,
                Arg::file("The result, as JSON: an object with `output`; - for standard input"),
            ],
            ..Action::READ
        },
        Action {
            name: "checkpoints",
            about: "List the checkpoints of a task, newest first",
            path: "/tasks/{TASK}/checkpoints",
            args: &[TASK],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("RUN", "/executionId"),
                    Column("SEQ", "/seq"),
                    Column("AGENT", "/agentId"),
                    Column("COMMITMENT", "/commitment"),
                    Column("CREATED", "/createdAt"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            ..Action::READ
        },
        Action {
            name: "restore",
            about: "Make a stored checkpoint the task's current one",
            verb: Verb::Post,
            path: "/tasks/{TASK}/checkpoints/{RUN}/restore",
            args: &[
                TASK,
                Arg::path("RUN", "The UUID of the agent's run"),
                Arg::body("seq", "/seq", Kind::Whole, "The checkpoint's number within the run")
                    .needed(),
            ],
            ..Action::READ
        },
    ],
};
