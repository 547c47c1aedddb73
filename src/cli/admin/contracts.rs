use std::path::Path;

use serde_json::{Value, json};

use super::request::{addressed, path};
use super::resource::ArgValues;
use super::resource::{Action, Arg, Column, Kind, Resource, Shape, Verb};
use crate::cli::client::{Body, Request};
use crate::cli::lint::with_schema;
use handoffd_gate::contract::document::Document;
use handoffd_gate::contract::whole;

const CONTRACT: Arg = Arg::path("CONTRACT", "The contract's id");
const FILE: Arg = Arg::planned(
    "FILE",
    Kind::Contract,
    "The contract, in YAML or JSON, with the payload schema beside it; - for standard input",
)
.needed()
.placed();

pub(super) const RESOURCE: Resource = Resource {
    name: "contracts",
    about: "Contracts: what rules an edge",
    actions: &[
        Action {
            name: "list",
            about: "List the contracts, each in its highest version",
            path: "/contracts",
            args: &[
                Arg::query("source", "source", Kind::Text, "About this source"),
                Arg::query("target", "target", Kind::Text, "About this target"),
            ],
            shape: Shape::Rows {
                at: "/items",
                columns: &[
                    Column("CONTRACT", "/id"),
                    Column("VERSION", "/version"),
                    Column("SOURCE", "/source"),
                    Column("TARGET", "/target"),
                    Column("DEPRECATED", "/meta/deprecated"),
                    Column("CREATED", "/meta/createdAt"),
                ],
                foot: &[],
            },
            ..Action::READ
        },
        Action {
            name: "show",
            about: "Show a contract",
            path: "/contracts/{CONTRACT}",
            args: &[
                CONTRACT,
                Arg::query("version", "version", Kind::Text, "Which; the highest unless said"),
            ],
            ..Action::READ
        },
        Action {
            name: "put",
            about: "Put a version of a contract from a file, under the id that it names",
            verb: Verb::Put,
            path: "/contracts/{CONTRACT}",
            args: &[FILE],
            plan: put,
            ..Action::READ
        },
        Action {
            name: "deprecate",
            about: "Put a version of a contract from a file that says that it is on its way out",
            verb: Verb::Put,
            path: "/contracts/{CONTRACT}",
            args: &[
                FILE,
                Arg::planned("since", Kind::Text, "Since when, RFC 3339; from now on unless said"),
                Arg::planned("sunset", Kind::Text, "When it ends, RFC 3339"),
                Arg::planned("replacement", Kind::Text, "The id of the contract that follows it"),
                Arg::planned(
                    "as-version",
                    Kind::Text,
                    "The version to put; the file's next patch unless said",
                ),
            ],
            plan: deprecate,
            ..Action::READ
        },
        Action {
            name: "lint",
            about: "Check a contract against the broker's agents; exit 1 on errors",
            verb: Verb::Post,
            path: "/contracts/lint",
            args: &[FILE],
            plan: |action, given| {
                addressed(action, given, given.one("FILE").map(|text| Body::Yaml(text.to_owned())))
            },
            well: without_errors,
            ..Action::READ
        },
    ],
};

/// The text of a contract as it goes to the broker, together with the payload schema that it names as a file
/// beside it. The broker reads no files, and it reports the faults of a text that is not a contract.
pub(super) fn self_contained(text: String, path: &str) -> String {
    let Ok(document) = Document::parse(&text) else { return text };
    let brought = document.value().get("schemas").cloned();
    let with = with_schema(document, Path::new(path));
    if with.value().get("schemas") == brought.as_ref() { text } else { with.value().to_string() }
}

fn document(given: &ArgValues) -> Result<Value, String> {
    let document = Document::parse(given.one("FILE").unwrap_or_default()).map_err(|err| {
        format!("the file, line {}, column {}: {}", err.place.line, err.place.column, err.message)
    })?;
    Ok(whole::justified(&document, "").unwrap_or_else(|| document.value().clone()))
}

/// The path of a contract: its own id is part of it.
fn place(action: &Action, document: &Value) -> Result<Vec<String>, String> {
    let id = document.get("id").and_then(Value::as_str).ok_or("the file has no `id`, a text")?;
    path(action.path, |_| Some(id))
}

/// The file goes as it is: the broker says what is wrong with it.
fn put(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let path = place(action, &document(given)?)?;
    let body = given.one("FILE").map(|text| Body::Yaml(text.to_owned()));
    let method = action.verb.method();
    Ok(Request { method, path, query: Vec::new(), body, patience: None })
}

/// A version that was put stays as it is, so the word goes into the next.
fn deprecate(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let mut contract = document(given)?;
    let path = place(action, &contract)?;
    let version = match given.one("as-version") {
        Some(version) => version.to_owned(),
        None => next_patch(&contract)?,
    };
    let mut deprecation = json!({});
    for (said, name) in
        [("since", "since"), ("sunset", "sunset"), ("replacement", "replacement_id")]
    {
        if let Some(text) = given.one(said) {
            deprecation[name] = json!(text);
        }
    }
    contract["version"] = json!(version);
    contract["deprecation"] = deprecation;
    let method = action.verb.method();
    Ok(Request {
        method,
        path,
        query: Vec::new(),
        body: Some(Body::Json(contract)),
        patience: None,
    })
}

fn next_patch(contract: &Value) -> Result<String, String> {
    let wrong = "the file's `version` is none: say --as-version";
    let text = contract.get("version").and_then(Value::as_str).ok_or(wrong)?;
    let mut version: semver::Version = text.parse().map_err(|_| wrong)?;
    version.patch += 1;
    version.pre = semver::Prerelease::EMPTY;
    version.build = semver::BuildMetadata::EMPTY;
    Ok(version.to_string())
}

fn without_errors(report: &Value) -> bool {
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    list(report, "contracts")
        .iter()
        .all(|one| list(one, "findings").iter().all(|finding| finding["severity"] != "error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(said: &[(&'static str, &str)]) -> ArgValues {
        ArgValues(said.iter().map(|(name, text)| (*name, vec![(*text).to_owned()])).collect())
    }

    #[test]
    fn a_deprecation_is_the_next_version_of_the_file() {
        let file = "id: a-to-b\nversion: 1.2.9-rc.1\nsource: a\ntarget: b\n";
        let said = [("FILE", file), ("sunset", "2027-01-01T00:00:00Z"), ("replacement", "a-to-c")];
        let request = deprecate(&RESOURCE.actions[3], &given(&said)).unwrap();
        assert_eq!(request.path, ["contracts", "a-to-b"]);
        let Some(Body::Json(body)) = request.body else { panic!("no body") };
        assert_eq!(body["version"], "1.2.10");
        let word = json!({ "sunset": "2027-01-01T00:00:00Z", "replacement_id": "a-to-c" });
        assert_eq!(body["deprecation"], word);
        assert_eq!(body["source"], "a");
    }

    #[test]
    fn a_file_that_is_no_contract_is_named_with_its_place() {
        for (file, part) in [
            ("a: [", "line"),
            ("source: a", "no `id`"),
            ("id: ..\nversion: 1.0.0", "is not a possible contract"),
        ] {
            let why = put(&RESOURCE.actions[2], &given(&[("FILE", file)])).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        let why = deprecate(&RESOURCE.actions[3], &given(&[("FILE", "id: a")])).unwrap_err();
        assert!(why.contains("--as-version"), "{why}");
    }
}
