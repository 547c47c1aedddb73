//! Events against the records that they belong to. Events are deleted from the oldest on, so that none may be missing behind
//! the oldest that is kept.

use std::collections::VecDeque;

use serde::Deserialize;

use super::PAGE;
use handoffd_core::domain::event::{Event, EventType, Position};
use handoffd_core::domain::ids::{Micros, TaskId, TenantId};
use handoffd_core::evidence::record::{RecordKind, RecordParty};
use handoffd_core::evidence::verify::LogDefect;
use handoffd_store::store::StoredRecord;
use handoffd_store::store::events::{EventRow, EventScope};
use handoffd_store::store::{Result, Store};

/// Kinds of records that come with an event of that type, and types that come with a record of that kind alone.
const TOLD: [(RecordKind, EventType); 12] = [
    (RecordKind::Handoff, EventType::HandoffOccurred),
    (RecordKind::Accepted, EventType::HandoffAccepted),
    (RecordKind::Rejected, EventType::HandoffRejected),
    (RecordKind::Completed, EventType::HandoffCompleted),
    (RecordKind::Failed, EventType::HandoffFailed),
    (RecordKind::Expired, EventType::HandoffExpired),
    (RecordKind::Canceled, EventType::HandoffCanceled),
    (RecordKind::RolledBack, EventType::HandoffRolledBack),
    (RecordKind::DeadLettered, EventType::HandoffDeadLettered),
    (RecordKind::Escalated, EventType::HandoffEscalated),
    (RecordKind::TaskCompleted, EventType::TaskCompleted),
    (RecordKind::TaskCanceled, EventType::TaskCanceled),
];

/// A walk over the events of a log beside its records.
#[derive(Debug)]
pub(super) struct EventWalk {
    /// The last event read.
    at: Position,
    /// Events read, and not compared yet.
    read: VecDeque<EventRow>,
    /// The store has no event behind those read.
    ended: bool,
    /// An event was compared: none behind it may be missing.
    begun: bool,
    fault: Option<LogDefect>,
}

impl Default for EventWalk {
    fn default() -> Self {
        Self { at: Position::START, read: VecDeque::new(), ended: false, begun: false, fault: None }
    }
}

impl EventWalk {
    /// Compares the events of the next records.
    pub(super) async fn compare(
        &mut self,
        store: &dyn Store,
        tenant: &TenantId,
        records: impl Iterator<Item = &StoredRecord>,
    ) -> Result<()> {
        for record in records {
            if self.fault.is_some() {
                return Ok(());
            }
            let events = self.take(store, tenant, record.leaf_index).await?;
            self.begun |= !events.is_empty();
            if self.begun && difference(record, &events, true).is_some() {
                self.fault = judge_now(store, tenant, record).await?;
            }
        }
        Ok(())
    }

    /// The events up to a leaf index that were not taken before.
    async fn take(
        &mut self,
        store: &dyn Store,
        tenant: &TenantId,
        leaf_index: i64,
    ) -> Result<Vec<EventRow>> {
        while !self.ended && self.at.leaf_index <= leaf_index {
            let page = store.list_events(tenant, EventScope::All, self.at, PAGE).await?;
            self.ended = (page.len() as i64) < PAGE;
            self.at = page.last().map_or(self.at, |last| last.position);
            self.read.extend(page);
        }
        let own = self.read.iter().take_while(|row| row.position.leaf_index <= leaf_index).count();
        Ok(self.read.drain(..own).collect())
    }

    /// The first difference, once all records were compared; an event behind the log's end is one.
    pub(super) async fn finish(
        self,
        store: &dyn Store,
        tenant: &TenantId,
    ) -> Result<Option<LogDefect>> {
        if self.fault.is_some() {
            return Ok(self.fault);
        }
        // Read before the head: an event that is committed later has its record later.
        let last = match self.read.back() {
            Some(last) => Some(last.position.leaf_index),
            None if self.ended => None,
            None => {
                let rest = store.list_events(tenant, EventScope::All, self.at, PAGE).await?;
                rest.last().map(|last| last.position.leaf_index)
            }
        };
        store.settle_log(tenant).await?;
        let size = store.find_head(tenant).await?.map_or(0, |head| head.size);
        Ok(last.filter(|leaf_index| *leaf_index >= size).map(|leaf_index| LogDefect {
            leaf_index,
            fault: "state",
            detail: format!("an event has place {leaf_index}, and the log has {size} records"),
        }))
    }
}

/// Judges a record's events as they are now: the oldest may have been deleted since they were read.
async fn judge_now(
    store: &dyn Store,
    tenant: &TenantId,
    record: &StoredRecord,
) -> Result<Option<LogDefect>> {
    store.settle_log(tenant).await?;
    let oldest = store.list_events(tenant, EventScope::All, Position::START, 1).await?;
    let oldest = oldest.first().map(|row| row.position.leaf_index);
    if oldest.is_none_or(|oldest| oldest > record.leaf_index) {
        return Ok(None);
    }
    let before = Position::behind(record.leaf_index - 1);
    let mut events = store.list_events(tenant, EventScope::All, before, PAGE).await?;
    events.retain(|row| row.position.leaf_index <= record.leaf_index);
    let detail = difference(record, &events, !completed_before(store, tenant, record).await?);
    Ok(detail.map(|detail| LogDefect { leaf_index: record.leaf_index, fault: "state", detail }))
}

