//! A handoff as a task of the protocol: state, artifacts, history (specification §11.2, docs/doors/a2a.md). Pure.

use serde_json::{Map, Value, json};

use super::super::state::Standing;
use super::EXTENSION;
use super::message::original;
use crate::http::problem::WarningView;
use crate::http::questions::AskedView;
use handoffd_domain::a2a::{TaskState, named_context};
use handoffd_domain::handoff::{HANDED_ON, HandoffStatus};

/// The parts of a task to show.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Most messages of the history; none for all.
    pub(super) history: Option<usize>,
    pub(super) artifacts: bool,
    /// The client knows the broker's extension.
    pub(super) extension: bool,
}

impl Standing {
    /// The id of the context: its client's own name for it, else the broker's task.
    pub(super) fn context(&self) -> &str {
        named_context(self.message()).unwrap_or_else(|| self.broker_task())
    }

    pub(super) fn broker_task(&self) -> &str {
        &self.view.task_id
    }

    /// The task's state. A receiver that handed the task on has not ended it.
    pub(super) fn state(&self) -> TaskState {
        let handed_on = self.last().reason.as_deref() == Some(HANDED_ON);
        match self.status() {
            Some(HandoffStatus::Completed) if handed_on => TaskState::Working,
            Some(status) => TaskState::of(status),
            // A group's page, which no task is: nothing more to wait for.
            None => TaskState::Failed,
        }
    }

    /// Replaces a reason that the safety rules would stop: a client's model reads a status message as it is.
    pub(super) fn withhold_reasons(&mut self, is_harmless: impl Fn(&str) -> bool) {
        for page in [Some(&mut self.view), self.successor.as_mut()].into_iter().flatten() {
            if page.reason.as_deref().is_none_or(&is_harmless) {
                continue;
            }
            page.reason = Some(format!(
                "{}: the receiver's words are in the handoff's guarded result prompt, GET /handoffs/{}/result/prompt",
                page.status, page.handoff_id,
            ));
        }
    }

    /// Adds the warnings of the request that this task answers.
    pub(super) fn warn(&mut self, warnings: Vec<WarningView>) {
        if !warnings.is_empty() {
            self.view.warnings = warnings;
        }
    }

    /// The begin of that state, RFC 3339.
    pub(super) fn since(&self) -> &str {
        let page = self.last();
        let since = match self.state() {
            TaskState::InputRequired => page.asked.as_ref().map(|asked| &asked.asked_at),
            TaskState::Working => page.asked.as_ref().and_then(|asked| asked.answered_at.as_ref()),
            _ => page.ended_at.as_ref(),
        };
        since.or(page.accepted_at.as_ref()).unwrap_or(&page.created_at)
    }

    /// The receiver's message that goes with the state: its question, its reason, or what it said at the end.
    fn words(&self) -> Option<Value> {
        let page = self.last();
        // The end has an id of its own: the last question stays in the history under its id.
        let (what, parts) = match self.state() {
            TaskState::InputRequired => {
                ("status", parts_of(page.asked.as_ref()?.question.as_ref()?))
            }
            TaskState::Rejected | TaskState::Failed => ("end", parts_of(&json!(page.reason))),
            TaskState::Completed => return self.reply(),
            _ => return None,
        };
        Some(self.said(what, &parts))
    }

    /// The message that the receiver gave as its result, in the protocol's own form.
    pub(super) fn reply(&self) -> Option<Value> {
        let message = self.last().result.as_ref()?.pointer("/a2a/message")?;
        let parts = fit_parts(message.get("parts")?)?;
        let mut said = self.said("reply", &parts);
        let fits = |name: &str, value: &Value| match name {
            "messageId" => value.as_str().is_some_and(|id| !id.is_empty()),
            "metadata" => value.is_object(),
            _ => value.as_array().is_some_and(|uris| uris.iter().all(Value::is_string)),
        };
        for name in ["messageId", "metadata", "extensions"] {
            if let Some(value) = message.get(name).filter(|value| fits(name, value)) {
                said[name] = value.clone();
            }
        }
        Some(said)
    }

