//! `GET /tasks/{taskId}/trace`: everything that happened on a task, streamed. Records are read three times
//! in pages, once for what they cost, once for the handoffs and once as they are: what a task needs in memory is
//! a line a handoff. Contents of old records come from the archive; what it does not give shows as
//! `{"unavailable":"cold"}`.

use std::collections::{HashMap, HashSet};

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::auth::{Anyone, limited_to};
use super::bundle;
use super::cost::SpentTokensView;
use super::extract::{Id, Params};
use super::open;
use super::problem::Problem;
use super::record::{RecordContract, RecordCost, RecordParty, TraceRecord};
use handoffd_broker::archive::{Contents, unavailable};
use handoffd_broker::bundle::WriteError;
use handoffd_core::account::Account;
use handoffd_core::domain::ids::{AgentId, TaskId, TenantId};
use handoffd_core::evidence::commitment::{CommitmentSubject, hash_text, unpack};
use handoffd_core::evidence::verify::record;
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::{ContentStorage, HandoffFilter, Store, StoreError, StoredRecord};

/// Records read at once.
const PAGE: i64 = 256;

/// In which form.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TraceParams {
    /// `json` (unless said), or `bundle`: a zip for a regulator, which `handoffd verify` checks offline.
    format: Option<String>,
    /// Put personal data into the bundle; for operators and admins.
    #[serde(rename = "includePersonal", default)]
    #[param(rename = "includePersonal", required = false)]
    include_personal: bool,
}

/// Everything that happened on a task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceView {
    /// The task.
    pub task_id: String,
    /// Where it stands; null where every submission on it was refused.
    #[schema(required, value_type = Option<open::TaskStatus>)]
    pub status: Option<String>,
    /// One entry a boundary, in log order.
    pub handoffs: Vec<TraceHandoff>,
    /// Every record of the task, in log order.
    pub records: Vec<TraceRecord>,
    /// The agents that had a part.
    pub agents: Vec<TraceAgent>,
    /// What the task cost, by its records.
    pub cost: TraceCost,
    /// What of the evidence was recomputed.
    pub verification: VerificationView,
}

/// A handoff as a trace tells of it.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceHandoff {
    /// The handoff.
    pub handoff_id: String,
    /// The handoff before it.
    #[schema(required)]
    pub parent_handoff_id: Option<String>,
    /// The task.
    pub task_id: String,
    /// Its record's place in the log.
    pub leaf_index: i64,
    /// When it was committed, RFC 3339.
    pub committed_at: String,
    /// Who sent it.
    #[schema(required)]
    pub from_agent: Option<RecordParty>,
    /// Who received it.
    #[schema(required)]
    pub to_agent: Option<RecordParty>,
    /// The contract that ruled the edge.
    #[schema(required)]
    pub contract: Option<RecordContract>,
    /// What was to be done; null where the message is gone or not the caller's to read.
    #[schema(required)]
    pub task_description: Option<String>,
    /// What the message stated, cumulative.
    #[schema(required)]
    pub cost_tracking: Option<RecordCost>,
    /// What the hop cost.
    #[schema(required)]
    pub cost: Option<HandoffCost>,
    /// Where it stands.
    #[schema(value_type = Option<open::HandoffStatus>, nullable = false)]
    pub status: Option<String>,
    /// Why it ended badly; null for an agent that has no part in it.
    pub reason: Option<String>,
    /// Attempts at delivery.
    #[schema(nullable = false)]
    pub attempts: Option<i32>,
    /// When the receiver accepted, RFC 3339.
    pub accepted_at: Option<String>,
    /// When it ended, RFC 3339.
    pub ended_at: Option<String>,
    /// Between which regions the data went, and on what basis.
    #[schema(value_type = Option<super::record::RecordResidency>, nullable = false)]
    pub residency: Option<Value>,
    /// Why its message is not there any more.
    #[schema(value_type = Option<open::GoneReason>, nullable = false)]
    pub message_gone: Option<String>,
}

/// An agent's part in a task.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceAgent {
    /// The agent.
    pub agent_id: String,
    /// Handoffs that it sent.
    pub sent: u64,
    /// Handoffs that it received.
    pub received: u64,
}

