//! Queries on rolling caps.

use async_trait::async_trait;

use super::Result;
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::ids::{AgentId, TenantId};

/// Queries on rolling caps.
#[async_trait]
pub trait CapStore: Send + Sync {
    /// Tenants that have caps, or spending under the default caps.
    async fn list_capped(&self) -> Result<Vec<TenantId>>;
    /// A tenant's caps: its own first, then by agent; each by window.
    async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>>;
    /// The tenant's own caps and those of the given agents, without locks.
    async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>>;
}