    /// Whether the receiver answered with a message and nothing else.
    pub(super) fn is_reply(&self) -> bool {
        self.state() == TaskState::Completed
            && self.reply().is_some()
            && self.artifacts().is_empty()
    }

    /// A message of the receiver. Its id is the same each time it is told.
    fn said(&self, what: &str, parts: &[Value]) -> Value {
        let number = self.last().asked.as_ref().map_or(0, |asked| asked.number);
        json!({
            "messageId": format!("{}-{what}-{number}", self.id()),
            "contextId": self.context(), "taskId": self.id(), "role": "ROLE_AGENT", "parts": parts,
        })
    }

    /// The receiver's result. Artifacts in the protocol's own form (`result.a2a.artifacts`) come out as they went in; any other
    /// result is one artifact.
    pub(super) fn artifacts(&self) -> Vec<Value> {
        let Some(result) = self.last().result.as_ref().filter(|result| !result.is_null()) else {
            return Vec::new();
        };
        let own = result.pointer("/a2a/artifacts").and_then(Value::as_array);
        let mut artifacts: Vec<Value> = own
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter_map(|(place, one)| fit_artifact(one, place))
            .collect();
        let whole = own.map_or(0, Vec::len) == artifacts.len();
        let rest = match result {
            Value::Object(members) if whole && members.contains_key("a2a") => {
                let mut rest = members.clone();
                rest.remove("a2a");
                (!rest.is_empty()).then_some(Value::Object(rest))
            }
            // A value that is not an artifact of the protocol stays unchanged.
            _ => {
                artifacts.clear();
                Some(result.clone())
            }
        };
        if let Some(rest) = rest {
            artifacts.push(
                json!({ "artifactId": "result", "name": "result", "parts": parts_of(&rest) }),
            );
        }
        artifacts
    }

    /// The messages that were exchanged, oldest first.
    fn history(&self) -> Vec<Value> {
        let own = |mut message: Map<String, Value>| {
            message.insert("contextId".to_owned(), self.context().into());
            message.insert("taskId".to_owned(), self.id().into());
            Value::Object(message)
        };
        let mut history: Vec<Value> = original(self.message()).map(own).into_iter().collect();
        for (page, infix) in [(Some(&self.view), ""), (self.successor.as_ref(), "successor-")] {
            let Some(page) = page else { continue };
            for asked in page.questions.iter().flatten() {
                self.exchange(asked, infix, &mut history);
            }
        }
        history
    }

    /// A question and its answer, as far as each was sent and can still be read. The open question is in the state.
    fn exchange(&self, asked: &AskedView, infix: &str, history: &mut Vec<Value>) {
        let number = asked.number;
        let mut push = |what: &str, role: &str, said: &Value| {
            let id = format!("{}-{infix}{what}-{number}", self.id());
            history.push(json!({
                "messageId": id, "contextId": self.context(), "taskId": self.id(), "role": role, "parts": parts_of(said),
            }));
        };
        if let Some(question) = asked.question.as_ref().filter(|_| asked.state != "OPEN") {
            push("status", "ROLE_AGENT", question);
        }
        if let Some(answer) = &asked.answer {
            push("answer", "ROLE_USER", answer);
        }
    }

    /// `TaskStatus`.
    pub(super) fn task_status(&self) -> Value {
        let mut status = json!({ "state": self.state(), "timestamp": self.since() });
        if let Some(words) = self.words() {
            status["message"] = words;
        }
        status
    }

    /// The broker's facts for which the protocol has no field, for clients that know the extension.
    pub(super) fn metadata(&self) -> Value {
        let (page, view) = (self.last(), &self.view);
        let mut known = json!({
            "status": page.status, "reason": page.reason, "toAgent": page.to_agent, "deadlineAt": page.deadline_at,
            "iterations": page.iterations, "conversationSummary": page.conversation_summary, "durationMs": page.duration_ms,
            "successorId": view.successor_id, "receipt": view.receipt, "context": view.context,
            "traceparent": view.traceparent,
            "warnings": Some(&view.warnings).filter(|list| !list.is_empty()),
        });
        if let Some(members) = known.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        json!({ EXTENSION: known })
    }

