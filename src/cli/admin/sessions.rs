use super::resource::{Action, Arg, CURSOR, Column, Resource, Shape, Verb};

pub(super) const RESOURCE: Resource = Resource {
    name: "sessions",
    about: "Sessions: who is logged in to the console",
    actions: &[
        Action {
            name: "list",
            about: "List the console's sessions, newest first",
            path: "/sessions",
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("SESSION", "/sessionId"),
                    Column("KEY", "/keyId"),
                    Column("ROLE", "/role"),
                    Column("BEGAN", "/createdAt"),
                    Column("SEEN", "/lastSeenAt"),
                    Column("EXPIRES", "/expiresAt"),
                    Column("BROWSER", "/userAgent"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            ..Action::READ
        },
        Action {
            name: "end",
            about: "End a session",
            verb: Verb::Delete,
            path: "/sessions/{SESSION}",
            args: &[Arg::path("SESSION", "The session's UUID")],
            ..Action::READ
        },
    ],
};
