//! `erasures`: erasures of a subject's data, and their progress.
//!
//! A row, and how it changes:
//!
//! - `erasures`: an erasure and its progress. Updated until it ends.

use crate::store::erasure::{ErasureKey, ErasureRow, ErasureStatus};
use crate::store::query::{Row, Statement, Texts};
use crate::store::rows::{get, hash32, micros, micros_opt, parse, state};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::{ErasureId, Micros, TenantId};
use handoffd_evidence::erasure::ErasureScope;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("erasures", "SELECT, INSERT, UPDATE")];

/// Most erasures in a list.
const MOST: i64 = 1000;

/// Columns of an erasure.
pub(in crate::store) const ERASURE: &str = "tenant, erasure_id, subject_key, subject_id, commitment, scope, reason, status, held, data, contents, checkpoints, leaf_index, requested_at, updated_at, completed_at";

pub(in crate::store) fn decode(row: &dyn Row) -> Result<ErasureRow> {
    Ok(ErasureRow {
        tenant: parse(row, "tenant")?,
        id: parse(row, "erasure_id")?,
        subject_key: hash32(row, "subject_key")?,
        subject_id: get(row, "subject_id")?,
        commitment: hash32(row, "commitment")?,
        scope: state(row, "scope", ErasureScope::parse)?,
        reason: get(row, "reason")?,
        status: state(row, "status", ErasureStatus::parse)?,
        held: get(row, "held")?,
        data: get(row, "data")?,
        contents: get(row, "contents")?,
        checkpoints: get(row, "checkpoints")?,
        leaf_index: get(row, "leaf_index")?,
        requested_at: micros(row, "requested_at")?,
        updated_at: micros(row, "updated_at")?,
        completed_at: micros_opt(row, "completed_at")?,
    })
}

/// Finds an erasure by its key.
pub(in crate::store) fn by_id(key: &ErasureKey) -> Statement<'static> {
    let text = format!("SELECT {ERASURE} FROM erasures WHERE tenant = $1 AND erasure_id = $2");
    Statement::new(text).bind(key.0.to_string()).bind(key.1.to_string())
}

/// Finds the last erasure of a subject.
pub(in crate::store) fn latest(tenant: &TenantId, subject_key: &[u8; 32]) -> Statement<'static> {
    let text = format!(
        "SELECT {ERASURE} FROM erasures WHERE tenant = $1 AND subject_key = $2 \
         ORDER BY requested_at DESC, erasure_id DESC LIMIT 1"
    );
    Statement::new(text).bind(tenant.to_string()).bind(subject_key.to_vec())
}

/// Sets the place of an erasure's final record.
pub(in crate::store) fn place(
    tenant: &TenantId,
    id: ErasureId,
    leaf_index: i64,
) -> Statement<'static> {
    let place =
        Statement::new("UPDATE erasures SET leaf_index = $1 WHERE tenant = $2 AND erasure_id = $3");
    place.bind(leaf_index).bind(tenant.to_string()).bind(id.to_string())
}

/// SQLite: whether there is one of [`TRACED`].
pub(in crate::store) fn any_traced() -> String {
    format!("SELECT 1 FROM ({}) LIMIT 1", TRACED.sqlite)
}

/// Handoffs whose data of a subject went with its earlier erasures, below a leaf index.
///
/// SQLite: Handoffs whose data of a subject went with its earlier erasures, below a leaf index.
pub(in crate::store) const TRACED: Texts = Texts {
    sqlite: "SELECT DISTINCT p.handoff_id FROM erasures AS e \
     CROSS JOIN personal_data AS p ON p.tenant = e.tenant AND p.erasure_id = e.erasure_id \
     WHERE e.tenant = ?1 AND e.subject_key = ?2 AND p.handoff_id IS NOT NULL AND p.leaf_index < ?3",
    postgres: "SELECT DISTINCT p.handoff_id FROM erasures AS e \
         JOIN personal_data AS p ON p.tenant = e.tenant AND p.erasure_id = e.erasure_id \
         WHERE e.tenant = $1 AND e.subject_key = $2 AND p.handoff_id IS NOT NULL \
           AND p.leaf_index < $3 LIMIT $4",
};

impl Store {
    pub async fn find_erasure(&self, key: &ErasureKey) -> Result<Option<ErasureRow>> {
        self.find(by_id(key), decode).await
    }

    /// A subject's erasures by its keyed hash, oldest first; at most a thousand.
    pub async fn list_erasures(
        &self,
        tenant: &TenantId,
        subject_key: &[u8; 32],
    ) -> Result<Vec<ErasureRow>> {
        let text = format!(
            "SELECT {ERASURE} FROM erasures WHERE tenant = $1 AND subject_key = $2 \
             ORDER BY requested_at, erasure_id LIMIT $3"
        );
        self.list(Statement::new(text).bind(tenant).bind(subject_key).bind(MOST), decode).await
    }

    /// Erasures by id, whose order is that of time, the newest first; those before `before` if given.
    pub async fn list_newest_erasures(
        &self,
        tenant: &TenantId,
        before: Option<ErasureId>,
        limit: i64,
    ) -> Result<Vec<ErasureRow>> {
        let text = format!(
            "SELECT {ERASURE} FROM erasures WHERE tenant = $1 AND erasure_id < $2 \
             ORDER BY erasure_id DESC LIMIT $3"
        );
        // Ids are hexadecimal: `g` comes after all of them.
        let before = before.map_or_else(|| "g".to_owned(), |id| id.to_string());
        self.list(Statement::new(text).bind(tenant).bind(before).bind(limit), decode).await
    }

    /// Unfinished erasures of all tenants without progress since `cutoff`.
    pub async fn list_unfinished_erasures(&self, cutoff: Micros) -> Result<Vec<ErasureKey>> {
        let unfinished = Statement::new(
            "SELECT tenant, erasure_id FROM erasures \
             WHERE status <> 'COMPLETED' AND updated_at <= $1 ORDER BY updated_at LIMIT $2",
        );
        let key = |row: &dyn Row| Ok((parse(row, "tenant")?, parse(row, "erasure_id")?));
        self.list(unfinished.bind(cutoff).bind(MOST), key).await
    }
}
