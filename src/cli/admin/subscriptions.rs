use serde_json::Value;

use super::agents::OVERLAP;
use super::resource::{Action, Arg, Column, Kind, Pages, Resource, Shape, Verb};

const SUBSCRIPTION: Arg = Arg::path("SUBSCRIPTION", "The subscription's UUID");

macro_rules! with_members {
    ($($own:expr),*) => {
        &[
            $($own,)*
            Arg::body("description", "/description", Kind::Text, "For people"),
            Arg::body("event-type", "/eventTypes", Kind::List, "A type to tell of, all unless said; repeat for more"),
            Arg::body("of-agent", "/filter/agentId", Kind::Text, "Only what this agent has a part in"),
            Arg::body("of-task", "/filter/taskId", Kind::Text, "Only of this task"),
            Arg::body("format", "/format", Kind::Choice(&["standard", "cloudevents"]), "How events are written"),
            Arg::body("enabled", "/enabled", Kind::Truth, "Deliver at all; true switches it on again"),
            Arg::file("The subscription as JSON (- for standard input); options go over it")
        ]
    };
}

const URL: Arg = Arg::body("to", "/url", Kind::Text, "The URL that events are posted to");

/// A subscription's attempts are counted; a page goes on below its last.
const BEFORE: Option<Pages> = Some(Pages {
    parameter: "before",
    next: |page| {
        let last = page.get("items").and_then(Value::as_array)?.last()?;
        last.get("number").and_then(Value::as_i64).map(|number| number.to_string())
    },
});

pub(super) const RESOURCE: Resource = Resource {
    name: "subscriptions",
    about: "Subscriptions: who is told of events",
    actions: &[
        Action {
            name: "list",
            about: "List the subscriptions, without their secrets",
            path: "/subscriptions",
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("SUBSCRIPTION", "/subscriptionId"),
                    Column("URL", "/url"),
                    Column("TYPES", "/eventTypes"),
                    Column("ENABLED", "/enabled"),
                    Column("OFF FOR", "/disabledReason"),
                    Column("FORMAT", "/format"),
                ],
                foot: &[],
            },
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show a subscription, and how far it has been told",
            path: "/subscriptions/{SUBSCRIPTION}",
            args: &[SUBSCRIPTION],
            watch: true,
            ..Action::READ
        },
        Action {
            name: "add",
            about: "Subscribe to events; the secret is shown this once",
            verb: Verb::Post,
            path: "/subscriptions",
            args: with_members!(URL),
            ..Action::READ
        },
        Action {
            name: "change",
            about: "Change a subscription: what is not said stays as it is",
            verb: Verb::Patch,
            path: "/subscriptions/{SUBSCRIPTION}",
            args: with_members!(SUBSCRIPTION, URL),
            ..Action::READ
        },
        Action {
            name: "remove",
            about: "End a subscription",
            verb: Verb::Delete,
            path: "/subscriptions/{SUBSCRIPTION}",
            args: &[SUBSCRIPTION],
            shape: Shape::Done("removed"),
            ..Action::READ
        },
        Action {
            name: "rotate-secret",
            about: "Replace a subscription's secret; the old one stays valid for a while",
            verb: Verb::Post,
            path: "/subscriptions/{SUBSCRIPTION}/secret/rotate",
            args: &[SUBSCRIPTION, OVERLAP],
            ..Action::READ
        },
        Action {
            name: "replay",
            about: "Send past events to a subscription again",
            verb: Verb::Post,
            path: "/subscriptions/{SUBSCRIPTION}/replay",
            args: &[
                SUBSCRIPTION,
                Arg::body("since", "/since", Kind::Text, "A cursor, or a time, RFC 3339").needed(),
            ],
            ..Action::READ
        },
        Action {
            name: "deliveries",
            about: "List the last attempts at telling a subscription, newest first",
            path: "/subscriptions/{SUBSCRIPTION}/deliveries",
            args: &[SUBSCRIPTION],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("NUMBER", "/number"),
                    Column("TYPE", "/type"),
                    Column("AT", "/at"),
                    Column("ATTEMPT", "/attempt"),
                    Column("OUTCOME", "/outcome"),
                    Column("STATUS", "/status"),
                    Column("DETAIL", "/detail"),
                ],
                foot: &[],
            },
            pages: BEFORE,
            ..Action::READ
        },
    ],
};
