//! Erasure, access and legal hold: their part of a batch, reads, and clean files.

use std::time::Duration;

use serde::Serialize;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, QueryBuilder, Row, Sqlite};

use super::SqliteStore;
use super::batch::{RowBatch, SqliteStatement, json};
use super::connection::failure;
use super::rows;
use crate::fault::{self, Step};
use crate::store::erasure::{
    ERASED_CHECKPOINT, ErasureKey, ErasureNeeds, ErasurePage, ErasureRow, ErasureState,
    ErasureWrite, HoldKey, HoldRow, PageNeed, PurgeNeed, PurgePage, ScrubOutcome, SubjectDatum,
    SubjectRef, SubjectState,
};
use crate::store::purge::{CHECKPOINTS, ExpiredPage, PurgeContext, page as put_together};
use crate::store::rows::{ERASURE, HELD, HOLD};
use crate::store::{Result, StoreError, Writes};
use handoffd_core::domain::handoff::CheckpointRef;
use handoffd_core::domain::ids::{ContentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_core::evidence::erasure::{DataSlot, ErasureScope};
use handoffd_core::evidence::record::{RecordDraft, RecordKind, SealedRecord};

/// Most holds listed: one is enough to forbid an erasure.
const HOLDS: i64 = 10;

/// Most erasures listed for one subject.
const ERASURES: i64 = 1000;

/// Attempts to empty the write-ahead log while readers are active, and the pause between them.
const TRUNCATIONS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Loads subjects, erasures and holds. The write lock is held, so no change intervenes.
pub(super) async fn load(
    conn: &mut SqliteConnection,
    needs: &ErasureNeeds,
) -> Result<ErasureState> {
    let mut state = ErasureState::default();
    for subject in &needs.subjects {
        state.subjects.insert(subject.clone(), known(conn, subject).await?);
    }
    for (key, need) in &needs.pages {
        if let Some(page) = page(conn, key, *need).await? {
            state.pages.insert(key.clone(), page);
        }
    }
    for (tenant, need) in &needs.purges {
        state.purges.insert(tenant.clone(), purge_page(conn, tenant, *need).await?);
    }
    for key in &needs.holds {
        let sql = format!("SELECT {HOLD} FROM legal_holds WHERE tenant = ? AND hold_id = ?");
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(key.0.as_str())
            .bind(key.1.as_str())
            .fetch_optional(&mut *conn)
            .await
            .map_err(failure)?;
        if let Some(row) = row {
            state.holds.insert(key.clone(), rows::hold(&row)?);
        }
    }
    Ok(state)
}

async fn known(conn: &mut SqliteConnection, subject: &SubjectRef) -> Result<SubjectState> {
    let held =
        sqlx::query("SELECT count(*) FROM personal_data WHERE tenant = ? AND subject_id = ?")
            .bind(subject.tenant.as_str())
            .bind(subject.id.as_str())
            .fetch_one(&mut *conn)
            .await
            .map_err(failure)?
            .get(0);
    let sql = format!(
        "SELECT {ERASURE} FROM erasures WHERE tenant = ? AND subject_key = ? \
         ORDER BY requested_at DESC, erasure_id DESC LIMIT 1"
    );
    let latest = sqlx::query(AssertSqlSafe(sql))
        .bind(subject.tenant.as_str())
        .bind(subject.key.as_slice())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failure)?;
    let latest = latest.as_ref().map(rows::erasure).transpose()?;
    let holds = holds(conn, &subject.tenant, &subject.key, Some(&subject.id)).await?;
    Ok(SubjectState { held, holds, latest })
}

