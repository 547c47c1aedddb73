use super::resource::{Action, Arg, CURSOR, Column, Kind, Resource, Shape};

pub(super) const RESOURCE: Resource = Resource {
    name: "attention",
    about: "Attention: what waits for a person or another agent; of one task: handoffd why",
    actions: &[Action {
        name: "list",
        about: "List what waits, the most urgent first",
        path: "/attention",
        args: &[
            Arg::query("agent", "agentId", Kind::Text, "For this agent, or its messages"),
            Arg::query("kind", "kind", Kind::Text, "Of this kind, such as NOT_FETCHED"),
            Arg::query(
                "severity",
                "severity",
                Kind::Choice(&["critical", "warning", "notice"]),
                "Of this severity",
            ),
            Arg::query("min-age-ms", "minAgeMs", Kind::Whole, "For this long, in milliseconds"),
        ],
        shape: Shape::Rows {
            at: "/items",
            columns: &[
                Column("SEVERITY", "/severity"),
                Column("KIND", "/kind"),
                Column("SINCE", "/since"),
                Column("WAIT", "/sentence"),
                Column("REMEDY", "/remedies/0/command"),
            ],
            foot: &[],
        },
        pages: CURSOR,
        watch: true,
        ..Action::READ
    }],
};
