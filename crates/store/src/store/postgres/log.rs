//! Queries on the logs, for readers and the verifier, and their creation.

use crate::store::query::Dialect;
use crate::store::tables::{audit, contents, handoffs, personal_data, tenants};
use std::collections::{BTreeMap, BTreeSet};

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgExecutor, PgPool, PgRow};

use super::batch::column;
use super::failure::failed;
use super::pool::bound;
use super::{PostgresStore, rows};
use crate::store::rows::WhichRecords;
use crate::store::{
    HandoffKey, Result, StoreError, StoredContent, StoredPersonal, StoredRecord, TreeKeyRow,
};
use handoffd_domain::ids::{Micros, TaskId, TenantId};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, SealedRecord};

/// Creates a tenant's log unless it exists. The head comes first: a visible tenant has one.
pub(super) async fn ensure_tenant(
    pool: &PgPool,
    log: &PgPool,
    tenant: &TenantId,
    log_id: &str,
    at: Micros,
) -> Result<()> {
    sqlx::query(audit::ADD_LOG.postgres)
        .bind(tenant.as_str())
        .bind(log_id)
        .execute(log)
        .await
        .map_err(failed)?;
    bound(tenants::add(tenant, at)).execute(pool).await.map_err(failed).map(drop)
}

/// All tenants that a table of either database names.
pub(super) async fn list_named_tenants(pool: &PgPool, log: &PgPool) -> Result<Vec<TenantId>> {
    let mut named: BTreeSet<TenantId> =
        tenants_by(pool, tenants::NAMED.postgres).await?.into_iter().collect();
    named.extend(tenants_by(log, audit::NAMED).await?);
    Ok(named.into_iter().collect())
}

async fn tenants_by(pool: &PgPool, sql: &'static str) -> Result<Vec<TenantId>> {
    sqlx::query(sql)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| rows::parse(row, "tenant"))
        .collect()
}

pub(super) async fn find_head(pool: &PgPool, tenant: &TenantId) -> Result<Option<LogHead>> {
    sqlx::query(AssertSqlSafe(audit::head(Dialect::Postgres)))
        .bind(tenant.as_str())
        .fetch_optional(pool)
        .await
        .map_err(failed)?
        .as_ref()
        .map(|row| rows::head(row))
        .transpose()
}

/// See [`crate::store::Store::find_log`].
pub(super) async fn find_log(pool: &PgPool, log_id: &str) -> Result<Option<TenantId>> {
    sqlx::query(audit::FIND_LOG.postgres)
        .bind(log_id)
        .fetch_optional(pool)
        .await
        .map_err(failed)?
        .as_ref()
        .map(|row| rows::parse(row, "tenant"))
        .transpose()
}

/// Hashes of the tree at a tile level.
pub(super) async fn list_hashes(
    conn: impl PgExecutor<'_>,
    tenant: &TenantId,
    level: i64,
    from: i64,
    limit: i64,
) -> Result<Vec<Hash>> {
    let query = if level == 0 {
        sqlx::query(audit::LEAVES.postgres).bind(tenant.as_str())
    } else {
        sqlx::query(audit::NODES.postgres).bind(tenant.as_str()).bind(level)
    };
    let found = query.bind(from).bind(limit.max(0)).fetch_all(conn).await.map_err(failed)?;
    found.iter().map(|row| rows::hash32(row, "hash")).collect()
}

/// Present and former public keys for tree heads.
pub(super) async fn list_tree_keys(pool: &PgPool) -> Result<Vec<TreeKeyRow>> {
    sqlx::query(audit::TREE_KEYS.postgres)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| rows::tree_key(row))
        .collect()
}

/// Handoffs compared with the log at once.
const COMPARED: i64 = 4096;

/// Most unrecorded handoffs listed.
const UNRECORDED: usize = 10;

/// Most attempts to settle the tree key where other brokers settle theirs.
const SETTLES: u32 = 20;

