//! A handoff as a message of the protocol (docs/doors/a2a.md#out). Pure.

use serde_json::{Value, json};

use super::card::RemoteCard;

/// The broker's own extension of the protocol: fields of a handoff in `metadata`.
pub const EXTENSION: &str = "urn:handoffd:a2a:handoff:1";

/// The address at which an agent reports a task's changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    pub url: String,
    pub token: String,
}

/// The parts sent beside the message itself.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub handoff_id: &'a str,
    pub task_id: &'a str,
    /// The handoff's message as this receiver gets it.
    pub message: &'a Value,
    /// The same as a guarded block for a model.
    pub prompt: &'a str,
    /// `traceparent` of the delivery.
    pub traceparent: Option<&'a str>,
    pub callback: Option<&'a Callback>,
}

impl Outgoing<'_> {
    /// `SendMessageRequest` of a handoff. The message's id is the handoff's, so each attempt sends the same message; the context
    /// is the broker's task, so the handoffs of a task stand together at the agent.
    #[must_use]
    pub fn request(&self, card: &RemoteCard) -> Value {
        let mut parts = Vec::new();
        if card.reads_text {
            parts.push(json!({ "text": self.prompt, "mediaType": "text/plain" }));
        }
        if card.reads_data {
            parts.push(json!({ "data": self.message, "mediaType": "application/json" }));
        }
        parts.extend(files(self.message));
        let mut known = json!({ "handoffId": self.handoff_id, "taskId": self.task_id });
        if let Some(parent) = self.traceparent {
            known["traceparent"] = parent.into();
        }
        let mut configuration = json!({
            "acceptedOutputModes": ["application/json", "text/plain", "*/*"], "returnImmediately": true,
        });
        if let Some(Callback { url, token }) = self.callback.filter(|_| card.push) {
            configuration["taskPushNotificationConfig"] = json!({ "url": url, "token": token });
        }
        json!({
            "message": {
                "messageId": self.handoff_id, "contextId": self.task_id, "role": "ROLE_USER",
                "parts": parts, "metadata": { EXTENSION: known },
            },
            "configuration": configuration,
        })
    }
}

/// `SendMessageRequest` of an answer on a remote task. Its id is the same each time it is sent.
#[must_use]
pub fn answer(handoff_id: &str, number: u32, task: &str, context: &str, answer: &Value) -> Value {
    let mut message = json!({
        "messageId": answer_id(handoff_id, number), "taskId": task, "role": "ROLE_USER", "parts": parts(answer),
    });
    if !context.is_empty() {
        message["contextId"] = context.into();
    }
    json!({ "message": message, "configuration": { "returnImmediately": true } })
}

/// The id of the message that answers a question.
#[must_use]
pub fn answer_id(handoff_id: &str, number: u32) -> String {
    format!("{handoff_id}.answer.{number}")
}

/// An answer as parts: a text, parts as they are (`{"parts": […]}`), else data.
fn parts(answer: &Value) -> Vec<Value> {
    match answer {
        Value::String(text) => vec![json!({ "text": text })],
        Value::Object(members) if members.len() == 1 && members.contains_key("parts") => {
            let own = members["parts"]
                .as_array()
                .filter(|parts| !parts.is_empty() && parts.iter().all(fits));
            own.cloned().unwrap_or_else(|| vec![json!({ "data": answer })])
        }
        other => vec![json!({ "data": other })],
    }
}

/// Files of a message that came in by the A2A door go out as they came.
fn files(message: &Value) -> Vec<Value> {
    let parts = message.pointer("/extensions/a2a/message/parts").and_then(Value::as_array);
    let is_file = |part: &&Value| part.get("raw").is_some() || part.get("url").is_some();
    parts.into_iter().flatten().filter(is_file).filter(|part| fits(part)).cloned().collect()
}

/// Whether a part has exactly one content.
fn fits(part: &Value) -> bool {
    let contents = ["text", "raw", "url", "data"].iter().filter(|name| part.get(**name).is_some());
    contents.count() == 1
}

#[cfg(test)]
mod tests {
    use super::super::card::Binding;
    use super::super::card::CardSignature;
    use super::*;

    fn card(push: bool, reads_text: bool, reads_data: bool) -> RemoteCard {
        RemoteCard {
            binding: Binding::JsonRpc,
            url: String::new(),
            tenant: None,
            push,
            reads_text,
            reads_data,
            signature: CardSignature::Absent,
        }
    }

    fn request(card: &RemoteCard, message: &Value) -> Value {
        let callback = Callback { url: "https://broker/cb".to_owned(), token: "t".to_owned() };
        Outgoing {
            handoff_id: "h",
            task_id: "k",
            message,
            prompt: "| block",
            traceparent: Some("00-x"),
            callback: Some(&callback),
        }
        .request(card)
    }

    #[test]
    fn a_handoff_is_a_guarded_text_and_its_data_under_one_id() {
        let whole = request(&card(true, true, true), &json!({ "taskSummary": "Add" }));
        let message = &whole["message"];
        assert_eq!((&message["messageId"], &message["contextId"]), (&json!("h"), &json!("k")));
        assert_eq!(message["parts"][0]["text"], "| block");
        assert_eq!(message["parts"][1]["data"], json!({ "taskSummary": "Add" }));
        assert_eq!(message["metadata"][EXTENSION]["traceparent"], "00-x");
        assert_eq!(whole["configuration"]["taskPushNotificationConfig"]["token"], "t");
        assert_eq!(whole["configuration"]["returnImmediately"], true);
    }

    #[test]
    fn an_agent_gets_what_its_card_takes() {
        let kinds = |card: &RemoteCard| -> Vec<bool> {
            let whole = request(card, &json!({}));
            assert!(whole["configuration"].get("taskPushNotificationConfig").is_none());
            whole["message"]["parts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|part| part.get("data").is_some())
                .collect()
        };
        assert_eq!(kinds(&card(false, true, false)), [false]);
        assert_eq!(kinds(&card(false, false, true)), [true]);
    }

    #[test]
    fn files_that_came_by_the_same_door_go_out_as_they_came() {
        let file = json!({ "url": "https://x/y.pdf", "mediaType": "application/pdf" });
        let message = json!({ "extensions": { "a2a": { "message": { "parts": [{ "text": "x" }, file, { "raw": "x", "data": 1 }] } } } });
        let whole = request(&card(false, true, false), &message);
        let parts = whole["message"]["parts"].as_array().unwrap();
        assert_eq!((parts.len(), &parts[1]), (2, &file));
    }

    #[test]
    fn an_answer_is_sent_under_the_same_id_each_time() {
        let sent = |value: Value| answer("h", 2, "t", "c", &value)["message"].clone();
        assert_eq!(sent(json!("EUR"))["messageId"], "h.answer.2");
        assert_eq!(sent(json!("EUR"))["parts"], json!([{ "text": "EUR" }]));
        assert_eq!(sent(json!({ "a": 1 }))["parts"], json!([{ "data": { "a": 1 } }]));
        assert_eq!(sent(json!({ "parts": [{ "text": "x" }] }))["parts"], json!([{ "text": "x" }]));
        let odd = json!({ "parts": [{ "text": "x", "data": 1 }] });
        assert_eq!(sent(odd.clone())["parts"], json!([{ "data": odd }]));
        assert!(answer("h", 1, "t", "", &json!(1))["message"].get("contextId").is_none());
    }
}