/// Holds that forbid erasing a subject: on the subject, or on a task with data of the subject.
async fn holds(
    conn: &mut SqliteConnection,
    tenant: &TenantId,
    key: &[u8; 32],
    id: Option<&str>,
) -> Result<Vec<HoldRow>> {
    let sql = format!(
        "SELECT {HOLD} FROM legal_holds AS l WHERE tenant = ? AND released_at IS NULL \
         AND (subject_key = ? OR (task_id IS NOT NULL AND EXISTS ( \
           SELECT 1 FROM audit_records AS r CROSS JOIN personal_data AS p \
             ON p.tenant = r.tenant AND p.leaf_index = r.leaf_index \
           WHERE r.tenant = l.tenant AND r.task_id = l.task_id AND p.subject_id = ?))) \
         ORDER BY placed_at, hold_id LIMIT ?"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(key.as_slice())
        .bind(id)
        .bind(HOLDS)
        .fetch_all(conn)
        .await
        .map_err(failure)?
        .iter()
        .map(rows::hold)
        .collect()
}

async fn page(
    conn: &mut SqliteConnection,
    key: &ErasureKey,
    need: PageNeed,
) -> Result<Option<ErasurePage>> {
    let sql = format!("SELECT {ERASURE} FROM erasures WHERE tenant = ? AND erasure_id = ?");
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(key.0.as_str())
        .bind(key.1.to_string())
        .fetch_optional(&mut *conn)
        .await
        .map_err(failure)?;
    let Some(row) = row.as_ref().map(rows::erasure).transpose()? else { return Ok(None) };
    let holds = holds(conn, &key.0, &row.subject_key, row.subject_id.as_deref()).await?;
    let mut page = ErasurePage { row, holds, data: vec![], contents: vec![], checkpoints: vec![] };
    let Some(subject) = &page.row.subject_id else { return Ok(Some(page)) };
    let found = sqlx::query(
        "SELECT leaf_index, ordinal, handoff_id FROM personal_data \
         WHERE tenant = ? AND subject_id = ? AND leaf_index < ? \
         ORDER BY leaf_index, ordinal LIMIT ?",
    )
    .bind(key.0.as_str())
    .bind(subject.as_str())
    .bind(need.upto)
    .bind(need.limit)
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    for row in &found {
        page.data.push((rows::slot(row)?, rows::parse_opt(row, "handoff_id")?));
    }
    if page.row.scope == ErasureScope::Messages {
        let handoffs: Vec<HandoffId> = page.data.iter().filter_map(|(_, id)| *id).collect();
        let handoffs = json(&handoffs)?;
        page.contents = contents(conn, &key.0, &handoffs, need.upto).await?;
        page.checkpoints = checkpoints(conn, &key.0, &handoffs).await?;
    }
    Ok(Some(page))
}

/// Contents of the handoffs' records, with every record of their tasks that shares them. Records are found by their
/// tasks, which have an index.
async fn contents(
    conn: &mut SqliteConnection,
    tenant: &TenantId,
    handoffs: &str,
    upto: i64,
) -> Result<Vec<(i64, ContentId)>> {
    sqlx::query(
        "WITH wanted AS MATERIALIZED (SELECT value AS id FROM json_each(?1)), \
           touched AS MATERIALIZED (SELECT DISTINCT h.task_id AS id FROM wanted AS w \
             CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = w.id), \
           said AS MATERIALIZED (SELECT r.content_id AS id FROM touched AS t \
           CROSS JOIN audit_records AS r ON r.tenant = ?2 AND r.task_id = t.id \
           WHERE r.content_id IS NOT NULL AND r.leaf_index < ?3 \
             AND r.handoff_id IN (SELECT id FROM wanted)) \
         SELECT r.leaf_index, c.content_id FROM touched AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?2 AND r.task_id = t.id \
         CROSS JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
         WHERE r.content_id IN (SELECT id FROM said) AND c.salt IS NOT NULL \
         ORDER BY r.leaf_index",
    )
    .bind(handoffs)
    .bind(tenant.as_str())
    .bind(upto)
    .fetch_all(conn)
    .await
    .map_err(failure)?
    .iter()
    .map(|row| Ok((rows::get(row, "leaf_index")?, rows::parse(row, "content_id")?)))
    .collect()
}

async fn checkpoints(
    conn: &mut SqliteConnection,
    tenant: &TenantId,
    handoffs: &str,
) -> Result<Vec<(TaskId, CheckpointRef)>> {
    sqlx::query(
        "SELECT DISTINCT c.task_id, c.execution_id, c.seq FROM json_each(?) AS w \
         CROSS JOIN handoffs AS h ON h.tenant = ? AND h.handoff_id = w.value \
         CROSS JOIN checkpoints AS c ON c.tenant = h.tenant AND c.task_id = h.task_id \
           AND c.execution_id = h.checkpoint_execution AND c.seq = h.checkpoint_seq \
         WHERE length(c.salt) > 0",
    )
    .bind(handoffs)
    .bind(tenant.as_str())
    .fetch_all(conn)
    .await
    .map_err(failure)?
    .iter()
    .map(rows::saved)
    .collect()
}

/// The expired data of the records from a leaf index on.
async fn purge_page(
    conn: &mut SqliteConnection,
    tenant: &TenantId,
    need: PurgeNeed,
) -> Result<PurgePage> {
    let found = sqlx::query(
        "SELECT r.leaf_index, r.kind, r.recorded_at, r.task_id, r.handoff_id, \
           CASE WHEN c.salt IS NOT NULL THEN c.content_id END AS content_id \
         FROM audit_records AS r \
         LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
         WHERE r.tenant = ?1 AND r.leaf_index >= ?2 AND r.leaf_index < ?2 + ?3 \
         ORDER BY r.leaf_index",
    )
    .bind(tenant.as_str())
    .bind(need.from)
    .bind(need.limit)
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    let old = ExpiredPage::new(need, found.iter().map(rows::aged).collect::<Result<_>>()?);
    let leaves: Vec<i64> = old.records.iter().map(|record| record.leaf_index).collect();
    let tasks = json(&old.tasks())?;
    let mut beside = PurgeContext::default();
    let held = sqlx::query(
        "SELECT t.value AS task_id FROM json_each(?2) AS t WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = ?1 AND h.task_id = t.value \
             AND h.status IN ('PENDING', 'ACCEPTED')) \
           OR EXISTS (SELECT 1 FROM tasks AS k WHERE k.tenant = ?1 AND k.task_id = t.value \
             AND k.status = 'ESCALATED') \
           OR t.value IN (SELECT d.task_id FROM dead_letters AS d \
             WHERE d.tenant = ?1 AND d.status = 'OPEN') \
           OR t.value IN (SELECT l.task_id FROM legal_holds AS l \
             WHERE l.tenant = ?1 AND l.released_at IS NULL AND l.task_id IS NOT NULL) \
           OR t.value IN (SELECT r.task_id FROM legal_holds AS l \
             CROSS JOIN personal_data AS p ON p.tenant = l.tenant AND p.subject_id = l.subject_id \
             CROSS JOIN audit_records AS r ON r.tenant = p.tenant AND r.leaf_index = p.leaf_index \
             WHERE l.tenant = ?1 AND l.released_at IS NULL AND l.subject_id IS NOT NULL \
               AND r.task_id IS NOT NULL)",
    )
    .bind(tenant.as_str())
    .bind(tasks.as_str())
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    for row in &held {
        beside.held.insert(rows::parse(row, "task_id")?);
    }
    let data = sqlx::query(
        "SELECT p.leaf_index, p.ordinal, EXISTS (SELECT 1 FROM legal_holds AS l \
           WHERE l.tenant = p.tenant AND l.subject_id = p.subject_id AND l.released_at IS NULL) AS held \
         FROM personal_data AS p WHERE p.tenant = ? AND p.salt IS NOT NULL \
           AND p.leaf_index IN (SELECT value FROM json_each(?)) ORDER BY p.leaf_index, p.ordinal",
    )
    .bind(tenant.as_str())
    .bind(json(&leaves)?)
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    for row in &data {
        beside.data.push((rows::slot(row)?, rows::get(row, "held")?));
    }
    let contents: Vec<_> = old.records.iter().filter_map(|record| record.content).collect();
    let sharing = sqlx::query(
        "SELECT r.content_id, r.leaf_index, r.recorded_at FROM json_each(?2) AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?1 AND r.task_id = t.value \
         WHERE r.content_id IN (SELECT value FROM json_each(?3)) ORDER BY r.leaf_index",
    )
    .bind(tenant.as_str())
    .bind(tasks)
    .bind(json(&contents)?)
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    for row in &sharing {
        beside.sharing.push(rows::sharing(row)?);
    }
    let free: Vec<_> = old.tasks().difference(&beside.held).copied().collect();
    let saved = sqlx::query(
        "SELECT c.task_id, c.execution_id, c.seq FROM json_each(?2) AS t \
         CROSS JOIN checkpoints AS c ON c.tenant = ?1 AND c.task_id = t.value \
         WHERE c.created_at < ?3 AND length(c.salt) > 0 LIMIT ?4",
    )
    .bind(tenant.as_str())
    .bind(json(&free)?)
    .bind(need.before.0)
    .bind(CHECKPOINTS)
    .fetch_all(&mut *conn)
    .await
    .map_err(failure)?;
    for row in &saved {
        beside.checkpoints.push(rows::saved(row)?);
    }
    Ok(put_together(need, old, beside))
}

/// Writes holds, erasures, and the removal of data.
pub(super) async fn write(conn: &mut SqliteConnection, writes: &Writes) -> Result<()> {
    let holds: Vec<_> = writes.holds.values().collect();
    RowBatch::upsert("legal_holds", HOLD, &["tenant", "hold_id"])
        .run(conn, &holds, bind_hold)
        .await?;
    let erasures: Vec<_> = writes.erasures.values().collect();
    RowBatch::upsert("erasures", ERASURE, &["tenant", "erasure_id"])
        .run(conn, &erasures, bind_erasure)
        .await?;
    for gone in &writes.erased {
        erase(conn, gone).await?;
        fault::at(Step::EraseWritten);
    }
    Ok(())
}

async fn erase(conn: &mut SqliteConnection, gone: &ErasureWrite) -> Result<()> {
    let data: Vec<_> = gone.data.iter().map(|slot| (slot.leaf_index, slot.ordinal)).collect();
    let sql = "UPDATE personal_data SET salt = NULL, bytes = NULL, subject_id = '' \
               WHERE tenant = ? AND (leaf_index, ordinal) IN \
                 (SELECT value ->> 0, value ->> 1 FROM json_each(?))";
    change(conn, sql, &gone.tenant, &data).await?;
    let sql = "UPDATE handoffs SET digest_salt = x'', digest = x'', tracestate = '' \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";
    change(conn, sql, &gone.tenant, &gone.handoffs).await?;
    // A contract's dedupe key may name a personal value; its hash has no salt.
    let sql = "DELETE FROM contract_repeats \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";
    change(conn, sql, &gone.tenant, &gone.handoffs).await?;
    if gone.words {
        let sql = "UPDATE handoffs SET reason = NULL WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?)) \
                   AND reason GLOB '*[^A-Z0-9_]*'";
        change(conn, sql, &gone.tenant, &gone.handoffs).await?;
        let sql = "UPDATE dead_letters SET failures = '[]' WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?))";
        change(conn, sql, &gone.tenant, &gone.handoffs).await?;
    }
    let purged_at = gone.purged_at.map_or("NULL".to_owned(), |at| at.0.to_string());
    let sql = format!(
        "UPDATE contents SET salt = NULL, bytes = NULL, purged_at = {purged_at} \
         WHERE tenant = ? AND content_id IN (SELECT value FROM json_each(?))"
    );
    change(conn, &sql, &gone.tenant, &gone.contents).await?;
    let checkpoints: Vec<_> = gone
        .checkpoints
        .iter()
        .map(|(task, at)| (task.to_string(), at.execution_id.to_string(), at.seq))
        .collect();
    let sql = format!(
        "UPDATE checkpoints SET salt = x'', codec = 'raw', bytes = CAST('{}' AS BLOB) \
         WHERE tenant = ? AND (task_id, execution_id, seq) IN \
           (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))",
        String::from_utf8_lossy(ERASED_CHECKPOINT)
    );
    change(conn, &sql, &gone.tenant, &checkpoints).await
}

async fn change<T: Serialize + Sync>(
    conn: &mut SqliteConnection,
    sql: &str,
    tenant: &TenantId,
    keys: &[T],
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(AssertSqlSafe(sql.to_owned())).bind(tenant.as_str()).bind(json(&keys)?);
    query.execute(conn).await.map_err(failure).map(|_| ())
}

/// Stores the leaf index of an erasure's final record.
pub(super) async fn place(
    conn: &mut SqliteConnection,
    records: &[(&RecordDraft, &SealedRecord)],
) -> Result<()> {
    for (draft, sealed) in records {
        let Some(facts) = &draft.erasure else { continue };
        if draft.kind == RecordKind::ErasureCompleted {
            sqlx::query("UPDATE erasures SET leaf_index = ? WHERE tenant = ? AND erasure_id = ?")
                .bind(sealed.leaf_index)
                .bind(draft.tenant.as_str())
                .bind(facts.id.to_string())
                .execute(&mut *conn)
                .await
                .map_err(failure)?;
        }
    }
    Ok(())
}

fn bind_hold(query: SqliteStatement, row: &HoldRow) -> SqliteStatement {
    query
        .bind(row.tenant.as_str())
        .bind(row.id.as_str())
        .bind(row.subject_key.as_ref().map(<[u8; 32]>::as_slice))
        .bind(row.subject_id.as_deref())
        .bind(row.task_id.map(|id| id.to_string()))
        .bind(row.reason.as_str())
        .bind(row.placed_at.0)
        .bind(row.released_at.map(|at| at.0))
}

fn bind_erasure(query: SqliteStatement, row: &ErasureRow) -> SqliteStatement {
    query
        .bind(row.tenant.as_str())
        .bind(row.id.to_string())
        .bind(row.subject_key.as_slice())
        .bind(row.subject_id.as_deref())
        .bind(row.commitment.as_slice())
        .bind(row.scope.as_str())
        .bind(row.reason.as_str())
        .bind(row.status.as_str())
        .bind(row.held)
        .bind(row.data)
        .bind(row.contents)
        .bind(row.checkpoints)
        .bind(row.leaf_index)
        .bind(row.requested_at.0)
        .bind(row.updated_at.0)
        .bind(row.completed_at.map(|at| at.0))
}

/// See [`crate::store::Store::list_held`].
pub(super) async fn list_held(
    pool: &SqlitePool,
    tenant: &TenantId,
    subject_id: &str,
    after: Option<DataSlot>,
    limit: i64,
) -> Result<Vec<SubjectDatum>> {
    let after = after.unwrap_or(DataSlot { leaf_index: -1, ordinal: -1 });
    let sql = format!(
        "SELECT {HELD} FROM personal_data AS p \
         JOIN audit_records AS r ON r.tenant = p.tenant AND r.leaf_index = p.leaf_index \
         LEFT JOIN handoffs AS h ON h.tenant = r.tenant AND h.handoff_id = r.handoff_id \
         WHERE p.tenant = ? AND p.subject_id = ? AND p.bytes IS NOT NULL \
           AND (p.leaf_index, p.ordinal) > (?, ?) ORDER BY p.leaf_index, p.ordinal LIMIT ?"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(subject_id)
        .bind(after.leaf_index)
        .bind(after.ordinal)
        .bind(limit)
        .fetch_all(pool)
        .await
        .map_err(failure)?
        .iter()
        .map(rows::held)
        .collect()
}

/// See [`crate::store::Store::find_erasure`].
pub(super) async fn find_erasure(
    pool: &SqlitePool,
    key: &ErasureKey,
) -> Result<Option<ErasureRow>> {
    let sql = format!("SELECT {ERASURE} FROM erasures WHERE tenant = ? AND erasure_id = ?");
    one(pool, sql, &key.0, &key.1.to_string()).await?.as_ref().map(rows::erasure).transpose()
}

/// See [`crate::store::Store::find_hold`].
pub(super) async fn find_hold(pool: &SqlitePool, key: &HoldKey) -> Result<Option<HoldRow>> {
    let sql = format!("SELECT {HOLD} FROM legal_holds WHERE tenant = ? AND hold_id = ?");
    one(pool, sql, &key.0, &key.1).await?.as_ref().map(rows::hold).transpose()
}

async fn one(
    pool: &SqlitePool,
    sql: String,
    tenant: &TenantId,
    id: &str,
) -> Result<Option<SqliteRow>> {
    let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.as_str()).bind(id.to_owned());
    query.fetch_optional(pool).await.map_err(failure)
}

/// See [`crate::store::Store::list_erasures`].
pub(super) async fn list_erasures(
    pool: &SqlitePool,
    tenant: &TenantId,
    subject_key: &[u8; 32],
) -> Result<Vec<ErasureRow>> {
    let sql = format!(
        "SELECT {ERASURE} FROM erasures WHERE tenant = ? AND subject_key = ? \
         ORDER BY requested_at, erasure_id LIMIT ?"
    );
    sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.as_str())
        .bind(subject_key.as_slice())
        .bind(ERASURES)
        .fetch_all(pool)
        .await
        .map_err(failure)?
        .iter()
        .map(rows::erasure)
        .collect()
}

