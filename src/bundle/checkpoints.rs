//! Finds a task's saved states by what records commit to.

use std::collections::HashMap;

use crate::domain::ids::{ExecutionId, TaskId, TenantId};
use crate::evidence::commitment::hash_text;
use crate::store::{Store, StoreError};

/// Saved states read at once.
const PAGE: i64 = 64;

/// Where the task's checkpoints are, by commitment.
pub(super) async fn checkpoints(
    store: &dyn Store,
    tenant: &TenantId,
    task: TaskId,
) -> Result<HashMap<String, Saved>, StoreError> {
    let key = (tenant.clone(), task);
    let (mut found, mut after) = (HashMap::new(), None);
    loop {
        let page = store.list_checkpoints(&key, None, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some((last.created_at, last.at.execution_id, last.at.seq));
        for row in &page {
            let saved = Saved { run: row.at.execution_id, seq: row.at.seq, packed: None };
            found.insert(hash_text(&row.part.commitment), saved);
        }
    }
}

/// Where a checkpoint is, and its salt once it is in the zip.
pub(super) struct Saved {
    pub(super) run: ExecutionId,
    pub(super) seq: i64,
    pub(super) packed: Option<String>,
}
