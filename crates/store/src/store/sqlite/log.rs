//! Queries on the logs and their contents.

use std::collections::HashMap;

use super::batch::json;
use super::db::{Db, Pieces};
use super::rows;
use crate::store::query::Row;
use crate::store::rows::{HEAD, WhichRecords};
use crate::store::tables::contents::KEPT;
use crate::store::tables::tenants;
use crate::store::{
    HandoffKey, Result, StoreError, StoredContent, StoredPersonal, StoredRecord, TreeKeyRow,
};
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::commitment::{Codec, unpack};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, RecordKind, SealedRecord};

/// Most unrecorded handoffs listed.
const UNRECORDED: i64 = 10;

/// Unpacks a stored content.
pub(super) fn unpacked(codec: Codec, bytes: &[u8]) -> Result<Vec<u8>> {
    unpack(codec, bytes).map_err(|_| {
        StoreError::Refused("a stored content is not in the form that its codec names".to_owned())
    })
}

/// See [`crate::store::DirectoryStore::ensure_tenant`].
pub(super) fn ensure_tenant(db: &Db, tenant: &TenantId, log_id: &str, at: Micros) -> Result<()> {
    db.statement(&tenants::add(tenant, at)).execute()?;
    db.query(
        "INSERT INTO audit_log_heads (tenant, log_id, size, hash) VALUES (?, ?, 0, x'') \
         ON CONFLICT DO NOTHING",
    )
    .bind(tenant.as_str())
    .bind(log_id)
    .execute()?;
    Ok(())
}

/// See [`crate::store::LogStore::find_head`].
pub(super) fn find_head(db: &Db, tenant: &TenantId) -> Result<Option<LogHead>> {
    db.query(&format!("SELECT {HEAD} FROM audit_log_heads WHERE tenant = ?"))
        .bind(tenant.as_str())
        .find(rows::head)
}

/// See [`crate::store::LogStore::find_log`].
pub(super) fn find_log(db: &Db, log_id: &str) -> Result<Option<TenantId>> {
    db.query("SELECT tenant FROM audit_log_heads WHERE log_id = ?")
        .bind(log_id)
        .find(|row| rows::parse(row, "tenant"))
}

