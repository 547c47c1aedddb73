//! The feed: events as published to readers and subscribers.
//!
//! A stored event holds no text. The texts that belong to the event (a summary, a reason, a receiver's answer, a
//! checkpoint) are read at publication from their own tables: once erased there, they are no longer published.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use handoffd_domain::a2a::{TaskState, named_context};
use handoffd_domain::event::{Event, EventFilter, EventFormat, EventType, Position, TRACEPARENT};
use handoffd_domain::handoff::HANDED_ON;
use handoffd_domain::ids::{AgentId, ContentId, Micros, TenantId};
use handoffd_evidence::commitment::unpack;
use handoffd_store::store::events::{EventRow, EventScope};
use handoffd_store::store::{ContentStorage, Result, Store};

/// The largest checkpoint that goes along with a rollback, in bytes; a larger one is fetched.
const MAX_STATE: usize = 256 * 1024;

/// Events examined in one read of the store.
const SCAN: i64 = 500;

/// Reads of the store for one page: bounds what a filter that takes hardly anything costs.
const SCANS: usize = 10;

/// Largest assumed difference between brokers' clocks: events within this time of a boundary are examined one by one.
const SKEW_US: i64 = 5_000_000;

macro_rules! documents {
    ($($kind:ident: $file:literal),+ $(,)?) => {
        /// The JSON Schema of an event type in the standard format.
        #[must_use]
        pub const fn schema(kind: EventType) -> &'static str {
            match kind {
                $(EventType::$kind => include_str!(concat!("../../../schemas/events/", $file, ".json"))),+
            }
        }
    };
}

documents! {
    HandoffOccurred: "agent.handoff.occurred",
    HandoffAccepted: "handoff.accepted",
    HandoffRejected: "handoff.rejected",
    HandoffRefused: "handoff.refused",
    HandoffCompleted: "handoff.completed",
    HandoffReturned: "handoff.returned",
    HandoffInputRequired: "handoff.input_required",
    HandoffInputProvided: "handoff.input_provided",
    HandoffStreamClosed: "handoff.stream_closed",
    HandoffStreamAborted: "handoff.stream_aborted",
    HandoffGroupEnded: "handoff.group_ended",
    HandoffRolledBack: "handoff.rolled_back",
    HandoffDeadLettered: "handoff.dead_lettered",
    HandoffEscalated: "handoff.escalated",
    HandoffFailed: "handoff.failed",
    HandoffExpired: "handoff.expired",
    HandoffCanceled: "handoff.canceled",
    EndpointDisabled: "agent.endpoint_disabled",
    EndpointFailing: "agent.endpoint_failing",
    TaskCompleted: "task.completed",
    TaskCanceled: "task.canceled",
    TaskBudgetChanged: "task.budget_changed",
    AlertRaised: "alert.raised",
}

#[derive(Debug)]
pub struct FeedPage {
    pub items: Vec<EventRow>,
    /// Position of the next page, behind all examined events.
    pub next: Position,
}

/// Reads events and adds their texts.
#[derive(Clone)]
pub struct Feed {
    store: Arc<Store>,
}

impl Feed {
    /// A feed over a store.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }

