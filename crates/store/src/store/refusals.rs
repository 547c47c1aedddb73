//! What the gate and the ledger refused: ids, codes and places, to be listed.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Cursor, Result};
use handoffd_core::domain::ids::{AgentId, ContentId, HandoffId, Micros, TaskId, TenantId};

/// A place that a refused message failed at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub stage: String,
    pub code: String,
    pub pointer: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A refused message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalRow {
    pub tenant: TenantId,
    /// That of the content of its record.
    pub id: ContentId,
    pub created_at: Micros,
    /// Who submitted it; `None` for a person.
    pub source: Option<AgentId>,
    pub target: Option<AgentId>,
    /// As the message says.
    pub task_id: Option<TaskId>,
    /// As the message says.
    pub handoff_id: Option<HandoffId>,
    /// The reason, and where it was found first.
    pub code: String,
    pub pointer: String,
    pub findings: Vec<Finding>,
}

#[derive(Debug, Clone, Default)]
pub struct RefusalFilter {
    /// Only refusals of this sender's messages.
    pub source: Option<AgentId>,
    /// Only refusals of messages to this agent.
    pub target: Option<AgentId>,
    /// Only refusals of messages on this task.
    pub task_id: Option<TaskId>,
    /// Only refusals for this reason.
    pub code: Option<String>,
    /// Only refusals whose reason was found at this place.
    pub pointer: Option<String>,
    /// Only refusals at or after this time.
    pub from: Option<Micros>,
    /// Only refusals before this time.
    pub until: Option<Micros>,
}

/// Refused messages. All times come from the caller's clock.
#[async_trait]
pub trait RefusalStore: Send + Sync {
    /// Refusals, newest first.
    async fn list_refusals(
        &self,
        tenant: &TenantId,
        filter: &RefusalFilter,
        after: Option<&Cursor>,
        limit: i64,
    ) -> Result<Vec<RefusalRow>>;
    /// Deletes a bounded number of a tenant's refusals from before a time; returns their number.
    async fn delete_refusals(&self, tenant: &TenantId, before: Micros) -> Result<u64>;
}
