//! Queries on rolling caps.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use super::batch::{CAPS, Sql, bind};
use super::failure::failed;
use super::transact::{AbsentRows, fetch};
use super::{PostgresStore, answered, rows};
use crate::store::caps::CapStore;
use crate::store::rows::CAP;
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::ids::{AgentId, TenantId};

static CAPS_LOAD: Sql = Sql::new(|| CAPS.select_of_locked("agent_id"));
static CAPS_INSERT: Sql = Sql::new(|| CAPS.insert(1));
static CAPS_UPDATE: Sql = Sql::new(|| CAPS.update());

fn agent_of(agent: Option<&AgentId>) -> &str {
    agent.map_or("", AgentId::as_str)
}

/// Loads and locks the caps that may be charged: after all rows that determine them, and last of all locks. Of two
/// brokers charging the same cap, the second waits here and sees the first one's entries.
pub(super) async fn load(
    tx: &mut PgConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    if state.cap_scopes.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(CAPS_LOAD.as_str());
    let query =
        bind!(query, state.cap_scopes, |scope| scope.0.as_str(), agent_of(scope.1.as_ref()));
    for row in fetch(tx, query).await? {
        let cap = rows::cap(&row)?;
        state.caps.insert(cap.key(), cap);
    }
    Ok(())
}

/// Writes a batch's changes. A default cap without a row could not be locked: it is inserted plainly, so that of two
/// brokers creating it at once the second conflicts, and then sees it.
pub(super) async fn write(
    tx: &mut PgConnection,
    writes: &Writes,
    absent: &AbsentRows,
) -> Result<()> {
    let kept = writes.caps.iter().filter_map(|(key, cap)| Some((key, cap.as_ref()?)));
    let (known, new): (Vec<_>, Vec<_>) = kept.partition(|(key, _)| absent.known_caps.contains(key));
    for (sql, caps) in [(&CAPS_INSERT, new), (&CAPS_UPDATE, known)] {
        let caps: Vec<&Cap> = caps.into_iter().map(|(_, cap)| cap).collect();
        if !caps.is_empty() {
            let query = bind!(
                sqlx::query(sql.as_str()),
                caps,
                |cap| cap.tenant.as_str(),
                agent_of(cap.agent.as_ref()),
                cap.window.seconds(),
                cap.usd.map(|usd| usd.0),
                cap.mark,
                cap.books.to_text(),
                cap.updated_at.0,
            );
            query.execute(&mut *tx).await.map_err(failed)?;
        }
    }
    for ((tenant, agent, window), _) in writes.caps.iter().filter(|(_, cap)| cap.is_none()) {
        sqlx::query("DELETE FROM caps WHERE tenant = $1 AND agent_id = $2 AND window_s = $3")
            .bind(tenant.as_str())
            .bind(agent_of(agent.as_ref()))
            .bind(window.seconds())
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

#[async_trait]
impl CapStore for PostgresStore {
    async fn list_capped(&self) -> Result<Vec<TenantId>> {
        answered(async {
            sqlx::query("SELECT DISTINCT tenant FROM caps")
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(|row| rows::parse(row, "tenant"))
                .collect()
        })
        .await
    }

    async fn list_caps(&self, tenant: &TenantId) -> Result<Vec<Cap>> {
        answered(async {
            let sql =
                format!("SELECT {CAP} FROM caps WHERE tenant = $1 ORDER BY agent_id, window_s");
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.as_str())
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::cap)
                .collect()
        })
        .await
    }

    async fn list_caps_of(&self, tenant: &TenantId, agents: &[AgentId]) -> Result<Vec<Cap>> {
        answered(async {
            let whose: Vec<&str> =
                std::iter::once("").chain(agents.iter().map(AgentId::as_str)).collect();
            let sql = format!(
                "SELECT {CAP} FROM caps WHERE tenant = $1 AND agent_id = ANY($2) \
                 ORDER BY agent_id, window_s"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.as_str())
                .bind(whose)
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::cap)
                .collect()
        })
        .await
    }
}
