//! Erasure, access and legal hold: their part of a batch, reads, and clean files.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::SqliteStore;
use super::batch::{RowBatch, json};
use super::connection::{CLOSED, PATIENCE, in_place, unavailable_now};
use super::db::{Db, Query};
use super::rows;
use super::wal::checkpoint;
use crate::fault::{self, Step};
use crate::store::erasure::{
    ERASED_CHECKPOINT, ErasureKey, ErasureNeeds, ErasurePage, ErasureRow, ErasureState,
    ErasureWrite, HoldRow, PageNeed, PurgeNeed, PurgePage, ScrubOutcome, SubjectDatum, SubjectRef,
    SubjectState,
};
use crate::store::purge::{CHECKPOINTS, ExpiredPage, PurgeContext, page as put_together};
use crate::store::query::Dialect;
use crate::store::rows::HELD;
use crate::store::tables::attempts;
use crate::store::tables::erasures::{self, ERASURE};
use crate::store::tables::holds::{self, HOLD};
use crate::store::{Result, StoreError, Writes};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::erasure::{DataSlot, ErasureScope};
use handoffd_evidence::record::{RecordDraft, RecordKind, SealedRecord};

/// Most holds listed: one is enough to forbid an erasure.
const HOLDS: i64 = 10;

/// Attempts to empty the write-ahead log while readers are active, and the pause between them.
const TRUNCATIONS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);

/// Loads subjects, erasures and holds. The write lock is held, so no change intervenes.
pub(super) fn load(db: &Db, needs: &ErasureNeeds) -> Result<ErasureState> {
    let mut state = ErasureState::default();
    for subject in &needs.subjects {
        state.subjects.insert(subject.clone(), known(db, subject)?);
    }
    for (key, need) in &needs.pages {
        if let Some(page) = page(db, key, *need)? {
            state.pages.insert(key.clone(), page);
        }
    }
    for (tenant, need) in &needs.purges {
        state.purges.insert(tenant.clone(), purge_page(db, tenant, *need)?);
    }
    for key in &needs.holds {
        if let Some(row) = db.statement(&holds::by_id(key)).find(holds::decode)? {
            state.holds.insert(key.clone(), row);
        }
    }
    Ok(state)
}

fn known(db: &Db, subject: &SubjectRef) -> Result<SubjectState> {
    let held = db
        .query("SELECT count(*) FROM personal_data WHERE tenant = ? AND subject_id = ?")
        .bind(subject.tenant.as_str())
        .bind(subject.id.as_str())
        .only()?;
    let latest =
        db.statement(&erasures::latest(&subject.tenant, &subject.key)).find(erasures::decode)?;
    let holds = holds(db, &subject.tenant, &subject.key, Some(&subject.id))?;
    let traced = db
        .query(&format!("SELECT 1 FROM ({TRACED}) LIMIT 1"))
        .bind(subject.tenant.as_str())
        .bind(subject.key.as_slice())
        .bind(i64::MAX)
        .exists()?;
    Ok(SubjectState { held, traced, holds, latest })
}

/// Handoffs whose data of a subject went with its earlier erasures, below a leaf index.
const TRACED: &str = "SELECT DISTINCT p.handoff_id FROM erasures AS e \
     CROSS JOIN personal_data AS p ON p.tenant = e.tenant AND p.erasure_id = e.erasure_id \
     WHERE e.tenant = ?1 AND e.subject_key = ?2 AND p.handoff_id IS NOT NULL AND p.leaf_index < ?3";