/// See [`crate::store::Store::list_unfinished_erasures`].
pub(super) async fn list_unfinished(pool: &SqlitePool, cutoff: Micros) -> Result<Vec<ErasureKey>> {
    sqlx::query(
        "SELECT tenant, erasure_id FROM erasures \
         WHERE status <> 'COMPLETED' AND updated_at <= ? ORDER BY updated_at LIMIT ?",
    )
    .bind(cutoff.0)
    .bind(ERASURES)
    .fetch_all(pool)
    .await
    .map_err(failure)?
    .iter()
    .map(|row| Ok((rows::parse(row, "tenant")?, rows::parse(row, "erasure_id")?)))
    .collect()
}

/// See [`crate::store::Store::list_holds`].
pub(super) async fn list_holds(
    pool: &SqlitePool,
    tenant: &TenantId,
    subject_key: Option<&[u8; 32]>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<HoldRow>> {
    let mut query =
        QueryBuilder::<Sqlite>::new(format!("SELECT {HOLD} FROM legal_holds WHERE tenant = "));
    query.push_bind(tenant.as_str());
    if let Some(key) = subject_key {
        query.push(" AND subject_key = ").push_bind(key.as_slice());
    }
    query.push(" AND hold_id > ").push_bind(after.unwrap_or_default());
    query.push(" ORDER BY hold_id LIMIT ").push_bind(limit);
    query.build().fetch_all(pool).await.map_err(failure)?.iter().map(rows::hold).collect()
}

impl SqliteStore {
    /// See [`crate::store::Store::scrub`]. What is erased is overwritten in place (`secure_delete`),
    /// but pages that were split or merged before may hold a copy in space that no row uses, and the
    /// write-ahead log holds the pages as they were. So the file is rewritten, up to the limit that the
    /// options set, and the log emptied. Writers wait meanwhile.
    pub(super) async fn scrub_files(&self) -> Result<ScrubOutcome> {
        let writer = self.writer.lock().await;
        if writer.closed {
            return Err(StoreError::Unavailable("the store is closed".to_owned()));
        }
        let _turn = match &self.wal {
            Some(wal) => Some(wal.turn().await),
            None => None,
        };
        // A connection of its own: its copy of the file goes to a temporary file, not to memory.
        let options = writer.options.clone().pragma("temp_store", "FILE");
        let mut conn = options.connect().await.map_err(failure)?;
        let outcome = rewrite(&mut conn, writer.rewrite_limit).await;
        let closed = conn.close().await.map_err(failure);
        outcome.and_then(|scrubbed| closed.map(|()| scrubbed))
    }
}

async fn rewrite(conn: &mut SqliteConnection, limit: u64) -> Result<ScrubOutcome> {
    let size: i64 =
        sqlx::query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
            .fetch_one(&mut *conn)
            .await
            .map_err(failure)?
            .get(0);
    let scrubbed = if u64::try_from(size).is_ok_and(|size| size <= limit) {
        sqlx::query("VACUUM").execute(&mut *conn).await.map_err(failure)?;
        fault::at(Step::EraseVacuumed);
        ScrubOutcome::Rewritten
    } else {
        ScrubOutcome::Freed
    };
    for _ in 0..TRUNCATIONS {
        let row = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
            .fetch_one(&mut *conn)
            .await
            .map_err(failure)?;
        // 0: everything is in the file, and the log is empty.
        if row.get::<i64, _>(0) == 0 {
            return Ok(scrubbed);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(StoreError::Unavailable(
        "the write-ahead log cannot be emptied: somebody reads an old state of the file".to_owned(),
    ))
}
