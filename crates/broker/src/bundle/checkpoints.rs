//! Finds a task's checkpoints by the commitments in its records.

use std::collections::HashMap;

use handoffd_domain::ids::{ExecutionId, TaskId, TenantId};
use handoffd_evidence::commitment::hash_text;
use handoffd_store::store::{Store, StoreError};

/// Places of checkpoints read at once.
const PAGE: i64 = 1_024;

/// The location of each of the task's checkpoints, by commitment.
pub(super) async fn checkpoints(
    store: &Store,
    tenant: &TenantId,
    task: TaskId,
) -> Result<HashMap<String, BundledCheckpoint>, StoreError> {
    let key = (tenant.clone(), task);
    let (mut found, mut after) = (HashMap::new(), None);
    loop {
        let page = store.list_checkpoint_places(&key, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = Some(*last);
        for (at, commitment) in &page {
            let saved = BundledCheckpoint { run: at.execution_id, seq: at.seq, packed: None };
            found.insert(hash_text(commitment), saved);
        }
    }
}

/// The location of a checkpoint, and its salt once the zip contains it.
pub(super) struct BundledCheckpoint {
    pub(super) run: ExecutionId,
    pub(super) seq: i64,
    pub(super) packed: Option<String>,
}