/// Holds that forbid erasing a subject: on the subject, or on a task with data of the subject.
fn holds(db: &Db, tenant: &TenantId, key: &[u8; 32], id: Option<&str>) -> Result<Vec<HoldRow>> {
    let sql = format!(
        "SELECT {HOLD} FROM legal_holds AS l WHERE tenant = ?1 AND released_at IS NULL \
         AND (subject_key = ?2 OR (task_id IS NOT NULL AND EXISTS ( \
           SELECT 1 FROM audit_records AS r CROSS JOIN personal_data AS p \
             ON p.tenant = r.tenant AND p.leaf_index = r.leaf_index \
           WHERE r.tenant = l.tenant AND r.task_id = l.task_id \
             AND (p.subject_id = ?3 OR p.erasure_id IN (SELECT e.erasure_id FROM erasures AS e \
               WHERE e.tenant = ?1 AND e.subject_key = ?2))))) \
         ORDER BY placed_at, hold_id LIMIT ?4"
    );
    db.query(&sql)
        .bind(tenant.as_str())
        .bind(key.as_slice())
        .bind(id)
        .bind(HOLDS)
        .list(holds::decode)
}

fn page(db: &Db, key: &ErasureKey, need: PageNeed) -> Result<Option<ErasurePage>> {
    let Some(row) = db.statement(&erasures::by_id(key)).find(erasures::decode)? else {
        return Ok(None);
    };
    let holds = holds(db, &key.0, &row.subject_key, row.subject_id.as_deref())?;
    let mut page = ErasurePage {
        row,
        holds,
        data: vec![],
        stand_ins: vec![],
        contents: vec![],
        checkpoints: vec![],
    };
    let Some(subject) = &page.row.subject_id else { return Ok(Some(page)) };
    page.data = db
        .query(
            "SELECT leaf_index, ordinal, handoff_id FROM personal_data \
         WHERE tenant = ? AND subject_id = ? AND leaf_index < ? \
         ORDER BY leaf_index, ordinal LIMIT ?",
        )
        .bind(key.0.as_str())
        .bind(subject.as_str())
        .bind(need.upto)
        .bind(need.limit)
        .list(|row| Ok((rows::slot(row)?, rows::parse_opt(row, "handoff_id")?)))?;
    let mut handoffs: Vec<HandoffId> = page.data.iter().filter_map(|(_, id)| *id).collect();
    if page.row.scope == ErasureScope::PersonalData {
        page.stand_ins = stand_ins(db, &key.0, &json(&handoffs)?)?;
        return Ok(Some(page));
    }
    let traced = db.query(TRACED).bind(key.0.as_str()).bind(page.row.subject_key.as_slice());
    let traced: Vec<HandoffId> =
        traced.bind(need.upto).list(|row| rows::parse(row, "handoff_id"))?;
    handoffs.extend(traced);
    let tasks = json(&tasks_of(db, &key.0, &json(&handoffs)?)?)?;
    page.stand_ins = handoffs_of(db, &key.0, &tasks)?;
    page.contents = contents(db, &key.0, &tasks, need.upto)?;
    page.checkpoints = checkpoints(db, &key.0, &tasks, page.row.requested_at)?;
    Ok(Some(page))
}

/// Handoffs that stand in for these. They are found by their tasks, which have an index.
fn stand_ins(db: &Db, tenant: &TenantId, handoffs: &str) -> Result<Vec<HandoffId>> {
    db.query(
        "WITH wanted AS MATERIALIZED (SELECT value AS id FROM json_each(?1)), \
           touched AS MATERIALIZED (SELECT DISTINCT h.task_id AS id FROM wanted AS w \
             CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = w.id) \
         SELECT h.handoff_id FROM touched AS t \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.task_id = t.id \
         WHERE h.origin IN (SELECT id FROM wanted) ORDER BY h.handoff_id",
    )
    .bind(handoffs)
    .bind(tenant.as_str())
    .list(|row| rows::parse(row, "handoff_id"))
}

/// The tasks of these handoffs, refused ones included.
fn tasks_of(db: &Db, tenant: &TenantId, handoffs: &str) -> Result<Vec<TaskId>> {
    db.query(
        "WITH wanted AS MATERIALIZED (SELECT value AS id FROM json_each(?1)) \
         SELECT h.task_id FROM wanted AS w \
           CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.handoff_id = w.id \
         UNION SELECT d.task_id FROM wanted AS w \
           CROSS JOIN dead_letters AS d ON d.tenant = ?2 AND d.handoff_id = w.id \
         ORDER BY task_id",
    )
    .bind(handoffs)
    .bind(tenant.as_str())
    .list(|row| rows::parse(row, "task_id"))
}

