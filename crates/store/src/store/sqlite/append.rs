//! Appending to the logs: the last step of a batch.

use crate::store::query::Dialect;
use crate::store::tables::audit;
use std::collections::{BTreeMap, BTreeSet};

use super::batch::RowBatch;
use super::db::{Db, Query};
use super::{log, rows};
use crate::store::{Result, StoreError};
use handoffd_domain::ids::TenantId;
use handoffd_evidence::append::{AppendedRecords, LogAppender, TreeNode};
use handoffd_evidence::record::{LogHead, PersonalPart, RecordContent, RecordDraft, SealedRecord};

/// Most leaves added at once to a tree that lags behind its log.
const CATCH_UP: i64 = 4096;

const RECORD: &str = "tenant, leaf_index, record_hash, kind, task_id, handoff_id, content_id, recorded_at, body, \
     tree_size";
const CONTENT: &str = "tenant, content_id, salt, codec, bytes, created_at";
const PERSONAL: &str =
    "tenant, leaf_index, ordinal, handoff_id, subject_id, salt, codec, bytes, created_at";

const NODE: &str = "tenant, level, idx, hash";

/// Seals the drafts in order, each under its tenant's head, and stores them with their contents.
pub(super) fn append(db: &Db, drafts: &[RecordDraft]) -> Result<AppendedRecords> {
    if drafts.is_empty() {
        return Ok(AppendedRecords::default());
    }
    let mut logs = load_logs(db, drafts)?;
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

    let records: Vec<_> = drafts.iter().zip(&sealed).collect();
    RowBatch::insert("audit_records", RECORD).run(db, &records, bind_record)?;
    let contents: Vec<_> = drafts
        .iter()
        .filter_map(|draft| draft.content.as_ref().map(|content| (draft, content)))
        .collect();
    RowBatch::insert("contents", CONTENT).run(db, &contents, bind_content)?;
    let personal: Vec<_> = records
        .iter()
        .flat_map(|&(draft, sealed)| {
            draft.personal.iter().zip(0i64..).map(|(part, ordinal)| DatumRow {
                draft,
                leaf_index: sealed.leaf_index,
                ordinal,
                part,
            })
        })
        .collect();
    RowBatch::insert("personal_data", PERSONAL).run(db, &personal, bind_personal)?;
    super::erasure::place(db, &records)?;
    for log in logs.values() {
        move_head(db, log)?;
    }
    Ok(AppendedRecords::new(sealed, logs))
}

/// Writes the new tree nodes and the moved head.
fn move_head(db: &Db, log: &LogAppender) -> Result<()> {
    let nodes: Vec<_> = log.nodes().collect();
    RowBatch::insert("audit_nodes", NODE).run(db, &nodes, bind_node)?;
    let head = log.head();
    db.query(audit::MOVE_HEAD)
        .bind(head.size)
        .bind(head.hash)
        .bind(head.tree.to_bytes())
        .bind(head.tenant.as_str())
        .execute()?;
    Ok(())
}

fn load_logs(db: &Db, drafts: &[RecordDraft]) -> Result<BTreeMap<TenantId, LogAppender>> {
    let tenants: BTreeSet<_> = drafts.iter().map(|draft| &draft.tenant).collect();
    let sql = audit::head(Dialect::Sqlite);
    let mut logs = BTreeMap::new();
    for tenant in tenants {
        let Some(head) = db.query(&sql).bind(tenant.as_str()).find(rows::head)? else { continue };
        let head = catch_up(db, head)?;
        logs.insert(head.tenant.clone(), LogAppender::new(head));
    }
    Ok(logs)
}

/// Adds missing records to a tree: those written by a version without trees.
pub(super) fn catch_up(db: &Db, mut head: LogHead) -> Result<LogHead> {
    while let Some(from) = head.behind() {
        let leaves = log::list_hashes(db, &head.tenant, 0, from, CATCH_UP.min(head.size - from))?;
        let log = LogAppender::new(head).caught_up(&leaves).ok_or_else(|| {
            StoreError::Denied(format!("the log has no record {from}, though its head says so"))
        })?;
        move_head(db, &log)?;
        head = log.head();
    }
    Ok(head)
}

/// See [`crate::store::Store::catch_up_trees`].
pub(super) fn catch_up_all(db: &Db) -> Result<()> {
    let sql = audit::heads();
    for head in db.query(&sql).list::<_, Vec<_>>(rows::head)? {
        catch_up(db, head)?;
    }
    Ok(())
}

/// One subject's data at its leaf index.
#[derive(Clone, Copy)]
struct DatumRow<'a> {
    draft: &'a RecordDraft,
    leaf_index: i64,
    ordinal: i64,
    part: &'a PersonalPart,
}

fn bind_record<'c>(query: Query<'c>, (draft, sealed): (&RecordDraft, &SealedRecord)) -> Query<'c> {
    query
        .bind(draft.tenant.as_str())
        .bind(sealed.leaf_index)
        .bind(sealed.hash.as_slice())
        .bind(draft.kind.as_str())
        .bind(draft.task_id.map(|id| id.to_string()))
        .bind(draft.handoff_id.map(|id| id.to_string()))
        .bind(draft.content_id().map(|id| id.to_string()))
        .bind(draft.at.0)
        .bind(sealed.body.as_slice())
        .bind(sealed.tree_size)
}

fn bind_node<'c>(query: Query<'c>, node: TreeNode<'_>) -> Query<'c> {
    query
        .bind(node.tenant.as_str().to_owned())
        .bind(node.level)
        .bind(node.index)
        .bind(node.hash.to_vec())
}

fn bind_content<'c>(
    query: Query<'c>,
    (draft, content): (&RecordDraft, &RecordContent),
) -> Query<'c> {
    query
        .bind(draft.tenant.as_str())
        .bind(content.id.to_string())
        .bind(content.part.salt.as_slice())
        .bind(content.part.codec.as_str())
        .bind(&content.part.bytes[..])
        .bind(draft.at.0)
}

fn bind_personal<'c>(query: Query<'c>, datum: DatumRow<'_>) -> Query<'c> {
    let DatumRow { draft, leaf_index, ordinal, part: PersonalPart { subject_id, part } } = datum;
    query
        .bind(draft.tenant.as_str())
        .bind(leaf_index)
        .bind(ordinal)
        .bind(draft.handoff_id.map(|id| id.to_string()))
        .bind(subject_id.as_str())
        .bind(part.salt.as_slice())
        .bind(part.codec.as_str())
        .bind(&part.bytes[..])
        .bind(draft.at.0)
}
