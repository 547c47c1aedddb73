//! `GET /tasks/{taskId}/trace`: everything that happened on a task, streamed. Records are read twice
//! in pages, once for the handoffs and once as they are, so a long task needs no more memory than a
//! short one.

use std::collections::{HashMap, HashSet};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Api;
use super::auth::{Anyone, limited_to};
use super::extract::Id;
use super::problem::{NoKey, Problem, ProblemDetails};
use crate::account::{Account, Hop};
use crate::domain::ids::{AgentId, TaskId, TenantId};
use crate::evidence::commitment::{Subject, commit, hash_text, unpack};
use crate::evidence::record::record_hash;
use crate::store::{HandoffFilter, Store, StoreError, StoredRecord};

/// Records read at once.
const PAGE: i64 = 256;

/// Everything that happened on a task.
#[utoipa::path(
    get, path = "/tasks/{taskId}/trace", tag = "tasks", operation_id = "getTrace",
    params(("taskId" = String, Path, description = "The task's UUID")),
    responses(
        (status = 200, description = "`{taskId, status, handoffs[], records[], agents[], cost{totalUSD, reportedSumUSD, tokens, perAgent[], perHop[]}, verification}`; `handoffs` has one entry a boundary, in log order. An agent reads the words (content, task description, reason) of its own handoffs only", body = Object),
        NoKey,
        (status = 404, description = "No such task, or not the caller's", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The store is away", body = ProblemDetails, content_type = "application/problem+json"),
    ),
    security(("bearer" = []), ("apiKey" = []))
)]
pub async fn trace(
    State(api): State<Api>,
    Anyone(principal): Anyone,
    Id(id): Id<TaskId>,
) -> Result<Response, Problem> {
    let tenant = principal.tenant.clone();
    let status = match super::tasks::find(&api, &principal, id).await {
        Ok(task) => Some(task.status.as_str()),
        // A task whose every submission was refused has records and no row; people may see them.
        Err(problem) => {
            let any = limited_to(&principal).is_none()
                && !api.store.list_records(&tenant, Some(id), 0, 1, false).await?.is_empty();
            if !any {
                return Err(problem);
            }
            None
        }
    };
    let (chunks, body) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let store = api.store.clone();
    let reader = limited_to(&principal);
    tokio::spawn(async move {
        let mut out = Out { chunks, buffer: Vec::with_capacity(64 * 1024), broken: false };
        if let Err(err) = write(&*store, &tenant, id, status, reader.as_ref(), &mut out).await {
            tracing::warn!(error = %err, "a trace broke off");
            // The body ends in an error, so that the client does not take half for the whole.
            let _ = out.chunks.send(Err(std::io::Error::other("the trace broke off"))).await;
        } else {
            out.flush().await;
        }
    });
    let body = futures_util::stream::unfold(body, |mut body| async move {
        body.recv().await.map(|chunk| (chunk, body))
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(body)).into_response())
}

struct Out {
    chunks: mpsc::Sender<Result<Bytes, std::io::Error>>,
    buffer: Vec<u8>,
    broken: bool,
}

impl Out {
    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn item(&mut self, first: &mut bool, value: &Value) {
        if !std::mem::take(first) {
            self.buffer.push(b',');
        }
        // Writing a value into memory cannot fail.
        let _ = serde_json::to_writer(&mut self.buffer, value);
    }

    async fn flush(&mut self) {
        if !self.buffer.is_empty() {
            let chunk = Bytes::from(std::mem::take(&mut self.buffer));
            self.broken |= self.chunks.send(Ok(chunk)).await.is_err();
        }
    }
}

async fn write(
    store: &dyn Store,
    tenant: &TenantId,
    id: TaskId,
    status: Option<&str>,
    reader: Option<&AgentId>,
    out: &mut Out,
) -> Result<(), StoreError> {
    let (now, own) = current(store, tenant, id, reader).await?;
    // People read everything; an agent the words of the handoffs it sends or receives.
    let open = |record: &StoredRecord| {
        reader.is_none()
            || (record.kind != "DEAD_LETTERED"
                && record.handoff_id.as_ref().is_some_and(|id| own.contains(id)))
    };
    out.text(&format!("{{\"taskId\":\"{id}\",\"status\":{},\"handoffs\":[", json!(status)));
    let mut account = Account::default();
    let mut checked = Checked::default();
    let mut first = true;
    let mut from = 0;
    loop {
        let page = store.list_records(tenant, Some(id), from, PAGE, true).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            let body = checked.record(record);
            let content = checked.content(record, &body);
            if record.kind == "HANDOFF" {
                let hop = Hop::from_record(&body);
                let cost = account.add(&hop);
                let state = record.handoff_id.as_ref().and_then(|id| now.get(id));
                let content = if open(record) { content } else { Value::Null };
                out.item(&mut first, &handoff_entry(record, &body, &content, state, &cost));
            }
        }
        out.flush().await;
        if out.broken {
            return Ok(());
        }
    }
    out.text("],\"records\":[");
    let mut first = true;
    let mut from = 0;
    loop {
        let page = store.list_records(tenant, Some(id), from, PAGE, true).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            out.item(&mut first, &record_entry(record, open(record)));
        }
        out.flush().await;
        if out.broken {
            return Ok(());
        }
    }
    out.text("],\"agents\":");
    out.text(&account.agents().to_string());
    out.text(",\"cost\":");
    out.text(&account.cost().to_string());
    out.text(",\"verification\":");
    out.text(&checked.summary().to_string());
    out.text("}");
    Ok(())
}

