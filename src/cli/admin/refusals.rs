use super::resource::{Action, Arg, CURSOR, Column, Kind, Resource, Shape};

pub(super) const RESOURCE: Resource = Resource {
    name: "refusals",
    about: "Refusals: messages that the broker did not take, and why",
    actions: &[Action {
        name: "list",
        about: "List refused messages, newest first",
        path: "/refusals",
        args: &[
            Arg::query("from-agent", "fromAgent", Kind::Text, "From this agent"),
            Arg::query("to-agent", "toAgent", Kind::Text, "To this agent"),
            Arg::query("task", "taskId", Kind::Text, "That name this task"),
            Arg::query("code", "code", Kind::Text, "For this reason, such as SCHEMA_INVALID"),
            Arg::query("pointer", "pointer", Kind::Text, "With the reason at this pointer"),
            Arg::query("after", "from", Kind::Text, "At this time or later, RFC 3339"),
            Arg::query("before", "to", Kind::Text, "Before this time, RFC 3339"),
        ],
        shape: Shape::Rows {
            at: "/items",
            columns: &[
                Column("REFUSED", "/refusedAt"),
                Column("FROM", "/fromAgent"),
                Column("TO", "/toAgent"),
                Column("CODE", "/code"),
                Column("POINTER", "/pointer"),
                Column("TASK", "/taskId"),
                Column("HANDOFF", "/handoffId"),
            ],
            foot: &[],
        },
        pages: CURSOR,
        watch: true,
        ..Action::READ
    }],
};
