use super::resource::{Action, Arg, CURSOR, Column, Kind, REASON, Resource, Shape, Verb};

const HOLD: Arg = Arg::path("HOLD", "The hold's id");

pub(super) const RESOURCE: Resource = Resource {
    name: "holds",
    about: "Legal holds: data that may not be erased",
    actions: &[
        Action {
            name: "list",
            about: "List the legal holds",
            path: "/legal-holds",
            args: &[],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("HOLD", "/holdId"),
                    Column("SUBJECT", "/subjectId"),
                    Column("TASK", "/taskId"),
                    Column("REASON", "/reason"),
                    Column("PLACED", "/placedAt"),
                    Column("RELEASED", "/releasedAt"),
                ],
                foot: &[],
            },
            pages: CURSOR,
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one hold",
            path: "/legal-holds/{HOLD}",
            args: &[HOLD],
            ..Action::READ
        },
        Action {
            name: "place",
            about: "Place a hold on a person's data, or on a task",
            verb: Verb::Put,
            path: "/legal-holds/{HOLD}",
            args: &[
                HOLD,
                Arg::body(
                    "subject",
                    "/subjectId",
                    Kind::Text,
                    "The person whose data may not be erased",
                ),
                Arg::body("task", "/taskId", Kind::Text, "The task on which nothing may be erased"),
                REASON,
            ],
            ..Action::READ
        },
        Action {
            name: "release",
            about: "Release a hold",
            verb: Verb::Delete,
            path: "/legal-holds/{HOLD}",
            args: &[
                HOLD,
                Arg::body("reason", "/reason", Kind::Text, "Why; it is kept with the record"),
            ],
            ..Action::READ
        },
    ],
};
