use super::resource::{Action, CURSOR, Column, Resource, Shape};

pub(super) const RESOURCE: Resource = Resource {
    name: "erasures",
    about: "Erasures of persons' data, without the persons",
    actions: &[Action {
        name: "list",
        about: "List the erasures, the newest first; data-subjects erasure shows a certificate",
        path: "/erasures",
        shape: Shape::Rows {
            at: "/items",
            columns: &[
                Column("ERASURE", "/erasureId"),
                Column("STATUS", "/status"),
                Column("SCOPE", "/scope"),
                Column("REASON", "/reason"),
                Column("HELD", "/held"),
                Column("PERSONAL DATA", "/erased/personalData"),
                Column("CONTENTS", "/erased/contents"),
                Column("CHECKPOINTS", "/erased/checkpoints"),
                Column("ASKED FOR", "/requestedAt"),
                Column("ERASED", "/erasedAt"),
                Column("RECORD", "/leafIndex"),
            ],
            foot: &[],
        },
        pages: CURSOR,
        ..Action::READ
    }],
};
