use serde_json::{Value, json};

use super::request::addressed;
use super::resource::ArgValues;
use super::resource::{Action, Arg, Column, Kind, Resource, Shape, Verb};
use crate::cli::client::{Body, Request};

const SCHEMA: Arg = Arg::path("SCHEMA", "The schema's id");
const VERSION: Arg = Arg::path("VERSION", "The version");
const FILE: Arg =
    Arg::planned("FILE", Kind::File, "The JSON Schema; - for standard input").needed().placed();
const MIGRATION: Arg = Arg::planned(
    "migration",
    Kind::Text,
    "The change that senders have to make to move to it; needed if it asks for more",
);

pub(super) const RESOURCE: Resource = Resource {
    name: "schemas",
    about: "Payload schemas: what contracts may name",
    actions: &[
        Action {
            name: "list",
            about: "List the payload schemas, each with its highest version",
            path: "/schemas/payloads",
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("SCHEMA", "/schemaId"),
                    Column("VERSION", "/version"),
                    Column("VERSIONS", "/versions"),
                    Column("CREATED", "/createdAt"),
                    Column("BY", "/createdBy"),
                ],
                foot: &[],
            },
            ..Action::READ
        },
        Action {
            name: "versions",
            about: "List the versions of a payload schema",
            path: "/schemas/payloads/{SCHEMA}",
            args: &[SCHEMA],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("VERSION", "/version"),
                    Column("SHA256", "/sha256"),
                    Column("CREATED", "/createdAt"),
                    Column("BY", "/createdBy"),
                    Column("MIGRATION", "/migration"),
                ],
                foot: &[],
            },
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show one version with its document",
            path: "/schemas/payloads/{SCHEMA}/{VERSION}",
            args: &[SCHEMA, VERSION],
            ..Action::READ
        },
        Action {
            name: "put",
            about: "Register a version from a file, if its number says what changes",
            verb: Verb::Put,
            path: "/schemas/payloads/{SCHEMA}/{VERSION}",
            args: &[SCHEMA, VERSION, FILE, MIGRATION],
            plan,
            ..Action::READ
        },
        Action {
            name: "compare",
            about: "Say what a file would change and which version that needs; exit 1 if it would be refused",
            verb: Verb::Post,
            path: "/schemas/payloads/{SCHEMA}/compare",
            args: &[
                SCHEMA,
                FILE,
                Arg::planned("as-version", Kind::Text, "The version that it would get"),
                MIGRATION,
            ],
            plan,
            shape: Shape::Rows {
                at: "/changes",
                columns: &[
                    Column("NEEDS", "/needs"),
                    Column("CHANGE", "/kind"),
                    Column("AT", "/pointer"),
                    Column("BREAKS", "/breaks"),
                    Column("REASON", "/reason"),
                ],
                foot: &[
                    Column("against:", "/against"),
                    Column("needs:", "/needs"),
                    Column("next version:", "/nextVersion"),
                    Column("accepted:", "/accepted"),
                    Column("failures:", "/failures"),
                ],
            },
            well: |answer| answer["accepted"] == true,
            ..Action::READ
        },
    ],
};

/// The file becomes a member of the body.
fn plan(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let text = given.one("FILE").unwrap_or_default();
    let schema: Value =
        serde_json::from_str(text).map_err(|err| format!("the file is not JSON: {err}"))?;
    let mut body = json!({ "schema": schema });
    for (said, name) in [("migration", "migration"), ("as-version", "version")] {
        if let Some(words) = given.one(said) {
            body[name] = json!(words);
        }
    }
    addressed(action, given, Some(Body::Json(body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(said: &[(&'static str, &str)]) -> ArgValues {
        ArgValues(said.iter().map(|(name, text)| (*name, vec![(*text).to_owned()])).collect())
    }

    #[test]
    fn a_file_goes_into_the_body_and_the_name_into_the_path() {
        let said = [
            ("SCHEMA", "refund"),
            ("VERSION", "1.0.0"),
            ("FILE", r#"{"type":"object"}"#),
            ("migration", "send it"),
        ];
        let put = plan(&RESOURCE.actions[3], &given(&said)).unwrap();
        assert_eq!(put.path, ["schemas", "payloads", "refund", "1.0.0"]);
        let body = json!({ "schema": { "type": "object" }, "migration": "send it" });
        assert_eq!(put.body, Some(Body::Json(body)));
        let said = [("SCHEMA", "refund"), ("FILE", "{}"), ("as-version", "2.0.0")];
        let compare = plan(&RESOURCE.actions[4], &given(&said)).unwrap();
        assert_eq!(compare.path, ["schemas", "payloads", "refund", "compare"]);
        assert_eq!(compare.body, Some(Body::Json(json!({ "schema": {}, "version": "2.0.0" }))));
        let why =
            plan(&RESOURCE.actions[4], &given(&[("SCHEMA", "x"), ("FILE", "{")])).unwrap_err();
        assert!(why.contains("is not JSON"), "{why}");
    }
}
