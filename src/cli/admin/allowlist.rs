use super::resource::{Action, Arg, ArgTarget, Column, Kind, Resource, Shape, Verb};

const AGENT: Arg = Arg::path("AGENT", "The agent that hands off");
const TARGET: Arg = Arg::path("TARGET", "An agent's id, or type:NAME");

pub(super) const RESOURCE: Resource = Resource {
    name: "allowlist",
    about: "The allowlist: who may hand off to whom",
    actions: &[
        Action {
            name: "list",
            about: "List the whole allowlist, an edge a line",
            path: "/allowlist",
            shape: Shape::Rows {
                at: "/edges",
                columns: &[
                    Column("SOURCE", "/source"),
                    Column("TARGET", "/target"),
                    Column("RESOLVED", "/resolved"),
                    Column("UNKNOWN", "/unknown"),
                ],
                foot: &[],
            },
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show whom an agent may hand off to",
            path: "/agents/{AGENT}/handoff-targets",
            args: &[AGENT],
            ..Action::READ
        },
        Action {
            name: "put",
            about: "Replace an agent's allowlist",
            verb: Verb::Put,
            path: "/agents/{AGENT}/handoff-targets",
            args: &[
                AGENT,
                Arg { kind: Kind::List, goes: ArgTarget::Body("/handoffTargets"), ..TARGET },
            ],
            ..Action::READ
        },
        Action {
            name: "clear",
            about: "Let an agent hand off to no other agent",
            verb: Verb::Put,
            path: "/agents/{AGENT}/handoff-targets",
            args: &[AGENT],
            fixed: &[("/handoffTargets", "[]")],
            ..Action::READ
        },
        Action {
            name: "add",
            about: "Let an agent hand off to one more",
            verb: Verb::Post,
            path: "/agents/{AGENT}/handoff-targets/{TARGET}",
            args: &[AGENT, TARGET],
            ..Action::READ
        },
        Action {
            name: "remove",
            about: "Take one entry out of an agent's allowlist",
            verb: Verb::Delete,
            path: "/agents/{AGENT}/handoff-targets/{TARGET}",
            args: &[AGENT, TARGET],
            ..Action::READ
        },
    ],
};
