//! `personal_data`: one subject's data of one handoff.
//!
//! A row, and how it changes:
//!
//! - `personal_data`: one subject's data of one handoff, indexed by subject. Erased by page.

use crate::store::query::{Database, Row, Statement, unreadable};
use crate::store::rows::{codec, get};
use crate::store::table::Rights;
use crate::store::{HandoffKey, Result};
use handoffd_evidence::commitment::unpack;

/// Rights of the serving role. Records commit to a row: it is erased, and otherwise as it was written.
pub(super) const RIGHTS: Rights =
    &[("personal_data", "SELECT, INSERT, UPDATE (subject_id, salt, bytes, erasure_id)")];

/// See [`crate::store::HandoffStore::list_personal_data`].
pub(in crate::store) async fn list<D: Database>(db: &D, key: &HandoffKey) -> Result<Vec<Vec<u8>>> {
    let data = Statement::new(
        "SELECT codec, bytes FROM personal_data WHERE tenant = $1 AND handoff_id = $2 \
         AND bytes IS NOT NULL ORDER BY leaf_index, ordinal",
    );
    let open = |row: &dyn Row| {
        unpack(codec(row)?, get(row, "bytes")?).map_err(|err| unreadable("bytes", err))
    };
    db.list(data.bind(&key.0).bind(key.1), open).await
}
