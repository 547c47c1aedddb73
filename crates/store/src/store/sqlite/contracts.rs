//! Contracts, and the last uses of their dedupe keys.

use async_trait::async_trait;

use super::batch::RowBatch;
use super::db::{Db, Query};
use super::transact::{fetch_pairs, fetch_triples};
use super::{SqliteStore, rows};
use crate::store::contracts::{ContractRow, ContractStore, RepeatRow};
use crate::store::rows::{CONTRACT, REPEAT};
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_core::domain::ids::{Micros, TenantId};

/// Loads a batch's rows.
pub(super) fn load(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let wanted = needs.contracts.iter().map(|(tenant, id, version)| (tenant, id, version));
    let select = format!("{CONTRACT} FROM contracts");
    fetch_triples(db, &select, "contract_id = ? AND version = ?", wanted, |row| {
        let row = rows::contract(row)?;
        state.contracts.insert(row.key(), row);
        Ok(())
    })?;
    fetch_pairs(db, "contract_repeats", REPEAT, "repeat_key", &needs.repeats, |row| {
        let row = rows::repeat(row)?;
        state.repeats.insert((row.tenant.clone(), row.key.clone()), row);
        Ok(())
    })
}

/// Writes a batch's changes.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let contracts: Vec<_> = writes.contracts.iter().collect();
    RowBatch::insert("contracts", CONTRACT).run(db, &contracts, bind_contract)?;
    let repeats: Vec<_> = writes.repeats.values().collect();
    RowBatch::upsert("contract_repeats", REPEAT, &["tenant", "repeat_key"])
        .run(db, &repeats, bind_repeat)
        .map(|_| ())
}

fn bind_contract<'c>(query: Query<'c>, row: &ContractRow) -> Query<'c> {
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

fn bind_repeat<'c>(query: Query<'c>, row: &RepeatRow) -> Query<'c> {
    query
        .bind(row.tenant.as_str())
        .bind(row.key.as_str())
        .bind(row.handoff_id.to_string())
        .bind(row.seen_at.0)
}

#[async_trait]
impl ContractStore for SqliteStore {
    async fn count_contracts(&self, tenant: &TenantId) -> Result<i64> {
        let sql = "SELECT count(*) AS versions FROM contracts WHERE tenant = ?";
        self.read(|db| db.query(sql).bind(tenant.as_str()).one(|row| row.get("versions"))).await
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
        self.read(|db| {
            db.query(&sql)
                .bind(tenant.as_str())
                .bind(since.map_or(i64::MIN, |since| since.0))
                .list(rows::contract)
        })
        .await
    }
}
