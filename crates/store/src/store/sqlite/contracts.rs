//! Contracts, and the last uses of their dedupe keys.

use async_trait::async_trait;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::batch::{RowBatch, SqliteStatement, json};
use super::connection::failure;
use super::transact::{fetch, fetch_pairs};
use super::{SqliteStore, rows};
use crate::store::contracts::{ContractRow, ContractStore, RepeatRow};
use crate::store::rows::{CONTRACT, REPEAT};
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};

/// Loads a batch's rows.
pub(super) async fn load(
    conn: &mut SqliteConnection,
    needs: &Needs,
    state: &mut BatchState,
) -> Result<()> {
    if !needs.contracts.is_empty() {
        let sql = format!(
            "WITH wanted (t, i, v) AS \
               (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?)) \
             SELECT {CONTRACT} FROM wanted CROSS JOIN contracts \
               ON tenant = t AND contract_id = i AND version = v"
        );
        for row in fetch(conn, sql, json(&needs.contracts)?).await? {
            let row = rows::contract(&row)?;
            state.contracts.insert(row.key(), row);
        }
    }
    if !needs.repeats.is_empty() {
        let wanted = json(&needs.repeats)?;
        for row in fetch_pairs(conn, "contract_repeats", REPEAT, "repeat_key", wanted).await? {
            let row = rows::repeat(&row)?;
            state.repeats.insert((row.tenant.clone(), row.key.clone()), row);
        }
    }
    Ok(())
}

/// Writes a batch's changes.
pub(super) async fn write(conn: &mut SqliteConnection, writes: &Writes) -> Result<()> {
    let contracts: Vec<_> = writes.contracts.iter().collect();
    RowBatch::insert("contracts", CONTRACT).run(conn, &contracts, bind_contract).await?;
    let repeats: Vec<_> = writes.repeats.values().collect();
    RowBatch::upsert("contract_repeats", REPEAT, &["tenant", "repeat_key"])
        .run(conn, &repeats, bind_repeat)
        .await
        .map(|_| ())
}

fn bind_contract(query: SqliteStatement, row: &ContractRow) -> SqliteStatement {
    query
        .bind(row.tenant.as_str())
        .bind(row.id.as_str())
        .bind(row.version.as_str())
        .bind(row.doc.as_str())
        .bind(row.sha256.as_slice())
        .bind(row.source.as_str())
        .bind(row.target.as_str())
        .bind(row.created_at.0)
}

fn bind_repeat(query: SqliteStatement, row: &RepeatRow) -> SqliteStatement {
    query
        .bind(row.tenant.as_str())
        .bind(row.key.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.seen_at.0)
}

#[async_trait]
impl ContractStore for SqliteStore {
    async fn count_contracts(&self, tenant: &TenantId) -> Result<i64> {
        let row = sqlx::query("SELECT count(*) AS versions FROM contracts WHERE tenant = ?")
            .bind(tenant.as_str())
            .fetch_one(&self.readers)
            .await
            .map_err(failure)?;
        rows::get(&row, "versions")
    }

    async fn list_contracts(
        &self,
        tenant: &TenantId,
        since: Option<Micros>,
    ) -> Result<Vec<ContractRow>> {
        let sql = format!(
            "SELECT {CONTRACT} FROM contracts WHERE tenant = ? AND created_at >= ? \
             ORDER BY contract_id, version"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(tenant.as_str())
            .bind(since.map_or(i64::MIN, |since| since.0))
            .fetch_all(&self.readers)
            .await
            .map_err(failure)?
            .iter()
            .map(rows::contract)
            .collect()
    }
}
