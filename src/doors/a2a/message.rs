//! A client's message as `hand_off`'s arguments, and back (specification §11.2, docs/doors/a2a.md). Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::message::summary_of;
use super::error::{A2aError, ErrorKind, Refused};
use super::request::{Message, Part};
use super::{DOOR, EXTENSION};
use handoffd_domain::agent::Card;
use handoffd_domain::canonical;

/// The task of a message without text.
const NO_TEXT: &str = "Work on the data and files of the message.";
/// Arguments of `hand_off` that the protocol itself gives.
const GIVEN: [&str; 6] = ["target", "task", "taskId", "requestId", "waitSeconds", "returnTo"];

/// Refuses a part of a media type that the agent does not read.
pub(super) fn check_types(message: &Message, card: &Card) -> Result<(), Refused> {
    let types = message.parts.iter().filter_map(|part| part.media_type.as_deref());
    match types.into_iter().find(|kind| !kind.is_empty() && !card.reads(kind)) {
        None => Ok(()),
        Some(kind) => {
            let why = format!(
                "the agent does not read parts of type {kind}; its card says which it reads"
            );
            Err(A2aError::new(ErrorKind::ContentTypeNotSupported, why))
        }
    }
}

/// The text of a message: its text parts, one after the other.
fn text_of(parts: &[Part]) -> Option<String> {
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
    Some(texts.join("\n\n")).filter(|text| !text.trim().is_empty())
}

/// Data parts by name: one object is the state itself, several values stand in a list.
fn state_of(parts: &[Part]) -> Option<Value> {
    let mut data: Vec<&Value> = parts.iter().filter_map(|part| part.data.as_ref()).collect();
    match data.as_slice() {
        [] => None,
        [Value::Object(_)] => data.pop().cloned(),
        _ => Some(json!({ "data": data })),
    }
}

/// Files of a message, each with its place: the message keeps them whole.
fn files_of(parts: &[Part]) -> Vec<Value> {
    let files =
        parts.iter().enumerate().filter(|(_, part)| part.raw.is_some() || part.url.is_some());
    files
        .map(|(place, part)| {
            let name = part.filename.as_deref().filter(|name| !name.is_empty());
            let source =
                part.url.as_deref().or(name).filter(|text| !text.is_empty()).unwrap_or("file");
            let kind = part.media_type.as_deref().unwrap_or("application/octet-stream");
            let name = name.map(|name| format!(" {name}")).unwrap_or_default();
            let excerpt =
                format!("File{name} ({kind}), in /extensions/{DOOR}/message/parts/{place}");
            json!({ "source": source, "excerpt": excerpt })
        })
        .collect()
}

/// The arguments of a message to an agent. A value under the extension's name in `metadata` goes before one in the parts; the
/// protocol's own fields are never taken from there.
pub(super) fn arguments(
    target: &str,
    message: &Message,
    task: Option<&str>,
) -> Result<Map<String, Value>, Refused> {
    let field = format!("message.metadata[{EXTENSION:?}]");
    let said = message.metadata.as_ref().and_then(|metadata| metadata.get(EXTENSION));
    let mut arguments = match said {
        None => Map::new(),
        Some(Value::Object(said)) => said.clone(),
        Some(_) => return Err(A2aError::invalid(&field, "must be an object")),
    };
    if let Some(name) = GIVEN.iter().find(|name| arguments.contains_key(**name)) {
        return Err(A2aError::invalid(&field, format!("{name} is the protocol's own")));
    }
    let text = text_of(&message.parts).unwrap_or_else(|| NO_TEXT.to_owned());
    let mut put = |name: &str, value: Value| {
        arguments.entry(name.to_owned()).or_insert(value);
    };
    put("summary", summary_of(&text).into());
    put("task", text.into());
    put("target", target.into());
    // The client goes on in its context once the agent is done.
    put("returnTo", "source".into());
    if let Some(state) = state_of(&message.parts) {
        put("context", state);
    }
    let files = files_of(&message.parts);
    if !files.is_empty() {
        put("excerpts", files.into());
    }
    if let Some(task) = task {
        put("taskId", task.into());
    }
    Ok(arguments)
}

/// The digest by which a repeated message is known: `sha256:…` over all that the client said.
pub(super) fn digest(
    message: &Map<String, Value>,
    metadata: Option<&Map<String, Value>>,
) -> String {
    let bytes = canonical::to_vec(&json!([message, metadata]));
    format!("sha256:{}", hex::encode(Sha256::digest(&bytes)))
}

/// The answer that a message gives to a question: its data where it has nothing else, else its text, else its parts.
pub(super) fn answer(message: &Message, raw: &Map<String, Value>) -> Value {
    match message.parts.as_slice() {
        [Part { data: Some(data), .. }] => data.clone(),
        parts if parts.iter().all(|part| part.text.is_some()) => {
            text_of(parts).unwrap_or_default().into()
        }
        _ => json!({ "parts": raw.get("parts") }),
    }
}

/// Members of a message, and of a part, by both names that ProtoJSON gives them.
const MESSAGE: [(&str, &str); 6] = [
    ("messageId", "message_id"),
    ("role", "role"),
    ("metadata", "metadata"),
    ("extensions", "extensions"),
    ("referenceTaskIds", "reference_task_ids"),
    ("parts", "parts"),
];
const PART: [(&str, &str); 7] = [
    ("text", "text"),
    ("raw", "raw"),
    ("url", "url"),
    ("data", "data"),
    ("metadata", "metadata"),
    ("filename", "filename"),
    ("mediaType", "media_type"),
];

