//! The protocol's requests, as both bindings read them (A2A 1.0 §3.2, specification/a2a.proto). Members that are not known are
//! left alone, as the protocol asks; each is read by both names that ProtoJSON gives it.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{A2aError, Refused, violations};
use crate::http::extract::typed;
use handoffd_domain::a2a::TaskState;

/// `SendMessageRequest`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendMessageRequest {
    /// As it came: the task's history tells it again.
    pub(super) message: Map<String, Value>,
    #[serde(default)]
    pub(super) configuration: Option<Configuration>,
    #[serde(default)]
    pub(super) metadata: Option<Map<String, Value>>,
}

/// `SendMessageConfiguration`.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    #[serde(alias = "accepted_output_modes")]
    pub(super) accepted_output_modes: Vec<String>,
    #[serde(alias = "task_push_notification_config")]
    pub(super) task_push_notification_config: Option<Map<String, Value>>,
    #[serde(alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
    #[serde(alias = "return_immediately")]
    pub(super) return_immediately: bool,
}

/// `Message`, of a client.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(alias = "message_id")]
    pub(super) message_id: String,
    #[serde(default, alias = "context_id")]
    pub(super) context_id: Option<String>,
    #[serde(default, alias = "task_id")]
    pub(super) task_id: Option<String>,
    role: String,
    pub(super) parts: Vec<Part>,
    #[serde(default)]
    pub(super) metadata: Option<Map<String, Value>>,
}

/// `Part`: exactly one of the first four.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) raw: Option<String>,
    #[serde(default)]
    pub(super) url: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) data: Option<Value>,
    #[serde(default)]
    pub(super) filename: Option<String>,
    #[serde(default, alias = "media_type")]
    pub(super) media_type: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "checked to be an object; the message keeps it")]
    metadata: Option<Map<String, Value>>,
}

/// Tells `null`, which is data, from an absent member.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// Reads an integer of 32 bits, which ProtoJSON takes as a number and as a text.
fn integer<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<i32>, D::Error> {
    let number = match Option::<Value>::deserialize(from)? {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.parse().ok(),
        Some(given) => given.as_i64().and_then(|number| i32::try_from(number).ok()),
    };
    let why = "a whole number must be a number of 32 bits, or its text";
    number.map(Some).ok_or_else(|| serde::de::Error::custom(why))
}

/// Most characters of a message's id.
const MAX_ID: usize = 128;
/// Most parts of a message.
const MAX_PARTS: usize = 1_000;

/// Reads a value as a type.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    prefix: &str,
    value: Value,
) -> Result<T, Refused> {
    typed(value).map_err(|problem| violations(prefix, &problem))
}

impl Message {
    /// Reads the message of a request.
    pub(super) fn of(request: &SendMessageRequest) -> Result<Self, Refused> {
        let message: Self = read("message", Value::Object(request.message.clone()))?;
        if message.message_id.is_empty() || message.message_id.chars().count() > MAX_ID {
            let why = format!("must have 1 to {MAX_ID} characters");
            return Err(A2aError::invalid("message.messageId", why));
        }
        if message.role != "ROLE_USER" {
            return Err(A2aError::invalid("message.role", "a client's message has ROLE_USER"));
        }
        if message.parts.is_empty() || message.parts.len() > MAX_PARTS {
            let why = format!("must have 1 to {MAX_PARTS} parts");
            return Err(A2aError::invalid("message.parts", why));
        }
        for (place, part) in message.parts.iter().enumerate() {
            let contents =
                [part.text.is_some(), part.raw.is_some(), part.url.is_some(), part.data.is_some()];
            if contents.iter().filter(|there| **there).count() != 1 {
                let field = format!("message.parts[{place}]");
                return Err(A2aError::invalid(
                    &field,
                    "has exactly one of text, raw, url and data",
                ));
            }
            if part.raw.as_deref().is_some_and(|raw| !is_base64(raw)) {
                let field = format!("message.parts[{place}].raw");
                return Err(A2aError::invalid(&field, "must be bytes in base64"));
            }
        }
        Ok(message)
    }
}

/// ProtoJSON takes both alphabets, with and without padding.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    text.len() - digits.len() <= 2
        && digits.len() % 4 != 1
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/-_".contains(&b))
}

/// `historyLength`: none for no limit.
pub(super) fn history_length(given: Option<i32>) -> Result<Option<usize>, Refused> {
    given
        .map(|length| {
            usize::try_from(length)
                .map_err(|_| A2aError::invalid("historyLength", "must be 0 or more"))
        })
        .transpose()
}

/// `GetTaskRequest`, `CancelTaskRequest`, `SubscribeToTaskRequest`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRequest {
    pub(super) id: String,
    #[serde(default, alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
}

