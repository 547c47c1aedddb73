//! Values of a message that its sender marked as personal, by pointer (schema 2.1,
//! `personalDataPayload.pointers`). Each is cut out before the message is kept: where it stood there is
//! a marker, and the value is a datum of its subject like any other. For a receiver that is entitled to
//! personal data it is put back where it was.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::canonical;
use super::members::CONTENT_MEMBERS;
use super::redaction::is_redacted;

/// The reference to a person, of the keyed hash of its id.
#[must_use]
pub fn user_ref(subject_key: &[u8; 32]) -> String {
    format!("u_{}", URL_SAFE_NO_PAD.encode(&subject_key[..16]))
}

/// Whether a text has the form of a reference to a person.
#[must_use]
pub fn is_user_ref(text: &str) -> bool {
    let bytes = text.strip_prefix("u_").and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    bytes.is_some_and(|bytes| bytes.len() == 16)
}

/// The places of the marks.
const POINTERS: &str = "/personalDataPayload/pointers";

/// A person's data that came with a message: kept apart, indexed by subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalDatum {
    /// The data subject.
    pub subject_id: String,
    /// RFC 8785 form: a subject's entry, `{"data":…,"subjectId":…}`, or a value that was cut out,
    /// `{"pointer":…,"subjectId":…,"value":…}`.
    pub canonical: Vec<u8>,
}

/// The one member of a marker.
pub const MARKER: &str = "$personal";

/// The marker that replaces a personal value in a message. The ordinal is the datum's place among the
/// record's personal data; the subject is not named, for the message outlives its erasure.
#[must_use]
pub fn marker(ordinal: usize) -> Value {
    json!({ MARKER: { "ordinal": ordinal } })
}

fn marks(message: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = message.pointer(POINTERS).and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|mark| Some((mark.get("subjectId")?.as_str()?, mark.get("pointer")?.as_str()?)))
}

/// Defects of a message's marks: the pointer of the mark, and a sentence.
#[must_use]
pub fn check(message: &Value) -> Vec<(String, &'static str)> {
    let mut wrong = Vec::new();
    let mut sorted = Vec::new();
    for (index, (_, pointer)) in marks(message).enumerate() {
        let at = format!("{POINTERS}/{index}/pointer");
        let root = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next());
        if !root.is_some_and(|root| CONTENT_MEMBERS.contains(&root)) {
            wrong.push((at, "Must point into a member that holds content, as `/currentState/…`."));
        } else if pointer == "/checkpoint" {
            wrong.push((at, "Must point below `/checkpoint`."));
        } else if message.pointer(pointer).is_none() {
            wrong.push((at, "Must point to a value of this message."));
        } else {
            // The slash sorts a value within another right after that one.
            sorted.push((format!("{pointer}/"), at));
        }
    }
    sorted.sort();
    for pair in sorted.windows(2) {
        if pair[1].0.starts_with(&pair[0].0) {
            wrong.push((pair[1].1.clone(), "Must not be marked twice, nor below a marked value."));
        }
    }
    wrong
}

/// The message without its marked values, and these, numbered from `first`; `None` where nothing is
/// marked. A mark whose value is not there any more (redacted) is passed over.
#[must_use]
pub fn cut(message: &Value, first: usize) -> Option<(Value, Vec<PersonalDatum>)> {
    marks(message).next()?;
    let mut shown = message.clone();
    let mut data = Vec::new();
    for (subject_id, pointer) in marks(message) {
        let Some(place) = shown.pointer_mut(pointer) else { continue };
        if is_redacted(place) {
            continue;
        }
        let value = std::mem::replace(place, marker(first + data.len()));
        let datum = json!({ "pointer": pointer, "subjectId": subject_id, "value": value });
        data.push(PersonalDatum {
            subject_id: subject_id.to_owned(),
            canonical: canonical::to_vec(&datum),
        });
    }
    Some((shown, data))
}

/// Whether a datum is a value that was cut out. In canonical form such a one begins with its pointer;
/// a subject's entry has `data`, which sorts before.
fn was_cut(datum: &[u8]) -> bool {
    datum.starts_with(b"{\"pointer\":")
}

/// The message as an entitled receiver gets it: cut values where they were, and the payload with what
/// is left of it. `body` is the canonical message without both; `compressed`: the broker made it of the one that the
/// pointers are into.
#[must_use]
pub fn whole(body: &[u8], personal: &[Vec<u8>], compressed: bool) -> Vec<u8> {
    let Some(open) = body.strip_suffix(b"}").filter(|open| !personal.is_empty() && open.len() > 1)
    else {
        return body.to_vec();
    };
    if personal.iter().any(|datum| was_cut(datum))
        && let Ok(Value::Object(message)) = serde_json::from_slice(body)
    {
        return put_back(message, personal, compressed);
    }
    [open, b",\"personalDataPayload\":{\"subjects\":[", &personal.join(&b','), b"]}}"].concat()
}

