use async_trait::async_trait;

use super::batch::RowBatch;
use super::db::Db;
use super::transact::fetch_pairs;
use super::writes::delete;
use super::{SqliteStore, rows};
use crate::store::opinions::OpinionStore;
use crate::store::{BatchState, HandoffKey, Needs, Result, Writes};
use handoffd_core::domain::ids::Micros;

/// Reads the claims of the opinions that a batch records.
pub(super) fn load(db: &Db, needs: &Needs, state: &mut BatchState) -> Result<()> {
    let columns = "tenant, handoff_id, attempts";
    fetch_pairs(db, "opinions_due", columns, "handoff_id", &needs.opinions, |row| {
        state.opinions.insert(rows::handoff_key(row)?, rows::get(row, "attempts")?);
        Ok(())
    })
}

/// Writes a batch's changes.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let due: Vec<_> =
        writes.opinions.iter().filter_map(|(key, due)| Some((key, (*due)?))).collect();
    RowBatch::insert("opinions_due", "tenant, handoff_id, next_at").run(
        db,
        &due,
        |query, (key, due)| query.bind(key.0.as_str()).bind(key.1.to_string()).bind(due.0),
    )?;
    let recorded: Vec<_> =
        writes.opinions.iter().filter(|(_, due)| due.is_none()).map(|(key, _)| key).collect();
    delete(db, "opinions_due", "handoff_id", &recorded)
}

#[async_trait]
impl OpinionStore for SqliteStore {
    async fn list_due_opinions(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        let sql = "SELECT tenant, handoff_id FROM opinions_due \
             WHERE NOT (next_at > ?1 AND next_at <= ?1 + 7200000000) \
             ORDER BY next_at, handoff_id LIMIT ?2";
        self.read(|db| db.query(sql).bind(now.0).bind(limit.max(0)).list(rows::handoff_key)).await
    }

    async fn claim_opinion(
        &self,
        key: &HandoffKey,
        now: Micros,
        until: Micros,
    ) -> Result<Option<i32>> {
        let sql = "UPDATE opinions_due SET attempts = attempts + 1, next_at = ?1 \
             WHERE tenant = ?2 AND handoff_id = ?3 \
               AND NOT (next_at > ?4 AND next_at <= ?4 + 7200000000) RETURNING attempts";
        self.write(|db| {
            let query = db.query(sql).bind(until.0).bind(key.0.as_str()).bind(key.1.to_string());
            query.bind(now.0).find(|row| rows::get(row, "attempts"))
        })
        .await
    }

    async fn postpone_opinion(&self, key: &HandoffKey, attempt: i32, at: Micros) -> Result<bool> {
        let sql = "UPDATE opinions_due SET next_at = ?1 \
             WHERE tenant = ?2 AND handoff_id = ?3 AND attempts = ?4";
        self.write(|db| {
            let query = db.query(sql).bind(at.0).bind(key.0.as_str()).bind(key.1.to_string());
            query.bind(i64::from(attempt)).execute().map(|rows| rows > 0)
        })
        .await
    }
}