    /// `Task`.
    pub(super) fn task(&self, shown: Shown) -> Value {
        let mut task =
            json!({ "id": self.id(), "contextId": self.context(), "status": self.task_status() });
        if shown.artifacts {
            let artifacts = self.artifacts();
            if !artifacts.is_empty() {
                task["artifacts"] = artifacts.into();
            }
        }
        let mut history = self.history();
        if let Some(most) = shown.history {
            history.drain(..history.len().saturating_sub(most));
        }
        if !history.is_empty() {
            task["history"] = history.into();
        }
        if shown.extension {
            task["metadata"] = self.metadata();
        }
        task
    }

    /// `TaskStatusUpdateEvent`.
    pub(super) fn update(&self, metadata: &Value) -> Value {
        json!({ "statusUpdate": {
            "taskId": self.id(), "contextId": self.context(), "status": self.task_status(), "metadata": metadata,
        } })
    }

    /// `TaskArtifactUpdateEvent`s, each artifact in one piece.
    pub(super) fn artifact_updates(&self) -> Vec<Value> {
        let update = |artifact| {
            json!({ "artifactUpdate": {
                "taskId": self.id(), "contextId": self.context(), "artifact": artifact, "lastChunk": true,
            } })
        };
        self.artifacts().into_iter().map(update).collect()
    }
}

/// A text as a text part, anything else as data; parts in the protocol's own form as they are.
fn parts_of(value: &Value) -> Vec<Value> {
    if let Some(parts) = value.as_object().filter(|it| it.len() == 1).and_then(|it| it.get("parts"))
        && let Some(parts) = fit_parts(parts)
    {
        return parts;
    }
    vec![match value {
        Value::String(text) => json!({ "text": text, "mediaType": "text/plain" }),
        data => json!({ "data": data, "mediaType": "application/json" }),
    }]
}

/// Parts that fit the protocol: each has exactly one content.
fn fit_parts(parts: &Value) -> Option<Vec<Value>> {
    let parts = parts.as_array().filter(|parts| !parts.is_empty())?;
    let fits = |part: &Value| {
        let Some(members) = part.as_object() else { return false };
        let texts = ["text", "raw", "url"].map(|name| members.get(name));
        let known = ["filename", "mediaType"].map(|name| members.get(name));
        texts.iter().flatten().count() + usize::from(members.contains_key("data")) == 1
            && texts.into_iter().chain(known).flatten().all(Value::is_string)
            && members.get("metadata").is_none_or(Value::is_object)
    };
    parts.iter().all(fits).then(|| parts.clone())
}

