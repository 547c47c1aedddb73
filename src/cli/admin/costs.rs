use super::resource::{Action, Arg, Column, Kind, Resource, Shape, USER_REF};

pub(super) const RESOURCE: Resource = Resource {
    name: "costs",
    about: "Costs: what agents spent, by day and edge; of one task: handoffd tasks cost",
    actions: &[Action {
        name: "list",
        about: "List what was spent, by day, edge and agent",
        path: "/costs",
        args: &[
            Arg::query("after", "from", Kind::Text, "Said at this time or later, RFC 3339"),
            Arg::query("before", "to", Kind::Text, "Said before this time, RFC 3339"),
            Arg::query("agent", "agentId", Kind::Text, "Spent by this agent"),
            Arg::query("from-agent", "fromAgent", Kind::Text, "On edges from this agent"),
            Arg::query("to-agent", "toAgent", Kind::Text, "On edges to this agent"),
            Arg::query("task", "taskId", Kind::Text, "On this task"),
            USER_REF,
        ],
        shape: Shape::Rows {
            at: "/items",
            columns: &[
                Column("DAY", "/day"),
                Column("FROM", "/fromAgentId"),
                Column("TO", "/toAgentId"),
                Column("AGENT", "/agentId"),
                Column("SPENT USD", "/spentUSD"),
                Column("PROMPT", "/tokens/prompt"),
                Column("COMPLETION", "/tokens/completion"),
                Column("HANDOFFS", "/handoffs"),
            ],
            foot: &[
                Column("spent USD:", "/total/spentUSD"),
                Column("handoffs:", "/total/handoffs"),
            ],
        },
        watch: true,
        ..Action::READ
    }],
};