/// A pointer into the message as submitted, as it is in the message: a compressed one has some of the turns alone, and says
/// which.
fn in_compressed(message: &Value, pointer: &str) -> String {
    const TURNS: &str = "/conversationHistoryVerbatim/";
    let moved = || {
        let kept = message.pointer("/context/turns")?.as_array()?;
        let (at, below) = match pointer.strip_prefix(TURNS)?.split_once('/') {
            Some((at, below)) => (at, format!("/{below}")),
            None => (pointer.strip_prefix(TURNS)?, String::new()),
        };
        let at: u64 = at.parse().ok()?;
        let place = kept.iter().position(|kept| kept.as_u64() == Some(at));
        // A turn that is not there leads nowhere.
        Some(place.map_or_else(|| "/-".to_owned(), |place| format!("{TURNS}{place}{below}")))
    };
    moved().unwrap_or_else(|| pointer.to_owned())
}

fn put_back(message: Map<String, Value>, personal: &[Vec<u8>], compressed: bool) -> Vec<u8> {
    let mut message = Value::Object(message);
    let (mut subjects, mut pointers) = (Vec::new(), Vec::new());
    for datum in personal {
        let Ok(mut entry) = serde_json::from_slice::<Value>(datum) else { continue };
        if !was_cut(datum) {
            subjects.push(entry);
            continue;
        }
        let value = entry.get_mut("value").map(Value::take);
        let pointer = entry.get("pointer").and_then(Value::as_str).unwrap_or_default();
        let pointer =
            &if compressed { in_compressed(&message, pointer) } else { pointer.to_owned() };
        // The parts cut out of the checkpoint are the sender's.
        if let (Some(place), Some(value)) = (message.pointer_mut(pointer), value) {
            *place = value;
            pointers.push(json!({ "pointer": pointer, "subjectId": entry.get("subjectId") }));
        }
    }
    let mut payload = Map::new();
    if !subjects.is_empty() {
        payload.insert("subjects".to_owned(), Value::Array(subjects));
    }
    if !pointers.is_empty() {
        payload.insert("pointers".to_owned(), Value::Array(pointers));
    }
    if let (Some(object), false) = (message.as_object_mut(), payload.is_empty()) {
        object.insert("personalDataPayload".to_owned(), Value::Object(payload));
    }
    canonical::to_vec(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pointers: &[&str]) -> Value {
        let marks: Vec<_> =
            pointers.iter().map(|at| json!({ "subjectId": "jana", "pointer": at })).collect();
        json!({
            "taskId": "t",
            "currentState": { "customer": { "email": "jana@example.org", "age": 7 }, "list": [1, 2] },
            "checkpoint": { "note": "Jana" },
            "personalDataPayload": { "pointers": marks },
        })
    }

    #[test]
    fn a_marked_value_is_cut_and_put_back() {
        let given =
            message(&["/currentState/customer/email", "/checkpoint/note", "/currentState/list/1"]);
        assert_eq!(check(&given), []);
        let (shown, data) = cut(&given, 2).unwrap();
        assert_eq!(shown["currentState"]["customer"]["email"], marker(2));
        assert_eq!(shown["checkpoint"]["note"], marker(3));
        assert_eq!(shown["currentState"]["list"], json!([1, marker(4)]));
        let mut body = shown;
        body.as_object_mut().unwrap().remove("checkpoint");
        body.as_object_mut().unwrap().remove("personalDataPayload");
        let body = canonical::to_vec(&body);
        assert!(!String::from_utf8(body.clone()).unwrap().contains("jana"));
        let data: Vec<_> = data.into_iter().map(|datum| datum.canonical).collect();
        let back: Value = serde_json::from_slice(&whole(&body, &data, false)).unwrap();
        assert_eq!(back["currentState"], given["currentState"]);
        assert_eq!(back["personalDataPayload"]["pointers"].as_array().unwrap().len(), 2);
        // One was erased: its marker stays.
        let back: Value = serde_json::from_slice(&whole(&body, &data[2..], false)).unwrap();
        assert_eq!(back["currentState"]["customer"]["email"], marker(2));
        assert_eq!(back["currentState"]["list"], json!([1, 2]));
    }

    #[test]
    fn marks_that_cannot_be_followed_are_told() {
        for (pointers, expected) in [
            (vec!["/taskId"], 1),
            (vec![""], 1),
            (vec!["/personalDataPayload/pointers/0"], 1),
            (vec!["/checkpoint"], 1),
            (vec!["/currentState/nothing"], 1),
            (vec!["/currentState/customer", "/currentState/customer/email"], 1),
            (vec!["/currentState/list", "/currentState/list"], 1),
            (vec!["/currentState/list/0", "/currentState/list/1"], 0),
        ] {
            assert_eq!(check(&message(&pointers)).len(), expected, "{pointers:?}");
        }
    }

    #[test]
    fn without_marks_nothing_is_copied() {
        assert_eq!(cut(&json!({ "taskId": "t" }), 0), None);
        assert_eq!(whole(b"{\"a\":1}", &[], false), b"{\"a\":1}");
        let subject = br#"{"data":{},"subjectId":"s"}"#.to_vec();
        let expected =
            br#"{"a":1,"personalDataPayload":{"subjects":[{"data":{},"subjectId":"s"}]}}"#;
        assert_eq!(whole(b"{\"a\":1}", &[subject], false), expected);
    }
}
