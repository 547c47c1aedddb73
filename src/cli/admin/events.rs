use super::resource::{Action, Arg, Column, Kind, Resource, Shape};

pub(super) const RESOURCE: Resource = Resource {
    name: "events",
    about: "Events: what happened, one page at a time; live: subscriptions",
    actions: &[Action {
        name: "list",
        about: "List a page of events, oldest first; `go on with` is --since of the next",
        path: "/events",
        args: &[
            Arg::query("since", "since", Kind::Text, "From this cursor or time on, RFC 3339"),
            Arg::query("types", "types", Kind::Text, "Of these types, separated by commas"),
            Arg::query("agent", "agentId", Kind::Text, "In which this agent has a part"),
            Arg::query("task", "taskId", Kind::Text, "Of this task"),
            Arg::query("rows", "limit", Kind::Whole, "Events a page, 1 to 500; 50 unless said"),
        ],
        shape: Shape::Rows {
            at: "/items",
            columns: &[
                Column("CURSOR", "/cursor"),
                Column("TIME", "/timestamp"),
                Column("TYPE", "/type"),
                Column("TASK", "/data/taskId"),
                Column("HANDOFF", "/data/handoffId"),
                Column("FROM", "/data/sourceAgentId"),
                Column("TO", "/data/targetAgentId"),
                Column("AGENT", "/data/agentId"),
                Column("REASON", "/data/reason"),
            ],
            foot: &[Column("go on with:", "/nextCursor")],
        },
        ..Action::READ
    }],
};
