//! `legal_holds`: tasks and people whose data may not be erased.
//!
//! A row, and how it changes:
//!
//! - `legal_holds`: a task or person whose data may not be erased. Updated until it ends.

use crate::store::Result;
use crate::store::erasure::{HoldKey, HoldRow};
use crate::store::query::{Database, Row, Statement};
use crate::store::rows::{get, hash32, micros, micros_opt, parse, parse_opt};
use crate::store::table::Rights;

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

/// See [`crate::store::ErasureStore::find_hold`].
pub(in crate::store) async fn find<D: Database>(db: &D, key: &HoldKey) -> Result<Option<HoldRow>> {
    let text = format!("SELECT {HOLD} FROM legal_holds WHERE tenant = $1 AND hold_id = $2");
    db.find(Statement::new(text).bind(&key.0).bind(&key.1), decode).await
}