/// Whether a record is the later report of a receiver that handed the task on: its handoff was completed before, and the
/// report has no event.
async fn completed_before(
    store: &dyn Store,
    tenant: &TenantId,
    record: &StoredRecord,
) -> Result<bool> {
    let task = record.task_id.as_deref().and_then(|id| id.parse::<TaskId>().ok());
    let (true, Some(task)) = (record.kind == RecordKind::Completed.as_str(), task) else {
        return Ok(false);
    };
    let mut from = 0;
    loop {
        let page = store.list_records(tenant, Some(task), from, PAGE, false).await?;
        let before = page.iter().take_while(|one| one.leaf_index < record.leaf_index);
        if before.clone().any(|one| one.kind == record.kind && one.handoff_id == record.handoff_id)
        {
            return Ok(true);
        }
        match page.last() {
            Some(last) if before.count() == page.len() => from = last.leaf_index + 1,
            _ => return Ok(false),
        }
    }
}

/// The members of a record that its event repeats.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Stated {
    from_agent: RecordParty,
    to_agent: RecordParty,
    group: Option<StatedGroup>,
}

#[derive(Debug, Deserialize)]
struct StatedGroup {
    id: String,
}

/// How the events of a record differ from it. `tells`: the record needs the event of its kind.
fn difference(record: &StoredRecord, events: &[EventRow], tells: bool) -> Option<String> {
    let kind = &record.kind;
    let told = TOLD.iter().find(|(of, _)| of.as_str() == kind);
    for (row, ordinal) in events.iter().zip(0..) {
        let Position { leaf_index, ordinal: stands } = row.position;
        let (id, event) = (row.id, &row.event);
        if leaf_index != record.leaf_index || stands != ordinal {
            return Some(format!(
                "event {id} has place {leaf_index}.{stands}, and the next one is {}.{ordinal}",
                record.leaf_index
            ));
        }
        let hash: [u8; 32] = record.hash.clone().try_into().unwrap_or_default();
        let of_record = Event::id(record.recorded_at, &hash, ordinal);
        let text = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        let mut members = vec![
            ("/eventId", id.to_string(), of_record.to_string()),
            ("/time", event.at.rfc3339(), Micros::rfc3339(record.recorded_at)),
        ];
        // A refusal is listed under the ids that its sender stated; its record may be of another task, or of the handoff
        // that stands in.
        let stated_by_sender = event.kind == EventType::HandoffRefused;
        if let Some(task) = event.task_id.filter(|_| !stated_by_sender) {
            members.push(("/taskId", task.to_string(), text(record.task_id.clone())));
        }
        let stated: Stated = serde_json::from_slice(&record.body).unwrap_or_default();
        if let Some(handoff) = event.handoff_id.filter(|_| !stated_by_sender) {
            // The end of a group is about the group's own id.
            let of_group = stated.group.as_ref().map(|group| group.id.clone());
            let was = record.handoff_id.clone().or(of_group);
            // An alert names the handoff that made a person be asked, also where the record is about the task alone.
            if was.is_some() || event.kind != EventType::AlertRaised {
                members.push(("/handoffId", handoff.to_string(), text(was)));
            }
        }
        let own = TOLD.iter().find(|(_, kind)| *kind == event.kind);
        if let Some((of, _)) = own.filter(|(of, _)| of.as_str() != kind) {
            return Some(format!(
                "event {id} is {}, as of {}; its record is {kind}",
                event.kind,
                of.as_str()
            ));
        }
        if event.kind == EventType::HandoffOccurred {
            let agent = |agent: Option<&_>| text(agent.map(ToString::to_string));
            let (from, to) = (stated.from_agent.agent_id, stated.to_agent.agent_id);
            members.push(("/source", agent(event.source.as_ref()), agent(from.as_ref())));
            members.push(("/target", agent(event.target.as_ref()), agent(to.as_ref())));
            // A handoff and its task have an event each time.
            members.push((
                "/taskId",
                text(event.task_id.map(|id| id.to_string())),
                text(record.task_id.clone()),
            ));
            members.push((
                "/handoffId",
                text(event.handoff_id.map(|id| id.to_string())),
                text(record.handoff_id.clone()),
            ));
        }
        if let Some((place, is, was)) = members.into_iter().find(|(_, is, was)| is != was) {
            return Some(format!("event {id} stands with {place} {is}, its record says {was}"));
        }
    }
    let (_, needed) = told.filter(|_| tells)?;
    let there = events.iter().any(|row| row.event.kind == *needed);
    (!there).then(|| format!("the event {needed} of this {kind} is gone"))
}
