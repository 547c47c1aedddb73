//! Appending to the logs: the last step of a batch, since the heads are locked last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_postgres::Row;

use super::batch::{HEADS, NODES, PERSONAL_DATA, RECORDS, bind};
use super::call::Call;
use super::joined::{JoinedStatement, WriteMode};
use super::rows;
use super::session::{Sessions, Tx};
use super::statistics::PlanCaching;
use crate::store::tables::audit;
use crate::store::{Result, StoreError};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::append::{AppendedRecords, LogAppender, TreeNode};
use handoffd_evidence::record::{LogHead, PersonalPart, RecordDraft, SealedRecord};

/// Most leaves added at once to a tree that lags behind its log.
const CATCH_UP: i64 = 4096;

/// Locks the heads of the drafts' logs.
pub(super) fn lock(drafts: &[RecordDraft]) -> Call {
    let tenants: BTreeSet<&str> = drafts.iter().map(|draft| draft.tenant.as_str()).collect();
    Call::new(audit::LOCK_HEADS).bind(tenants.into_iter().collect::<Vec<_>>())
}

/// The locked heads, their trees completed.
pub(super) async fn heads(tx: &mut Tx, locked: &[Row]) -> Result<BTreeMap<TenantId, LogAppender>> {
    let mut logs = BTreeMap::new();
    for row in locked {
        let head = catch_up(tx, rows::head(row)?).await?;
        logs.insert(head.tenant.clone(), LogAppender::new(head));
    }
    Ok(logs)
}

/// Seals each draft under the locked heads, in order, and adds the records and the moved heads to `joined`.
pub(super) fn append(
    joined: &mut JoinedStatement,
    drafts: &[RecordDraft],
    mut logs: BTreeMap<TenantId, LogAppender>,
) -> Result<AppendedRecords> {
    let mut sealed = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let log = logs
            .get_mut(&draft.tenant)
            .ok_or_else(|| StoreError::Denied(format!("tenant {} has no log", draft.tenant)))?;
        sealed.push(log.append(draft));
    }
    for (draft, sealed) in drafts.iter().zip(&mut sealed) {
        if let Some(log) = logs.get(&draft.tenant) {
            log.close(sealed);
        }
    }
    let places: Vec<(&RecordDraft, &SealedRecord)> = drafts.iter().zip(&sealed).collect();
    let bytes = |row: &(&RecordDraft, &SealedRecord)| row.1.body.len();
    let columns = |bound: Call, rows: &[(&RecordDraft, &SealedRecord)]| {
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
    joined.put(&RECORDS, WriteMode::Insert, &places, bytes, columns);
    move_heads(joined, &logs.values().collect::<Vec<_>>());
    Ok(AppendedRecords::new(sealed, logs))
}

/// Writes the batch's personal data, with the leaf index of their records, beside the log.
pub(super) fn beside(
    joined: &mut JoinedStatement,
    drafts: &[RecordDraft],
    sealed: &[SealedRecord],
) {
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
    let columns = |bound: Call, rows: &[(&RecordDraft, &SealedRecord, i32, &PersonalPart)]| {
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
    joined.put(&PERSONAL_DATA, WriteMode::Insert, &personal, bytes, columns);
}

/// Adds missing records to a tree: those written by a version without trees.
async fn catch_up(tx: &mut Tx, mut head: LogHead) -> Result<LogHead> {
    while let Some(from) = head.behind() {
        let call = Call::new(audit::LEAVES.postgres)
            .bind(head.tenant.as_str())
            .bind(from)
            .bind(CATCH_UP.min(head.size - from));
        let found = tx.fetch(call).await?;
        let leaves: Vec<_> =
            found.iter().map(|row| rows::hash32(row, "hash")).collect::<Result<_>>()?;
        let log = LogAppender::new(head).caught_up(&leaves).ok_or_else(|| {
            StoreError::Denied(format!("the log has no record {from}, though its head says so"))
        })?;
        let mut joined = JoinedStatement::new();
        move_heads(&mut joined, &[&log]);
        tx.fly(joined.calls()).await?;
        head = log.head();
    }
    Ok(head)
}

/// See [`crate::store::Store::catch_up_trees`]; one tenant at a time, each in a transaction of its own.
pub(super) async fn catch_up_all(sessions: &Arc<Sessions>) -> Result<()> {
    for row in &sessions.fetch(Call::new(audit::HEADS)).await? {
        let tenant: &str = rows::get(row, "tenant")?;
        let mut tx = sessions.begin(PlanCaching::Fitted).await?;
        let locked = tx.fetch(Call::new(audit::LOCK_HEADS).bind(vec![tenant])).await?;
        heads(&mut tx, &locked).await?;
        tx.commit(Vec::new()).await?;
    }
    Ok(())
}

/// Writes the new tree nodes and the moved heads.
fn move_heads(joined: &mut JoinedStatement, logs: &[&LogAppender]) {
    let nodes: Vec<TreeNode<'_>> = logs.iter().flat_map(|log| log.nodes()).collect();
    let columns = |bound: Call, nodes: &[TreeNode<'_>]| {
        bind!(
            bound,
            nodes,
            |node| node.tenant.as_str(),
            node.level,
            node.index,
            node.hash.as_slice(),
        )
    };
    joined.put(&NODES, WriteMode::Insert, &nodes, |_| 0, columns);
    let heads: Vec<LogHead> = logs.iter().map(|log| log.head()).collect();
    let columns = |bound: Call, heads: &[LogHead]| {
        bind!(
            bound,
            heads,
            |head| head.tenant.as_str(),
            head.size,
            head.hash.as_slice(),
            head.tree.to_bytes(),
        )
    };
    joined.put(&HEADS, WriteMode::Update(&[]), &heads, |_| 0, columns);
}