/// Makes a key the one in use. The transaction is serializable: of two brokers that settle at once the server
/// fails one, which tries again.
pub(super) async fn settle_tree_key(
    pool: &PgPool,
    key: &Hash,
    at: Micros,
    rotate: bool,
) -> Result<bool> {
    let mut attempt = 1;
    loop {
        match settle_tree_key_once(pool, key, at, rotate).await {
            Err(StoreError::Conflict(_)) if attempt < SETTLES => attempt += 1,
            settled => return settled,
        }
    }
}

async fn settle_tree_key_once(pool: &PgPool, key: &Hash, at: Micros, rotate: bool) -> Result<bool> {
    let mut tx = pool.begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE").await.map_err(failed)?;
    if rotate {
        sqlx::query(audit::RETIRE_KEYS.postgres)
            .bind(at.0)
            .bind(&key[..])
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
    }
    sqlx::query(audit::ADD_KEY.postgres)
        .bind(&key[..])
        .bind(at.0)
        .bind(rotate)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    let found = sqlx::query(audit::KEY_IN_USE.postgres)
        .bind(&key[..])
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(found.is_some())
}

/// The record that committed a handoff, else the one that created its dead letter. Waits for a record whose
/// operations are already visible.
pub(super) async fn find_receipt(
    store: &PostgresStore,
    key: &HandoffKey,
) -> Result<Option<SealedRecord>> {
    let found = find_record(&store.log, key, None, audit::RECEIPT.postgres).await?;
    if found.is_some() || store.apart.is_none() {
        return Ok(found);
    }
    store.settle_log(&key.0).await?;
    find_record(&store.log, key, None, audit::RECEIPT.postgres).await
}

/// See [`crate::store::Store::find_last_commit`].
pub(super) async fn find_last_commit(
    log: &PgPool,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    find_record(log, key, Some(task), audit::LAST_COMMIT.postgres).await
}

/// The record of a handoff's second opinion. It is looked for among the records of the task, which have an index.
pub(super) async fn find_opinion(
    log: &PgPool,
    key: &HandoffKey,
    task: TaskId,
) -> Result<Option<SealedRecord>> {
    find_record(log, key, Some(task), audit::OPINION.postgres).await
}

/// The record of a handoff that a condition finds, which may name the task.
async fn find_record(
    log: &PgPool,
    key: &HandoffKey,
    task: Option<TaskId>,
    rest: &str,
) -> Result<Option<SealedRecord>> {
    let sql = audit::of_handoff(Dialect::Postgres, rest);
    let query = sqlx::query(AssertSqlSafe(sql)).bind(key.0.as_str()).bind(key.1.to_string());
    let query = if let Some(task) = task { query.bind(task.to_string()) } else { query };
    let row = query.fetch_optional(log).await.map_err(failed)?;
    row.map(|row| {
        Ok(SealedRecord {
            log_id: rows::get(&row, "log_id")?,
            leaf_index: rows::get(&row, "leaf_index")?,
            hash: rows::hash32(&row, "record_hash")?,
            body: rows::get(&row, "body")?,
            tree_size: rows::get::<Option<i64>>(&row, "tree_size")?.unwrap_or(0),
        })
    })
    .transpose()
}

/// Records in log order. Content and personal data are read after them: records never change, and an
/// erasure in between shows as an erasure.
pub(super) async fn list_records(
    store: &PostgresStore,
    tenant: &TenantId,
    which: WhichRecords,
    from: i64,
    limit: i64,
    contents: bool,
) -> Result<Vec<StoredRecord>> {
    let query = bound(audit::list(tenant, which, from, limit));
    let found = query.fetch_all(&store.log).await.map_err(failed)?;
    let (mut kept, mut personal) = (BTreeMap::new(), BTreeMap::new());
    if contents {
        let ids: Vec<String> =
            column::<Option<String>>(&found, "content_id")?.into_iter().flatten().collect();
        kept = kept_contents(&store.pool, tenant, &ids).await?;
        personal = list_personal(&store.pool, tenant, &column(&found, "leaf_index")?).await?;
    }
    found
        .iter()
        .map(|row| {
            let leaf_index: i64 = rows::get(row, "leaf_index")?;
            let content: Option<String> = rows::get(row, "content_id")?;
            let content = content.and_then(|id| kept.get(&id).cloned());
            record(row, content, personal.remove(&leaf_index).unwrap_or_default())
        })
        .collect()
}

