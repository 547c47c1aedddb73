//! A remote task as the broker reads it, and what it means for the handoff (docs/doors/a2a.md#out). Pure.

use serde_json::{Map, Value, json};

use handoffd_domain::lenient;

/// The state of a remote task. An unknown one counts as work: a later version of the protocol may have more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteState {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Canceled,
    Rejected,
}

impl RemoteState {
    fn parse(name: &str) -> Self {
        match name {
            "TASK_STATE_SUBMITTED" => Self::Submitted,
            "TASK_STATE_INPUT_REQUIRED" => Self::InputRequired,
            "TASK_STATE_AUTH_REQUIRED" => Self::AuthRequired,
            "TASK_STATE_COMPLETED" => Self::Completed,
            "TASK_STATE_FAILED" => Self::Failed,
            "TASK_STATE_CANCELED" => Self::Canceled,
            "TASK_STATE_REJECTED" => Self::Rejected,
            _ => Self::Working,
        }
    }

    /// Nothing follows it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }
}

/// A remote task.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTask {
    pub id: String,
    pub context: String,
    pub state: RemoteState,
    /// The parts of the message that goes with the state.
    words: Vec<Value>,
    artifacts: Vec<Value>,
    history: Vec<Value>,
    /// The broker's own note of the parts of the agent's answer that could not be kept.
    pub unreadable: Option<Value>,
    /// Differs once anything of the task changes.
    pub version: u64,
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Sent {
    Task(RemoteTask),
    /// The agent answered at once: the parts of its message.
    Message(Value),
}

/// Longest id of a task or a context that is taken, in characters.
const MAX_ID: usize = 512;
/// Longest reason, in characters.
const REASON_MAX: usize = 500;

impl RemoteTask {
    /// Reads a `Task`; `None` where it is none.
    #[must_use]
    pub fn read(task: &Value) -> Option<Self> {
        let id = identifier(task.get("id")?)?;
        let status = task.get("status")?;
        let state = RemoteState::parse(status.get("state")?.as_str()?);
        let list =
            |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
        Some(Self {
            id,
            context: task.get("contextId").and_then(identifier).unwrap_or_default(),
            state,
            words: parts_of_message(status.get("message")),
            artifacts: list(task.get("artifacts")),
            history: list(task.get("history")),
            unreadable: task.get(lenient::OWN).cloned(),
            version: version(task),
        })
    }

    /// The parts of the message with the state, as a question or a reason: see [`said`].
    #[must_use]
    pub fn words(&self) -> Option<Value> {
        said(&self.words)
    }

    /// The state's message as a short text.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        let text = self.words.iter().find_map(|part| part.get("text")?.as_str())?.trim();
        (!text.is_empty()).then(|| text.chars().take(REASON_MAX).collect())
    }

    /// The result of a completed task: the value of a single artifact of a single text or data part, or the message at the
    /// end if it has no artifact; anything else in the protocol's own form, as the way in takes it.
    #[must_use]
    pub fn result(&self) -> Option<Value> {
        let mut parts = self.artifacts.iter().map(parts_of_artifact);
        match (parts.next(), parts.next()) {
            (None, _) => said(&self.words),
            (Some(only), None) if plain(&only).is_some() => plain(&only),
            _ => {
                let artifacts: Vec<Value> = self.artifacts.iter().map(own_members).collect();
                Some(json!({ "a2a": { "artifacts": artifacts } }))
            }
        }
    }

    /// Whether a message of this id reached the task.
    #[must_use]
    pub fn has_message(&self, id: &str) -> bool {
        self.history
            .iter()
            .any(|message| message.get("messageId").and_then(Value::as_str) == Some(id))
    }
}

impl Sent {
    /// Reads the answer to `SendMessage`; `None` where it is neither a task nor a message.
    #[must_use]
    pub fn read(answer: &Value) -> Option<Self> {
        if let Some(task) = answer.get("task") {
            return RemoteTask::read(task).map(Self::Task);
        }
        let message = answer.get("message")?;
        let parts = message.get("parts")?.as_array()?;
        Some(Self::Message(said(parts).unwrap_or_else(|| json!({ "parts": [] }))))
    }
}