/// All handoffs of these tasks.
fn handoffs_of(db: &Db, tenant: &TenantId, tasks: &str) -> Result<Vec<HandoffId>> {
    db.query(
        "SELECT h.handoff_id FROM json_each(?1) AS t \
         CROSS JOIN handoffs AS h ON h.tenant = ?2 AND h.task_id = t.value ORDER BY h.handoff_id",
    )
    .bind(tasks)
    .bind(tenant.as_str())
    .list(|row| rows::parse(row, "handoff_id"))
}

/// Contents of all records of these tasks, which have an index; the words of legal holds outlive erasures.
fn contents(db: &Db, tenant: &TenantId, tasks: &str, upto: i64) -> Result<Vec<(i64, ContentId)>> {
    db.query(
        "SELECT r.leaf_index, c.content_id FROM json_each(?1) AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?2 AND r.task_id = t.value \
         CROSS JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id \
         WHERE r.leaf_index < ?3 AND c.salt IS NOT NULL \
           AND r.kind NOT IN ('LEGAL_HOLD_PLACED', 'LEGAL_HOLD_RELEASED') \
         ORDER BY r.leaf_index",
    )
    .bind(tasks)
    .bind(tenant.as_str())
    .bind(upto)
    .list(|row| Ok((rows::get(row, "leaf_index")?, rows::parse(row, "content_id")?)))
}

fn checkpoints(
    db: &Db,
    tenant: &TenantId,
    tasks: &str,
    before: Micros,
) -> Result<Vec<(TaskId, CheckpointRef)>> {
    db.query(
        "SELECT c.task_id, c.execution_id, c.seq FROM json_each(?1) AS t \
         CROSS JOIN checkpoints AS c ON c.tenant = ?2 AND c.task_id = t.value \
         WHERE length(c.salt) > 0 AND c.created_at <= ?3 ORDER BY c.task_id, c.execution_id, c.seq",
    )
    .bind(tasks)
    .bind(tenant.as_str())
    .bind(before.0)
    .list(rows::saved)
}

