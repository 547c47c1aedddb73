//! A broker's own paths, words and forms, where they are not the canonical ones.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map as Members, Value, json};

use crate::CertifyError;
use crate::message::Message;

/// How a broker takes messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speaks {
    /// The canonical message over HTTP.
    #[default]
    Canonical,
    /// A2A 1.0 over HTTP+JSON: `message:send` and `GET /tasks/{id}`.
    A2a,
    /// JSON over HTTP in a form of its own: `body` states it.
    Http,
}

/// A receiver of the kit at a fixed address, for a system at which the kit registers no agents. Its worker sends each task there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixed {
    /// Address at which the kit listens, such as `127.0.0.1:9901`.
    pub listen: String,
    /// JSON pointer of the submitted id in what the worker sends.
    pub id: String,
    /// JSON pointer of the delivery's own id; the submitted id where it is left out.
    pub delivery: Option<String>,
}

/// The mapping file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    speaks: Speaks,
    submit: Option<String>,
    handoff: Option<String>,
    task: Option<String>,
    agents: Option<String>,
    alive: Option<String>,
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    id: Option<String>,
    register: Members<String, Value>,
    api_key: Option<String>,
    webhook_secret: Option<String>,
    status: Option<String>,
    statuses: BTreeMap<String, String>,
    reason: Option<String>,
    reasons: BTreeMap<String, String>,
    receiver: Option<Fixed>,
    not_claimed: Vec<String>,
}

/// The mapping. Each member that a file leaves out has the protocol's value.
#[derive(Debug, Clone)]
pub struct Map {
    pub speaks: Speaks,
    /// Path that takes a message; `{agent}` is its receiver.
    pub submit: String,
    /// Path of a handoff; `{id}` is its id, `{agent}` its receiver.
    pub handoff: String,
    /// Path of a task; `{id}` is its id.
    pub task: String,
    /// Path that registers an agent.
    pub agents: String,
    /// Path that answers as long as the broker lives.
    pub alive: String,
    /// Headers of every request.
    pub headers: BTreeMap<String, String>,
    /// Form of a submission, with places for the message's members; without one it is the canonical message.
    pub body: Option<Value>,
    /// JSON pointer of the handoff's id in the answer to a submission; without one it is the submitted id.
    pub id: Option<String>,
    /// Further members of each registration.
    pub register: Members<String, Value>,
    /// JSON pointer of the new agent's key in the answer to a registration.
    pub api_key: String,
    /// JSON pointer of the new agent's webhook secret.
    pub webhook_secret: String,
    /// JSON pointer of the status of a handoff or task.
    pub status: String,
    /// The broker's words for a handoff's or task's status, each with its canonical word.
    pub statuses: BTreeMap<String, String>,
    /// JSON pointers of the code of a refusal; the first that is there counts.
    pub reason: Vec<String>,
    /// The broker's codes of refusals, each with its canonical code.
    pub reasons: BTreeMap<String, String>,
    /// The kit's receiver, where the kit registers none.
    pub receiver: Option<Fixed>,
    /// Ids of claims that the broker does not make.
    pub not_claimed: Vec<String>,
}

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, word)| (name.to_owned(), word.to_owned())).collect()
}

impl Default for Map {
    fn default() -> Self {
        Self {
            speaks: Speaks::Canonical,
            submit: "/handoffs".to_owned(),
            handoff: "/handoffs/{id}".to_owned(),
            task: "/tasks/{id}".to_owned(),
            agents: "/agents".to_owned(),
            alive: "/agents".to_owned(),
            headers: BTreeMap::new(),
            body: None,
            id: None,
            register: Members::new(),
            api_key: "/apiKey".to_owned(),
            webhook_secret: "/webhookSecret".to_owned(),
            status: "/status".to_owned(),
            statuses: BTreeMap::new(),
            reason: vec!["/reason".to_owned(), "/code".to_owned()],
            reasons: BTreeMap::new(),
            receiver: None,
            not_claimed: Vec::new(),
        }
    }
}