    /// Up to `limit` events behind a place that a filter takes. The work is bounded: a page may hold
    /// fewer, or none, and still have more behind it; it then says how far it came.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn page(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        after: Position,
        limit: usize,
    ) -> Result<FeedPage> {
        let scope = filter.task_id.map_or(EventScope::All, EventScope::Task);
        let mut page = FeedPage { items: Vec::new(), next: after };
        for _ in 0..SCANS {
            let rows = self.store.list_events(tenant, scope, page.next, SCAN).await?;
            let last = rows.len() < usize::try_from(SCAN).unwrap_or(usize::MAX);
            for row in rows {
                page.next = row.position;
                if filter.takes(&row.event) {
                    page.items.push(row);
                    if page.items.len() >= limit {
                        return Ok(page);
                    }
                }
            }
            if last {
                break;
            }
        }
        Ok(page)
    }

    /// The place after which all events from a time on follow. Places and times run alike but for
    /// the brokers' clocks, so a search by halves finds it nearly, and a short walk exactly.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn position_at(&self, tenant: &TenantId, at: Micros) -> Result<Position> {
        let size = self.store.find_head(tenant).await?.map_or(0, |head| head.size);
        let early = at.0.saturating_sub(SKEW_US);
        // Everything up to `low` is early; everything after `high` is not.
        let (mut low, mut high) = (-1, size);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let after = Position::behind(middle - 1);
            let found = self.store.list_events(tenant, EventScope::All, after, 1).await?;
            match found.first() {
                Some(row) if row.event.at.0 < early => low = row.position.leaf_index.max(middle),
                _ => high = middle,
            }
        }
        let mut position = Position::behind(low);
        loop {
            let rows = self.store.list_events(tenant, EventScope::All, position, SCAN).await?;
            let Some(first) = rows.iter().position(|row| row.event.at >= at) else {
                match rows.last() {
                    Some(last) => position = last.position,
                    None => return Ok(position),
                }
                continue;
            };
            return Ok(match first.checked_sub(1) {
                Some(before) => rows[before].position,
                None => position,
            });
        }
    }

    /// An event as told: `to` is the agent that is told, where it is one.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn render(
        &self,
        row: &EventRow,
        format: EventFormat,
        to: Option<&AgentId>,
    ) -> Result<Value> {
        let event = &row.event;
        let mut data = subject(event);
        for (name, value) in &event.data {
            data.insert(name.clone(), value.clone());
        }
        if event.kind == EventType::HandoffOccurred {
            data.extend(self.notes(row).await?);
        } else if let Some(words) = row.words.as_ref().filter(|_| data.contains_key("reason"))
            && data.get("reason").and_then(Value::as_str) != Some(words)
        {
            data.insert("detail".to_owned(), words.as_str().into());
        }
        if event.kind == EventType::HandoffRolledBack
            && let Some(state) = self.checkpoint(event, to).await?
            && let Some(Value::Object(checkpoint)) = data.get_mut("checkpoint")
        {
            checkpoint.insert("state".to_owned(), state);
        }
        let mut told = envelope(row, format, &Value::Object(data));
        if format == EventFormat::A2a
            && let Some(context) = self.context(event).await?
        {
            told["statusUpdate"]["contextId"] = context.into();
        }
        Ok(told)
    }

    /// The A2A context of an event's handoff by its client's own name; `None` where it has none, or its message is erased.
    async fn context(&self, event: &Event) -> Result<Option<String>> {
        let Some(handoff) = event.handoff_id else { return Ok(None) };
        let found = self.store.find_handoff(&(event.tenant.clone(), handoff)).await?;
        let message = self.message(&event.tenant, found.and_then(|found| found.content_id)).await?;
        Ok(named_context(&message).map(str::to_owned))
    }

    /// Members of the event that the message states.
    async fn notes(&self, row: &EventRow) -> Result<Map<String, Value>> {
        let message = self.message(&row.event.tenant, row.content_id).await?;
        let note = |name: &str| message.get(name).cloned().unwrap_or_default();
        Ok(Map::from_iter([
            ("conversation_id".to_owned(), note("conversationId")),
            ("reason".to_owned(), note("reason")),
            ("summary".to_owned(), note("taskSummary")),
        ]))
    }

    /// A message; null once it is erased.
    async fn message(&self, tenant: &TenantId, id: Option<ContentId>) -> Result<Value> {
        let content = match id {
            Some(id) => self.store.find_content(tenant, id).await?,
            None => None,
        };
        // Cold contents are much older than any kept event, unless the settings say so.
        Ok(match content.map(|content| content.kept) {
            Some(ContentStorage::Hot(_, codec, bytes)) => unpack(codec, &bytes)
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok())
                .unwrap_or_default(),
            _ => Value::Null,
        })
    }

    /// The checkpoint that a rollback restored, for its owner.
    async fn checkpoint(&self, event: &Event, to: Option<&AgentId>) -> Result<Option<Value>> {
        let Some((owner, task)) = to.zip(event.task_id) else { return Ok(None) };
        let at = event.data.get("checkpoint");
        let execution = at.and_then(|at| at.get("executionId")?.as_str()?.parse().ok());
        let seq = at.and_then(|at| at.get("seq")?.as_i64());
        let Some((execution, seq)) = execution.zip(seq) else { return Ok(None) };
        let run = (event.tenant.clone(), task, execution);
        let row = self.store.find_checkpoint(&run, None, Some(seq)).await?;
        Ok(row
            .filter(|row| row.agent == *owner)
            .and_then(|row| unpack(row.part.codec, &row.part.bytes).ok())
            .filter(|bytes| bytes.len() <= MAX_STATE)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }
}