/// An artifact that fits the protocol; one without an id gets its place.
fn fit_artifact(artifact: &Value, place: usize) -> Option<Value> {
    let members = artifact.as_object()?;
    let parts = fit_parts(members.get("parts")?)?;
    let mut artifact = Map::new();
    let id = members.get("artifactId").and_then(Value::as_str).filter(|id| !id.is_empty());
    let id = id.map_or_else(|| format!("artifact-{}", place + 1), str::to_owned);
    artifact.insert("artifactId".to_owned(), id.into());
    for name in ["name", "description"] {
        if let Some(text) = members.get(name).filter(|value| value.is_string()) {
            artifact.insert(name.to_owned(), text.clone());
        }
    }
    artifact.insert("parts".to_owned(), parts.into());
    if let Some(metadata) = members.get("metadata").filter(|value| value.is_object()) {
        artifact.insert("metadata".to_owned(), metadata.clone());
    }
    let uris = members.get("extensions").and_then(Value::as_array);
    if let Some(uris) = uris.filter(|uris| uris.iter().all(Value::is_string)) {
        artifact.insert("extensions".to_owned(), uris.clone().into());
    }
    Some(Value::Object(artifact))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::state::tests::page;

    fn standing(more: Value) -> Standing {
        let mut view = json!({
            "handoffId": "h", "taskId": "t", "status": "PENDING", "reason": null, "createdAt": "2026-11-23T10:00:00.000000Z",
            "message": { "extensions": { "a2a": { "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] } } } },
        });
        let Value::Object(more) = more else { panic!("an object") };
        for (name, value) in more {
            view[name] = value;
        }
        Standing::alone(page(view))
    }

    const ALL: Shown = Shown { history: None, artifacts: true, extension: false };

    #[test]
    fn a_pending_handoff_is_a_submitted_task_with_its_message() {
        let task = standing(json!({})).task(ALL);
        assert_eq!(
            task["status"],
            json!({ "state": "TASK_STATE_SUBMITTED", "timestamp": "2026-11-23T10:00:00.000000Z" })
        );
        assert_eq!(
            task["history"],
            json!([{ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }], "contextId": "t", "taskId": "h" }])
        );
        assert!(task.get("artifacts").is_none() && task.get("metadata").is_none());
        let none = standing(json!({})).task(Shown { history: Some(0), extension: true, ..ALL });
        assert!(none.get("history").is_none());
        assert_eq!(none["metadata"][EXTENSION]["status"], "PENDING");
    }

    #[test]
    fn a_question_is_the_message_of_its_state_and_then_part_of_the_history() {
        let asked =
            json!({ "number": 1, "question": "Which?", "askedAt": "2026-11-23T10:00:02.000000Z" });
        let task = standing(json!({ "status": "INPUT_REQUIRED", "asked": asked })).task(ALL);
        assert_eq!(
            task["status"]["message"]["parts"],
            json!([{ "text": "Which?", "mediaType": "text/plain" }])
        );
        assert_eq!(
            (task["status"]["timestamp"].as_str(), task["history"].as_array().unwrap().len()),
            (Some("2026-11-23T10:00:02.000000Z"), 1)
        );
        let asked = json!({ "number": 1, "question": "Which?", "answer": { "n": 2 }, "answeredAt": "2026-11-23T10:00:03.000000Z" });
        let first =
            json!({ "number": 1, "state": "ANSWERED", "question": "Whose?", "answer": "Ours" });
        let mut last = asked.clone();
        (last["number"], last["state"]) = (json!(2), json!("ANSWERED"));
        let task =
            standing(json!({ "status": "ACCEPTED", "asked": last, "questions": [first, last] }))
                .task(ALL);
        assert_eq!(
            task["status"],
            json!({ "state": "TASK_STATE_WORKING", "timestamp": "2026-11-23T10:00:03.000000Z" })
        );
        let roles: Vec<&str> = task["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT", "ROLE_USER", "ROLE_AGENT", "ROLE_USER"]);
        let said = |at: usize| task["history"][at]["parts"][0].clone();
        assert_eq!((&said(1)["text"], &said(2)["text"]), (&json!("Whose?"), &json!("Ours")));
        assert_eq!((&said(3)["text"], &said(4)["data"]), (&json!("Which?"), &json!({ "n": 2 })));
        let ids: std::collections::HashSet<&str> = task["history"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["messageId"].as_str().unwrap_or_default())
            .collect();
        assert_eq!(ids.len(), 5);
    }

    #[test]
    fn a_failure_beside_an_open_question_has_a_message_id_of_its_own() {
        let question = json!({ "number": 1, "state": "OPEN", "question": "Which?" });
        let failed = json!({ "status": "FAILED", "reason": "broken", "asked": question, "questions": [question] });
        let task = standing(failed).task(ALL);
        let history = task["history"].as_array().unwrap();
        let id = &task["status"]["message"]["messageId"];
        assert!(id.is_string() && history.iter().all(|one| one["messageId"] != *id), "{task}");
    }

    #[test]
    fn a_result_is_one_artifact_and_the_protocols_own_come_out_as_they_went_in() {
        let of = |result: Value| {
            standing(json!({ "status": "COMPLETED", "result": result })).artifacts()
        };
        assert_eq!(
            of(json!("done")),
            [
                json!({ "artifactId": "result", "name": "result", "parts": [{ "text": "done", "mediaType": "text/plain" }] })
            ]
        );
        assert_eq!(of(json!({ "sum": 7 }))[0]["parts"][0]["data"], json!({ "sum": 7 }));
        let own = json!({ "artifactId": "f", "name": "out", "parts": [{ "raw": "dGNr", "filename": "o.txt", "mediaType": "text/plain" }], "metadata": { "k": 1 } });
        let told =
            of(json!({ "a2a": { "artifacts": [own, { "parts": [{ "text": "x" }] }] }, "sum": 7 }));
        assert_eq!(
            (&told[0], &told[1]["artifactId"], &told[2]["parts"][0]["data"]),
            (&own, &json!("artifact-2"), &json!({ "sum": 7 }))
        );
        // A value that is not an artifact of the protocol is not lost.
        let wrong = json!({ "a2a": { "artifacts": [{ "parts": [{}] }] } });
        assert_eq!(of(wrong.clone())[0]["parts"][0]["data"], wrong);
        assert!(of(Value::Null).is_empty());
    }

    #[test]
    fn a_receivers_own_message_is_the_answer_where_there_is_no_artifact() {
        let reply =
            json!({ "a2a": { "message": { "messageId": "r", "parts": [{ "text": "hello" }] } } });
        let answered = standing(json!({ "status": "COMPLETED", "result": reply }));
        assert!(answered.is_reply() && answered.artifacts().is_empty());
        let said = answered.reply().unwrap();
        assert_eq!(
            (&said["messageId"], &said["role"], &said["contextId"]),
            (&json!("r"), &json!("ROLE_AGENT"), &json!("t"))
        );
        // Members outside the protocol are left out.
        let mut message = json!({ "messageId": 7, "metadata": "x", "extensions": { "a": 1 }, "parts": [{ "text": "hello" }] });
        for id in [json!(7), json!("")] {
            message["messageId"] = id;
            let result = json!({ "a2a": { "message": message } });
            let said =
                standing(json!({ "status": "COMPLETED", "result": result })).reply().unwrap();
            assert_eq!(said["messageId"], "h-reply-0");
            assert!(said.get("metadata").is_none() && said.get("extensions").is_none(), "{said}");
        }
    }

    #[test]
    fn words_that_the_rules_would_stop_are_not_shown() {
        let mut rejected = standing(json!({ "status": "REJECTED", "reason": "NO_FIGURES" }));
        rejected.withhold_reasons(|_| true);
        assert_eq!(rejected.task_status()["message"]["parts"][0]["text"], "NO_FIGURES");
        rejected.withhold_reasons(|words| words != "NO_FIGURES");
        let shown = json!([rejected.task_status(), rejected.metadata()]).to_string();
        assert!(
            shown.contains("REJECTED: ") && shown.contains("/handoffs/h/result/prompt"),
            "{shown}"
        );
        assert!(!shown.contains("NO_FIGURES"), "{shown}");
        let mut open = standing(json!({}));
        open.withhold_reasons(|_| false);
        assert_eq!(open.view.reason, None);
    }

    #[test]
    fn warnings_are_told_to_clients_that_know_the_extension() {
        let mut task = standing(json!({}));
        task.warn(Vec::new());
        assert!(task.metadata()[EXTENSION].get("warnings").is_none());
        let (code, text) = ("CONTRACT_UNKNOWN".to_owned(), String::new());
        task.warn(vec![WarningView { code, pointer: text.clone(), message: text }]);
        assert_eq!(task.metadata()[EXTENSION]["warnings"][0]["code"], "CONTRACT_UNKNOWN");
    }

    #[test]
    fn a_successor_counts_and_a_task_that_was_handed_on_has_not_ended() {
        let mut redirected = standing(json!({ "status": "REJECTED", "reason": "BUSY" }));
        assert_eq!(redirected.task_status()["message"]["parts"][0]["text"], "BUSY");
        redirected.successor = Some(page(
            json!({ "handoffId": "h2", "taskId": "t", "status": "ACCEPTED", "acceptedAt": "2026-11-23T10:00:09.000000Z" }),
        ));
        assert_eq!(
            (redirected.state(), redirected.id(), redirected.since()),
            (TaskState::Working, "h", "2026-11-23T10:00:09.000000Z")
        );
        let handed = standing(json!({ "status": "COMPLETED", "reason": HANDED_ON }));
        assert_eq!(handed.state(), TaskState::Working);
    }
}