impl Map {
    /// The values of a protocol.
    fn of(speaks: Speaks) -> Self {
        let canonical = Self { speaks, ..Self::default() };
        match speaks {
            Speaks::Canonical | Speaks::Http => canonical,
            Speaks::A2a => Self {
                submit: "/message:send".to_owned(),
                handoff: "/tasks/{id}".to_owned(),
                alive: "/.well-known/agent-card.json".to_owned(),
                headers: words(&[("A2A-Version", "1.0")]),
                body: Some(json!({
                    "message": {
                        "messageId": "{id}", "role": "ROLE_USER", "parts": [{ "text": "{text}" }, { "data": "{state}" }],
                    },
                    "configuration": { "returnImmediately": true },
                })),
                id: Some("/task/id".to_owned()),
                status: "/status/state".to_owned(),
                statuses: words(&[
                    ("TASK_STATE_SUBMITTED", "PENDING"),
                    ("TASK_STATE_WORKING", "PENDING"),
                    ("TASK_STATE_COMPLETED", "COMPLETED"),
                    ("TASK_STATE_REJECTED", "REJECTED"),
                    ("TASK_STATE_FAILED", "FAILED"),
                    ("TASK_STATE_CANCELED", "CANCELED"),
                ]),
                reason: vec!["/error/details/0/reason".to_owned()],
                ..canonical
            },
        }
    }

    /// Reads a mapping file.
    ///
    /// # Errors
    /// [`CertifyError::File`]: the file cannot be read, is not YAML, or has a member that the kit does not know.
    pub fn read(path: &Path) -> Result<Self, CertifyError> {
        let wrong = |why: String| CertifyError::File { file: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|err| wrong(err.to_string()))?;
        let written: Written =
            serde_saphyr::from_str(&text).map_err(|err| wrong(err.to_string()))?;
        let map = Self::written(written);
        let unknown =
            |id: &&String| !crate::claims::CLAIMS.iter().any(|claim| claim.id == id.as_str());
        if let Some(id) = map.not_claimed.iter().find(unknown) {
            return Err(wrong(format!("not_claimed names {id}, which the kit does not know")));
        }
        match map.speaks {
            Speaks::Http if map.body.is_none() => {
                Err(wrong("speaks: http needs body, the form of a submission".to_owned()))
            }
            Speaks::Canonical if map.body.is_some() || map.receiver.is_some() => {
                Err(wrong("body and receiver need speaks: a2a or http".to_owned()))
            }
            _ => Ok(map),
        }
    }

    fn written(written: Written) -> Self {
        let base = Self::of(written.speaks);
        // Without another word, the path that registers agents also says whether the broker lives.
        let alive = match (written.alive, &written.agents) {
            (Some(alive), _) => alive,
            (None, Some(agents)) => agents.clone(),
            (None, None) => base.alive,
        };
        let over = |mut base: BTreeMap<String, String>, words: BTreeMap<String, String>| {
            base.extend(words);
            base
        };
        Self {
            speaks: written.speaks,
            submit: written.submit.unwrap_or(base.submit),
            handoff: written.handoff.unwrap_or(base.handoff),
            task: written.task.unwrap_or(base.task),
            agents: written.agents.unwrap_or(base.agents),
            alive,
            headers: over(base.headers, written.headers),
            body: written.body.or(base.body),
            id: written.id.or(base.id),
            register: written.register,
            api_key: written.api_key.unwrap_or(base.api_key),
            webhook_secret: written.webhook_secret.unwrap_or(base.webhook_secret),
            status: written.status.unwrap_or(base.status),
            statuses: over(base.statuses, written.statuses),
            reason: written.reason.map_or(base.reason, |pointer| vec![pointer]),
            reasons: over(base.reasons, written.reasons),
            receiver: written.receiver,
            not_claimed: written.not_claimed,
        }
    }

    /// The canonical word for a status.
    pub(crate) fn status_word<'a>(&'a self, word: &'a str) -> &'a str {
        self.statuses.get(word).map_or(word, String::as_str)
    }

    /// The canonical code of a refusal.
    pub(crate) fn reason_in(&self, body: &Value) -> Option<String> {
        let mut pointers = self.reason.iter();
        let code = pointers.find_map(|pointer| body.pointer(pointer).and_then(Value::as_str))?;
        Some(self.reasons.get(code).map_or(code, String::as_str).to_owned())
    }

    /// The body that submits a message.
    pub(crate) fn submission(&self, message: &Message) -> Value {
        match &self.body {
            None => message.value().clone(),
            Some(form) => filled(form, message),
        }
    }
}

