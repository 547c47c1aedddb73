//! `GET /tasks/{taskId}/blame`: which hop, agent and contract wrote a value. Records are read in small
//! pages; of each message only a hash of the value stays.

use std::collections::HashMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::Caller;
use super::extract::{Id, Params, parameter};
use super::open;
use super::problem::Problem;
use super::sorted::Sorted;
use handoffd_broker::trace::{EvidenceCheck, Verification, gone};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_evidence::blame::{Attribution, Blame, Pointer, ValueState};
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::record::{RecordParty, RulingContract};
use handoffd_store::store::{ContentStorage, StoredRecord};

/// Records read at once: few, since each comes with its message.
const PAGE: i64 = 32;

/// Query of a blame.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BlameParams {
    /// RFC 6901 pointer into the message, e.g. `/currentState/riskScore`.
    pointer: String,
    /// The handoff whose message is looked at: the task's last unless said; for an agent, the last
    /// that it sent or received.
    handoff: Option<String>,
}

/// Who wrote a value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlameView {
    /// UUID of the task.
    pub task_id: String,
    /// The handoff whose message was looked at.
    pub handoff_id: String,
    /// RFC 6901 pointer into the message.
    pub pointer: String,
    /// The message has a value there; null where the message was erased.
    #[schema(required)]
    pub present: Option<bool>,
    /// The message was erased.
    pub erased: bool,
    /// Why the message is not there any more.
    #[schema(required, value_type = Option<open::GoneReason>)]
    pub message_gone: Option<&'static str>,
    /// The value; null where there is none.
    pub value: Value,
    /// `sha256:…` over the value's canonical form; null where there is none.
    #[schema(required)]
    pub value_hash: Option<String>,
    /// The hop that wrote the value.
    #[schema(required)]
    pub written_by: Option<BlamedHop>,
    /// The hop that removed the value.
    #[schema(required)]
    pub removed_by: Option<BlamedHop>,
    /// False where an erased message may have had a part.
    pub certain: bool,
    /// The changes of the value along the parents of that handoff, oldest first.
    pub history: Vec<BlameStep>,
    /// The evidence that was recomputed.
    pub verification: Verification,
}

/// A hop that wrote or removed a value.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlamedHop {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// Its record's place in the log.
    pub leaf_index: i64,
    /// `sha256:…` over the record: the leaf's hash.
    pub record_hash: String,
    /// Sender, as its record names it.
    #[schema(required, value_type = Option<RecordParty>)]
    pub from_agent: Value,
    /// The contract that ruled the edge.
    #[schema(required, value_type = Option<RulingContract>)]
    pub contract: Value,
    /// When it was committed, RFC 3339.
    #[schema(required, value_type = Option<String>)]
    pub time: Value,
}

/// The effect of a hop on a value.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlameStep {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// Its record's place in the log.
    pub leaf_index: i64,
    /// Id of the agent that sent it.
    #[schema(required, value_type = Option<String>)]
    pub agent_id: Option<Value>,
    /// The change that the step made to the value.
    #[schema(value_type = open::ValueChange)]
    pub change: &'static str,
    /// `sha256:…` over the value's canonical form after it; null where there is none or the caller may not know.
    #[schema(required)]
    pub value_hash: Option<String>,
}