/// What a task cost, by its records.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceCost {
    /// In all, in US dollars.
    #[schema(rename = "totalUSD")]
    pub total_usd: f64,
    /// The plain sum of what the messages stated, in US dollars.
    #[schema(rename = "reportedSumUSD")]
    pub reported_sum_usd: f64,
    /// Tokens in all.
    pub tokens: SpentTokensView,
    /// By agent.
    pub per_agent: Vec<TraceAgentCost>,
    /// By handoff, in log order.
    pub per_hop: Vec<TraceHopCost>,
}

/// What an agent spent.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceAgentCost {
    /// The agent.
    pub agent_id: String,
    /// In US dollars.
    pub usd: f64,
    /// Tokens.
    pub tokens: SpentTokensView,
}

/// What a handoff cost.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct TraceHopCost {
    /// The handoff.
    pub handoff_id: String,
    /// Who sent it.
    pub agent_id: String,
    /// In US dollars.
    pub usd: f64,
    /// Tokens.
    pub tokens: SpentTokensView,
    /// What the sender had spent, in US dollars; absent in records of versions without books.
    #[schema(rename = "senderSpentUSD", nullable = false)]
    pub sender_spent_usd: Option<f64>,
    /// What the receiver spent besides, in US dollars; absent in records of versions without books.
    #[schema(rename = "receiverSpentUSD", nullable = false)]
    pub receiver_spent_usd: Option<f64>,
}

/// What a hop cost.
#[derive(ToSchema)]
pub struct HandoffCost {
    /// In US dollars.
    pub usd: f64,
    /// Tokens.
    pub tokens: SpentTokensView,
    /// What the sender had spent, in US dollars; absent in records of versions without books.
    #[schema(rename = "senderSpentUSD", nullable = false)]
    pub sender_spent_usd: Option<f64>,
    /// What the receiver spent besides, in US dollars; absent in records of versions without books.
    #[schema(rename = "receiverSpentUSD", nullable = false)]
    pub receiver_spent_usd: Option<f64>,
}

/// What of a task's evidence was recomputed while it was read.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct VerificationView {
    /// Nothing was found wrong.
    pub ok: bool,
    /// Records whose hash was recomputed.
    pub records: u64,
    /// Contents whose commitment was recomputed.
    pub contents: u64,
    /// Contents that are not there any more.
    pub erased: u64,
    /// Of these, what was past its time; absent where there is none.
    #[schema(nullable = false)]
    pub purged: Option<u64>,
    /// Contents that the archive does not give; absent where there is none.
    #[schema(nullable = false)]
    pub unavailable: Option<u64>,
    /// The first fault.
    #[schema(required)]
    pub first_bad: Option<RecordFault>,
}

/// A fault in a record.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct RecordFault {
    /// The record's place in the log.
    pub leaf_index: i64,
    /// What is wrong: a code.
    pub fault: String,
}