/// The task among those of a context that took the message of this id.
#[must_use]
pub fn find(list: &Value, message_id: &str) -> Option<RemoteTask> {
    let tasks = list.get("tasks")?.as_array()?;
    tasks.iter().filter_map(RemoteTask::read).find(|task| task.has_message(message_id))
}

/// The token of the page behind this one; `None` on the last page.
#[must_use]
pub fn next_page(list: &Value) -> Option<&str> {
    list.get("nextPageToken").and_then(Value::as_str).filter(|token| !token.is_empty())
}

fn identifier(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let fits =
        !text.is_empty() && text.chars().count() <= MAX_ID && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

/// A digest of the agent's statements on the task, without the messages that it repeats.
fn version(task: &Value) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    for member in ["status", "artifacts"] {
        task.get(member).map(Value::to_string).hash(&mut hasher);
    }
    task.get("history").and_then(Value::as_array).map(Vec::len).hash(&mut hasher);
    hasher.finish()
}

fn parts_of_message(message: Option<&Value>) -> Vec<Value> {
    let parts = message.and_then(|message| message.get("parts")).and_then(Value::as_array);
    parts.cloned().unwrap_or_default()
}

fn parts_of_artifact(artifact: &Value) -> Vec<Value> {
    artifact.get("parts").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// The value of a single text or data part.
fn plain(parts: &[Value]) -> Option<Value> {
    let [part] = parts else { return None };
    let part = part.as_object()?;
    // Some agents write members that are empty.
    let empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    let has = |name: &&str| part.get(*name).is_some_and(|value| !empty(value));
    if ["raw", "url", "filename"].iter().any(has) {
        return None;
    }
    let data = part.get("data").filter(|data| !data.is_null());
    let text = data.or_else(|| part.get("text").filter(|text| text.is_string()));
    text.or_else(|| part.get("data")).cloned()
}

/// Parts as one value: that of a single text or data part, texts as one, else `{"parts": […]}`; none for no part.
#[must_use]
pub fn said(parts: &[Value]) -> Option<Value> {
    if parts.is_empty() {
        return None;
    }
    if let Some(value) = plain(parts) {
        return Some(value);
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part.get("text")?.as_str()).collect();
    Some(match texts {
        Some(texts) => texts.join("\n").into(),
        None => json!({ "parts": parts }),
    })
}

/// The members of an artifact that the protocol has.
fn own_members(artifact: &Value) -> Value {
    const OWN: [&str; 6] = ["artifactId", "name", "description", "parts", "metadata", "extensions"];
    let members = artifact.as_object();
    let own: Map<String, Value> = members
        .into_iter()
        .flatten()
        .filter(|(name, _)| OWN.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: &str, more: &Value) -> Value {
        let mut task = json!({ "id": "t", "contextId": "c", "status": { "state": format!("TASK_STATE_{state}") } });
        for (name, value) in more.as_object().unwrap() {
            task[name] = value.clone();
        }
        task
    }

    fn read(state: &str, more: &Value) -> RemoteTask {
        RemoteTask::read(&task(state, more)).unwrap()
    }

    #[test]
    fn a_state_of_a_later_version_is_work() {
        for (name, state) in [
            ("SUBMITTED", RemoteState::Submitted),
            ("WORKING", RemoteState::Working),
            ("UNSPECIFIED", RemoteState::Working),
            ("DREAMING", RemoteState::Working),
            ("INPUT_REQUIRED", RemoteState::InputRequired),
            ("AUTH_REQUIRED", RemoteState::AuthRequired),
            ("COMPLETED", RemoteState::Completed),
            ("FAILED", RemoteState::Failed),
            ("CANCELED", RemoteState::Canceled),
            ("REJECTED", RemoteState::Rejected),
        ] {
            let read = read(name, &json!({}));
            assert_eq!(read.state, state, "{name}");
        }
    }

    #[test]
    fn what_is_no_task_is_none() {
        for wrong in [
            json!(null),
            json!([]),
            json!({ "id": 7, "status": { "state": "TASK_STATE_WORKING" } }),
            json!({ "id": "", "status": { "state": "TASK_STATE_WORKING" } }),
            json!({ "id": "a\nb", "status": { "state": "TASK_STATE_WORKING" } }),
            json!({ "id": "x".repeat(513), "status": { "state": "TASK_STATE_WORKING" } }),
            json!({ "id": "t" }),
            json!({ "id": "t", "status": { "state": 1 } }),
            json!({ "id": "t", "status": [] }),
        ] {
            assert_eq!(RemoteTask::read(&wrong), None, "{wrong}");
        }
        assert_eq!(Sent::read(&json!({ "message": { "parts": "x" } })), None);
        let odd = read("COMPLETED", &json!({ "artifacts": "x", "history": 7, "contextId": [] }));
        assert_eq!((odd.result(), odd.context.as_str()), (None, ""));
    }

    #[test]
    fn a_single_value_is_the_result_and_anything_else_keeps_the_protocols_form() {
        let of = |artifacts: Value| read("COMPLETED", &json!({ "artifacts": artifacts })).result();
        let data = json!({ "sum": 7 });
        for part in [
            json!({ "text": "done" }),
            json!({ "text": "done", "filename": "", "mediaType": "" }),
            json!({ "text": "done", "data": null }),
        ] {
            assert_eq!(of(json!([{ "artifactId": "a", "parts": [part] }])), Some(json!("done")));
        }
        assert_eq!(
            of(json!([{ "artifactId": "a", "parts": [{ "data": data }] }])),
            Some(data.clone())
        );
        let null = json!([{ "artifactId": "a", "parts": [{ "data": null }] }]);
        assert_eq!(of(null), Some(Value::Null));
        let file = json!([{ "artifactId": "a", "parts": [{ "raw": "dGNr", "filename": "x" }] }]);
        assert_eq!(of(file.clone()), Some(json!({ "a2a": { "artifacts": file } })));
        let two = json!([{ "artifactId": "a", "parts": [{ "text": "x" }] }, { "artifactId": "b", "parts": [{ "data": data }], "new": 1 }]);
        let kept = of(two).unwrap();
        assert_eq!(
            kept["a2a"]["artifacts"][1],
            json!({ "artifactId": "b", "parts": [{ "data": data }] })
        );
        let last = json!({ "status": { "state": "TASK_STATE_COMPLETED", "message": { "parts": [{ "text": "a" }, { "text": "b" }] } } });
        assert_eq!(read("COMPLETED", &last).result(), Some(json!("a\nb")));
        assert_eq!(read("COMPLETED", &json!({})).result(), None);
    }

    #[test]
    fn the_task_of_a_message_is_found_by_the_messages_id() {
        let mine = task(
            "WORKING",
            &json!({ "history": [{ "messageId": "m", "role": "ROLE_USER", "parts": [] }] }),
        );
        let other = task("WORKING", &json!({ "history": [{ "messageId": "n" }] }));
        let list = json!({ "tasks": [other, mine, 7] });
        assert!(find(&list, "m").unwrap().has_message("m"));
        assert_eq!(find(&list, "z"), None);
        assert_eq!(find(&json!([]), "m"), None);
        for (list, token) in [
            (json!({ "nextPageToken": "p" }), Some("p")),
            (json!({ "nextPageToken": "" }), None),
            (json!({ "nextPageToken": 7 }), None),
            (json!({}), None),
        ] {
            assert_eq!(next_page(&list), token, "{list}");
        }
    }

    #[test]
    fn a_change_of_anything_is_another_version() {
        let first = read("WORKING", &json!({}));
        assert_eq!(first.version, read("WORKING", &json!({ "metadata": { "a": 1 } })).version);
        for other in [
            read("COMPLETED", &json!({})),
            read("WORKING", &json!({ "artifacts": [{ "parts": [] }] })),
            read("WORKING", &json!({ "history": [{}] })),
        ] {
            assert_ne!(first.version, other.version);
        }
    }
}
