//! Erasure, access and legal hold: their part of a batch, reads, and clean files.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::SqliteStore;
use super::batch::{RowBatch, json};
use super::connection::{CLOSED, unavailable_now};
use super::db::{Db, Query};
use super::file::{self, PATIENCE, in_place};
use super::rows;
use super::wal::checkpoint;
use crate::fault::{self, Step};
use crate::store::erasure::{
    ErasureKey, ErasureNeeds, ErasurePage, ErasureRow, ErasureState, ErasureWrite, HoldRow,
    PageNeed, PurgeNeed, PurgePage, ScrubOutcome, SubjectDatum, SubjectRef, SubjectState,
};
use crate::store::purge::{CHECKPOINTS, ExpiredPage, PurgeContext, page as put_together};
use crate::store::query::Dialect;
use crate::store::tables::{
    attempts, audit, checkpoints, contents, contracts, dead_letters,
    erasures::{self, ERASURE},
    handoffs,
    holds::{self, HOLD},
    personal_data, tasks,
};
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
        .query(personal_data::COUNT.sqlite)
        .bind(subject.tenant.as_str())
        .bind(subject.id.as_str())
        .only()?;
    let latest =
        db.statement(&erasures::latest(&subject.tenant, &subject.key)).find(erasures::decode)?;
    let holds = holds(db, &subject.tenant, &subject.key, Some(&subject.id))?;
    let traced = db
        .query(&erasures::any_traced())
        .bind(subject.tenant.as_str())
        .bind(subject.key.as_slice())
        .bind(i64::MAX)
        .exists()?;
    Ok(SubjectState { held, traced, holds, latest })
}

/// Holds that forbid erasing a subject: on the subject, or on a task with data of the subject.
fn holds(db: &Db, tenant: &TenantId, key: &[u8; 32], id: Option<&str>) -> Result<Vec<HoldRow>> {
    let sql = holds::forbidding(Dialect::Sqlite);
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
        .query(personal_data::OF_SUBJECT.sqlite)
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
    let traced = db
        .query(erasures::TRACED.sqlite)
        .bind(key.0.as_str())
        .bind(page.row.subject_key.as_slice());
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
    db.query(handoffs::STAND_INS.sqlite)
        .bind(handoffs)
        .bind(tenant.as_str())
        .list(|row| rows::parse(row, "handoff_id"))
}

/// The tasks of these handoffs, refused ones included.
fn tasks_of(db: &Db, tenant: &TenantId, handoffs: &str) -> Result<Vec<TaskId>> {
    db.query(handoffs::TASKS.sqlite)
        .bind(handoffs)
        .bind(tenant.as_str())
        .list(|row| rows::parse(row, "task_id"))
}

/// All handoffs of these tasks.
fn handoffs_of(db: &Db, tenant: &TenantId, tasks: &str) -> Result<Vec<HandoffId>> {
    db.query(handoffs::OF_TASKS.sqlite)
        .bind(tasks)
        .bind(tenant.as_str())
        .list(|row| rows::parse(row, "handoff_id"))
}

/// Contents of all records of these tasks, which have an index; the words of legal holds outlive erasures.
fn contents(db: &Db, tenant: &TenantId, tasks: &str, upto: i64) -> Result<Vec<(i64, ContentId)>> {
    db.query(audit::CONTENTS.sqlite)
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
    db.query(checkpoints::OF_TASKS.sqlite)
        .bind(tasks)
        .bind(tenant.as_str())
        .bind(before.0)
        .list(rows::saved)
}

