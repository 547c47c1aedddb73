//! The queries on rolling caps.

use async_trait::async_trait;

use super::Result;
use crate::domain::cap::Cap;
use crate::domain::ids::{AgentId, TenantId};

/// The queries on caps.
#[async_trait]
pub trait CapStore: Send + Sync {
    /// The tenants that have caps, or had money move under those of the settings.
    async fn list_capped(&self) -> Result<Vec<TenantId>>;
    /// A tenant's caps: its own first, then by agent; each by window.
    async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>>;
    /// Of these, the tenant's own and those of some agents; nothing is locked.
    async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>>;
}