/// The expired data of the records from a leaf index on.
fn purge_page(db: &Db, tenant: &TenantId, need: PurgeNeed) -> Result<PurgePage> {
    let found = db
        .query(
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
        .list(rows::aged)?;
    let old = ExpiredPage::new(need, found);
    let leaves: Vec<i64> = old.records.iter().map(|record| record.leaf_index).collect();
    let tasks = json(&old.tasks())?;
    let held: BTreeSet<TaskId> = db
        .query(
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
        .list(|row| rows::parse(row, "task_id"))?;
    let data = db
        .query(
            "SELECT p.leaf_index, p.ordinal, EXISTS (SELECT 1 FROM legal_holds AS l \
           WHERE l.tenant = p.tenant AND l.subject_id = p.subject_id \
             AND l.released_at IS NULL) AS held \
         FROM personal_data AS p WHERE p.tenant = ? AND p.salt IS NOT NULL \
           AND p.leaf_index IN (SELECT value FROM json_each(?)) ORDER BY p.leaf_index, p.ordinal",
        )
        .bind(tenant.as_str())
        .bind(json(&leaves)?)
        .list(|row| Ok((rows::slot(row)?, rows::get(row, "held")?)))?;
    let contents: Vec<_> = old.records.iter().filter_map(|record| record.content).collect();
    let sharing = db
        .query(
            "SELECT r.content_id, r.leaf_index, r.recorded_at FROM json_each(?2) AS t \
         CROSS JOIN audit_records AS r ON r.tenant = ?1 AND r.task_id = t.value \
         WHERE r.content_id IN (SELECT value FROM json_each(?3)) ORDER BY r.leaf_index",
        )
        .bind(tenant.as_str())
        .bind(tasks)
        .bind(json(&contents)?)
        .list(rows::sharing)?;
    let unclean = db
        .query(
            "SELECT w.value AS handoff_id FROM json_each(?2) AS w WHERE \
           EXISTS (SELECT 1 FROM handoffs AS h WHERE h.tenant = ?1 AND h.handoff_id = w.value \
             AND (length(h.digest) > 0 OR h.reason GLOB '*[^A-Z0-9_]*')) \
           OR EXISTS (SELECT 1 FROM dead_letters AS d WHERE d.tenant = ?1 \
             AND d.handoff_id = w.value AND d.failures <> '[]') \
           OR EXISTS (SELECT 1 FROM delivery_attempts AS a WHERE a.tenant = ?1 \
             AND a.handoff_id = w.value)",
        )
        .bind(tenant.as_str())
        .bind(json(&old.emptied())?)
        .list(|row| rows::parse(row, "handoff_id"))?;
    let free: Vec<_> = old.tasks().difference(&held).copied().collect();
    let checkpoints = db
        .query(
            "SELECT c.task_id, c.execution_id, c.seq FROM json_each(?2) AS t \
         CROSS JOIN checkpoints AS c ON c.tenant = ?1 AND c.task_id = t.value \
         WHERE c.created_at < ?3 AND length(c.salt) > 0 LIMIT ?4",
        )
        .bind(tenant.as_str())
        .bind(json(&free)?)
        .bind(need.before.0)
        .bind(CHECKPOINTS)
        .list(rows::saved)?;
    Ok(put_together(need, old, PurgeContext { held, data, sharing, checkpoints, unclean }))
}

/// Writes holds, erasures, and the removal of data.
pub(super) fn write(db: &Db, writes: &Writes) -> Result<()> {
    let holds: Vec<_> = writes.holds.values().collect();
    RowBatch::upsert("legal_holds", HOLD, &["tenant", "hold_id"]).run(db, &holds, bind_hold)?;
    let erasures: Vec<_> = writes.erasures.values().collect();
    RowBatch::upsert("erasures", ERASURE, &["tenant", "erasure_id"]).run(
        db,
        &erasures,
        bind_erasure,
    )?;
    for gone in &writes.erased {
        erase(db, gone)?;
        fault::at(Step::EraseWritten);
    }
    Ok(())
}

fn erase(db: &Db, gone: &ErasureWrite) -> Result<()> {
    let data: Vec<_> = gone.data.iter().map(|slot| (slot.leaf_index, slot.ordinal)).collect();
    let traced = gone.erasure.map_or_else(String::new, |id| format!(", erasure_id = '{id}'"));
    let sql = format!(
        "UPDATE personal_data SET salt = NULL, bytes = NULL, subject_id = ''{traced} \
         WHERE tenant = ? AND (leaf_index, ordinal) IN \
           (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
    );
    change(db, &sql, &gone.tenant, &data)?;
    let sql = "UPDATE handoffs SET digest_salt = x'', digest = x'', tracestate = '', \
               conversation_id = NULL, user_ref = NULL \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";
    change(db, sql, &gone.tenant, &gone.handoffs)?;
    if let Some(person) = &gone.user_ref {
        db.query("UPDATE handoffs SET user_ref = NULL WHERE tenant = ? AND user_ref = ?")
            .bind(gone.tenant.as_str())
            .bind(person.as_str())
            .execute()?;
    }
    // A contract's dedupe key may name a personal value; its hash has no salt.
    let sql = "DELETE FROM contract_repeats \
               WHERE tenant = ? AND handoff_id IN (SELECT value FROM json_each(?))";
    change(db, sql, &gone.tenant, &gone.handoffs)?;
    if let Some(forget) = attempts::forget(Dialect::Sqlite, &gone.tenant, &gone.handoffs) {
        db.statement(&forget).execute()?;
    }
    if gone.words {
        let sql = "UPDATE handoffs SET reason = NULL WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?)) \
                   AND reason GLOB '*[^A-Z0-9_]*'";
        change(db, sql, &gone.tenant, &gone.handoffs)?;
        let sql = "UPDATE dead_letters SET failures = '[]' WHERE tenant = ? \
                   AND handoff_id IN (SELECT value FROM json_each(?))";
        change(db, sql, &gone.tenant, &gone.handoffs)?;
    }
    let purged_at = gone.purged_at.map_or("NULL".to_owned(), |at| at.0.to_string());
    let sql = format!(
        "UPDATE contents SET salt = NULL, bytes = NULL, purged_at = {purged_at} \
         WHERE tenant = ? AND content_id IN (SELECT value FROM json_each(?))"
    );
    change(db, &sql, &gone.tenant, &gone.contents)?;
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
    change(db, &sql, &gone.tenant, &checkpoints)
}

fn change<T: Serialize + Sync>(db: &Db, sql: &str, tenant: &TenantId, keys: &[T]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let query = db.query(sql).bind(tenant.as_str()).bind(json(&keys)?);
    query.execute().map(drop)
}

/// Stores the leaf index of an erasure's final record.
pub(super) fn place(db: &Db, records: &[(&RecordDraft, &SealedRecord)]) -> Result<()> {
    for (draft, sealed) in records {
        let Some(facts) = &draft.erasure else { continue };
        if draft.kind == RecordKind::ErasureCompleted {
            let place = erasures::place(&draft.tenant, facts.id, sealed.leaf_index);
            db.statement(&place).execute()?;
        }
    }
    Ok(())
}

fn bind_hold<'c>(query: Query<'c>, row: &HoldRow) -> Query<'c> {
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

fn bind_erasure<'c>(query: Query<'c>, row: &ErasureRow) -> Query<'c> {
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

