//! The trace of a task: everything that happened on it, as one JSON document, streamed. Records are read three times
//! in pages, once for what they cost, once for the handoffs and once as they are: a task needs a line a handoff of
//! memory. Contents of old records come from the archive; what the archive does not give is
//! `{"unavailable":"cold"}`.

mod check;
mod states;
mod window;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::archive::{Contents, opened, unavailable};
use crate::reader::ShownWords;
use handoffd_domain::handoff::{Handoff, is_in_own_words};
use handoffd_domain::ids::{AgentId, Micros, TaskId, TenantId};
use handoffd_evidence::account::Account;
use handoffd_evidence::commitment::hash_text;
use handoffd_evidence::context_growth::ContextGrowth;
use handoffd_evidence::record::{RecordKind, is_shown_elsewhere};
use handoffd_store::store::{HandoffFilter, Store, StoreError, StoredRecord};

pub use check::{EvidenceCheck, RecordFault, Verification, gone};
pub use states::RowDifference;
use states::{RowState, ToldStates};
pub use window::{WindowPage, WindowQuery, window};

/// Records read at once.
const PAGE: i64 = 256;

/// Bytes reserved for a chunk.
const CHUNK: usize = 64 * 1024;

/// Chunks that wait for their reader.
const WAITING: usize = 4;

/// A task's part of a log, and the places to read it from.
#[derive(Clone, Copy)]
pub struct TaskLog<'a> {
    /// Store of records and handoffs.
    pub store: &'a Store,
    /// Reader of the contents.
    pub contents: &'a Contents,
    /// The tenant that owns the task.
    pub tenant: &'a TenantId,
    pub id: TaskId,
    /// Leaf index at which reading ends: the first record that does not count.
    pub until: i64,
}

impl TaskLog<'_> {
    /// Whether the task has records beyond those that count.
    async fn goes_on(&self) -> Result<bool, StoreError> {
        let bounded = self.until < i64::MAX;
        Ok(bounded
            && !self
                .store
                .list_records(self.tenant, Some(self.id), self.until, 1, false)
                .await?
                .is_empty())
    }

    /// A page of the task's records with their contents.
    async fn page(&self, from: i64) -> Result<Vec<StoredRecord>, StoreError> {
        let mut page = self.contents.list_records(self.tenant, Some(self.id), from, PAGE).await?;
        page.retain(|record| record.leaf_index < self.until);
        Ok(page)
    }
}

/// A piece of a trace. An error ends the stream, so that a client does not take half a trace for a whole one.
pub type TraceChunk = Result<Bytes, std::io::Error>;

/// Streams the trace of a task with the words that are shown. A task of which each submission was
/// refused has records and no `status`.
#[must_use]
pub fn stream(
    store: Arc<Store>,
    contents: Contents,
    tenant: TenantId,
    id: TaskId,
    status: Option<&'static str>,
    shown: ShownWords,
) -> mpsc::Receiver<TraceChunk> {
    let (chunks, body) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let (store, contents, tenant) = (&*store, &contents, &tenant);
        let log = TaskLog { store, contents, tenant, id, until: i64::MAX };
        if let Err(err) = write(&log, status, &shown, chunks.clone()).await {
            tracing::warn!(error = %err, "a trace broke off");
            let _ = chunks.send(Err(std::io::Error::other("the trace broke off"))).await;
        }
    });
    body
}

/// Writes the trace of a task into `chunks`; stops early when their reader is gone. `shown` as for [`stream`].
///
/// # Errors
/// [`StoreError`]: the records or the archive cannot be read; the trace is incomplete then.
pub async fn write(
    log: &TaskLog<'_>,
    status: Option<&str>,
    shown: &ShownWords,
    chunks: mpsc::Sender<TraceChunk>,
) -> Result<(), StoreError> {
    let mut out = TraceWriter::new(chunks);
    write_document(log, status, shown, &mut out).await?;
    out.flush().await;
    Ok(())
}

struct TraceWriter {
    chunks: mpsc::Sender<TraceChunk>,
    buffer: Vec<u8>,
    /// The reader has closed its side.
    broken: bool,
}

