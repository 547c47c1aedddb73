use super::resource::{Action, Column, Resource, Shape};

pub(super) const RESOURCE: Resource = Resource {
    name: "heads",
    about: "Tree heads outside the database",
    actions: &[Action {
        name: "list",
        about: "List the places of audit.publish, with what each has of the log and the newest cosigned head",
        path: "/audit/heads",
        shape: Shape::Rows {
            at: "/places",
            columns: &[
                Column("PLACE", "/kind"),
                Column("RECORDS", "/treeSize"),
                Column("CHECKED", "/checkedAt"),
                Column("LATE", "/late"),
            ],
            foot: &[
                Column("log:", "/logId"),
                Column("records:", "/treeSize"),
                Column("cosigned:", "/witnessed/treeSize"),
                Column("by:", "/witnessed/witnesses"),
            ],
        },
        watch: true,
        ..Action::READ
    }],
};
