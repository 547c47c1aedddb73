//! `handoffd keys`: over the API. `handoffd key` makes the first ones, straight from the database.

use super::resource::{Action, Arg, Column, Kind, Resource, Shape, Verb};

pub(super) const RESOURCE: Resource = Resource {
    name: "keys",
    about: "Keys: who may call; without any, handoffd key makes one",
    actions: &[
        Action {
            name: "list",
            about: "List the keys, without the keys themselves",
            path: "/keys",
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("KEY", "/keyId"),
                    Column("ROLE", "/role"),
                    Column("AGENT", "/agentId"),
                    Column("LABEL", "/label"),
                    Column("CREATED", "/createdAt"),
                    Column("USED", "/lastUsedAt"),
                    Column("EXPIRES", "/expiresAt"),
                ],
                foot: &[],
            },
            ..Action::READ
        },
        Action {
            name: "create",
            about: "Make a key; it is shown this once",
            verb: Verb::Post,
            path: "/keys",
            args: &[
                Arg::body(
                    "role",
                    "/role",
                    Kind::Choice(&["agent", "operator", "operator-metadata", "auditor", "admin"]),
                    "The key's role",
                )
                .needed(),
                Arg::body("agent", "/agentId", Kind::Text, "The agent; for role agent"),
                Arg::body("label", "/label", Kind::Text, "For people"),
                Arg::body(
                    "expires-at",
                    "/expiresAt",
                    Kind::Text,
                    "When it stops working, RFC 3339; never unless said",
                ),
            ],
            ..Action::READ
        },
        Action {
            name: "revoke",
            about: "Revoke a key",
            verb: Verb::Delete,
            path: "/keys/{KEY}",
            args: &[Arg::path("KEY", "The key's public name, key_…")],
            ..Action::READ
        },
    ],
};