/// Who wrote a value.
#[utoipa::path(
    get, path = "/tasks/{taskId}/blame", tag = "tasks", operation_id = "getBlame",
    params(("taskId" = String, Path, description = "The task's UUID"), BlameParams),
    responses(
        (status = 200, description = "Who wrote it. An agent may ask about the messages that it sent or received; hashes of others' values are left out", body = BlameView),
        (status = 400, description = "Not a pointer, or a malformed parameter"),
        (status = 404, description = "No such task or handoff, or not the caller's"),
        (status = 503, description = "The store or the archive is away"),
    )
)]
pub(super) async fn blame(
    State(api): State<Api>,
    Caller(principal): Caller,
    Id(id): Id<TaskId>,
    Params(params): Params<BlameParams>,
) -> Result<Sorted<BlameView>, Problem> {
    let pointer =
        Pointer::parse(&params.pointer).map_err(|err| Problem::invalid(err.to_string()))?;
    let asked = parameter::<HandoffId>("handoff", params.handoff.as_deref())?;
    super::tasks::find(&api, &principal, id).await?;
    let reader = principal.reader().limit();
    let mut reading = BlameReader::new(&pointer, asked.map(|id| id.to_string()), reader);
    let mut from = 0;
    loop {
        let page = api.contents.list_records(&principal.tenant, Some(id), from, PAGE).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            // The writer of a value is unknown beyond a message that cannot be read.
            if let Some(ContentStorage::Unavailable(_)) =
                record.content.as_ref().map(|found| &found.kept)
            {
                return Err(Problem::archive_away());
            }
            reading.take(record);
        }
    }
    reading.answer(id).map(Sorted).ok_or_else(|| Problem::not_found("handoff on this task"))
}

/// A hop, and whether the reader may see its values.
struct Hop {
    shown: BlamedHop,
    open: bool,
}

/// Reads a task's records into the answer.
struct BlameReader<'a> {
    pointer: &'a Pointer,
    asked: Option<String>,
    reader: Option<&'a AgentId>,
    blame: Blame<Hop>,
    checked: EvidenceCheck,
    /// The records of handoffs whose streams are open, by id.
    opened: HashMap<String, Value>,
    /// The latest handoff that the caller may ask about, and the value of its message at the pointer.
    view: Option<(String, Option<Value>)>,
    /// Reason for which that message is gone.
    gone: Option<&'static str>,
}

impl<'a> BlameReader<'a> {
    fn new(pointer: &'a Pointer, asked: Option<String>, reader: Option<&'a AgentId>) -> Self {
        let (blame, checked) = (Blame::default(), EvidenceCheck::default());
        let opened = HashMap::new();
        Self { pointer, asked, reader, blame, checked, opened, view: None, gone: None }
    }

    fn take(&mut self, record: &StoredRecord) {
        let body = self.checked.record(record);
        let content = self.checked.content(record, &body);
        let Some(id) = record.handoff_id.clone() else { return };
        let closed = match record.kind.as_str() {
            "HANDOFF" => None,
            // The assembled message is the handoff's from here on: what its opening said of the parties stays.
            "STREAM_CLOSED" => match self.opened.remove(&id) {
                Some(opened) => Some(opened),
                None => return,
            },
            _ => return,
        };
        let opening = closed.as_ref().unwrap_or(&body);
        let member = |name: &str| opening.get(name).cloned().unwrap_or_default();
        let is_reader = |party: &str| {
            let agent = opening.pointer(party).and_then(Value::as_str);
            self.reader.is_none_or(|reader| agent == Some(reader.as_str()))
        };
        let open = is_reader("/fromAgent/agentId") || is_reader("/toAgent/agentId");
        let value = self.pointer.find(&content);
        let seen =
            if content.is_null() { ValueState::Erased } else { ValueState::in_message(value) };
        // The end of an earlier handoff's stream makes it no later one.
        let latest = closed.is_none() || self.view.as_ref().is_some_and(|(view, _)| *view == id);
        if open && latest && self.asked.as_ref().is_none_or(|asked| *asked == id) {
            self.gone = gone(record);
            self.view = Some((id.clone(), value.cloned().filter(|_| seen != ValueState::Erased)));
        }
        let parent = body.get("parentHandoffId").and_then(Value::as_str);
        let shown = BlamedHop {
            handoff_id: id.clone(),
            leaf_index: record.leaf_index,
            record_hash: hash_text(&record.hash),
            from_agent: member("fromAgent"),
            contract: member("contract"),
            time: body.get("time").cloned().unwrap_or_default(),
        };
        let hop = Hop { shown, open };
        if closed.is_some() {
            self.blame.replace(&id, seen, hop);
            return;
        }
        self.blame.add(id.clone(), parent, seen, hop);
        if body.get("stream").is_some() {
            self.opened.insert(id, body);
        }
    }