/// See [`crate::store::Store::list_task_records`].
pub(super) async fn list_task_records(
    store: &PostgresStore,
    tenant: &TenantId,
    tasks: &[TaskId],
    from: i64,
    limit: i64,
) -> Result<Vec<StoredRecord>> {
    let tasks: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    let found = sqlx::query(audit::OF_TASKS.postgres)
        .bind(tenant.as_str())
        .bind(tasks)
        .bind(from)
        .bind(limit)
        .fetch_all(&store.log)
        .await
        .map_err(failed)?;
    found.iter().map(|row| record(row, None, Vec::new())).collect()
}

fn record(
    row: &PgRow,
    content: Option<StoredContent>,
    personal: Vec<StoredPersonal>,
) -> Result<StoredRecord> {
    Ok(StoredRecord {
        leaf_index: rows::get(row, "leaf_index")?,
        hash: rows::get(row, "record_hash")?,
        kind: rows::get(row, "kind")?,
        task_id: rows::get(row, "task_id")?,
        handoff_id: rows::get(row, "handoff_id")?,
        recorded_at: Micros(rows::get(row, "recorded_at")?),
        body: rows::get(row, "body")?,
        content,
        personal,
    })
}

/// Contents by id; several records may share one.
pub(super) async fn kept_contents(
    pool: &PgPool,
    tenant: &TenantId,
    ids: &[String],
) -> Result<BTreeMap<String, StoredContent>> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    sqlx::query(AssertSqlSafe(contents::of_ids(Dialect::Postgres)))
        .bind(tenant.as_str())
        .bind(ids)
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| {
            let id: String = rows::get(row, "content_id")?;
            Ok((id.clone(), StoredContent { id, kept: rows::content_kept(row)? }))
        })
        .collect()
}

async fn list_personal(
    pool: &PgPool,
    tenant: &TenantId,
    places: &[i64],
) -> Result<BTreeMap<i64, Vec<StoredPersonal>>> {
    let found = sqlx::query(personal_data::AT.postgres)
        .bind(tenant.as_str())
        .bind(places)
        .fetch_all(pool)
        .await
        .map_err(failed)?;
    let mut personal: BTreeMap<i64, Vec<StoredPersonal>> = BTreeMap::new();
    for row in &found {
        personal.entry(rows::get(row, "leaf_index")?).or_default().push(rows::personal(row)?);
    }
    Ok(personal)
}

/// Handoffs without the record that every handoff begins with, in order; ten at most. Page by page, for
/// the two may stand in two databases: what is asked for is what could be read in the log once the page had
/// been read.
pub(super) async fn list_unrecorded(
    store: &PostgresStore,
    tenant: &TenantId,
) -> Result<Vec<String>> {
    let (mut unrecorded, mut after) = (Vec::new(), String::new());
    while unrecorded.len() < UNRECORDED {
        let page: Vec<String> = sqlx::query_scalar(handoffs::PAGE)
            .bind(tenant.as_str())
            .bind(&after)
            .bind(COMPARED)
            .fetch_all(&store.pool)
            .await
            .map_err(failed)?;
        let Some(last) = page.last() else { break };
        after.clone_from(last);
        store.settle_log(tenant).await?;
        let gone: Vec<String> = sqlx::query_scalar(audit::UNRECORDED)
            .bind(tenant.as_str())
            .bind(page)
            .fetch_all(&store.log)
            .await
            .map_err(failed)?;
        unrecorded.extend(gone);
    }
    unrecorded.truncate(UNRECORDED);
    Ok(unrecorded)
}
