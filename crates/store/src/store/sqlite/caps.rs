//! Queries on rolling caps.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::batch::{RowBatch, SqliteStatement, json};
use super::connection::failure;
use super::transact::fetch;
use super::{SqliteStore, rows};
use crate::store::caps::CapStore;
use crate::store::rows::CAP;
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::ids::{AgentId, TenantId};

/// Loads the caps that may be charged, after all rows that determine them.
pub(super) async fn load(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    if state.cap_scopes.is_empty() {
        return Ok(());
    }
    let wanted: Vec<(&str, &str)> = state
        .cap_scopes
        .iter()
        .map(|(tenant, agent)| (tenant.as_str(), agent.as_ref().map_or("", |id| id.as_str())))
        .collect();
    let sql = format!(
        "WITH wanted (t, a) AS (SELECT value ->> 0, value ->> 1 FROM json_each(?)) \
         SELECT {CAP} FROM wanted CROSS JOIN caps ON tenant = t AND agent_id = a"
    );
    for row in fetch(conn, sql, json(&wanted)?).await? {
        let cap = rows::cap(&row)?;
        state.caps.insert(cap.key(), cap);
    }
    Ok(())
}

/// Writes a batch's changes.
pub(super) async fn write(conn: &mut SqliteConnection, writes: &Writes) -> Result<()> {
    let kept: Vec<&Cap> = writes.caps.values().flatten().collect();
    RowBatch::upsert("caps", CAP, &["tenant", "agent_id", "window_s"])
        .run(conn, &kept, bind)
        .await?;
    for ((tenant, agent, window), _) in writes.caps.iter().filter(|(_, cap)| cap.is_none()) {
        sqlx::query("DELETE FROM caps WHERE tenant = ? AND agent_id = ? AND window_s = ?")
            .bind(tenant.as_str())
            .bind(agent.as_ref().map_or("", |id| id.as_str()))
            .bind(window.seconds())
            .execute(&mut *conn)
            .await
            .map_err(failure)?;
    }
    Ok(())
}

fn bind(query: SqliteStatement, cap: &Cap) -> SqliteStatement {
    query
        .bind(cap.tenant.as_str())
        .bind(cap.agent.as_ref().map_or("", |id| id.as_str()))
        .bind(cap.window.seconds())
        .bind(cap.usd.map(|usd| usd.0))
        .bind(cap.mark)
        .bind(cap.books.to_text())
        .bind(cap.updated_at.0)
}

#[async_trait]
impl CapStore for SqliteStore {
    async fn list_capped(&self) -> Result<Vec<TenantId>> {
        sqlx::query("SELECT DISTINCT tenant FROM caps")
            .fetch_all(&self.readers)
            .await
            .map_err(failure)?
            .iter()
            .map(|row| rows::parse(row, "tenant"))
            .collect()
    }

    async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>> {
        let sql = format!("SELECT {CAP} FROM caps WHERE tenant = ? ORDER BY agent_id, window_s");
        sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.as_str())
            .fetch_all(&self.readers)
            .await
            .map_err(failure)?
            .iter()
            .map(rows::cap)
            .collect()
    }

    async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>> {
        let whose: Vec<&str> =
            std::iter::once("").chain(agents.iter().map(AgentId::as_str)).collect();
        let sql = format!(
            "SELECT {CAP} FROM caps WHERE tenant = ? \
             AND agent_id IN (SELECT value FROM json_each(?)) ORDER BY agent_id, window_s"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.as_str())
            .bind(json(&whose)?)
            .fetch_all(&self.readers)
            .await
            .map_err(failure)?
            .iter()
            .map(rows::cap)
            .collect()
    }
}