/// The subject of an event. `agent.handoff.occurred` has the names that seed 003 gave it.
fn subject(event: &Event) -> Map<String, Value> {
    let names = match (event.kind, &event.handoff_id) {
        (EventType::HandoffOccurred, _) => {
            ["handoff_id", "task_id", "source_agent_id", "target_agent_id"]
        }
        (EventType::HandoffRefused, _) | (_, Some(_)) => {
            ["handoffId", "taskId", "sourceAgentId", "targetAgentId"]
        }
        (_, None) => ["handoffId", "taskId", "agentId", "targetAgentId"],
    };
    let values = [
        event.handoff_id.map(|id| id.to_string()),
        event.task_id.map(|id| id.to_string()),
        event.source.as_ref().map(ToString::to_string),
        event.target.as_ref().map(ToString::to_string),
    ];
    names
        .into_iter()
        .zip(values)
        .filter_map(|(name, value)| Some((name.to_owned(), value?.into())))
        .collect()
}

/// The state to which an event brings a task of A2A: one that was handed on is not done.
fn told_state(event: &Event) -> Option<TaskState> {
    let handed_on = event.data.get("reason").and_then(Value::as_str) == Some(HANDED_ON);
    match TaskState::after(event.kind) {
        Some(TaskState::Completed) if handed_on => Some(TaskState::Working),
        state => state,
    }
}

fn envelope(row: &EventRow, format: EventFormat, data: &Value) -> Value {
    let event = &row.event;
    match format {
        EventFormat::Standard => json!({
            "id": row.id,
            "type": event.kind,
            "timestamp": event.at.rfc3339(),
            "cursor": row.position.to_string(),
            "data": data,
        }),
        EventFormat::CloudEvents => {
            let mut told = json!({
                "specversion": "1.0",
                "id": row.id,
                "source": format!("/handoffd/{}", event.tenant),
                "type": event.kind,
                "time": event.at.rfc3339(),
                "datacontenttype": "application/json",
                "dataschema": format!("/schemas/events/{}#/properties/data", event.kind),
                "cursor": row.position.to_string(),
                "data": data,
            });
            if let Some(task) = event.task_id {
                told["subject"] = match event.handoff_id {
                    Some(handoff) => format!("tasks/{task}/handoffs/{handoff}"),
                    None => format!("tasks/{task}"),
                }
                .into();
            }
            // The extension "Distributed Tracing" of CloudEvents.
            if let Some(traceparent) = data.get(TRACEPARENT) {
                told[TRACEPARENT] = traceparent.clone();
            }
            told
        }
        EventFormat::A2a => json!({
            "statusUpdate": {
                "taskId": event.handoff_id.map(|id| id.to_string()),
                "contextId": event.task_id.map(|id| id.to_string()),
                "status": { "state": told_state(event), "timestamp": event.at.rfc3339() },
                "metadata": { "eventId": row.id, "cursor": row.position.to_string() },
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handoff_that_was_handed_on_is_not_told_as_completed() {
        let event = |reason: &str| {
            Event::new(EventType::HandoffCompleted, "acme".parse().unwrap(), Micros(0))
                .with("reason", reason)
        };
        assert_eq!(told_state(&event(HANDED_ON)), Some(TaskState::Working));
        assert_eq!(told_state(&event("x")), Some(TaskState::Completed));
    }

    #[test]
    fn every_type_has_a_schema_of_its_name() {
        for kind in EventType::ALL {
            let document: Value = serde_json::from_str(schema(*kind)).unwrap();
            assert_eq!(document["title"], kind.as_str());
            assert_eq!(document["properties"]["type"]["const"], kind.as_str());
            jsonschema::draft202012::new(&document).unwrap();
        }
    }
}
