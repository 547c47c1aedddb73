//! Events against the records that they belong to. Events are deleted from the oldest on, so that none may be missing behind
//! the oldest that is kept.

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;

use super::PAGE;
use handoffd_domain::event::{Event, EventType, Position};
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::record::{RecordKind, RecordParty};
use handoffd_evidence::verify::LogDefect;
use handoffd_store::store::StoredRecord;
use handoffd_store::store::events::{EventRow, EventScope};
use handoffd_store::store::{Result, Store};

/// Kinds of records that come with an event of that type, and types that come with a record of that kind alone.
const TOLD: [(RecordKind, EventType); 18] = [
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
    (RecordKind::Returned, EventType::HandoffReturned),
    (RecordKind::InputRequested, EventType::HandoffInputRequired),
    (RecordKind::InputProvided, EventType::HandoffInputProvided),
    (RecordKind::GroupEnded, EventType::HandoffGroupEnded),
    (RecordKind::StreamClosed, EventType::HandoffStreamClosed),
    (RecordKind::BudgetChanged, EventType::TaskBudgetChanged),
];

/// Types that come with records of some kinds, which need not have them.
const BESIDE: [(EventType, &[RecordKind]); 4] = [
    (
        EventType::AlertRaised,
        &[
            RecordKind::RolledBack,
            RecordKind::Escalated,
            RecordKind::GroupEnded,
            RecordKind::SecondOpinion,
            RecordKind::SubscriptionDisabled,
        ],
    ),
    (EventType::HandoffStreamAborted, &[RecordKind::Chunk]),
    (
        EventType::EndpointDisabled,
        &[
            RecordKind::EndpointDisabled,
            RecordKind::EndpointFailing,
            RecordKind::SubscriptionDisabled,
        ],
    ),
    (EventType::EndpointFailing, &[RecordKind::EndpointDisabled, RecordKind::EndpointFailing]),
];

/// The sender and the receiver of handoffs.
type Parties = HashMap<HandoffId, (AgentId, AgentId)>;

/// Most handoffs whose parties are remembered from their records.
const REMEMBERED: usize = 1 << 16;

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
    parties: Parties,
    fault: Option<LogDefect>,
}

impl Default for EventWalk {
    fn default() -> Self {
        Self {
            at: Position::START,
            read: VecDeque::new(),
            ended: false,
            begun: false,
            parties: Parties::new(),
            fault: None,
        }
    }
}

impl EventWalk {
    /// Compares the events of the next records.
    pub(super) async fn compare(
        &mut self,
        store: &Store,
        tenant: &TenantId,
        records: impl Iterator<Item = &StoredRecord>,
    ) -> Result<()> {
        for record in records {
            if self.fault.is_some() {
                return Ok(());
            }
            let events = self.take(store, tenant, record.leaf_index).await?;
            self.begun |= !events.is_empty();
            self.remember(record);
            let parties = parties_of(store, tenant, &self.parties, (record, &events)).await?;
            if self.begun && difference(record, &events, (&parties, true)).is_some() {
                self.fault = judge_now(store, tenant, record).await?;
            }
        }
        Ok(())
    }

    /// Remembers the parties of a handoff by the record of its commit.
    fn remember(&mut self, record: &StoredRecord) {
        if record.kind != RecordKind::Handoff.as_str() {
            return;
        }
        let stated: Stated = serde_json::from_slice(&record.body).unwrap_or_default();
        let id = record.handoff_id.as_deref().and_then(|id| id.parse().ok());
        let (from, to) = (stated.from_agent.agent_id, stated.to_agent.agent_id);
        if let (Some(id), Some(from), Some(to)) = (id, from, to) {
            if self.parties.len() == REMEMBERED {
                self.parties.clear();
            }
            self.parties.insert(id, (from, to));
        }
    }

