//! `legal_holds`: tasks and people whose data may not be erased.
//!
//! A row, and how it changes:
//!
//! - `legal_holds`: a task or person whose data may not be erased. Updated until it ends.

use crate::store::erasure::{HoldKey, HoldRow};
use crate::store::query::{Dialect, Row, Statement};
use crate::store::rows::{get, hash32, micros, micros_opt, parse, parse_opt};
use crate::store::table::Rights;
use crate::store::{Result, Store};
use handoffd_domain::ids::TenantId;

/// Rights of the serving role.
pub(super) const RIGHTS: Rights = &[("legal_holds", "SELECT, INSERT, UPDATE")];

/// Columns of a legal hold.
pub(in crate::store) const HOLD: &str =
    "tenant, hold_id, subject_key, subject_id, task_id, reason, placed_at, released_at";

pub(in crate::store) fn decode(row: &dyn Row) -> Result<HoldRow> {
    let subject_key = match get::<Option<&[u8]>>(row, "subject_key")? {
        Some(_) => Some(hash32(row, "subject_key")?),
        None => None,
    };
    Ok(HoldRow {
        tenant: parse(row, "tenant")?,
        id: get(row, "hold_id")?,
        subject_key,
        subject_id: get(row, "subject_id")?,
        task_id: parse_opt(row, "task_id")?,
        reason: get(row, "reason")?,
        placed_at: micros(row, "placed_at")?,
        released_at: micros_opt(row, "released_at")?,
    })
}

/// Finds a hold by its key.
pub(in crate::store) fn by_id(key: &HoldKey) -> Statement<'static> {
    let text = format!("SELECT {HOLD} FROM legal_holds WHERE tenant = $1 AND hold_id = $2");
    Statement::new(text).bind(key.0.to_string()).bind(key.1.clone())
}

/// Holds that forbid erasing a subject: on the subject, or on a task with data of the subject.
pub(in crate::store) fn forbidding(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "SELECT {HOLD} FROM legal_holds AS l WHERE tenant = ?1 AND released_at IS NULL \
         AND (subject_key = ?2 OR (task_id IS NOT NULL AND EXISTS ( \
           SELECT 1 FROM audit_records AS r CROSS JOIN personal_data AS p \
             ON p.tenant = r.tenant AND p.leaf_index = r.leaf_index \
           WHERE r.tenant = l.tenant AND r.task_id = l.task_id \
             AND (p.subject_id = ?3 OR p.erasure_id IN (SELECT e.erasure_id FROM erasures AS e \
               WHERE e.tenant = ?1 AND e.subject_key = ?2))))) \
         ORDER BY placed_at, hold_id LIMIT ?4"
        ),
        Dialect::Postgres => format!(
            "SELECT {HOLD} FROM legal_holds AS l WHERE tenant = $1 AND released_at IS NULL \
         AND (subject_key = $2 OR (task_id IS NOT NULL AND EXISTS ( \
           SELECT 1 FROM ( \
             SELECT h.handoff_id FROM handoffs AS h \
             WHERE h.tenant = l.tenant AND h.task_id = l.task_id \
             UNION ALL SELECT d.handoff_id FROM dead_letters AS d \
             WHERE d.tenant = l.tenant AND d.task_id = l.task_id) AS said \
           JOIN personal_data AS p ON p.tenant = l.tenant AND p.handoff_id = said.handoff_id \
           WHERE p.subject_id = $3 OR p.erasure_id IN (SELECT e.erasure_id FROM erasures AS e \
             WHERE e.tenant = $1 AND e.subject_key = $2)))) \
         ORDER BY placed_at, hold_id LIMIT $4"
        ),
    }
}

impl Store {
    /// A legal hold by key.
    pub async fn find_hold(&self, key: &HoldKey) -> Result<Option<HoldRow>> {
        self.find(by_id(key), decode).await
    }

    /// Legal holds after an id, in order of ids; of one subject if given.
    pub async fn list_holds(
        &self,
        tenant: &TenantId,
        subject_key: Option<&[u8; 32]>,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<HoldRow>> {
        let list = Statement::new(format!("SELECT {HOLD} FROM legal_holds WHERE tenant = "));
        let mut list = list.push_bind(tenant);
        if let Some(key) = subject_key {
            list = list.push(" AND subject_key = ").push_bind(key);
        }
        let list = list.push(" AND hold_id > ").push_bind(after.unwrap_or_default());
        self.list(list.push(" ORDER BY hold_id LIMIT ").push_bind(limit), decode).await
    }
}