impl TraceWriter {
    fn new(chunks: mpsc::Sender<TraceChunk>) -> Self {
        Self { chunks, buffer: Vec::with_capacity(CHUNK), broken: false }
    }

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

async fn write_document(
    log: &TaskLog<'_>,
    status: Option<&str>,
    shown: &ShownWords,
    out: &mut TraceWriter,
) -> Result<(), StoreError> {
    let id = log.id;
    let CurrentHandoffs { states: now, rows, own, parties } = current(log, shown).await?;
    // Every state that was just read has its record in what is read from here on.
    log.store.settle_log(log.tenant).await?;
    let open = |record: &StoredRecord| {
        *shown == ShownWords::All
            || (record.kind != "DEAD_LETTERED"
                && record.handoff_id.as_ref().is_some_and(|id| own.contains(id)))
    };
    // The hop's cost, which its end states, and its size, which the end of a stream states, come after the hop: both are
    // whole before the first is written.
    let mut growth = ContextGrowth::default();
    let mut told = ToldStates::default();
    let account = account_with(log, |body| {
        growth.take(body);
        told.take(body);
    })
    .await?;
    let mut checked = EvidenceCheck::default();
    let (status, wrong) = told.task(status, log.goes_on().await?);
    if let Some((leaf, why)) = wrong {
        checked.row_differs(leaf, why);
    }
    out.text(&format!("{{\"taskId\":\"{id}\",\"status\":{},\"handoffs\":[", json!(status)));
    let mut hops = account.hops().iter();
    let mut contexts = growth.hops().iter();
    let mut first = true;
    let mut from = 0;
    loop {
        let page = log.page(from).await?;
        let Some(last) = page.last() else { break };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| parties.include(record)) {
            let body = checked.record(record);
            let content = checked.content(record, &body);
            if record.kind == "HANDOFF" {
                let cost = hops.next().map_or(Value::Null, |hop| json!(hop.view()));
                let state = record.handoff_id.as_ref().and_then(|id| now.get(id));
                let content = if open(record) { content } else { Value::Null };
                let context = contexts.next().cloned().flatten();
                let figures = (&cost, context);
                let mut entry = handoff_entry(record, &body, &content, state, figures);
                if let Some((leaf, why)) =
                    corrected(log, &told, record, (&rows, &mut entry, open(record))).await?
                {
                    checked.row_differs(leaf, why);
                }
                out.item(&mut first, &entry);
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
        for record in page.iter().filter(|record| parties.include(record)) {
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
    out.text(&json!(checked.summary()).to_string());
    out.text("}");
    Ok(())
}

/// Lets the entry of a handoff whose row differs from its records say what these say. Returns the leaf index of the record,
/// and a sentence, where that is a fault.
async fn corrected(
    log: &TaskLog<'_>,
    told: &ToldStates,
    record: &StoredRecord,
    (rows, entry, sees_reason): (&HashMap<String, RowState>, &mut Value, bool),
) -> Result<Option<(i64, String)>, StoreError> {
    let Some(id) = &record.handoff_id else { return Ok(None) };
    let (Some(row), Some(entry)) = (rows.get(id), entry.as_object_mut()) else { return Ok(None) };
    if !told.suspect(id, row) {
        return Ok(None);
    }
    let now = match id.parse() {
        Ok(id) if !log.goes_on().await? => {
            log.store.find_handoff(&(log.tenant.clone(), id)).await?
        }
        _ => None,
    };
    let now = now.as_ref().map(RowState::from);
    Ok(told.correct(entry, id, (row, now.as_ref()), sees_reason))
}

/// The task's account: what each hop cost, by the task's records.
///
/// # Errors
/// [`StoreError`]: the records cannot be read.
pub async fn account(log: &TaskLog<'_>) -> Result<Account, StoreError> {
    account_with(log, |_| {}).await
}

/// [`account`], which shows each record to `also`.
async fn account_with(
    log: &TaskLog<'_>,
    mut also: impl FnMut(&Value) + Send,
) -> Result<Account, StoreError> {
    let (mut account, mut from) = (Account::default(), 0);
    loop {
        let page = log.store.list_records(log.tenant, Some(log.id), from, PAGE, false).await?;
        let Some(last) = page.last() else { return Ok(account) };
        from = last.leaf_index + 1;
        for record in page.iter().filter(|record| record.leaf_index < log.until) {
            let body = serde_json::from_slice(&record.body).unwrap_or_default();
            account.take(&body);
            also(&body);
        }
    }
}

/// The agents that have a part in a task.
///
/// Any agent may save a checkpoint for a task that does not exist yet, under an id that it chose or guessed. If the task
/// then begins without that agent, the record stays in the log, and does not belong to the task.
#[derive(Debug, Default)]
pub struct Parties(HashSet<AgentId>);

impl Parties {
    /// Reads the senders and receivers of a task's handoffs.
    ///
    /// # Errors
    /// [`StoreError`]: the handoffs cannot be read.
    pub async fn of(store: &Store, tenant: &TenantId, task: TaskId) -> Result<Self, StoreError> {
        let filter = HandoffFilter { task_id: Some(task), ..HandoffFilter::default() };
        let (mut parties, mut after) = (Self::default(), None);
        loop {
            let page = store.list_handoffs(tenant, &filter, after.as_ref(), 500).await?;
            let Some(last) = page.last() else { return Ok(parties) };
            after = Some((last.created_at, last.id.to_string()));
            for handoff in &page {
                parties.add(handoff);
            }
        }
    }

    fn add(&mut self, handoff: &Handoff) {
        for agent in [&handoff.source, &handoff.target] {
            if !self.0.contains(agent) {
                self.0.insert(agent.clone());
            }
        }
    }

    /// Whether a record under the task's id is one of the task. Before its first handoff all are.
    #[must_use]
    pub fn include(&self, record: &StoredRecord) -> bool {
        if record.kind != RecordKind::Checkpoint.as_str() || self.0.is_empty() {
            return true;
        }
        let body: Value = serde_json::from_slice(&record.body).unwrap_or_default();
        let by = body.pointer("/actor/agentId").and_then(Value::as_str);
        by.is_none_or(|by| self.0.iter().any(|agent| agent.as_str() == by))
    }
}

/// A task's handoffs as they are now.
#[derive(Default)]
struct CurrentHandoffs {
    /// The present state of each, by id.
    states: HashMap<String, Value>,
    /// The state in the row of each.
    rows: HashMap<String, RowState>,
    /// The ids of those whose words the reader may read.
    own: HashSet<String>,
    parties: Parties,
}

async fn current(log: &TaskLog<'_>, shown: &ShownWords) -> Result<CurrentHandoffs, StoreError> {
    let filter = HandoffFilter { task_id: Some(log.id), ..HandoffFilter::default() };
    let mut current = CurrentHandoffs::default();
    let mut after = None;
    loop {
        let page = log.store.list_handoffs(log.tenant, &filter, after.as_ref(), 500).await?;
        let Some(last) = page.last() else { return Ok(current) };
        after = Some((last.created_at, last.id.to_string()));
        let CurrentHandoffs { states: found, rows, own, parties } = &mut current;
        for handoff in &page {
            parties.add(handoff);
            rows.insert(handoff.id.to_string(), RowState::from(handoff));
            let reads = shown.include(handoff);
            if reads {
                own.insert(handoff.id.to_string());
            }
            found.insert(handoff.id.to_string(), handoff_state(handoff, shown));
        }
    }
}

/// The state in a handoff's row, as a reader may see it.
fn handoff_state(handoff: &Handoff, shown: &ShownWords) -> Value {
    // Codes are words of the broker.
    let code = |reason: &&String| *shown == ShownWords::None && !is_in_own_words(reason);
    let reason = handoff.reason.as_ref().filter(|reason| shown.include(handoff) || code(reason));
    let mut state = json!({
        "status": handoff.status,
        "reason": reason,
        "attempts": handoff.attempts,
        "acceptedAt": handoff.accepted_at.map(Micros::rfc3339),
        "endedAt": handoff.ended_at.map(Micros::rfc3339),
    });
    if let Some(stream) = &handoff.stream {
        state["stream"] = json!({ "status": stream.status, "seq": stream.seq });
    }
    state
}

fn handoff_entry(
    record: &StoredRecord,
    body: &Value,
    content: &Value,
    state: Option<&Value>,
    (cost, context): (&Value, Option<Value>),
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
        if let Some(group) = body.get("group") {
            entry.insert("group".to_owned(), group.clone());
        }
        if let Some(context) = context {
            entry.insert("context".to_owned(), context);
        }
        if let Some(summary) = content.get("taskSummary").filter(|text| text.is_string()) {
            entry.insert("taskSummary".to_owned(), summary.clone());
        }
        if let Some(why) = gone {
            entry.insert("messageGone".to_owned(), json!(why));
        }
    }
    entry
}

fn record_entry(record: &StoredRecord, open: bool) -> Value {
    let mut entry: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    // A boundary's message is shown by its handoff, the chunks and the whole of a stream by the handoff's own pages; that it
    // cannot be had is told here too.
    let elsewhere = is_shown_elsewhere(&record.kind);
    let content = open
        .then(|| opened(record))
        .flatten()
        .filter(|content| !elsewhere || *content == unavailable());
    if let Some(object) = entry.as_object_mut() {
        object.insert("recordHash".to_owned(), json!(hash_text(&record.hash)));
        if let Some(content) = content {
            object.insert("content".to_owned(), content);
        }
    }
    entry
}
