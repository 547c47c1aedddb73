//! A window of a task's records, newest first. It reads the records of one page and the rows that these name: a task of ten
//! thousand records opens as fast as a small one.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{EvidenceCheck, TaskLog, handoff_entry, handoff_state, record_entry};
use crate::reader::ShownWords;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_evidence::record::RecordKind;
use handoffd_store::store::{HandoffFilter, RecordWindow, StoreError, StoredRecord};

/// How far the clocks of brokers may be apart: times in the log go up but for so much.
const SKEW_US: i64 = 60_000_000;

/// The wish of a reader.
#[derive(Debug, Clone, Copy)]
pub struct WindowQuery {
    /// Recorded at this time or later; any unless said.
    pub from: Option<Micros>,
    /// Recorded before this time.
    pub until: Option<Micros>,
    /// Before this place of the log.
    pub before: Option<i64>,
    /// Most records.
    pub limit: i64,
}

/// A page of a trace, and the place before which the next one begins.
pub type WindowPage = (Value, Option<i64>);

/// Rows of handoffs that were looked up, by their ids; none where the row is gone.
type Rows = HashMap<String, Option<Handoff>>;

/// Reads a page of the task's records, newest first. `status` as for [`super::stream`].
///
/// # Errors
/// [`StoreError`]: the records or the rows cannot be read.
pub async fn window(
    log: &TaskLog<'_>,
    status: Option<&str>,
    shown: &ShownWords,
    query: WindowQuery,
) -> Result<WindowPage, StoreError> {
    let at_least = match query.from {
        Some(from) => first_at(log, from).await?,
        None => 0,
    };
    let window = RecordWindow {
        at_least,
        before: query.before.unwrap_or(log.until).min(log.until),
        from: query.from.unwrap_or(Micros(i64::MIN)),
        until: query.until.unwrap_or(Micros(i64::MAX)),
    };
    let limit = usize::try_from(query.limit).unwrap_or(0);
    let contents = log.contents;
    let mut page =
        contents.list_newest_records(log.tenant, log.id, window, query.limit + 1).await?;
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|record| record.leaf_index);
    let rows = rows_of(log, &page).await?;
    let page = of_the_task(log, page).await?;
    let (mut checked, mut handoffs, mut records) =
        (EvidenceCheck::default(), Vec::new(), Vec::new());
    for record in &page {
        let row = record.handoff_id.as_ref().and_then(|id| rows.get(id)?.as_ref());
        let dead = record.kind == RecordKind::DeadLettered.as_str();
        let open = *shown == ShownWords::All || !dead && row.is_some_and(|row| shown.include(row));
        let (body, content) = checked.alone(record);
        if record.kind == RecordKind::Handoff.as_str() {
            let content = if open { content } else { Value::Null };
            let state = row.map(|row| handoff_state(row, shown));
            let figures = (&Value::Null, body.get("context").cloned());
            handoffs.push(handoff_entry(record, &body, &content, state.as_ref(), figures));
        }
        records.push(record_entry(record, open));
    }
    let document = json!({
        "taskId": log.id, "status": status, "handoffs": handoffs, "records": records,
        "verification": checked.summary(),
    });
    Ok((document, next))
}

/// A place before which every record is earlier than a time, found by halves.
async fn first_at(log: &TaskLog<'_>, from: Micros) -> Result<i64, StoreError> {
    let size = log.store.find_head(log.tenant).await?.map_or(0, |head| head.size);
    let early = from.0.saturating_sub(SKEW_US);
    let (mut low, mut high) = (0, size);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = log.store.list_records(log.tenant, None, middle, 1, false).await?;
        match found.first() {
            Some(record) if record.recorded_at.0 < early => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The rows of the handoffs that these records name.
async fn rows_of(log: &TaskLog<'_>, page: &[StoredRecord]) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    for id in page.iter().filter_map(|record| record.handoff_id.as_ref()) {
        if !rows.contains_key(id) {
            let row = match id.parse() {
                Ok(key) => log.store.find_handoff(&(log.tenant.clone(), key)).await?,
                Err(_) => None,
            };
            rows.insert(id.clone(), row);
        }
    }
    Ok(rows)
}

/// The records without checkpoints of agents that have no part in the task (see [`super::Parties`]).
async fn of_the_task(
    log: &TaskLog<'_>,
    page: Vec<StoredRecord>,
) -> Result<Vec<StoredRecord>, StoreError> {
    let mut strangers: HashMap<String, bool> = HashMap::new();
    let mut rest = Vec::with_capacity(page.len());
    for record in page {
        if let Some(by) = saved_by(&record) {
            let stranger = if let Some(stranger) = strangers.get(by.as_str()) {
                *stranger
            } else {
                let stranger = is_stranger(log, &by).await?;
                strangers.insert(by.to_string(), stranger);
                stranger
            };
            if stranger {
                continue;
            }
        }
        rest.push(record);
    }
    Ok(rest)
}

/// The agent that saved the checkpoint of a record; `None` of any other record.
fn saved_by(record: &StoredRecord) -> Option<AgentId> {
    if record.kind != RecordKind::Checkpoint.as_str() {
        return None;
    }
    let body: Value = serde_json::from_slice(&record.body).unwrap_or_default();
    body.pointer("/actor/agentId")?.as_str()?.parse().ok()
}

/// Whether the task has handoffs, and none of them is this agent's.
async fn is_stranger(log: &TaskLog<'_>, by: &AgentId) -> Result<bool, StoreError> {
    let any = HandoffFilter { task_id: Some(log.id), ..HandoffFilter::default() };
    let own = HandoffFilter { party: Some(by.clone()), ..any.clone() };
    if !log.store.list_handoffs(log.tenant, &own, None, 1).await?.is_empty() {
        return Ok(false);
    }
    Ok(!log.store.list_handoffs(log.tenant, &any, None, 1).await?.is_empty())
}
