use std::time::Duration;

use serde_json::{Value, json};

use super::request::addressed;
use super::resource::ArgValues;
use super::resource::{Action, Arg, Column, Kind, Resource, Shape, Verb};
use crate::cli::client::{Body, Request};
use handoffd_gate::contract::document::Document;

/// Seconds that the broker judges for unless said, and that an answer takes besides.
const SECONDS: (u64, u64) = (10, 60);

const OUTCOME: Shape = Shape::Rows {
    at: "/changed",
    columns: &[
        Column("HANDOFF", "/handoffId"),
        Column("FROM", "/fromAgent"),
        Column("TO", "/toAgent"),
        Column("STATUS", "/status"),
        Column("CHANGE", "/change"),
        Column("BEFORE", "/before/reason"),
        Column("AFTER", "/after/reason"),
        Column("FINDINGS", "/after/findings"),
    ],
    foot: &[
        Column("handoffs:", "/handoffs/replayed"),
        Column("newly refused:", "/handoffs/newlyRefused"),
        Column("newly passed:", "/handoffs/newlyPassed"),
        Column("erased:", "/handoffs/notReplayable/erased"),
        Column("archived:", "/handoffs/notReplayable/archived"),
        Column("all of them:", "/handoffs/complete"),
        Column("dead letters:", "/deadLetters/replayed"),
        Column("would pass:", "/deadLetters/newlyPassed"),
    ],
};

macro_rules! with_scope {
    ($($own:expr),*) => {
        &[
            $($own,)*
            Arg::planned("handoffs", Kind::Whole, "Judge so many of the newest handoffs; 500 unless said"),
            Arg::planned("dead-letters", Kind::Whole, "Judge so many of the newest open dead letters; 500 unless said"),
            Arg::planned("seconds", Kind::Whole, "Judge for so long, 1 to 60; 10 unless said"),
        ]
    };
}

/// The parts that all three actions share.
const JUDGE: Action = Action {
    verb: Verb::Post,
    path: "/what-if",
    shape: OUTCOME,
    well: nothing_refused,
    ..Action::READ
};

pub(super) const RESOURCE: Resource = Resource {
    name: "what-if",
    about: "What-if: the verdicts of a change on past messages; exit 1 if it would refuse one",
    actions: &[
        Action {
            name: "contract",
            about: "Judge under a contract from a file",
            args: with_scope!(
                Arg::planned(
                    "FILE",
                    Kind::Contract,
                    "The contract, in YAML or JSON, with the payload schema beside it; - for standard input"
                )
                .needed()
                .placed()
            ),
            plan: contract,
            ..JUDGE
        },
        Action {
            name: "schema",
            about: "Judge under a payload schema from a file, for every contract that names it",
            args: with_scope!(
                Arg::planned("SCHEMA", Kind::Text, "The schema's id").needed().placed(),
                Arg::planned("FILE", Kind::File, "The JSON Schema; - for standard input")
                    .needed()
                    .placed()
            ),
            plan: schema,
            ..JUDGE
        },
        Action {
            name: "safety",
            about: "Judge under other safety rules, or another policy about them",
            args: with_scope!(
                Arg::planned(
                    "mode",
                    Kind::Choice(&["enforce", "observe", "allow"]),
                    "The broker's action on a finding"
                ),
                Arg::planned("rules", Kind::File, "Rules, of the form of config/safety-rules.json"),
                Arg::planned(
                    "exceptions",
                    Kind::File,
                    "A JSON list of exceptions, as safety.exceptions has them"
                )
            ),
            plan: safety,
            ..JUDGE
        },
    ],
};

fn nothing_refused(answer: &Value) -> bool {
    ["handoffs", "deadLetters"].iter().all(|part| answer[part]["newlyRefused"] == 0)
}

fn contract(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let document = Document::parse(given.one("FILE").unwrap_or_default()).map_err(|err| {
        format!("the file, line {}, column {}: {}", err.place.line, err.place.column, err.message)
    })?;
    ask(action, given, &json!({ "contract": document.value() }))
}

fn schema(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let document = json_of(given, "FILE")?.unwrap_or_default();
    let id = given.one("SCHEMA").unwrap_or_default();
    ask(action, given, &json!({ "schema": { "schemaId": id, "schema": document } }))
}

fn safety(action: &Action, given: &ArgValues) -> Result<Request, String> {
    let mut safety = json!({});
    for name in ["rules", "exceptions"] {
        if let Some(document) = json_of(given, name)? {
            safety[name] = document;
        }
    }
    if let Some(mode) = given.one("mode") {
        safety["mode"] = json!(mode);
    }
    if safety == json!({}) {
        return Err("say --mode, --rules or --exceptions".to_owned());
    }
    ask(action, given, &json!({ "safety": safety }))
}

fn json_of(given: &ArgValues, name: &str) -> Result<Option<Value>, String> {
    let read =
        |text: &str| serde_json::from_str(text).map_err(|err| format!("{name} is not JSON: {err}"));
    given.one(name).map(read).transpose()
}

/// The broker judges for as long as it was told to.
fn ask(action: &Action, given: &ArgValues, candidate: &Value) -> Result<Request, String> {
    let mut body = json!({ "candidate": candidate });
    for (said, name) in
        [("handoffs", "handoffs"), ("dead-letters", "deadLetters"), ("seconds", "seconds")]
    {
        if let Some(number) = given.one(said).and_then(|text| text.parse::<u64>().ok()) {
            body[name] = json!(number);
        }
    }
    let seconds = body["seconds"].as_u64().unwrap_or(SECONDS.0);
    let mut request = addressed(action, given, Some(Body::Json(body)))?;
    request.patience = Some(Duration::from_secs(seconds.saturating_add(SECONDS.1)));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(said: &[(&'static str, &str)]) -> ArgValues {
        ArgValues(said.iter().map(|(name, text)| (*name, vec![(*text).to_owned()])).collect())
    }

    fn body(action: usize, said: &[(&'static str, &str)]) -> Result<Value, String> {
        let action = &RESOURCE.actions[action];
        match (action.plan)(action, &given(said))?.body {
            Some(Body::Json(body)) => Ok(body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_candidate_goes_where_the_broker_looks_for_it() {
        let said = [("FILE", "id: a-to-b\nversion: 1.0.0\n"), ("handoffs", "7"), ("seconds", "3")];
        let contract = json!({ "id": "a-to-b", "version": "1.0.0" });
        assert_eq!(
            body(0, &said),
            Ok(json!({ "candidate": { "contract": contract }, "handoffs": 7, "seconds": 3 }))
        );
        assert_eq!(
            body(1, &[("SCHEMA", "refund"), ("FILE", "{}"), ("dead-letters", "0")]),
            Ok(json!({
                "candidate": { "schema": { "schemaId": "refund", "schema": {} } },
                "deadLetters": 0,
            }))
        );
        assert_eq!(
            body(2, &[("mode", "observe"), ("exceptions", "[]")]),
            Ok(json!({ "candidate": { "safety": { "mode": "observe", "exceptions": [] } } }))
        );
        assert!(body(2, &[]).unwrap_err().contains("--mode"));
        assert!(body(2, &[("rules", "{")]).unwrap_err().contains("is not JSON"));
    }
}