/// Where each of the task's handoffs stands now, and which of them are the reader's own.
async fn current(
    store: &dyn Store,
    tenant: &TenantId,
    id: TaskId,
    reader: Option<&AgentId>,
) -> Result<(HashMap<String, Value>, HashSet<String>), StoreError> {
    let filter = HandoffFilter { task_id: Some(id), ..HandoffFilter::default() };
    let (mut found, mut own) = (HashMap::new(), HashSet::new());
    let mut after = None;
    loop {
        let page = store.list_handoffs(tenant, &filter, after.as_ref(), 500).await?;
        let Some(last) = page.last() else { return Ok((found, own)) };
        after = Some((last.created_at, last.id.to_string()));
        for handoff in &page {
            let party = [&handoff.source, &handoff.target];
            if reader.is_some_and(|reader| party.contains(&reader)) {
                own.insert(handoff.id.to_string());
            }
            let reason = handoff
                .reason
                .as_ref()
                .filter(|_| reader.is_none_or(|reader| party.contains(&reader)));
            found.insert(
                handoff.id.to_string(),
                json!({
                    "status": handoff.status,
                    "reason": reason,
                    "attempts": handoff.attempts,
                    "acceptedAt": handoff.accepted_at.map(crate::domain::ids::Micros::rfc3339),
                    "endedAt": handoff.ended_at.map(crate::domain::ids::Micros::rfc3339),
                }),
            );
        }
    }
}

fn handoff_entry(
    record: &StoredRecord,
    body: &Value,
    content: &Value,
    state: Option<&Value>,
    cost: &Value,
) -> Value {
    let mut entry = json!({
        "handoffId": record.handoff_id,
        "parentHandoffId": body.get("parentHandoffId"),
        "taskId": body.get("taskId"),
        "leafIndex": record.leaf_index,
        "committedAt": body.get("time"),
        "fromAgent": body.get("fromAgent"),
        "toAgent": body.get("toAgent"),
        "contract": body.get("contract"),
        "taskDescription": content.get("taskDescription"),
        "costTracking": body.get("costAtHandoff"),
        "cost": cost,
    });
    if let (Some(entry), Some(Value::Object(state))) = (entry.as_object_mut(), state) {
        entry.extend(state.clone());
    }
    entry
}

fn record_entry(record: &StoredRecord, open: bool) -> Value {
    let mut entry: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    let content = (open && record.kind != "HANDOFF").then(|| opened(record)).flatten();
    if let Some(object) = entry.as_object_mut() {
        object.insert("recordHash".to_owned(), json!(hash_text(&record.hash)));
        if let Some(content) = content {
            object.insert("content".to_owned(), content);
        }
    }
    entry
}

/// A record's content, where it was not erased.
fn opened(record: &StoredRecord) -> Option<Value> {
    let (_, codec, bytes) = record.content.as_ref()?.kept.as_ref()?;
    serde_json::from_slice(&unpack(*codec, bytes).ok()?).ok()
}

/// What of the task's evidence was recomputed while it was read. The chain between records of
/// different tasks is `handoffd verify`'s to check.
#[derive(Default)]
struct Checked {
    records: u64,
    contents: u64,
    erased: u64,
    first_bad: Option<(i64, &'static str)>,
}

impl Checked {
    fn record(&mut self, record: &StoredRecord) -> Value {
        self.records += 1;
        if record_hash(&record.body)[..] != record.hash {
            self.first_bad.get_or_insert((record.leaf_index, "record-hash"));
        }
        serde_json::from_slice(&record.body).unwrap_or_default()
    }

    fn content(&mut self, record: &StoredRecord, body: &Value) -> Value {
        let Some(commitment) = body.get("messageCommitment").and_then(Value::as_str) else {
            return Value::Null;
        };
        let Some((salt, codec, bytes)) =
            record.content.as_ref().and_then(|content| content.kept.as_ref())
        else {
            self.erased += 1;
            return Value::Null;
        };
        self.contents += 1;
        let content = unpack(*codec, bytes).unwrap_or_default();
        if hash_text(&commit(Subject::Message, salt, &content)) != commitment {
            self.first_bad.get_or_insert((record.leaf_index, "content"));
        }
        serde_json::from_slice(&content).unwrap_or_default()
    }

    fn summary(&self) -> Value {
        json!({
            "ok": self.first_bad.is_none(),
            "records": self.records,
            "contents": self.contents,
            "erased": self.erased,
            "firstBad": self.first_bad.map(|(leaf, fault)| json!({"leafIndex": leaf, "fault": fault})),
        })
    }
}
