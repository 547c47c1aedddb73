//! Appending to the logs: the last thing that a batch does.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::sqlite::SqliteConnection;

use super::batch::{Batch, Bound, json};
use super::connection::failure;
use super::rows;
use crate::domain::ids::TenantId;
use crate::evidence::record::{Content, Draft, LogHead, PersonalPart, Sealed, seal};
use crate::store::{Result, StoreError};

const RECORD: &str =
    "tenant, leaf_index, record_hash, kind, task_id, handoff_id, content_id, recorded_at, body";
const CONTENT: &str = "tenant, content_id, salt, codec, bytes, created_at";
const PERSONAL: &str =
    "tenant, leaf_index, ordinal, handoff_id, subject_id, salt, codec, bytes, created_at";

/// Seals the drafts in order, each under its tenant's head, and keeps them with their contents.
pub(super) async fn append(conn: &mut SqliteConnection, drafts: &[Draft]) -> Result<Vec<Sealed>> {
    if drafts.is_empty() {
        return Ok(Vec::new());
    }
    let mut heads = load_heads(conn, drafts).await?;
    let mut sealed = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let head = heads
            .get_mut(&draft.tenant)
            .ok_or_else(|| StoreError::Refused(format!("tenant {} has no log", draft.tenant)))?;
        sealed.push(seal(head, draft));
    }

    let records: Vec<_> = drafts.iter().zip(&sealed).collect();
    Batch::insert("audit_records", RECORD).run(conn, &records, bind_record).await?;
    let contents: Vec<_> = drafts
        .iter()
        .filter_map(|draft| draft.content.as_ref().map(|content| (draft, content)))
        .collect();
    Batch::insert("contents", CONTENT).run(conn, &contents, bind_content).await?;
    let personal: Vec<_> = records
        .iter()
        .flat_map(|&(draft, sealed)| {
            draft.personal.iter().zip(0i64..).map(|(part, ordinal)| Datum {
                draft,
                leaf_index: sealed.leaf_index,
                ordinal,
                part,
            })
        })
        .collect();
    Batch::insert("personal_data", PERSONAL).run(conn, &personal, bind_personal).await?;
    for head in heads.values() {
        sqlx::query("UPDATE audit_log_heads SET size = ?, hash = ? WHERE tenant = ?")
            .bind(head.size)
            .bind(head.hash.as_slice())
            .bind(head.tenant.as_str())
            .execute(&mut *conn)
            .await
            .map_err(failure)?;
    }
    Ok(sealed)
}

async fn load_heads(
    conn: &mut SqliteConnection,
    drafts: &[Draft],
) -> Result<BTreeMap<TenantId, LogHead>> {
    let tenants: BTreeSet<_> = drafts.iter().map(|draft| &draft.tenant).collect();
    sqlx::query(
        "SELECT tenant, log_id, size, hash FROM audit_log_heads \
         WHERE tenant IN (SELECT value FROM json_each(?))",
    )
    .bind(json(&tenants)?)
    .fetch_all(conn)
    .await
    .map_err(failure)?
    .iter()
    .map(|row| {
        let head = LogHead {
            tenant: rows::parse(row, "tenant")?,
            log_id: rows::get(row, "log_id")?,
            size: rows::get(row, "size")?,
            hash: rows::get(row, "hash")?,
        };
        Ok((head.tenant.clone(), head))
    })
    .collect()
}

/// One subject's data in its place.
#[derive(Clone, Copy)]
struct Datum<'a> {
    draft: &'a Draft,
    leaf_index: i64,
    ordinal: i64,
    part: &'a PersonalPart,
}

fn bind_record(query: Bound, (draft, sealed): (&Draft, &Sealed)) -> Bound {
    query
        .bind(draft.tenant.as_str())
        .bind(sealed.leaf_index)
        .bind(sealed.hash.as_slice())
        .bind(draft.kind.as_str())
        .bind(draft.task_id.map(|id| id.to_string()))
        .bind(draft.handoff_id.map(|id| id.to_string()))
        .bind(draft.content.as_ref().map(|content| content.id.to_string()))
        .bind(draft.at.0)
        .bind(sealed.body.as_slice())
}

fn bind_content(query: Bound, (draft, content): (&Draft, &Content)) -> Bound {
    query
        .bind(draft.tenant.as_str())
        .bind(content.id.to_string())
        .bind(content.part.salt.as_slice())
        .bind(content.part.codec.as_str())
        .bind(content.part.bytes.as_slice())
        .bind(draft.at.0)
}

fn bind_personal(query: Bound, datum: Datum<'_>) -> Bound {
    let Datum { draft, leaf_index, ordinal, part: PersonalPart { subject_id, part } } = datum;
    query
        .bind(draft.tenant.as_str())
        .bind(leaf_index)
        .bind(ordinal)
        .bind(draft.handoff_id.map(|id| id.to_string()))
        .bind(subject_id.as_str())
        .bind(part.salt.as_slice())
        .bind(part.codec.as_str())
        .bind(part.bytes.as_slice())
        .bind(draft.at.0)
}
