//! Queries on rolling caps.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::batch::{Bound, CAPS, Sql, bind};
use super::call::Call;
use super::failure::failed;
use super::session::Tx;
use super::transact::AbsentRows;
use super::writes::some;
use super::{PostgresStore, answered, rows, session_rows};
use crate::store::caps::CapStore;
use crate::store::rows::CAP;
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::cap::Cap;
use handoffd_core::domain::ids::{AgentId, TenantId};

static CAPS_LOAD: Sql = Sql::new(|| CAPS.select_of_locked(Bound::Arrays, "agent_id"));
static CAPS_INSERT: Sql = Sql::new(|| CAPS.insert(1, Bound::Arrays));
static CAPS_UPDATE: Sql = Sql::new(|| CAPS.update());

fn agent_of(agent: Option<&AgentId>) -> &str {
    agent.map_or("", AgentId::as_str)
}

/// Loads and locks the caps that may be charged: after all rows that determine them, and last of all locks. Of two
/// brokers charging the same cap, the second waits here and sees the first one's entries.
pub(super) async fn load(tx: &mut Tx, needs: &Needs, state: &mut BatchState) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    if state.cap_scopes.is_empty() {
        return Ok(());
    }
    let call = Call::new(CAPS_LOAD.as_str());
    let call = bind!(call, state.cap_scopes, |scope| scope.0.as_str(), agent_of(scope.1.as_ref()));
    for row in tx.fetch(call).await? {
        let cap = session_rows::cap(&row)?;
        state.caps.insert(cap.key(), cap);
    }
    Ok(())
}

/// Writes a batch's changes. A default cap without a row could not be locked: it is inserted plainly, so that of two
/// brokers creating it at once the second conflicts, and then sees it.
pub(super) fn calls(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let kept = writes.caps.iter().filter_map(|(key, cap)| Some((key, cap.as_ref()?)));
    let (known, new): (Vec<_>, Vec<_>) = kept.partition(|(key, _)| absent.known_caps.contains(key));
    let bound = |(sql, caps): (&'static Sql, Vec<(_, &Cap)>)| {
        bind!(
            Call::new(sql.as_str()),
            caps,
            |cap| cap.1.tenant.as_str(),
            agent_of(cap.1.agent.as_ref()),
            cap.1.window.seconds(),
            cap.1.usd.map(|usd| usd.0),
            cap.1.mark,
            cap.1.usage.to_text(),
            cap.1.updated_at.0,
        )
    };
    let mut calls: Vec<Call> =
        some([(&CAPS_INSERT, new), (&CAPS_UPDATE, known)]).map(bound).collect();
    for ((tenant, agent, window), _) in writes.caps.iter().filter(|(_, cap)| cap.is_none()) {
        let sql = "DELETE FROM caps WHERE tenant = $1 AND agent_id = $2 AND window_s = $3";
        let call = Call::new(sql).bind(tenant.as_str());
        calls.push(call.bind(agent_of(agent.as_ref())).bind(window.seconds()));
    }
    calls
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
