use super::resource::{Action, Arg, ArgTarget, Column, Kind, Resource, Shape, Verb};
use handoffd_domain::handoff::DeliveryMode;

const MODES: [&str; 8] = {
    let mut words = [""; 8];
    let mut place = 0;
    while place < words.len() {
        words[place] = DeliveryMode::ALL[place].as_str();
        place += 1;
    }
    words
};

const AGENT: Arg = Arg::path("AGENT", "The agent's id");
const STATES: Kind = Kind::Choice(&["RUNNABLE", "BUSY", "PAUSED"]);
const WHOLE: Arg = Arg::file("The agent as JSON (- for standard input); options go over it");

const LIST: Shape = Shape::Rows {
    at: "/items",
    columns: &[
        Column("AGENT", "/agentId"),
        Column("TYPE", "/agentType"),
        Column("VERSION", "/agentVersion"),
        Column("STATE", "/state"),
        Column("TAKES", "/acceptsHandoffs"),
        Column("DELIVERY", "/delivery/mode"),
        Column("DISABLED", "/delivery/disabled"),
        Column("CAPABILITIES", "/capabilities"),
        Column("TARGETS", "/handoffTargets"),
    ],
    foot: &[],
};

const MATCH: Shape = Shape::Rows {
    at: "/items",
    columns: &[
        Column("AGENT", "/agentId"),
        Column("TYPE", "/agentType"),
        Column("VERSION", "/agentVersion"),
        Column("LIVE", "/live"),
        Column("SCORE", "/score"),
        Column("DESCRIPTION", "/description"),
    ],
    foot: &[],
};

macro_rules! with_members {
    ($($own:expr),*) => {
        &[
            $($own,)*
            Arg::body("type", "/agentType", Kind::Text, "The agent's kind"),
            Arg::body("agent-version", "/agentVersion", Kind::Text, "Its semantic version"),
            Arg::body("name", "/name", Kind::Text, "For people"),
            Arg::body("description", "/description", Kind::Text, "For people, and for `match`"),
            Arg::body("capability", "/capabilities", Kind::List, "A capability; repeat for more"),
            Arg::body("domain", "/domains", Kind::List, "A domain that it knows; repeat for more"),
            Arg::body("permission", "/permissions", Kind::List, "A permission; repeat for more"),
            Arg::body("target", "/handoffTargets", Kind::List, "An agent's id or type:NAME that it may hand off to; repeat for more"),
            Arg::body("accepts-handoffs", "/acceptsHandoffs", Kind::Truth, "Whether it takes handoffs at all"),
            Arg::body("supervisor", "/supervisorId", Kind::Text, "The agent that recovers for it"),
            Arg::body("require-signature", "/requireSignature", Kind::Truth, "Refuse its messages without a signature"),
            Arg::body("require-checkpoint", "/requireCheckpoint", Kind::Truth, "Refuse its messages without a checkpoint"),
            Arg::body("state", "/state", STATES, "Whether it runs"),
            Arg {
                implies: Some(("/delivery/mode", "webhook")),
                ..Arg::body("webhook", "/delivery/url", Kind::Text, "Deliver by POST to this URL; other settings of delivery: --file")
            },
            Arg::body("mode", "/delivery/mode", Kind::Choice(&MODES), "How it gets its handoffs; pull unless said"),
            Arg::body("setting", "/delivery/config", Kind::Fields, "A setting of that transport, see below; repeat for more"),
            Arg::body("credential", "/delivery/credentials", Kind::Fields, "A secret of that transport; KEY=@FILE reads it from a file; repeat for more"),
            WHOLE
        ]
    };
}

const STATE: Action =
    Action { verb: Verb::Patch, path: "/agents/{AGENT}", args: &[AGENT], ..Action::READ };

pub(super) const RESOURCE: Resource = Resource {
    name: "agents",
    about: "Agents: who hands off, and who takes",
    actions: &[
        Action {
            name: "list",
            about: "List the agents",
            path: "/agents",
            shape: LIST,
            watch: true,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one agent",
            path: "/agents/{AGENT}",
            args: &[AGENT],
            ..Action::READ
        },
        Action {
            name: "match",
            about: "Find agents that could take something, best first",
            path: "/agents/match",
            args: &[
                Arg::query("capability", "capability", Kind::Text, "Agents that can do this"),
                Arg::query("task", "task", Kind::Text, "Agents whose words are like these"),
            ],
            shape: MATCH,
            ..Action::READ
        },
        Action {
            name: "add",
            about: "Register an agent; its key and secrets are shown this once",
            verb: Verb::Post,
            path: "/agents",
            args: with_members!(Arg {
                goes: ArgTarget::Body("/agentId"),
                required: false,
                ..AGENT
            }),
            ..Action::READ
        },
        Action {
            name: "change",
            about: "Change an agent: what is not said stays as it is",
            verb: Verb::Patch,
            path: "/agents/{AGENT}",
            args: with_members!(AGENT),
            ..Action::READ
        },
        Action {
            name: "pause",
            about: "Hand nothing to an agent for now",
            fixed: &[("/state", "PAUSED")],
            ..STATE
        },
        Action {
            name: "resume",
            about: "Hand to an agent again",
            fixed: &[("/state", "RUNNABLE")],
            ..STATE
        },
        Action {
            name: "remove",
            about: "Remove an agent; its keys stop working",
            verb: Verb::Delete,
            path: "/agents/{AGENT}",
            args: &[AGENT],
            shape: Shape::Done("removed"),
            ..Action::READ
        },
        Action {
            name: "rotate-secret",
            about: "Replace a secret of an agent; the old one stays valid for a while",
            verb: Verb::Post,
            path: "/agents/{AGENT}/secrets/{SECRET}/rotate",
            args: &[
                AGENT,
                Arg { kind: Kind::Choice(&["signing", "webhook"]), ..Arg::path("SECRET", "Which") },
                OVERLAP,
            ],
            ..Action::READ
        },
    ],
};

/// How long an old secret stays valid.
pub(super) const OVERLAP: Arg = Arg::body(
    "overlap-seconds",
    "/overlapSeconds",
    Kind::Whole,
    "How long the old one stays valid; auth.rotation_overlap_s unless said",
);