/// The expired data of the records from a leaf index on.
fn purge_page(db: &Db, tenant: &TenantId, need: PurgeNeed) -> Result<PurgePage> {
    let found = db
        .query(audit::AGED.sqlite)
        .bind(tenant.as_str())
        .bind(need.from)
        .bind(need.limit)
        .list(rows::aged)?;
    let old = ExpiredPage::new(need, found);
    let leaves: Vec<i64> = old.records.iter().map(|record| record.leaf_index).collect();
    let tasks = json(&old.tasks())?;
    let held: BTreeSet<TaskId> = db
        .query(tasks::HELD.sqlite)
        .bind(tenant.as_str())
        .bind(tasks.as_str())
        .list(|row| rows::parse(row, "task_id"))?;
    let data = db
        .query(personal_data::TO_PURGE.sqlite)
        .bind(tenant.as_str())
        .bind(json(&leaves)?)
        .list(|row| Ok((rows::slot(row)?, rows::get(row, "held")?)))?;
    let contents: Vec<_> = old.records.iter().filter_map(|record| record.content).collect();
    let sharing = db
        .query(audit::SHARING.sqlite)
        .bind(tenant.as_str())
        .bind(tasks)
        .bind(json(&contents)?)
        .list(rows::sharing)?;
    let unclean = db
        .query(handoffs::UNCLEAN.sqlite)
        .bind(tenant.as_str())
        .bind(json(&old.emptied())?)
        .list(|row| rows::parse(row, "handoff_id"))?;
    let free: Vec<_> = old.tasks().difference(&held).copied().collect();
    let checkpoints = db
        .query(checkpoints::TO_PURGE.sqlite)
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
    let sql = personal_data::erase_these(&traced);
    change(db, &sql, &gone.tenant, &data)?;
    let sql = handoffs::ERASE.sqlite;
    change(db, sql, &gone.tenant, &gone.handoffs)?;
    if let Some(person) = &gone.user_ref {
        db.query(handoffs::ERASE_PERSON.sqlite)
            .bind(gone.tenant.as_str())
            .bind(person.as_str())
            .execute()?;
    }
    // A contract's dedupe key may name a personal value; its hash has no salt.
    let sql = contracts::FORGET_REPEATS.sqlite;
    change(db, sql, &gone.tenant, &gone.handoffs)?;
    if let Some(forget) = attempts::forget(Dialect::Sqlite, &gone.tenant, &gone.handoffs) {
        db.statement(&forget).execute()?;
    }
    if gone.words {
        let sql = handoffs::ERASE_REASON.sqlite;
        change(db, sql, &gone.tenant, &gone.handoffs)?;
        let sql = dead_letters::ERASE.sqlite;
        change(db, sql, &gone.tenant, &gone.handoffs)?;
    }
    let purged_at = gone.purged_at.map_or("NULL".to_owned(), |at| at.0.to_string());
    let sql = contents::erase_these(&purged_at);
    change(db, &sql, &gone.tenant, &gone.contents)?;
    let checkpoints: Vec<_> = gone
        .checkpoints
        .iter()
        .map(|(task, at)| (task.to_string(), at.execution_id.to_string(), at.seq))
        .collect();
    let sql = checkpoints::erase_these();
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

/// See [`crate::store::Store::list_held`].
pub(super) fn list_held(
    db: &Db,
    tenant: &TenantId,
    subject_id: &str,
    after: Option<DataSlot>,
    limit: i64,
) -> Result<Vec<SubjectDatum>> {
    let after = after.unwrap_or(DataSlot { leaf_index: -1, ordinal: -1 });
    db.query(&personal_data::held(Dialect::Sqlite))
        .bind(tenant.as_str())
        .bind(subject_id)
        .bind(after.leaf_index)
        .bind(after.ordinal)
        .bind(limit)
        .list(rows::held)
}

impl SqliteStore {
    /// See [`crate::store::Store::scrub`]. Erased data are overwritten in place (`secure_delete`),
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
    let size = file::size(db)?;
    if u64::try_from(size).is_ok_and(|size| size <= limit) {
        db.batch("VACUUM")?;
        fault::at(Step::EraseVacuumed);
        Ok(ScrubOutcome::Rewritten)
    } else {
        Ok(ScrubOutcome::Freed)
    }
}
