//! Queries on the logs and their contents.

use crate::store::query::{Dialect, Row};
use crate::store::tables::{audit, handoffs, personal_data, tenants};
use std::collections::HashMap;

use super::batch::json;
use super::db::Db;
use super::rows;
use crate::store::rows::WhichRecords;
use crate::store::{
    HandoffKey, Result, StoreError, StoredContent, StoredPersonal, StoredRecord, TreeKeyRow,
};
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::commitment::{Codec, unpack};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, SealedRecord};

/// Most unrecorded handoffs listed.
const UNRECORDED: i64 = 10;

/// Unpacks a stored content.
pub(super) fn unpacked(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>> {
    unpack(codec, bytes).map_err(|_| {
        StoreError::Refused("a stored content is not in the form that its codec names".to_owned())
    })
}

/// See [`crate::store::Store::ensure_tenant`].
pub(super) fn ensure_tenant(db: &Db, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
    db.statement(&tenants::add(tenant, at)).execute()?;
    db.query(audit::ADD_LOG.sqlite).bind(tenant.as_str()).bind(log_id).execute()?;
    Ok(())
}

/// See [`crate::store::Store::find_head`].
pub(super) fn find_head(db: &Db, tenant: &TenantId) -> Result<Option<LogHead>> {
    db.query(&audit::head(Dialect::Sqlite)).bind(tenant.as_str()).find(rows::head)
}

/// See [`crate::store::Store::find_log`].
pub(super) fn find_log(db: &Db, log_id: &str) -> Result<Option<TenantId>> {
    db.query(audit::FIND_LOG.sqlite).bind(log_id).find(|row| rows::parse(row, "tenant"))
}

/// See [`crate::store::Store::list_hashes`].
pub(super) fn list_hashes(
    db: &Db,
    tenant: &TenantId,
    level: i64,
    from: i64,
    limit: i64,
) -> Result<Vec<Hash>> {
    let query = if level == 0 {
        db.query(audit::LEAVES.sqlite).bind(tenant.as_str())
    } else {
        db.query(audit::NODES.sqlite).bind(tenant.as_str()).bind(level)
    };
    query.bind(from).bind(limit.max(0)).list(|row| rows::hash32(row, "hash"))
}

/// See [`crate::store::Store::list_tree_keys`].
pub(super) fn list_tree_keys(db: &Db) -> Result<Vec<TreeKeyRow>> {
    db.query(audit::TREE_KEYS.sqlite).list(rows::tree_key)
}

/// See [`crate::store::Store::settle_tree_key`].
pub(super) fn settle_tree_key(db: &Db, key: &Hash, at: Micros, rotate: bool) -> Result<bool> {
    if rotate {
        db.query(audit::RETIRE_KEYS.sqlite).bind(at.0).bind(&key[..]).execute()?;
    }
    db.query(audit::ADD_KEY.sqlite).bind(&key[..]).bind(at.0).bind(rotate).execute()?;
    db.query(audit::KEY_IN_USE.sqlite).bind(&key[..]).exists()
}

/// See [`crate::store::Store::find_receipt`]. For a dead letter committed later, the commit is the receipt.
pub(super) fn find_receipt(db: &Db, key: &HandoffKey) -> Result<Option<SealedRecord>> {
    find_record(db, key, None, audit::RECEIPT.sqlite)
}

/// See [`crate::store::Store::find_last_commit`].
pub(super) fn find_last_commit(
    db: &Db,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    find_record(db, key, Some(task), audit::LAST_COMMIT.sqlite)
}

/// See [`crate::store::Store::find_opinion`]. It is looked for among the records of the task, which have an index.
pub(super) fn find_opinion(
    db: &Db,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    find_record(db, key, Some(task), audit::OPINION.sqlite)
}

/// The record of a handoff that a condition finds, which may name the task.
fn find_record(
    db: &Db,
    key: &HandoffKey,
    task: Option<TaskId>,
    rest: &str,
) -> Result<Option<SealedRecord>> {
    let sql = audit::of_handoff(Dialect::Sqlite, rest);
    let query = db.query(&sql).bind(key.0.as_str()).bind(key.1.to_string());
    let query = if let Some(task) = task { query.bind(task.to_string()) } else { query };
    query.find(|row| {
        Ok(SealedRecord {
            log_id: rows::get(row, "log_id")?,
            leaf_index: rows::get(row, "leaf_index")?,
            hash: rows::hash32(row, "record_hash")?,
            body: rows::get(row, "body")?,
            tree_size: rows::get::<Option<i64>>(row, "tree_size")?.unwrap_or(0),
        })
    })
}

/// See [`crate::store::Store::list_unrecorded`].
pub(super) fn list_unrecorded(db: &Db, tenant: &TenantId) -> Result<Vec<String>> {
    db.query(handoffs::UNRECORDED)
        .bind(tenant.as_str())
        .bind(UNRECORDED)
        .list(|row| rows::get(row, "handoff_id"))
}

/// See [`crate::store::Store::list_records`].
pub(super) fn list_records(
    db: &Db,
    tenant: &TenantId,
    which: WhichRecords,
    from: i64,
    limit: i64,
    contents: bool,
) -> Result<Vec<StoredRecord>> {
    let list = audit::list_with_contents(tenant, which, from, limit, contents);
    // Both reads see one state: an erasure between them would tear a record's content apart.
    db.snapshot(|| {
        let mut records: Vec<StoredRecord> =
            db.statement(&list).list(|row| record(row, contents))?;
        if contents {
            let mut personal = load_personal(db, tenant, &records)?;
            for record in &mut records {
                record.personal = personal.remove(&record.leaf_index).unwrap_or_default();
            }
        }
        Ok(records)
    })
}

/// See [`crate::store::Store::list_task_records`].
pub(super) fn list_task_records(
    db: &Db,
    tenant: &TenantId,
    tasks: &[TaskId],
    from: i64,
    limit: i64,
) -> Result<Vec<StoredRecord>> {
    db.query(audit::OF_TASKS.sqlite)
        .bind(json(&tasks)?)
        .bind(tenant.as_str())
        .bind(from)
        .bind(limit.max(0))
        .list(|row| record(row, false))
}

fn record(row: &dyn Row, contents: bool) -> Result<StoredRecord> {
    let id = if contents { rows::get::<Option<String>>(row, "content_id")? } else { None };
    Ok(StoredRecord {
        leaf_index: rows::get(row, "leaf_index")?,
        hash: rows::get(row, "record_hash")?,
        kind: rows::get(row, "kind")?,
        task_id: rows::get(row, "task_id")?,
        handoff_id: rows::get(row, "handoff_id")?,
        recorded_at: Micros(rows::get(row, "recorded_at")?),
        body: rows::get(row, "body")?,
        content: id
            .map(|id| Ok(StoredContent { id, kept: rows::content_kept(row)? }))
            .transpose()?,
        personal: Vec::new(),
    })
}

fn load_personal(
    db: &Db,
    tenant: &TenantId,
    records: &[StoredRecord],
) -> Result<HashMap<i64, Vec<StoredPersonal>>> {
    let leaves: Vec<_> = records.iter().map(|record| record.leaf_index).collect();
    let mut personal: HashMap<_, Vec<_>> = HashMap::new();
    db.query(personal_data::AT.sqlite).bind(tenant.as_str()).bind(json(&leaves)?).each(|row| {
        personal.entry(rows::get(row, "leaf_index")?).or_default().push(rows::personal(row)?);
        Ok(())
    })?;
    Ok(personal)
}
