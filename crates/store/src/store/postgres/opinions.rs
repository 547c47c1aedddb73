use async_trait::async_trait;

use super::batch::{OPINIONS, bind};
use super::call::Call;
use super::failure::failed;
use super::joined::{JoinedStatement, WriteMode};
use super::{PostgresStore, answered, rows};
use crate::store::opinions::OpinionStore;
use crate::store::{HandoffKey, Result, Writes};
use handoffd_core::domain::ids::Micros;

/// Writes a batch's changes.
pub(super) fn write(joined: &mut JoinedStatement, writes: &Writes) {
    let unasked = |(key, due): (_, &Option<Micros>)| Some((key, 0, (*due)?));
    let due: Vec<(&HandoffKey, i32, Micros)> = writes.opinions.iter().filter_map(unasked).collect();
    let columns = |bound: Call, rows: &[(&HandoffKey, i32, Micros)]| {
        bind!(bound, rows, |row| row.0.0.as_str(), row.0.1.to_string(), row.1, row.2.0)
    };
    joined.put(&OPINIONS, WriteMode::Insert, &due, |_| 0, columns);
    let recorded: Vec<&HandoffKey> =
        writes.opinions.iter().filter(|(_, due)| due.is_none()).map(|(key, _)| key).collect();
    let keys = |bound: Call, rows: &[&HandoffKey]| {
        bind!(bound, rows, |key| key.0.as_str(), key.1.to_string())
    };
    joined.put(&OPINIONS, WriteMode::Delete, &recorded, |_| 0, keys);
}

#[async_trait]
impl OpinionStore for PostgresStore {
    async fn list_due_opinions(&self, now: Micros, limit: i64) -> Result<Vec<HandoffKey>> {
        answered(async {
            let sql = "SELECT tenant, handoff_id FROM opinions_due \
                 WHERE NOT (next_at > $1 AND next_at <= $1 + 7200000000) \
                 ORDER BY next_at, handoff_id LIMIT $2";
            sqlx::query(sql)
                .bind(now.0)
                .bind(limit.max(0))
                .fetch_all(&self.pool)
                .await
                .map_err(failed)?
                .iter()
                .map(rows::handoff_key)
                .collect()
        })
        .await
    }

    async fn claim_opinion(
        &self,
        key: &HandoffKey,
        now: Micros,
        until: Micros,
    ) -> Result<Option<i32>> {
        answered(async {
            let sql = "UPDATE opinions_due SET attempts = attempts + 1, next_at = $1 \
                 WHERE tenant = $2 AND handoff_id = $3 \
                   AND NOT (next_at > $4 AND next_at <= $4 + 7200000000) RETURNING attempts";
            sqlx::query_scalar(sql)
                .bind(until.0)
                .bind(key.0.as_str())
                .bind(key.1.to_string())
                .bind(now.0)
                .fetch_optional(&self.pool)
                .await
                .map_err(failed)
        })
        .await
    }

    async fn postpone_opinion(&self, key: &HandoffKey, attempt: i32, at: Micros) -> Result<bool> {
        answered(async {
            let sql = "UPDATE opinions_due SET next_at = $1 \
                 WHERE tenant = $2 AND handoff_id = $3 AND attempts = $4";
            let query = sqlx::query(sql).bind(at.0).bind(key.0.as_str()).bind(key.1.to_string());
            let done = query.bind(attempt).execute(&self.pool).await.map_err(failed)?;
            Ok(done.rows_affected() > 0)
        })
        .await
    }
}