/// Everything that happened on a task.
#[utoipa::path(
    get, path = "/tasks/{taskId}/trace", tag = "tasks", operation_id = "getTrace",
    params(("taskId" = String, Path, description = "The task's UUID"), TraceParams),
    responses(
        (status = 200, description = "One entry a boundary, every record, and the cost. An agent reads the words (content, task description, reason) of its own handoffs only. As a bundle: a zip, see docs/bundle.md", content((TraceView = "application/json"), (Vec<u8> = "application/zip"))),
        (status = 400, description = "A malformed parameter"),
        (status = 403, description = "A bundle is not for agents, nor personal data for auditors"),
        (status = 404, description = "No such task, or not the caller's"),
        (status = 503, description = "The store is away"),
    )
)]
pub async fn trace(
    State(api): State<Api>,
    Anyone(principal): Anyone,
    Id(id): Id<TaskId>,
    Params(params): Params<TraceParams>,
) -> Result<Response, Problem> {
    match params.format.as_deref() {
        Some("bundle") => {
            return bundle::answer(&api, &principal, id, params.include_personal).await;
        }
        Some("json") | None if !params.include_personal => {}
        Some("json") | None => {
            return Err(Problem::invalid("includePersonal is for format=bundle"));
        }
        Some(_) => return Err(Problem::invalid("format is json or bundle")),
    }
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
    let (store, contents) = (api.store.clone(), api.contents.clone());
    let reader = limited_to(&principal);
    tokio::spawn(async move {
        let mut out = Out { chunks, buffer: Vec::with_capacity(64 * 1024), broken: false };
        let (store, contents, tenant) = (&*store, &contents, &tenant);
        let log = Log { store, contents, tenant, id, until: i64::MAX };
        if let Err(err) = write(&log, status, reader.as_ref(), &mut out).await {
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

/// One task, and where to read of it.
pub(super) struct Log<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) contents: &'a Contents,
    pub(super) tenant: &'a TenantId,
    pub(super) id: TaskId,
    /// Records from this leaf index on do not count.
    pub(super) until: i64,
}

impl Log<'_> {
    /// A page of the task's records with their contents.
    async fn page(&self, from: i64) -> Result<Vec<StoredRecord>, StoreError> {
        let mut page = self.contents.list_records(self.tenant, Some(self.id), from, PAGE).await?;
        page.retain(|record| record.leaf_index < self.until);
        Ok(page)
    }
}

/// The whole trace as a person sees it, in a temporary file.
pub(super) async fn spool(log: Log<'_>, status: Option<&str>) -> Result<std::fs::File, WriteError> {
    let (chunks, mut body) = mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let writing = async {
        let mut out = Out { chunks, buffer: Vec::with_capacity(64 * 1024), broken: false };
        write(&log, status, None, &mut out).await?;
        out.flush().await;
        drop(out);
        Ok::<(), WriteError>(())
    };
    let saving = async {
        let mut file = tokio::fs::File::from_std(tempfile::tempfile()?);
        while let Some(chunk) = body.recv().await {
            file.write_all(&chunk?).await?;
        }
        file.flush().await?;
        Ok::<_, WriteError>(file.into_std().await)
    };
    let (written, saved) = tokio::join!(writing, saving);
    written?;
    saved
}

async fn write(
    log: &Log<'_>,
    status: Option<&str>,
    reader: Option<&AgentId>,
    out: &mut Out,
) -> Result<(), StoreError> {
    let id = log.id;
    let (now, own) = current(log, reader).await?;
    // Every state that was just read has its record in what is read from here on.
    log.store.settle_log(log.tenant).await?;
    // People read everything; an agent the words of the handoffs it sends or receives.
    let open = |record: &StoredRecord| {
        reader.is_none()
            || (record.kind != "DEAD_LETTERED"
                && record.handoff_id.as_ref().is_some_and(|id| own.contains(id)))
    };
    out.text(&format!("{{\"taskId\":\"{id}\",\"status\":{},\"handoffs\":[", json!(status)));
    // What an end says of a hop's cost comes after the hop: the account is whole before the first is written.
    let account = account(log).await?;
    let mut hops = account.hops().iter();
    let mut checked = Checked::default();
    let mut first = true;
    let mut from = 0;
    loop {
        let page = log.page(from).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in &page {
            let body = checked.record(record);
            let content = checked.content(record, &body);
            if record.kind == "HANDOFF" {
                let cost =
                    hops.next().map(handoffd_core::account::HopCost::view).unwrap_or_default();
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
        let page = log.page(from).await?;
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

/// What the task cost, by its records.
pub(super) async fn account(log: &Log<'_>) -> Result<Account, StoreError> {
    let (mut account, mut from) = (Account::default(), 0);
    loop {
        let page = log.store.list_records(log.tenant, Some(log.id), from, PAGE, false).await?;
        let Some(last) = page.last() else { return Ok(account) };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| record.leaf_index < log.until) {
            account.take(&serde_json::from_slice(&record.body).unwrap_or_default());
        }
    }
}

/// Where each of the task's handoffs stands now, and which of them are the reader's own.
async fn current(
    log: &Log<'_>,
    reader: Option<&AgentId>,
) -> Result<(HashMap<String, Value>, HashSet<String>), StoreError> {
    let filter = HandoffFilter { task_id: Some(log.id), ..HandoffFilter::default() };
    let (mut found, mut own) = (HashMap::new(), HashSet::new());
    let mut after = None;
    loop {
        let page = log.store.list_handoffs(log.tenant, &filter, after.as_ref(), 500).await?;
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
                    "acceptedAt": handoff.accepted_at.map(handoffd_core::domain::ids::Micros::rfc3339),
                    "endedAt": handoff.ended_at.map(handoffd_core::domain::ids::Micros::rfc3339),
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
    let gone = gone(record);
    if let Some(entry) = entry.as_object_mut() {
        if let Some(Value::Object(state)) = state {
            entry.extend(state.clone());
        }
        if let Some(residency) = body.get("residency") {
            entry.insert("residency".to_owned(), residency.clone());
        }
        if let Some(why) = gone {
            entry.insert("messageGone".to_owned(), json!(why));
        }
    }
    entry
}

fn record_entry(record: &StoredRecord, open: bool) -> Value {
    let mut entry: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    // A boundary's message is shown by its handoff; that it cannot be had is told here too.
    let content = open
        .then(|| opened(record))
        .flatten()
        .filter(|content| record.kind != "HANDOFF" || *content == unavailable());
    if let Some(object) = entry.as_object_mut() {
        object.insert("recordHash".to_owned(), json!(hash_text(&record.hash)));
        if let Some(content) = content {
            object.insert("content".to_owned(), content);
        }
    }
    entry
}

/// Why a record's message is not there any more: a person asked for its erasure, or its time was over.
pub(super) fn gone(record: &StoredRecord) -> Option<&'static str> {
    match record.content.as_ref()?.kept {
        ContentStorage::Erased => Some("erasure"),
        ContentStorage::Purged => Some("retention"),
        _ => None,
    }
}

/// A record's content, where it was not erased.
pub(super) fn opened(record: &StoredRecord) -> Option<Value> {
    let kept = &record.content.as_ref()?.kept;
    if matches!(kept, ContentStorage::Unavailable(_)) {
        return Some(unavailable());
    }
    let (_, codec, bytes) = kept.hot()?;
    serde_json::from_slice(&unpack(codec, bytes).ok()?).ok()
}

/// What of the task's evidence was recomputed while it was read. The chain between records of
/// different tasks is `handoffd verify`'s to check.
#[derive(Default)]
pub(super) struct Checked {
    records: u64,
    contents: u64,
    erased: u64,
    purged: u64,
    unavailable: u64,
    first_bad: Option<(i64, &'static str)>,
}

impl Checked {
    /// Recomputes the record's hash; returns its body.
    pub(super) fn record(&mut self, record: &StoredRecord) -> Value {
        self.records += 1;
        record::record(&record.body, &record.hash).map_or_else(
            |_| {
                self.first_bad.get_or_insert((record.leaf_index, "record-hash"));
                serde_json::from_slice(&record.body).unwrap_or_default()
            },
            |checked| checked.body,
        )
    }

    /// Recomputes the commitment; returns the content, null where there is none or it was erased.
    pub(super) fn content(&mut self, record: &StoredRecord, body: &Value) -> Value {
        let Some(commitment) = body.get("messageCommitment").and_then(Value::as_str) else {
            return Value::Null;
        };
        let kept = record.content.as_ref().map(|content| &content.kept);
        if let Some(ContentStorage::Unavailable(fault)) = kept {
            self.unavailable += 1;
            // An archive that is away tells nothing of the evidence.
            if *fault != ColdError::Away {
                self.first_bad.get_or_insert((record.leaf_index, fault.as_str()));
            }
            return unavailable();
        }
        let Some((salt, codec, bytes)) = kept.and_then(ContentStorage::hot) else {
            self.erased += 1;
            self.purged += u64::from(matches!(kept, Some(ContentStorage::Purged)));
            return Value::Null;
        };
        self.contents += 1;
        let content = unpack(codec, bytes).unwrap_or_default();
        if !record::opens(commitment, CommitmentSubject::Message, salt, &content) {
            self.first_bad.get_or_insert((record.leaf_index, "content"));
        }
        serde_json::from_slice(&content).unwrap_or_default()
    }

    /// What was found.
    pub(super) fn summary(&self) -> Value {
        let mut summary = json!({
            "ok": self.first_bad.is_none(),
            "records": self.records,
            "contents": self.contents,
            "erased": self.erased,
            "firstBad": self.first_bad.map(|(leaf, fault)| json!({"leafIndex": leaf, "fault": fault})),
        });
        for (name, count) in [("unavailable", self.unavailable), ("purged", self.purged)] {
            if let (Some(summary), 1..) = (summary.as_object_mut(), count) {
                summary.insert(name.to_owned(), json!(count));
            }
        }
        summary
    }
}