/// The members that the protocol knows, by their first names.
fn known(of: &Value, names: &[(&str, &str)]) -> Map<String, Value> {
    let find = |(name, other): &(&str, &str)| {
        let value = of.get(name).or_else(|| of.get(other))?;
        Some(((*name).to_owned(), value.clone()))
    };
    names.iter().filter_map(find).collect()
}

/// The client's message as the history tells it: the handoff's message keeps it whole.
pub(super) fn original(message: &Value) -> Option<Map<String, Value>> {
    let kept = message.pointer(&format!("/extensions/{DOOR}/message"))?;
    let mut told = known(kept, &MESSAGE);
    if let Some(Value::Array(parts)) = told.get_mut("parts") {
        for part in parts {
            *part = Value::Object(known(part, &PART));
        }
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::super::request::{SendMessageRequest, read};
    use super::*;

    fn message(value: Value) -> (Message, Map<String, Value>) {
        let mut value = value;
        value["messageId"] = "m".into();
        value["role"] = "ROLE_USER".into();
        let request: SendMessageRequest = read("", json!({ "message": value })).unwrap();
        (Message::of(&request).unwrap(), request.message)
    }

    #[test]
    fn a_long_text_is_the_task_and_its_begin_the_summary() {
        let long = "word ".repeat(200);
        let (message, _) = message(json!({ "parts": [{ "text": long }] }));
        let arguments = arguments("b", &message, None).unwrap();
        assert_eq!(arguments["task"], long);
        assert_eq!(arguments["summary"].as_str().unwrap().chars().count(), 500);
    }

    #[test]
    fn parts_have_their_places_in_the_arguments() {
        let (sent, _) = message(json!({ "parts": [
            { "text": "Add up" }, { "text": "both" }, { "data": { "a": 1 } },
            { "raw": "dGNr", "filename": "in.csv", "mediaType": "text/csv" }, { "url": "https://x/y" },
        ] }));
        let arguments = arguments("b", &sent, Some("t")).unwrap();
        assert_eq!(arguments["task"], "Add up\n\nboth");
        assert_eq!(arguments["summary"], "Add up\n\nboth");
        assert_eq!(arguments["context"], json!({ "a": 1 }));
        assert_eq!(arguments["excerpts"][0]["source"], "in.csv");
        let place = "File in.csv (text/csv), in /extensions/a2a/message/parts/3";
        assert_eq!(arguments["excerpts"][0]["excerpt"], place);
        assert_eq!(arguments["excerpts"][1]["source"], "https://x/y");
        assert_eq!((&arguments["taskId"], &arguments["returnTo"]), (&json!("t"), &json!("source")));
    }

    #[test]
    fn a_client_that_knows_the_broker_says_more_and_not_what_the_protocol_says() {
        let (sent, _) = message(
            json!({ "parts": [{ "data": [1] }, { "data": 2 }], "metadata": { EXTENSION: { "summary": "before", "budgetUsd": 2 } } }),
        );
        let said = arguments("b", &sent, None).unwrap();
        assert_eq!((&said["summary"], &said["budgetUsd"]), (&json!("before"), &json!(2)));
        assert_eq!(
            (&said["task"], &said["context"]),
            (&json!(NO_TEXT), &json!({ "data": [[1], 2] }))
        );
        for wrong in [json!({ "target": "c" }), json!({ "returnTo": "source" }), json!(7)] {
            let (sent, _) =
                message(json!({ "parts": [{ "text": "x" }], "metadata": { EXTENSION: wrong } }));
            assert_eq!(arguments("b", &sent, None).unwrap_err().kind, ErrorKind::InvalidParams);
        }
    }

    #[test]
    fn an_answer_is_data_or_text_or_all_parts() {
        for (parts, expected) in [
            (json!([{ "data": { "x": 1 } }]), json!({ "x": 1 })),
            (json!([{ "text": "a" }, { "text": "b" }]), json!("a\n\nb")),
            (
                json!([{ "text": "a" }, { "url": "u" }]),
                json!({ "parts": [{ "text": "a" }, { "url": "u" }] }),
            ),
        ] {
            let (sent, raw) = message(json!({ "parts": parts }));
            assert_eq!(answer(&sent, &raw), expected);
        }
    }

    #[test]
    fn a_repeated_message_has_the_same_digest_and_another_file_another() {
        let (_, one) = message(json!({ "parts": [{ "raw": "dGNr" }] }));
        let (_, other) = message(json!({ "parts": [{ "raw": "dGNs" }] }));
        assert_eq!(digest(&one, None), digest(&one, None));
        assert_ne!(digest(&one, None), digest(&other, None));
        assert_ne!(digest(&one, None), digest(&one, Some(&Map::new())));
    }

    #[test]
    fn the_history_has_what_the_protocol_knows_by_its_first_names() {
        let kept = json!({ "message_id": "m", "role": "ROLE_USER", "later": 1, "parts": [{ "text": "x", "media_type": "text/plain", "later": 2 }] });
        let told = original(&json!({ "extensions": { "a2a": { "message": kept } } })).unwrap();
        let expected = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x", "mediaType": "text/plain" }] });
        assert_eq!(Value::Object(told), expected);
        assert!(original(&json!({})).is_none());
    }

    #[test]
    fn a_part_of_a_type_that_the_agent_does_not_read_is_refused() {
        let (sent, _) =
            message(json!({ "parts": [{ "raw": "", "mediaType": "application/x-thing" }] }));
        let error = check_types(&sent, &Card::default()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ContentTypeNotSupported);
        let card = Card { input_modes: vec!["application/*".to_owned()], ..Card::default() };
        assert!(check_types(&sent, &card).is_ok());
    }
}
