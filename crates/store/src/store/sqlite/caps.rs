//! Queries on rolling caps.

use async_trait::async_trait;

use super::batch::{RowBatch, json};
use super::db::{Db, Query};
use super::{SqliteStore, rows};
use crate::store::caps::CapStore;
use crate::store::rows::CAP;
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::ids::{AgentId, TenantId};

/// Loads the caps that may be charged, after all rows that determine them.
pub(super) fn load(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    let sql = format!("SELECT {CAP} FROM caps WHERE tenant = ? AND agent_id = ?");
    for (tenant, agent) in &state.cap_scopes {
        let whose = agent.as_ref().map_or("", |id| id.as_str());
        let found: Vec<Cap> = db.query(&sql).bind(tenant.as_str()).bind(whose).list(rows::cap)?;
        state.caps.extend(found.into_iter().map(|cap| (cap.key(), cap)));
    }
    Ok(())
}

/// Writes a batch's changes.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let kept: Vec<&Cap> = writes.caps.values().flatten().collect();
    RowBatch::upsert("caps", CAP, &["tenant", "agent_id", "window_s"]).run(db, &kept, bind)?;
    for ((tenant, agent, window), _) in writes.caps.iter().filter(|(_, cap)| cap.is_none()) {
        db.query("DELETE FROM caps WHERE tenant = ? AND agent_id = ? AND window_s = ?")
            .bind(tenant.as_str())
            .bind(agent.as_ref().map_or("", |id| id.as_str()))
            .bind(window.seconds())
            .execute()?;
    }
    Ok(())
}

fn bind<'c>(query: Query<'c>, cap: &Cap) -> Query<'c> {
    query
        .bind(cap.tenant.as_str())
        .bind(cap.agent.as_ref().map_or("", |id| id.as_str()))
        .bind(cap.window.seconds())
        .bind(cap.usd.map(|usd| usd.0))
        .bind(cap.mark)
        .bind(cap.usage.to_text())
        .bind(cap.updated_at.0)
}

#[async_trait]
impl CapStore for SqliteStore {
    async fn list_capped(&self) -> Result<Vec<TenantId>> {
        self.read(|db| {
            db.query("SELECT DISTINCT tenant FROM caps").list(|row| rows::parse(row, "tenant"))
        })
        .await
    }

    async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>> {
        let sql = format!("SELECT {CAP} FROM caps WHERE tenant = ? ORDER BY agent_id, window_s");
        self.read(|db| db.query(&sql).bind(tenant.as_str()).list(rows::cap)).await
    }

    async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>> {
        let whose: Vec<&str> =
            std::iter::once("").chain(agents.iter().map(AgentId::as_str)).collect();
        let sql = format!(
            "SELECT {CAP} FROM caps WHERE tenant = ? \
             AND agent_id IN (SELECT value FROM json_each(?)) ORDER BY agent_id, window_s"
        );
        self.read(|db| db.query(&sql).bind(tenant.as_str()).bind(json(&whose)?).list(rows::cap))
            .await
    }
}
