use super::resource::{Action, Arg, Column, Kind, Resource, Shape, Verb};

const WINDOW: Arg = Arg::path("WINDOW", "How long what was spent counts: PT1H, P1D, P7D, …");
const AGENT: Arg =
    Arg::query("agent", "agentId", Kind::Text, "This agent's; the whole tenant's unless said");

const UNIT: Arg = Arg::query(
    "unit",
    "unit",
    Kind::Choice(&["usd", "tokens"]),
    "Only what it holds of that; all of it unless said",
);

pub(super) const RESOURCE: Resource = Resource {
    name: "caps",
    about: "Rolling caps: what the tenant and its agents may spend within a window",
    actions: &[
        Action {
            name: "list",
            about: "List the caps, with what of each is used now",
            path: "/caps",
            args: &[AGENT],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("AGENT", "/agentId"),
                    Column("WINDOW", "/window"),
                    Column("USD", "/usd"),
                    Column("SPENT", "/spentUSD"),
                    Column("RESERVED", "/reservedUSD"),
                    Column("LEFT", "/leftUSD"),
                    Column("DEFAULT", "/default"),
                    Column("TOKENS", "/tokens"),
                    Column("SPENT", "/spentTokens"),
                    Column("LEFT", "/leftTokens"),
                    Column("DEFAULT", "/defaultTokens"),
                ],
                foot: &[],
            },
            watch: true,
            ..Action::READ
        },
        Action {
            name: "set",
            about: "Set a cap; what counts already goes on counting",
            verb: Verb::Put,
            path: "/caps/{WINDOW}",
            args: &[
                WINDOW,
                Arg::body("usd", "/usd", Kind::Text, "How much, decimal US dollars: 100.00"),
                Arg::body("tokens", "/tokens", Kind::Whole, "How many tokens, read and written"),
                AGENT,
            ],
            ..Action::READ
        },
        Action {
            name: "remove",
            about: "Take a cap away; one of the settings counts again then",
            verb: Verb::Delete,
            path: "/caps/{WINDOW}",
            args: &[WINDOW, AGENT, UNIT],
            shape: Shape::Done("removed"),
            ..Action::READ
        },
    ],
};
