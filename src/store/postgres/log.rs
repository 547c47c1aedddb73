//! The log as readers and the verifier see it, and where it begins.

use sqlx::postgres::{PgPool, PgRow};
use std::collections::BTreeMap;

use super::failure::failed;
use super::rows;
use crate::domain::ids::{Micros, TaskId, TenantId};
use crate::evidence::commitment::Codec;
use crate::evidence::record::{LogHead, Sealed};
use crate::store::{HandoffKey, Result, StoredContent, StoredPersonal, StoredRecord};

/// Makes a tenant's log if there is none.
pub(super) async fn ensure_tenant(
    pool: &PgPool,
    tenant: &TenantId,
    log_id: &str,
    at: Micros,
) -> Result<()> {
    let mut tx = pool.begin().await.map_err(failed)?;
    sqlx::query("INSERT INTO tenants (tenant, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(tenant.as_str())
        .bind(at.0)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    sqlx::query(
        "INSERT INTO audit.log_heads (tenant, log_id, size, hash) VALUES ($1, $2, 0, ''::bytea) \
         ON CONFLICT DO NOTHING",
    )
    .bind(tenant.as_str())
    .bind(log_id)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    tx.commit().await.map_err(failed)
}

/// All tenants, by name.
pub(super) async fn list_tenants(pool: &PgPool) -> Result<Vec<TenantId>> {
    sqlx::query("SELECT tenant FROM tenants ORDER BY tenant")
        .fetch_all(pool)
        .await
        .map_err(failed)?
        .iter()
        .map(|row| rows::parse(row, "tenant"))
        .collect()
}

/// Reads a head.
pub(super) fn head(row: &PgRow) -> Result<LogHead> {
    Ok(LogHead {
        tenant: rows::parse(row, "tenant")?,
        log_id: rows::get(row, "log_id")?,
        size: rows::get(row, "size")?,
        hash: rows::get(row, "hash")?,
    })
}

/// The log's head.
pub(super) async fn find_head(pool: &PgPool, tenant: &TenantId) -> Result<Option<LogHead>> {
    sqlx::query("SELECT tenant, log_id, size, hash FROM audit.log_heads WHERE tenant = $1")
        .bind(tenant.as_str())
        .fetch_optional(pool)
        .await
        .map_err(failed)?
        .as_ref()
        .map(head)
        .transpose()
}

/// The record that committed a handoff; where there is none, the one that kept it as a dead letter.
pub(super) async fn find_receipt(pool: &PgPool, key: &HandoffKey) -> Result<Option<Sealed>> {
    let row = sqlx::query(
        "SELECT h.log_id, r.leaf_index, r.record_hash, r.body FROM audit.records AS r \
         JOIN audit.log_heads AS h ON h.tenant = r.tenant \
         WHERE r.tenant = $1 AND r.handoff_id = $2 \
           AND r.kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP') \
         ORDER BY r.kind = 'DEAD_LETTERED', r.leaf_index LIMIT 1",
    )
    .bind(key.0.as_str())
    .bind(key.1.to_string())
    .fetch_optional(pool)
    .await
    .map_err(failed)?;
    row.map(|row| {
        Ok(Sealed {
            log_id: rows::get(&row, "log_id")?,
            leaf_index: rows::get(&row, "leaf_index")?,
            hash: rows::hash32(&row, "record_hash")?,
            body: rows::get(&row, "body")?,
        })
    })
    .transpose()
}

/// Records in log order. Content and personal data are read in the same statement or after it:
/// records never change, and an erasure in between shows as an erasure.
pub(super) async fn list_records(
    pool: &PgPool,
    tenant: &TenantId,
    task: Option<TaskId>,
    from: i64,
    limit: i64,
    contents: bool,
) -> Result<Vec<StoredRecord>> {
    let mut query = sqlx::QueryBuilder::<sqlx::Postgres>::new(
        "SELECT r.leaf_index, r.record_hash, r.kind, r.task_id, r.handoff_id, r.recorded_at, r.body",
    );
    query.push(if contents {
        ", c.content_id, c.salt, c.codec, c.bytes FROM audit.records AS r LEFT JOIN contents AS c \
         ON c.tenant = r.tenant AND c.content_id = r.content_id"
    } else {
        " FROM audit.records AS r"
    });
    query.push(" WHERE r.tenant = ").push_bind(tenant.as_str());
    query.push(" AND r.leaf_index >= ").push_bind(from);
    if let Some(task) = task {
        query.push(" AND r.task_id = ").push_bind(task.to_string());
    }
    query.push(" ORDER BY r.leaf_index LIMIT ").push_bind(limit);
    let found = query.build().fetch_all(pool).await.map_err(failed)?;
    let mut records = found
        .iter()
        .map(|row| {
            Ok(StoredRecord {
                leaf_index: rows::get(row, "leaf_index")?,
                hash: rows::get(row, "record_hash")?,
                kind: rows::get(row, "kind")?,
                task_id: rows::get(row, "task_id")?,
                handoff_id: rows::get(row, "handoff_id")?,
                recorded_at: Micros(rows::get(row, "recorded_at")?),
                body: rows::get(row, "body")?,
                content: if contents { content(row)? } else { None },
                personal: Vec::new(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if contents {
        let places: Vec<i64> = records.iter().map(|record| record.leaf_index).collect();
        let mut personal = list_personal(pool, tenant, &places).await?;
        for record in &mut records {
            record.personal = personal.remove(&record.leaf_index).unwrap_or_default();
        }
    }
    Ok(records)
}

fn content(row: &PgRow) -> Result<Option<StoredContent>> {
    let id: Option<String> = rows::get(row, "content_id")?;
    id.map(|id| Ok(StoredContent { id, kept: kept(row)? })).transpose()
}

type Kept = Option<(Vec<u8>, Codec, Vec<u8>)>;

/// Salt, codec and bytes; nothing where they were erased.
fn kept(row: &PgRow) -> Result<Kept> {
    let salt: Option<Vec<u8>> = rows::get(row, "salt")?;
    let bytes: Option<Vec<u8>> = rows::get(row, "bytes")?;
    salt.zip(bytes).map(|(salt, bytes)| Ok((salt, rows::codec(row)?, bytes))).transpose()
}

async fn list_personal(
    pool: &PgPool,
    tenant: &TenantId,
    places: &[i64],
) -> Result<BTreeMap<i64, Vec<StoredPersonal>>> {
    let found = sqlx::query(
        "SELECT leaf_index, ordinal::bigint AS ordinal, subject_id, salt, codec, bytes \
         FROM personal_data WHERE tenant = $1 AND leaf_index = ANY($2) ORDER BY leaf_index, ordinal",
    )
    .bind(tenant.as_str())
    .bind(places)
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    let mut personal: BTreeMap<i64, Vec<StoredPersonal>> = BTreeMap::new();
    for row in &found {
        personal.entry(rows::get(row, "leaf_index")?).or_default().push(StoredPersonal {
            ordinal: rows::get(row, "ordinal")?,
            subject_id: rows::get(row, "subject_id")?,
            kept: kept(row)?,
        });
    }
    Ok(personal)
}

/// Handoffs without the record that every handoff begins with.
pub(super) async fn list_unrecorded(pool: &PgPool, tenant: &TenantId) -> Result<Vec<String>> {
    sqlx::query(
        "SELECT h.handoff_id FROM handoffs AS h WHERE h.tenant = $1 AND NOT EXISTS ( \
           SELECT 1 FROM audit.records AS r WHERE r.tenant = h.tenant \
           AND r.handoff_id = h.handoff_id AND r.kind IN ('HANDOFF', 'DEAD_LETTERED', 'NO_OP')) \
         ORDER BY h.handoff_id LIMIT 10",
    )
    .bind(tenant.as_str())
    .fetch_all(pool)
    .await
    .map_err(failed)?
    .iter()
    .map(|row| rows::get(row, "handoff_id"))
    .collect()
}
