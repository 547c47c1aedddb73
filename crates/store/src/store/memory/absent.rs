//! Queries that the in-memory store refuses: events, contracts, payload schemas, the cold tier.

use crate::store::attempts::{AttemptRow, AttemptStore};
use crate::store::attention::{AttentionStore, WaitCounts};
use crate::store::caps::CapStore;
use crate::store::cold::{
    Archivable, ArchiveMark, ColdStore, ExclusiveLease, Frame, PurgeMark, SegmentContents,
};
use crate::store::console_sessions::{SessionRow, SessionStore};
use crate::store::contracts::{ContractRow, ContractStore};
use crate::store::events::{
    CursorKey, CursorRow, CursorSettle, EventDeliveryRow, EventRow, EventScope, EventStore,
    SubscriptionKey, SubscriptionRow,
};
use crate::store::reach::{Bounds, Reach, ReachStore};
use crate::store::receivers::{BreakerRow, ReceiverNotes, ReceiverStore, SeenReceiver};
use crate::store::refusals::{RefusalFilter, RefusalRow, RefusalStore};
use crate::store::requests::{RequestRow, RequestStore};
use crate::store::schemas::{PayloadSchemaRow, PayloadSchemaStore};
use crate::store::{Cursor, HandoffFilter, HandoffKey, KeyRow, Result, StoredContent, TaskFilter};
use async_trait::async_trait;
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::event::Position;
use handoffd_core::domain::ids::{AgentId, ContentId, Micros, SessionId, TenantId};
use handoffd_core::domain::receiver::Windows;
use handoffd_core::domain::waits::WaitingDeliveries;
use std::collections::BTreeMap;

use super::{MemoryStore, absent};

#[async_trait]
impl CapStore for MemoryStore {
    async fn list_capped(&self) -> Result<Vec<TenantId>> {
        // As none can be set, none has any.
        Ok(Vec::new())
    }

    async fn list_caps(&self, _tenant: &TenantId) -> Result<Vec<Cap>> {
        Ok(Vec::new())
    }

    async fn list_caps_of(&self, _tenant: &TenantId, _agents: &[AgentId]) -> Result<Vec<Cap>> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl RequestStore for MemoryStore {
    async fn begin_request(&self, _row: &RequestRow) -> Result<Option<RequestRow>> {
        absent()
    }

    async fn answer_request(
        &self,
        _tenant: &TenantId,
        _id: &[u8; 32],
        _answer: &[u8],
    ) -> Result<()> {
        absent()
    }

    async fn forget_request(&self, _tenant: &TenantId, _id: &[u8; 32]) -> Result<()> {
        absent()
    }

    async fn forget_requests(&self, _before: Micros) -> Result<u64> {
        absent()
    }
}

/// Attempts are taken, and not kept.
#[async_trait]
impl AttemptStore for MemoryStore {
    async fn list_attempts(&self, _key: &HandoffKey) -> Result<Vec<AttemptRow>> {
        absent()
    }
}

/// Brokers of the simulation write no notes on receivers.
#[async_trait]
impl ReceiverStore for MemoryStore {
    async fn note_receivers(&self, _notes: &ReceiverNotes) -> Result<()> {
        absent()
    }

    async fn list_seen(
        &self,
        _tenant: &TenantId,
        _agents: &[AgentId],
    ) -> Result<Vec<(AgentId, SeenReceiver)>> {
        absent()
    }

    async fn list_breakers(&self, _tenant: &TenantId, _broker: &str) -> Result<Vec<BreakerRow>> {
        absent()
    }

    async fn list_windows(
        &self,
        _tenant: &TenantId,
        _agents: &[AgentId],
        _since: Micros,
    ) -> Result<BTreeMap<AgentId, Windows>> {
        absent()
    }

    async fn forget_receivers(&self, _before: Micros) -> Result<u64> {
        absent()
    }
}

#[async_trait]
impl ReachStore for MemoryStore {
    async fn reach_of_tasks(
        &self,
        _tenant: &TenantId,
        _filter: &TaskFilter,
        _after: Option<&Cursor>,
        _bounds: Bounds,
    ) -> Result<Reach> {
        Ok(Reach::Whole)
    }

    async fn reach_of_handoffs(
        &self,
        _tenant: &TenantId,
        _filter: &HandoffFilter,
        _after: Option<&Cursor>,
        _bounds: Bounds,
    ) -> Result<Reach> {
        Ok(Reach::Whole)
    }
}

#[async_trait]
impl AttentionStore for MemoryStore {
    async fn count_queues(
        &self,
        _tenant: &TenantId,
        _now: Micros,
    ) -> Result<Vec<WaitingDeliveries>> {
        absent()
    }

    async fn count_waits(&self, _tenant: &TenantId, _now: Micros) -> Result<WaitCounts> {
        absent()
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn insert_session(&self, _row: &SessionRow) -> Result<()> {
        absent()
    }

    async fn find_session(&self, _token_hash: &[u8; 32]) -> Result<Option<SessionRow>> {
        absent()
    }

    async fn find_key_by_id(&self, _tenant: &TenantId, _key_id: &str) -> Result<Option<KeyRow>> {
        absent()
    }

    async fn touch_session(&self, _tenant: &TenantId, _id: SessionId, _now: Micros) -> Result<()> {
        absent()
    }

    async fn list_sessions(
        &self,
        _tenant: &TenantId,
        _after: Option<&Cursor>,
        _limit: i64,
    ) -> Result<Vec<SessionRow>> {
        absent()
    }

    async fn delete_session(&self, _tenant: &TenantId, _id: SessionId) -> Result<bool> {
        absent()
    }

    async fn delete_sessions_of(
        &self,
        _tenant: &TenantId,
        _key_id: &str,
        _keep: i64,
    ) -> Result<u64> {
        absent()
    }

    async fn forget_sessions(&self, _now: Micros, _idle_since: Micros) -> Result<u64> {
        absent()
    }
}

/// Refusals are taken, and not kept: their records are what a simulation looks at.
#[async_trait]
impl RefusalStore for MemoryStore {
    async fn list_refusals(
        &self,
        _tenant: &TenantId,
        _filter: &RefusalFilter,
        _after: Option<&Cursor>,
        _limit: i64,
    ) -> Result<Vec<RefusalRow>> {
        absent()
    }