    /// The events up to a leaf index that were not taken before.
    async fn take(
        &mut self,
        store: &Store,
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
        store: &Store,
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

/// The parties of the handoffs of a record's events: of those that are not remembered, by their rows.
async fn parties_of(
    store: &Store,
    tenant: &TenantId,
    remembered: &Parties,
    (record, events): (&StoredRecord, &[EventRow]),
) -> Result<Parties> {
    let mut parties = Parties::new();
    if record.kind == RecordKind::DeadLettered.as_str() {
        // A release may give it another receiver.
        let stated: Stated = serde_json::from_slice(&record.body).unwrap_or_default();
        if let Some(from) = stated.from_agent.agent_id {
            let id = record.handoff_id.as_deref().and_then(|id| id.parse().ok());
            parties.extend(id.zip(stated.to_agent.agent_id).map(|(id, to)| (id, (from, to))));
            return Ok(parties);
        }
    }
    for id in events.iter().filter_map(|row| row.event.handoff_id) {
        if parties.contains_key(&id) {
            continue;
        }
        let pair = if let Some(pair) = remembered.get(&id) {
            Some(pair.clone())
        } else {
            let row = store.find_handoff(&(tenant.clone(), id)).await?;
            row.map(|row| (row.source, row.target))
        };
        parties.extend(pair.map(|pair| (id, pair)));
    }
    Ok(parties)
}

/// Judges a record's events as they are now: the oldest may have been deleted since they were read.
async fn judge_now(
    store: &Store,
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
    let parties = parties_of(store, tenant, &Parties::new(), (record, &events)).await?;
    let tells = !completed_before(store, tenant, record).await?;
    let detail = difference(record, &events, (&parties, tells));
    Ok(detail.map(|detail| LogDefect { leaf_index: record.leaf_index, fault: "state", detail }))
}

/// Whether a record is the later report of a receiver that handed the task on: its handoff was completed before, and the
/// report has no event.
async fn completed_before(store: &Store, tenant: &TenantId, record: &StoredRecord) -> Result<bool> {
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
fn difference(
    record: &StoredRecord,
    events: &[EventRow],
    (parties, tells): (&Parties, bool),
) -> Option<String> {
    let stated: Stated = serde_json::from_slice(&record.body).unwrap_or_default();
    for (row, ordinal) in events.iter().zip(0..) {
        let Position { leaf_index, ordinal: place } = row.position;
        let (id, event) = (row.id, &row.event);
        if leaf_index != record.leaf_index || place != ordinal {
            return Some(format!(
                "event {id} has place {leaf_index}.{place}, and the next one is {}.{ordinal}",
                record.leaf_index
            ));
        }
        if !belongs(event.kind, &record.kind) {
            return Some(format!("event {id} is {}, which no {} has", event.kind, record.kind));
        }
        let hash: [u8; 32] = record.hash.clone().try_into().unwrap_or_default();
        let of_record = Event::id(record.recorded_at, &hash, ordinal);
        let mut members = vec![
            ("/eventId", id.to_string(), of_record.to_string()),
            ("/time", event.at.rfc3339(), Micros::rfc3339(record.recorded_at)),
        ];
        // The event of a refusal has the ids and agents that the sender stated; its record may name another task or handoff.
        if event.kind != EventType::HandoffRefused {
            members.extend(subjects(event, record, &stated));
            members.extend(agents(event, &stated, parties));
        }
        if let Some((place, is, was)) = members.into_iter().find(|(_, is, was)| is != was) {
            return Some(format!("event {id} has {place} {is}, its record says {was}"));
        }
    }
    let pair = TOLD.iter().find(|(of, _)| of.as_str() == record.kind);
    let (of, needed) = pair.filter(|_| tells)?;
    // The record of a tenant's cap has the kind of a task's budget, and no event.
    if *of == RecordKind::BudgetChanged && record.task_id.is_none() {
        return None;
    }
    let there = events.iter().any(|row| row.event.kind == *needed);
    (!there).then(|| format!("the event {needed} of this {} is gone", record.kind))
}

/// Whether an event of that type may come with a record of that kind.
fn belongs(kind: EventType, record: &str) -> bool {
    let of = TOLD.iter().filter(|(_, told)| *told == kind).map(|(of, _)| *of);
    let beside =
        BESIDE.iter().filter(|(told, _)| *told == kind).flat_map(|(_, of)| of.iter().copied());
    let mut kinds = of.chain(beside).peekable();
    kinds.peek().is_none() || kinds.any(|of| of.as_str() == record)
}

/// A member of an event, its value, and that of the record.
type Member = (&'static str, String, String);

fn named(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// The task and the handoff of an event.
fn subjects(event: &Event, record: &StoredRecord, stated: &Stated) -> Vec<Member> {
    let mut members = vec![("/taskId", named(event.task_id), named(record.task_id.as_ref()))];
    // The end of a group is about the group's own id.
    let of_group = stated.group.as_ref().filter(|_| event.kind == EventType::HandoffGroupEnded);
    let of_group = of_group.map(|group| &group.id);
    let was = record.handoff_id.as_ref().or(of_group);
    // An alert names the handoff that made a person be asked, also where the record is about the task alone.
    if was.is_some() || event.kind != EventType::AlertRaised {
        members.push(("/handoffId", named(event.handoff_id), named(was)));
    }
    members
}

/// The sender and the receiver of an event: those of its handoff.
fn agents(event: &Event, stated: &Stated, parties: &Parties) -> Vec<Member> {
    let of_task = [EventType::TaskCompleted, EventType::TaskCanceled, EventType::TaskBudgetChanged];
    let pair = event.handoff_id.and_then(|id| parties.get(&id));
    let pair = pair.filter(|_| event.kind != EventType::HandoffGroupEnded);
    let (source, target) = (event.source.as_ref(), event.target.as_ref());
    if let Some((from, to)) = pair {
        return vec![
            ("/source", named(source), from.to_string()),
            ("/target", named(target), to.to_string()),
        ];
    }
    if of_task.contains(&event.kind) {
        return vec![
            ("/source", named(source), named(None::<&AgentId>)),
            ("/target", named(target), named(None::<&AgentId>)),
        ];
    }
    let from = stated.from_agent.agent_id.as_ref();
    from.map(|from| ("/source", named(source), from.to_string())).into_iter().collect()
}