    fn answer(&self, task: TaskId) -> Option<BlameView> {
        let (id, value) = self.view.as_ref()?;
        let Attribution { seen, writer, remover, certain, history } = self.blame.of(id)?;
        let history = history.into_iter().map(|(hop, change, seen)| BlameStep {
            handoff_id: hop.shown.handoff_id.clone(),
            leaf_index: hop.shown.leaf_index,
            agent_id: hop.shown.from_agent.get("agentId").cloned(),
            change: change.as_str(),
            value_hash: hop.open.then(|| hash_of(seen)).flatten(),
        });
        Some(BlameView {
            task_id: task.to_string(),
            handoff_id: id.clone(),
            pointer: self.pointer.as_str().to_owned(),
            present: (seen != ValueState::Erased).then_some(seen != ValueState::Absent),
            erased: seen == ValueState::Erased,
            message_gone: self.gone,
            value: value.clone().unwrap_or_default(),
            value_hash: hash_of(seen),
            written_by: writer.map(|hop| hop.shown.clone()),
            removed_by: remover.map(|hop| hop.shown.clone()),
            certain,
            history: history.collect(),
            verification: self.checked.summary(),
        })
    }
}

fn hash_of(seen: ValueState) -> Option<String> {
    match seen {
        ValueState::Value(hash) => Some(hash_text(&hash)),
        ValueState::Absent | ValueState::Erased => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use handoffd_domain::ids::Micros;
    use handoffd_evidence::commitment::{Codec, CommitmentSubject, commit};
    use handoffd_evidence::record::record_hash;
    use handoffd_store::store::StoredContent;

    fn record(leaf: i64, parent: Option<&str>, message: Option<&Value>) -> StoredRecord {
        let bytes = message.map(|message| serde_json::to_vec(message).unwrap());
        let commitment =
            commit(CommitmentSubject::Message, &[7], bytes.as_deref().unwrap_or_default());
        let body = serde_json::to_vec(&json!({
            "parentHandoffId": parent,
            "fromAgent": { "agentId": format!("agent-{leaf}") },
            "messageCommitment": hash_text(&commitment),
        }));
        let body = body.unwrap();
        StoredRecord {
            leaf_index: leaf,
            hash: record_hash(&body).to_vec(),
            kind: "HANDOFF".to_owned(),
            task_id: None,
            handoff_id: Some(leaf.to_string()),
            recorded_at: Micros(0),
            body,
            content: Some(StoredContent {
                id: leaf.to_string(),
                kept: bytes.map_or(ContentStorage::Erased, |bytes| {
                    ContentStorage::Hot(vec![7], Codec::Raw, bytes)
                }),
            }),
            personal: Vec::new(),
        }
    }

    #[test]
    fn an_erased_message_says_so_and_leaves_the_answer_uncertain() {
        let pointer = Pointer::parse("/x").unwrap();
        let task: TaskId = "7d9e0f1a-2b3c-4d5e-8f60-718293a4b5c6".parse().unwrap();
        let records = [
            record(0, None, Some(&json!({ "x": 1 }))),
            record(1, Some("0"), None),
            record(2, Some("1"), Some(&json!({ "x": 1 }))),
        ];
        let answer = |asked: Option<&str>| {
            let mut reading = BlameReader::new(&pointer, asked.map(str::to_owned), None);
            for record in &records {
                reading.take(record);
            }
            json!(reading.answer(task).unwrap())
        };
        let last = answer(None);
        assert_eq!((&last["present"], &last["certain"]), (&json!(true), &json!(false)));
        assert_eq!(last["writtenBy"]["fromAgent"]["agentId"], "agent-2");
        assert_eq!(last["history"][1]["change"], "erased");
        assert_eq!(
            last["verification"],
            json!({ "ok": true, "records": 3, "contents": 2, "erased": 1, "firstBad": null })
        );
        let gone = answer(Some("1"));
        assert_eq!((&gone["erased"], &gone["present"]), (&json!(true), &Value::Null));
        assert!(gone["value"].is_null() && gone["writtenBy"].is_null() && gone["certain"] == false);
        let first = answer(Some("0"));
        assert_eq!((&first["value"], &first["certain"]), (&json!(1), &json!(true)));
    }
}