/// See [`crate::store::ErasureStore::list_held`].
pub(super) fn list_held(
    db: &Db,
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
    db.query(&sql)
        .bind(tenant.as_str())
        .bind(subject_id)
        .bind(after.leaf_index)
        .bind(after.ordinal)
        .bind(limit)
        .list(rows::held)
}

impl SqliteStore {
    /// See [`crate::store::ErasureStore::scrub`]. Erased data are overwritten in place (`secure_delete`),
    /// but pages that were split or merged before may hold a copy in space that no row uses, and the
    /// write-ahead log holds the pages as they were. So the file is rewritten, up to the limit that the
    /// options set, and the log emptied. Writers wait meanwhile.
    pub(super) async fn scrub_files(&self) -> Result<ScrubOutcome> {
        let writer = self.writer.lock().await;
        if writer.closed {
            return Err(unavailable_now(CLOSED));
        }
        let _turn = match &self.wal {
            Some(wal) => Some(wal.turn().await),
            None => None,
        };
        // A connection of its own: its copy of the file goes to a temporary file, not to memory.
        let (db, scrubbed) = in_place(|| {
            let db = writer.file.writer(PATIENCE)?;
            db.batch("PRAGMA temp_store = FILE")?;
            let scrubbed = rewrite(&db, writer.rewrite_limit)?;
            Ok::<_, StoreError>((db, scrubbed))
        })?;
        for _ in 0..TRUNCATIONS {
            if checkpoint(&db, "TRUNCATE")? {
                return Ok(scrubbed);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(unavailable_now(
            "the write-ahead log cannot be emptied: another reader uses an old state of the file",
        ))
    }
}

fn rewrite(db: &Db, limit: u64) -> Result<ScrubOutcome> {
    let size: i64 = db
        .query("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
        .only()?;
    if u64::try_from(size).is_ok_and(|size| size <= limit) {
        db.batch("VACUUM")?;
        fault::at(Step::EraseVacuumed);
        Ok(ScrubOutcome::Rewritten)
    } else {
        Ok(ScrubOutcome::Freed)
    }
}