/// See [`crate::store::LogStore::list_hashes`].
pub(super) fn list_hashes(
    db: &Db,
    tenant: &TenantId,
    level: i64,
    from: i64,
    limit: i64,
) -> Result<Vec<Hash>> {
    let query = if level == 0 {
        db.query(
            "SELECT record_hash AS hash FROM audit_records \
             WHERE tenant = ? AND leaf_index >= ? ORDER BY leaf_index LIMIT ?",
        )
        .bind(tenant.as_str())
    } else {
        db.query(
            "SELECT hash FROM audit_nodes \
             WHERE tenant = ? AND level = ? AND idx >= ? ORDER BY idx LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(level)
    };
    query.bind(from).bind(limit.max(0)).list(|row| rows::hash32(row, "hash"))
}

/// See [`crate::store::LogStore::list_tree_keys`].
pub(super) fn list_tree_keys(db: &Db) -> Result<Vec<TreeKeyRow>> {
    db.query(
        "SELECT public_key, created_at, retired_at FROM audit_tree_keys \
         ORDER BY created_at, public_key",
    )
    .list(rows::tree_key)
}

/// See [`crate::store::LogStore::settle_tree_key`].
pub(super) fn settle_tree_key(db: &Db, key: &Hash, at: Micros, rotate: bool) -> Result<bool> {
    if rotate {
        db.query(
            "UPDATE audit_tree_keys SET retired_at = ?1 \
             WHERE retired_at IS NULL AND public_key <> ?2 AND NOT EXISTS \
               (SELECT 1 FROM audit_tree_keys WHERE public_key = ?2 AND retired_at IS NOT NULL)",
        )
        .bind(at.0)
        .bind(&key[..])
        .execute()?;
    }
    db.query(
        "INSERT INTO audit_tree_keys (public_key, created_at) SELECT ?1, ?2 \
         WHERE ?3 OR NOT EXISTS (SELECT 1 FROM audit_tree_keys) ON CONFLICT DO NOTHING",
    )
    .bind(&key[..])
    .bind(at.0)
    .bind(rotate)
    .execute()?;
    db.query("SELECT 1 FROM audit_tree_keys WHERE public_key = ? AND retired_at IS NULL")
        .bind(&key[..])
        .exists()
}

/// See [`crate::store::LogStore::find_receipt`]. For a dead letter committed later, the commit is the receipt.
pub(super) fn find_receipt(db: &Db, key: &HandoffKey) -> Result<Option<SealedRecord>> {
    // In the words of the index `records_handoff`.
    let rest = "(kind = 'HANDOFF' OR kind = 'DEAD_LETTERED' OR kind = 'NO_OP') \
         ORDER BY kind = 'DEAD_LETTERED', leaf_index LIMIT 1";
    find_record(db, key, None, rest)
}

/// See [`crate::store::LogStore::find_last_commit`].
pub(super) fn find_last_commit(
    db: &Db,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    let rest = "task_id = ? AND kind IN ('HANDOFF', 'NO_OP', 'STREAM_CLOSED') \
         ORDER BY leaf_index DESC LIMIT 1";
    find_record(db, key, Some(task), rest)
}

/// See [`crate::store::LogStore::find_opinion`]. It is looked for among the records of the task, which have an index.
pub(super) fn find_opinion(
    db: &Db,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    let rest = "task_id = ? AND kind = 'SECOND_OPINION' ORDER BY leaf_index LIMIT 1";
    find_record(db, key, Some(task), rest)
}

/// The record of a handoff that a condition finds, which may name the task.
fn find_record(
    db: &Db,
    key: &HandoffKey,
    task: Option<TaskId>,
    rest: &str,
) -> Result<Option<SealedRecord>> {
    let sql = format!(
        "SELECT log_id, leaf_index, record_hash, body, tree_size FROM audit_records \
         JOIN audit_log_heads USING (tenant) WHERE tenant = ? AND handoff_id = ? AND {rest}"
    );
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

/// See [`crate::store::LogStore::list_unrecorded`].
pub(super) fn list_unrecorded(db: &Db, tenant: &TenantId) -> Result<Vec<String>> {
    db.query(
        "SELECT handoff_id FROM handoffs AS h WHERE tenant = ? AND NOT EXISTS \
           (SELECT 1 FROM audit_records AS r \
            WHERE r.tenant = h.tenant AND r.handoff_id = h.handoff_id \
              AND (kind = 'HANDOFF' OR kind = 'DEAD_LETTERED' OR kind = 'NO_OP')) \
         ORDER BY handoff_id LIMIT ?",
    )
    .bind(tenant.as_str())
    .bind(UNRECORDED)
    .list(|row| rows::get(row, "handoff_id"))
}

/// See [`crate::store::LogStore::list_records`].
pub(super) fn list_records(
    db: &Db,
    tenant: &TenantId,
    which: WhichRecords,
    from: i64,
    limit: i64,
    contents: bool,
) -> Result<Vec<StoredRecord>> {
    let mut query = Pieces::new(
        "SELECT r.leaf_index, r.record_hash, r.kind, r.task_id, r.handoff_id, r.recorded_at, \
         r.body",
    );
    if contents {
        query.push(format!(
            ", c.content_id, {KEPT} FROM audit_records AS r \
             LEFT JOIN contents AS c ON c.tenant = r.tenant AND c.content_id = r.content_id"
        ));
    } else {
        query.push(" FROM audit_records AS r");
    }
    query.push(" WHERE r.tenant = ").push_bind(tenant.as_str().to_owned());
    match which {
        WhichRecords::All => {}
        WhichRecords::OfTask(task) => {
            query.push(" AND r.task_id = ").push_bind(task.to_string());
        }
        WhichRecords::AboutState => {
            let kinds = RecordKind::ABOUT_STATE.map(|kind| format!("r.kind = '{}'", kind.as_str()));
            // In the words of the index `records_state`, which serves no others.
            query.push(format!(" AND ({})", kinds.join(" OR ")));
        }
        WhichRecords::NewestOfTask(task, window) => {
            query.push(" AND r.task_id = ").push_bind(task.to_string());
            query.push(" AND r.leaf_index < ").push_bind(window.before);
            query.push(" AND r.recorded_at >= ").push_bind(window.from.0);
            query.push(" AND r.recorded_at < ").push_bind(window.until.0);
        }
    }
    query.push(" AND r.leaf_index >= ").push_bind(from);
    query.push(" ORDER BY r.leaf_index");
    if matches!(which, WhichRecords::NewestOfTask(..)) {
        query.push(" DESC");
    }
    query.push(" LIMIT ").push_bind(limit.max(0));

    // Both reads see one state: an erasure between them would tear a record's content apart.
    db.snapshot(|| {
        let mut records: Vec<StoredRecord> = query.build(db).list(|row| record(row, contents))?;
        if contents {
            let mut personal = load_personal(db, tenant, &records)?;
            for record in &mut records {
                record.personal = personal.remove(&record.leaf_index).unwrap_or_default();
            }
        }
        Ok(records)
    })
}

/// See [`crate::store::LogStore::list_task_records`].
pub(super) fn list_task_records(
    db: &Db,
    tenant: &TenantId,
    tasks: &[TaskId],
    from: i64,
    limit: i64,
) -> Result<Vec<StoredRecord>> {
    db.query(
        "WITH wanted (i) AS (SELECT value FROM json_each(?)) \
         SELECT leaf_index, record_hash, kind, task_id, handoff_id, recorded_at, body \
         FROM wanted CROSS JOIN audit_records ON tenant = ? AND task_id = i AND leaf_index >= ? \
         ORDER BY leaf_index LIMIT ?",
    )
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
    db.query(
        "SELECT leaf_index, ordinal, subject_id, salt, codec, bytes FROM personal_data \
         WHERE tenant = ? AND leaf_index IN (SELECT value FROM json_each(?)) \
         ORDER BY leaf_index, ordinal",
    )
    .bind(tenant.as_str())
    .bind(json(&leaves)?)
    .each(|row| {
        personal.entry(rows::get(row, "leaf_index")?).or_default().push(rows::personal(row)?);
        Ok(())
    })?;
    Ok(personal)
}