    async fn delete_refusals(&self, _tenant: &TenantId, _before: Micros) -> Result<u64> {
        absent()
    }
}

#[async_trait]
impl EventStore for MemoryStore {
    async fn list_events(
        &self,
        _tenant: &TenantId,
        _scope: EventScope<'_>,
        _after: Position,
        _limit: i64,
    ) -> Result<Vec<EventRow>> {
        absent()
    }

    async fn delete_events(&self, _tenant: &TenantId, _cutoff: Micros) -> Result<u64> {
        absent()
    }

    async fn find_subscription(&self, _key: &SubscriptionKey) -> Result<Option<SubscriptionRow>> {
        absent()
    }

    async fn list_subscriptions(&self, _tenant: &TenantId) -> Result<Vec<SubscriptionRow>> {
        absent()
    }

    async fn find_cursor(&self, _key: &CursorKey) -> Result<Option<CursorRow>> {
        absent()
    }

    async fn list_due_cursors(&self, _now: Micros, _limit: i64) -> Result<Vec<CursorKey>> {
        absent()
    }

    async fn has_cursors(&self) -> Result<bool> {
        absent()
    }

    async fn claim_cursor(
        &self,
        _key: &CursorKey,
        _broker: &str,
        _now: Micros,
        _until: Micros,
    ) -> Result<Option<CursorRow>> {
        absent()
    }

    async fn renew_cursors(&self, _broker: &str, _now: Micros, _until: Micros) -> Result<u64> {
        absent()
    }

    async fn settle_cursor(
        &self,
        _key: &CursorKey,
        _broker: &str,
        _settle: &CursorSettle,
        _log: &[EventDeliveryRow],
    ) -> Result<bool> {
        absent()
    }

    async fn list_event_deliveries(
        &self,
        _key: &CursorKey,
        _before: Option<i64>,
        _limit: i64,
    ) -> Result<Vec<EventDeliveryRow>> {
        absent()
    }
}

#[async_trait]
impl ContractStore for MemoryStore {
    async fn count_contracts(&self, _tenant: &TenantId) -> Result<i64> {
        absent()
    }

    async fn list_contracts(
        &self,
        _tenant: &TenantId,
        _since: Option<Micros>,
    ) -> Result<Vec<ContractRow>> {
        absent()
    }
}

#[async_trait]
impl PayloadSchemaStore for MemoryStore {
    async fn list_payload_schemas(
        &self,
        _tenant: &TenantId,
        _id: Option<&str>,
    ) -> Result<Vec<PayloadSchemaRow>> {
        absent()
    }
}

#[async_trait]
impl ColdStore for MemoryStore {
    async fn take_lease(
        &self,
        _lease: &ExclusiveLease,
        _now: Micros,
        _until: Micros,
    ) -> Result<bool> {
        absent()
    }

    async fn release_lease(&self, _lease: &ExclusiveLease) -> Result<()> {
        absent()
    }

    async fn find_archive_mark(&self, _tenant: &TenantId) -> Result<ArchiveMark> {
        absent()
    }

    async fn keep_archive_mark(&self, _tenant: &TenantId, _mark: ArchiveMark) -> Result<()> {
        absent()
    }

    async fn find_purge_mark(&self, _tenant: &TenantId) -> Result<PurgeMark> {
        absent()
    }

    async fn keep_purge_mark(
        &self,
        _tenant: &TenantId,
        _lease: &ExclusiveLease,
        _mark: PurgeMark,
    ) -> Result<bool> {
        absent()
    }

    async fn list_archivable(
        &self,
        _tenant: &TenantId,
        _from: i64,
        _limit: i64,
    ) -> Result<Vec<Archivable>> {
        absent()
    }

    async fn list_contents(
        &self,
        _tenant: &TenantId,
        _ids: &[ContentId],
    ) -> Result<Vec<StoredContent>> {
        absent()
    }

    async fn settle_cold(
        &self,
        _tenant: &TenantId,
        _lease: &ExclusiveLease,
        _segment: &str,
        _frames: &[Frame],
    ) -> Result<bool> {
        absent()
    }

    async fn list_to_forget(&self, _tenant: &TenantId, _limit: i64) -> Result<Vec<String>> {
        absent()
    }

    async fn list_inhabitants(
        &self,
        _tenant: &TenantId,
        _segment: &str,
    ) -> Result<SegmentContents> {
        absent()
    }

    async fn move_segment(
        &self,
        _tenant: &TenantId,
        _lease: &ExclusiveLease,
        _from: &str,
        _to: &str,
        _frames: &[Frame],
    ) -> Result<bool> {
        absent()
    }

    async fn list_unreferenced(
        &self,
        _tenant: &TenantId,
        _segments: &[String],
    ) -> Result<Vec<String>> {
        absent()
    }
}
