//! Appending to the logs: the last step of a batch, since the heads are locked last.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::PgConnection;

use super::batch::{HEADS, NODES, PERSONAL_DATA, RECORDS, bind};
use super::joined::{JoinedStatement, StatementArguments, WriteMode};
use super::rows;
use super::transact::fetch;
use crate::store::{Result, StoreError};
use handoffd_core::domain::ids::TenantId;
use handoffd_core::evidence::append::{AppendedRecords, LogAppender, TreeNode};
use handoffd_core::evidence::record::{LogHead, PersonalPart, RecordDraft, SealedRecord};

/// Most leaves added at once to a tree that lags behind its log.
const CATCH_UP: i64 = 4096;

const HEADS_LOAD: &str = "SELECT tenant, log_id, size, hash, frontier FROM audit.log_heads \
     WHERE tenant = ANY($1) ORDER BY tenant FOR UPDATE";
const HEADS_BEHIND: &str = "SELECT tenant FROM audit.log_heads ORDER BY tenant";

/// Locks the heads, seals each draft, writes the records and moves the heads: a batch's whole work in the log.
pub(super) async fn append(
    tx: &mut PgConnection,
    drafts: &[RecordDraft],
    statement_bytes: usize,
) -> Result<AppendedRecords> {
    if drafts.is_empty() {
        return Ok(AppendedRecords::default());
    }
    let tenants: BTreeSet<&str> = drafts.iter().map(|draft| draft.tenant.as_str()).collect();
    let mut logs = lock(tx, tenants.into_iter().collect()).await?;
    let mut sealed = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let log = logs
            .get_mut(&draft.tenant)
            .ok_or_else(|| StoreError::Refused(format!("tenant {} has no log", draft.tenant)))?;
        sealed.push(log.append(draft));
    }
    for (draft, sealed) in drafts.iter().zip(&mut sealed) {
        if let Some(log) = logs.get(&draft.tenant) {
            log.close(sealed);
        }
    }
    let places: Vec<(&RecordDraft, &SealedRecord)> = drafts.iter().zip(&sealed).collect();
    let mut joined = JoinedStatement::new(tx, statement_bytes);
    let bytes = |row: &(&RecordDraft, &SealedRecord)| row.1.body.len();
    let columns = |bound: StatementArguments, rows: &[(&RecordDraft, &SealedRecord)]| {
        bind!(
            bound,
            rows,
            |row| row.0.tenant.as_str(),
            row.1.leaf_index,
            row.1.hash.as_slice(),
            row.0.kind.as_str(),
            row.0.task_id.map(|id| id.to_string()),
            row.0.handoff_id.map(|id| id.to_string()),
            row.0.content_id().map(|id| id.to_string()),
            row.0.at.0,
            row.1.body.as_slice(),
            row.1.tree_size,
        )
    };
    joined.put(&RECORDS, WriteMode::Insert, &places, bytes, columns).await?;
    move_heads(&mut joined, &logs.values().collect::<Vec<_>>()).await?;
    joined.send().await?;
    Ok(AppendedRecords::new(sealed, logs))
}

/// Writes the batch's personal data, with the leaf index of their records, beside the log.
pub(super) async fn beside(
    joined: &mut JoinedStatement<'_>,
    drafts: &[RecordDraft],
    sealed: &[SealedRecord],
) -> Result<()> {
    let personal: Vec<(&RecordDraft, &SealedRecord, i32, &PersonalPart)> = drafts
        .iter()
        .zip(sealed)
        .flat_map(|(draft, sealed)| {
            (0i32..)
                .zip(&draft.personal)
                .map(move |(ordinal, datum)| (draft, sealed, ordinal, datum))
        })
        .collect();
    let bytes = |row: &(&RecordDraft, &SealedRecord, i32, &PersonalPart)| row.3.part.bytes.len();
    let columns = |bound: StatementArguments,
                   rows: &[(&RecordDraft, &SealedRecord, i32, &PersonalPart)]| {
        bind!(
            bound,
            rows,
            |row| row.0.tenant.as_str(),
            row.1.leaf_index,
            row.2,
            row.0.handoff_id.map(|id| id.to_string()),
            row.3.subject_id.as_str(),
            row.3.part.salt.as_slice(),
            row.3.part.codec.as_str(),
            &row.3.part.bytes[..],
            row.0.at.0,
        )
    };
    joined.put(&PERSONAL_DATA, WriteMode::Insert, &personal, bytes, columns).await
}

/// Locks the heads of these tenants' logs, and completes their trees.
async fn lock(
    tx: &mut PgConnection,
    tenants: Vec<&str>,
) -> Result<BTreeMap<TenantId, LogAppender>> {
    let mut logs = BTreeMap::new();
    for row in fetch(tx, sqlx::query(HEADS_LOAD).bind(tenants)).await? {
        let head = catch_up(tx, rows::head(&row)?).await?;
        logs.insert(head.tenant.clone(), LogAppender::new(head));
    }
    Ok(logs)
}

/// Adds missing records to a tree: those written by a version without trees.
async fn catch_up(tx: &mut PgConnection, mut head: LogHead) -> Result<LogHead> {
    while let Some(from) = head.behind() {
        let leaves = super::log::list_hashes(
            &mut *tx,
            &head.tenant,
            0,
            from,
            CATCH_UP.min(head.size - from),
        )
        .await?;
        let log = LogAppender::new(head).caught_up(&leaves).ok_or_else(|| {
            StoreError::Refused(format!("the log has no record {from}, though its head says so"))
        })?;
        let mut joined = JoinedStatement::new(&mut *tx, usize::MAX);
        move_heads(&mut joined, &[&log]).await?;
        joined.send().await?;
        head = log.head();
    }
    Ok(head)
}

/// See [`crate::store::LogStore::catch_up_trees`]; one tenant at a time, each in a transaction of its own.
pub(super) async fn catch_up_all(pool: &sqlx::PgPool) -> Result<()> {
    let found = sqlx::query(HEADS_BEHIND).fetch_all(pool).await.map_err(super::failure::failed)?;
    for row in &found {
        let tenant: String = rows::get(row, "tenant")?;
        let mut tx = pool.begin().await.map_err(super::failure::failed)?;
        lock(&mut tx, vec![tenant.as_str()]).await?;
        tx.commit().await.map_err(super::failure::failed)?;
    }
    Ok(())
}

/// Writes the new tree nodes and the moved heads.
async fn move_heads(joined: &mut JoinedStatement<'_>, logs: &[&LogAppender]) -> Result<()> {
    let nodes: Vec<TreeNode<'_>> = logs.iter().flat_map(|log| log.nodes()).collect();
    let columns = |bound: StatementArguments, nodes: &[TreeNode<'_>]| {
        bind!(
            bound,
            nodes,
            |node| node.tenant.as_str(),
            node.level,
            node.index,
            node.hash.as_slice(),
        )
    };
    joined.put(&NODES, WriteMode::Insert, &nodes, |_| 0, columns).await?;
    let heads: Vec<LogHead> = logs.iter().map(|log| log.head()).collect();
    let columns = |bound: StatementArguments, heads: &[LogHead]| {
        bind!(
            bound,
            heads,
            |head| head.tenant.as_str(),
            head.size,
            head.hash.as_slice(),
            head.tree.to_bytes(),
        )
    };
    joined.put(&HEADS, WriteMode::Update(&[]), &heads, |_| 0, columns).await
}
