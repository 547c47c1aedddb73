//! `personal_data`: one subject's data of one handoff.

use crate::store::query::{Database, Row, Statement, unreadable};
use crate::store::rows::{codec, get};
use crate::store::{HandoffKey, Result};
use handoffd_core::evidence::commitment::unpack;

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