/// The form with the message's members in their places. A text that is `{state}` alone becomes the state itself.
fn filled(form: &Value, message: &Message) -> Value {
    match form {
        Value::String(text) if text == "{state}" => message.value()["currentState"].clone(),
        Value::String(text) => placed(text, message).into(),
        Value::Array(items) => items.iter().map(|item| filled(item, message)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), filled(value, message)))
            .collect::<Members<String, Value>>()
            .into(),
        other => other.clone(),
    }
}

/// Puts the message's members into a text, each in place of its name in braces. Braces within a member stay as they are.
fn placed(text: &str, message: &Message) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let member = after.split_once('}').and_then(|(name, behind)| {
            let value = match name {
                "id" => message.id().to_owned(),
                "task" => message.task().to_owned(),
                "from" => message.from().to_owned(),
                "agent" => message.to().to_owned(),
                "text" => message.words(),
                _ => return None,
            };
            Some((value, behind))
        });
        if let Some((value, behind)) = member {
            out.push_str(&value);
            rest = behind;
        } else {
            out.push('{');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Agent;

    fn read(text: &str) -> Result<Map, CertifyError> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("map.yaml");
        std::fs::write(&file, text).unwrap();
        Map::read(&file)
    }

    fn message() -> Message {
        let agent = |id: &str| Agent {
            id: id.to_owned(),
            key: String::new(),
            webhook_secret: String::new(),
        };
        Message::first(&agent("a"), &agent("b"))
    }

    #[test]
    fn a_mapping_file_states_only_what_differs_and_no_unknown_member() {
        let map =
            read("submit: /v2/transfers\nstatuses: {queued: PENDING}\nnot_claimed: [budget]\n")
                .unwrap();
        assert_eq!((map.submit.as_str(), map.task.as_str()), ("/v2/transfers", "/tasks/{id}"));
        assert_eq!(
            (map.status_word("queued"), map.status_word("ACCEPTED")),
            ("PENDING", "ACCEPTED")
        );
        assert_eq!(map.submission(&message())["schemaVersion"], "2.1");
        let wrongs = [
            "submitt: /x\n",
            "not_claimed: [budgett]\n",
            "speaks: http\n",
            "body: {a: b}\n",
            "speaks: a2a\nreceiver: {listen: '127.0.0.1:1'}\n",
        ];
        for wrong in wrongs {
            assert!(read(wrong).unwrap_err().to_string().contains("map.yaml"), "{wrong}");
        }
    }

    #[test]
    fn a2a_needs_one_word_and_keeps_its_words_beside_those_of_the_file() {
        let map = read("speaks: a2a\nagents: /agents\nstatuses: {TASK_STATE_WORKING: ACCEPTED}\n")
            .unwrap();
        assert_eq!((map.submit.as_str(), map.alive.as_str()), ("/message:send", "/agents"));
        let words = ["TASK_STATE_WORKING", "TASK_STATE_FAILED"].map(|word| map.status_word(word));
        assert_eq!(words, ["ACCEPTED", "FAILED"]);
        let message = message();
        let body = map.submission(&message);
        assert_eq!(body["message"]["messageId"], message.id());
        assert_eq!(body["message"]["parts"][1]["data"], message.value()["currentState"]);
        let refused = json!({ "error": { "details": [{ "reason": "CONFLICT" }] } });
        assert_eq!(map.reason_in(&refused).as_deref(), Some("CONFLICT"));
    }

    #[test]
    fn a_form_takes_the_members_of_a_message_and_leaves_other_braces() {
        let map = read(
            "speaks: http\nbody: {key: 'job-{id}', to: '{agent}', note: '{x} {', deep: [{data: '{state}'}]}\nreason: /e\nreasons: {DUP: CONFLICT}\n",
        )
        .unwrap();
        let message = message().set("/currentState/quoted", json!("{id}"));
        let body = map.submission(&message);
        assert_eq!(body["key"], format!("job-{}", message.id()));
        assert_eq!((&body["to"], &body["note"]), (&json!("b"), &json!("{x} {")));
        assert_eq!(body["deep"][0]["data"]["quoted"], "{id}");
        assert_eq!(map.reason_in(&json!({ "e": "DUP" })).as_deref(), Some("CONFLICT"));
    }
}
