//! Contracts, and the last uses of their dedupe keys.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;

use super::batch::{CONTRACTS, REPEATS, Sql, bind};
use super::failure::failed;
use super::transact::{AbsentRows, fetch};
use super::{PostgresStore, answered, rows};
use crate::store::contracts::{ContractRow, ContractStore, RepeatRow};
use crate::store::rows::CONTRACT;
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};

static CONTRACTS_LOAD: Sql = Sql::new(|| CONTRACTS.select());
static CONTRACTS_INSERT: Sql = Sql::new(|| CONTRACTS.insert(1));
static REPEATS_LOAD: Sql = Sql::new(|| REPEATS.select_locked());
static REPEATS_INSERT: Sql = Sql::new(|| REPEATS.insert(1));
static REPEATS_UPDATE: Sql = Sql::new(|| REPEATS.update());

/// Loads a batch's rows; existing dedupe rows are locked.
pub(super) async fn load(
    tx: &mut PgConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    if !needs.contracts.is_empty() {
        let query = sqlx::query(CONTRACTS_LOAD.as_str());
        let query =
            bind!(query, needs.contracts, |key| key.0.as_str(), key.1.as_str(), key.2.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::contract(&row)?;
            state.contracts.insert(row.key(), row);
        }
    }
    if !needs.repeats.is_empty() {
        let query = sqlx::query(REPEATS_LOAD.as_str());
        let query = bind!(query, needs.repeats, |key| key.0.as_str(), key.1.as_str());
        for row in fetch(tx, query).await? {
            let row = rows::repeat(&row)?;
            state.repeats.insert((row.tenant.clone(), row.key.clone()), row);
        }
    }
    Ok(())
}

/// Writes a batch's changes. An unseen dedupe value could not be locked: it is inserted plainly, so that of two
/// brokers with the same value the second conflicts, and then sees the first.
pub(super) async fn write(
    tx: &mut PgConnection,
    writes: &Writes,
    absent: &AbsentRows,
) -> Result<()> {
    if !writes.contracts.is_empty() {
        let query = bind!(
            sqlx::query(CONTRACTS_INSERT.as_str()),
            writes.contracts,
            |row| row.tenant.as_str(),
            row.id.as_str(),
            row.version.as_str(),
            row.doc.as_str(),
            row.sha256.as_slice(),
            row.source.as_str(),
            row.target.as_str(),
            row.created_at.0,
        );
        query.execute(&mut *tx).await.map_err(failed)?;
    }
    let (new, known): (Vec<_>, Vec<_>) =
        writes.repeats.iter().partition(|(key, _)| absent.repeats.contains(key));
    for (sql, rows) in [(&REPEATS_INSERT, new), (&REPEATS_UPDATE, known)] {
        let rows: Vec<&RepeatRow> = rows.into_iter().map(|(_, row)| row).collect();
        if !rows.is_empty() {
            let query = bind!(
                sqlx::query(sql.as_str()),
                rows,
                |row| row.tenant.as_str(),
                row.key.as_str(),
                row.handoff_id.to_string(),
                row.seen_at.0,
            );
            query.execute(&mut *tx).await.map_err(failed)?;
        }
    }
    Ok(())
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