/// `ListTasksRequest`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListTasksRequest {
    #[serde(alias = "context_id")]
    pub(super) context_id: Option<String>,
    pub(super) status: Option<String>,
    #[serde(alias = "page_size", deserialize_with = "integer")]
    pub(super) page_size: Option<i32>,
    #[serde(alias = "page_token")]
    pub(super) page_token: Option<String>,
    #[serde(alias = "history_length", deserialize_with = "integer")]
    pub(super) history_length: Option<i32>,
    #[serde(alias = "status_timestamp_after")]
    pub(super) status_timestamp_after: Option<String>,
    #[serde(alias = "include_artifacts")]
    pub(super) include_artifacts: Option<bool>,
}

/// Rows of a page unless said, by the protocol.
const PAGE: i32 = 50;
/// Most rows of a page, by the protocol.
const MAX_PAGE: i32 = 100;

impl ListTasksRequest {
    /// Rows of a page.
    pub(super) fn size(&self) -> Result<usize, Refused> {
        let size = self.page_size.unwrap_or(PAGE);
        let fits = (1..=MAX_PAGE).contains(&size);
        let size = usize::try_from(size).ok().filter(|_| fits);
        size.ok_or_else(|| A2aError::invalid("pageSize", format!("must be 1 to {MAX_PAGE}")))
    }

    /// The state to show; none for all.
    pub(super) fn state(&self) -> Result<Option<TaskState>, Refused> {
        match self.status.as_deref() {
            None | Some("" | "TASK_STATE_UNSPECIFIED") => Ok(None),
            Some(name) => serde_json::from_value(name.into())
                .map(Some)
                .map_err(|_| A2aError::invalid("status", "is not a state of a task here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sent(message: &Value) -> Result<Message, Refused> {
        Message::of(&read("", json!({ "message": message }))?)
    }

    #[test]
    fn a_message_has_an_id_a_role_and_parts_of_one_content_each() {
        let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x", "new": 1 }, { "data": null }], "later": {} });
        let read = sent(&message).unwrap();
        assert_eq!((read.parts.len(), read.parts[1].data.as_ref()), (2, Some(&Value::Null)));
        for (member, value) in [
            ("messageId", json!("")),
            ("messageId", json!(7)),
            ("messageId", json!("x".repeat(129))),
            ("role", json!("ROLE_AGENT")),
            ("role", json!(1)),
            ("parts", json!([])),
            ("parts", json!("x")),
            ("parts", json!([{}])),
            ("parts", json!([{ "text": "a", "data": 1 }])),
            ("parts", json!([{ "text": 7 }])),
            ("parts", json!([{ "raw": "%%" }])),
            ("parts", json!([{ "text": "a", "metadata": 1 }])),
            ("taskId", json!({})),
        ] {
            let mut wrong = message.clone();
            wrong[member] = value.clone();
            let error = sent(&wrong).unwrap_err().status_body();
            assert_eq!(error["error"]["code"], 400, "{member} {value}");
            assert!(error["error"]["details"][1]["fieldViolations"].is_array(), "{error}");
        }
    }

    #[test]
    fn members_are_read_by_both_names_of_protojson() {
        let read = sent(
            &json!({ "message_id": "m", "context_id": "c", "role": "ROLE_USER", "parts": [{ "text": "x", "media_type": "text/plain" }] }),
        );
        let read = read.unwrap();
        assert_eq!((read.message_id.as_str(), read.context_id.as_deref()), ("m", Some("c")));
        assert_eq!(read.parts[0].media_type.as_deref(), Some("text/plain"));
        let list: ListTasksRequest =
            super::read("", json!({ "context_id": "c", "page_size": 2 })).unwrap();
        assert_eq!((list.context_id.as_deref(), list.size().unwrap()), (Some("c"), 2));
    }

    #[test]
    fn integers_are_numbers_or_texts() {
        let of = |given: Value| -> Result<TaskRequest, Refused> {
            super::read("", json!({ "id": "h", "historyLength": given }))
        };
        for (given, expected) in [
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!("-1"), Some(-1)),
            (Value::Null, None),
        ] {
            assert_eq!(of(given.clone()).unwrap().history_length, expected, "{given}");
        }
        for wrong in
            [json!("many"), json!(""), json!(1.5), json!(1_u64 << 40), json!(true), json!([])]
        {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
        let list: ListTasksRequest = super::read("", json!({ "page_size": "7" })).unwrap();
        assert_eq!(list.size().unwrap(), 7);
        let sent = json!({ "message": {}, "configuration": { "historyLength": "0" } });
        let sent: SendMessageRequest = super::read("", sent).unwrap();
        assert_eq!(sent.configuration.unwrap().history_length, Some(0));
    }

    #[test]
    fn bytes_are_base64_in_either_alphabet() {
        for text in ["", "dGNr", "dGN", "dGNrIQ==", "-_-_"] {
            assert!(is_base64(text), "{text}");
        }
        for text in ["d", "d===", "d GN", "dGNr="] {
            assert_eq!(is_base64(text), text == "dGNr=", "{text}");
        }
    }
}
