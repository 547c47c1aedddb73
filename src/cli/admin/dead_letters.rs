use std::time::Duration;

use serde_json::{Value, json};

use super::request::plain;
use super::resource::ArgValues;
use super::resource::{Action, Arg, CURSOR, Column, Kind, Parts, REASON, Resource, Shape, Verb};
use crate::cli::client::{Body, Request};

/// Decisions a second and the most of one call, as the broker has them.
pub(super) const RATE_UNLESS_SAID: u64 = 50;
const MAX_BULK: u64 = 1_000;

const EXPLAIN: Arg = Arg::query(
    "explain",
    "explain",
    Kind::Flag,
    "Say why the safety rules refuse it, in words of the message, and which exception would fit",
);
const HANDOFF: Arg = Arg::path("HANDOFF", "The handoff's UUID");
const OUTCOME: Shape = Shape::Rows {
    at: "/items",
    columns: &[
        Column("HANDOFF", "/handoffId"),
        Column("RESULT", "/result"),
        Column("FAILURES", "/failures"),
        Column("ERROR", "/error"),
    ],
    foot: &[
        Column("dry run:", "/dryRun"),
        Column("matched:", "/matched"),
        Column("done:", "/done"),
        Column("refused:", "/refused"),
        Column("failed:", "/failed"),
        Column("more to do:", "/more"),
    ],
};

/// Of a bulk decision that the gate has no say in.
pub(super) const BULK_OUTCOME: Shape = Shape::Rows {
    at: "/items",
    columns: &[Column("ID", "/id"), Column("RESULT", "/result"), Column("ERROR", "/error")],
    foot: &[
        Column("dry run:", "/dryRun"),
        Column("matched:", "/matched"),
        Column("done:", "/done"),
        Column("failed:", "/failed"),
        Column("more to do:", "/more"),
    ],
};

pub(super) const RATE: Arg = Arg::body(
    "rate",
    "/ratePerSecond",
    Kind::Whole,
    "Decisions a second, 1 to 1000; 50 unless said",
);
pub(super) const DRY_RUN: Arg =
    Arg::body("dry-run", "/dryRun", Kind::Flag, "Say what would come of it, and change nothing");

/// A trial of a release would ask the gate, and its classifier, about each.
const LETTERS: Option<Parts> = Some(Parts { trial: "dead-letters/discard", id: "handoffId" });

macro_rules! with_filter {
    ($($own:expr),*) => {
        &[
            $($own,)*
            Arg::body("of-reason", "/filter/reason", Kind::Text, "Of those open: kept for this reason"),
            Arg::body("from-agent", "/filter/source", Kind::Text, "Of those open: from this agent"),
            Arg::body("to-agent", "/filter/target", Kind::Text, "Of those open: to this agent"),
            Arg::body("after", "/filter/from", Kind::Text, "Of those open: kept at this time or later, RFC 3339"),
            Arg::body("before", "/filter/to", Kind::Text, "Of those open: kept before this time, RFC 3339"),
            Arg::body("handoff", "/filter/ids", Kind::List, "Of those open: just this one; repeat for more"),
            RATE,
            DRY_RUN,
            REASON
        ]
    };
}

const WAIVE: Arg = Arg::body(
    "waive",
    "/waive",
    Kind::List,
    "A finding to waive: its pointer, CODE:pointer, or rule:name; repeat for more",
);

pub(super) const RESOURCE: Resource = Resource {
    name: "dead-letters",
    about: "Dead letters: handoffs that wait for a person",
    actions: &[
        Action {
            name: "list",
            about: "List dead letters, newest first",
            path: "/dead-letters",
            args: &[
                Arg::query(
                    "status",
                    "status",
                    Kind::Choice(&["OPEN", "RELEASED", "DISCARDED"]),
                    "In this state",
                ),
                Arg::query("task", "taskId", Kind::Text, "Of this task"),
                Arg::query("reason", "reason", Kind::Text, "With this primary reason"),
                Arg::query("from-agent", "fromAgent", Kind::Text, "From this agent"),
                Arg::query("to-agent", "toAgent", Kind::Text, "To this agent"),
                Arg::query("after", "from", Kind::Text, "Kept at this time or later, RFC 3339"),
                Arg::query("before", "to", Kind::Text, "Kept before this time, RFC 3339"),
            ],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("HANDOFF", "/handoffId"),
                    Column("FROM", "/fromAgent"),
                    Column("TO", "/toAgent"),
                    Column("REASON", "/reason"),
                    Column("STATUS", "/status"),
                    Column("CREATED", "/createdAt"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one with its message and what was found in it",
            path: "/dead-letters/{HANDOFF}",
            args: &[HANDOFF, EXPLAIN],
            ..Action::READ
        },
        Action {
            name: "release",
            about: "Deliver one after all; the gate judges it afresh, but for what is waived",
            verb: Verb::Post,
            path: "/dead-letters/{HANDOFF}/release",
            args: &[HANDOFF, WAIVE, REASON],
            ..Action::READ
        },
        Action {
            name: "discard",
            about: "Never deliver one",
            verb: Verb::Post,
            path: "/dead-letters/{HANDOFF}/discard",
            args: &[HANDOFF, REASON],
            ..Action::READ
        },
        Action {
            name: "release-all",
            about: "Deliver all that fit, with progress; exit 1 if one is refused or fails",
            verb: Verb::Post,
            path: "/dead-letters/release",
            args: with_filter!(WAIVE),
            parts: LETTERS,
            plan: bulk,
            shape: OUTCOME,
            well: all_done,
            ..Action::READ
        },
        Action {
            name: "discard-all",
            about: "Never deliver any that fit, with progress; exit 1 if one fails",
            verb: Verb::Post,
            path: "/dead-letters/discard",
            args: with_filter!(),
            asks: Some("Discard all that fit, for good?"),
            parts: LETTERS,
            plan: bulk,
            shape: OUTCOME,
            well: all_done,
            ..Action::READ
        },
    ],
};

/// A call on many takes as long as its rate says.
pub(super) fn bulk(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let mut request = plain(action, given)?;
    let Some(Body::Json(body)) = &mut request.body else { return Ok(request) };
    // That nothing was said of which is for the broker to refuse.
    if body.get("filter").is_none() {
        body["filter"] = json!({});
    }
    let rate = body.get("ratePerSecond").and_then(Value::as_u64).unwrap_or(RATE_UNLESS_SAID).max(1);
    request.patience = Some(Duration::from_secs(60 + MAX_BULK / rate));
    Ok(request)
}

pub(super) fn none_failed(answer: &Value) -> bool {
    answer["failed"] == 0
}

fn all_done(answer: &Value) -> bool {
    ["refused", "failed"].iter().all(|name| answer[name] == 0)
}
