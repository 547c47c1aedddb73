//! Queries that find nothing, since this store has no such data.

use super::MemoryStore;
use crate::store::reach::{Bounds, Reach};
use crate::store::{Cursor, HandoffFilter, Result, TaskFilter};
use handoffd_domain::cap::Cap;
use handoffd_domain::ids::{AgentId, TenantId};

impl MemoryStore {
    pub(in crate::store) async fn list_capped(&self) -> Result<Vec<TenantId>> {
        // As none can be set, none has any.
        Ok(Vec::new())
    }

    pub(in crate::store) async fn list_caps(&self, _tenant: &TenantId) -> Result<Vec<Cap>> {
        Ok(Vec::new())
    }

    pub(in crate::store) async fn list_caps_of(
        &self,
        _tenant: &TenantId,
        _agents: &[AgentId],
    ) -> Result<Vec<Cap>> {
        Ok(Vec::new())
    }

    pub(in crate::store) async fn reach_of_tasks(
        &self,
        _tenant: &TenantId,
        _filter: &TaskFilter,
        _after: Option<&Cursor>,
        _bounds: Bounds,
    ) -> Result<Reach> {
        Ok(Reach::Whole)
    }

    pub(in crate::store) async fn reach_of_handoffs(
        &self,
        _tenant: &TenantId,
        _filter: &HandoffFilter,
        _after: Option<&Cursor>,
        _bounds: Bounds,
    ) -> Result<Reach> {
        Ok(Reach::Whole)
    }
}
