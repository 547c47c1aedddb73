//! Contracts, and the last uses of their dedupe keys.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;

use super::batch::{Bound, CONTRACTS, REPEATS, Sql, bind};
use super::call::Call;
use super::failure::failed;
use super::transact::{AbsentRows, Loaded};
use super::writes::some;
use super::{PostgresStore, answered, rows};
use crate::store::contracts::{ContractRow, ContractStore, RepeatRow};
use crate::store::rows::CONTRACT;
use crate::store::{Needs, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};

static CONTRACTS_LOAD: Sql = Sql::new(|| CONTRACTS.select(Bound::Arrays));
static CONTRACTS_INSERT: Sql = Sql::new(|| CONTRACTS.insert(1, Bound::Arrays));
static REPEATS_LOAD: Sql = Sql::new(|| REPEATS.select_locked(Bound::Arrays));
static REPEATS_INSERT: Sql = Sql::new(|| REPEATS.insert(1, Bound::Arrays));
static REPEATS_UPDATE: Sql = Sql::new(|| REPEATS.update());

/// The loads of a batch's rows; existing dedupe rows are locked.
pub(super) fn loads(needs: &Needs) -> Vec<(Loaded, Call)> {
    let mut loads = Vec::new();
    if !needs.contracts.is_empty() {
        let call = Call::new(CONTRACTS_LOAD.as_str());
        let call =
            bind!(call, needs.contracts, |key| key.0.as_str(), key.1.as_str(), key.2.as_str());
        loads.push((Loaded::Contracts, call));
    }
    if !needs.repeats.is_empty() {
        let call = Call::new(REPEATS_LOAD.as_str());
        let call = bind!(call, needs.repeats, |key| key.0.as_str(), key.1.as_str());
        loads.push((Loaded::Repeats, call));
    }
    loads
}

/// Writes a batch's changes. An unseen dedupe value could not be locked: it is inserted plainly, so that of two
/// brokers with the same value the second conflicts, and then sees the first.
pub(super) fn calls(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let mut calls = Vec::new();
    if !writes.contracts.is_empty() {
        calls.push(bind!(
            Call::new(CONTRACTS_INSERT.as_str()),
            writes.contracts,
            |row| row.tenant.as_str(),
            row.id.as_str(),
            row.version.as_str(),
            row.doc.as_str(),
            row.sha256.as_slice(),
            row.source.as_str(),
            row.target.as_str(),
            row.created_at.0,
        ));
    }
    let (new, known): (Vec<_>, Vec<_>) =
        writes.repeats.iter().partition(|(key, _)| absent.repeats.contains(key));
    let bound = |(sql, rows): (&'static Sql, Vec<(_, &RepeatRow)>)| {
        bind!(
            Call::new(sql.as_str()),
            rows,
            |row| row.1.tenant.as_str(),
            row.1.key.as_str(),
            row.1.handoff_id.to_string(),
            row.1.seen_at.0,
        )
    };
    calls.extend(some([(&REPEATS_INSERT, new), (&REPEATS_UPDATE, known)]).map(bound));
    calls
}

#[async_trait]
impl ContractStore for PostgresStore {
    async fn count_contracts(&self, tenant: &TenantId) -> Result<i64> {
        answered(async {
            let row = sqlx::query("SELECT count(*) AS versions FROM contracts WHERE tenant = $1")
                .bind(tenant.as_str())
                .fetch_one(&self.pool)
                .await
                .map_err(failed)?;
            rows::get(&row, "versions")
        })
        .await
    }

    async fn list_contracts(
        &self,
        tenant: &TenantId,
        since: Option<Micros>,
    ) -> Result<Vec<ContractRow>> {
        answered(async {
            let sql = format!(
                "SELECT {CONTRACT} FROM contracts WHERE tenant = $1 AND created_at >= $2 \
                 ORDER BY contract_id, version"
            );
            sqlx::query(AssertSqlSafe(sql))
                .bind(tenant.as_str())
                .bind(since.map_or(i64::MIN, |since| since.0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::contract)
                .collect()
        })
        .await
    }
}
