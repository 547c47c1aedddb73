//! `checkpoints`: saved states of runs.
//!
//! A row, and how it changes:
//!
//! - `checkpoints`: one saved state of one run on one task. Inserted only.

use crate::store::query::{Database, Row, Statement};
use crate::store::rows::{codec, get, hash32, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{CheckpointPlace, CheckpointRow, Result, TaskKey};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_evidence::commitment::PackedContent;

/// Rights of the serving role. Records commit to a row: it is erased, and otherwise as it was written.
pub(super) const RIGHTS: Rights = &[("checkpoints", "SELECT, INSERT, UPDATE (salt, codec, bytes)")];

/// The columns, as a statement lists them.
pub(in crate::store) const CHECKPOINT: &str = CHECKPOINTS.list;

table! {
    CHECKPOINTS: CheckpointRow = "checkpoints" by 4 {
        "tenant" Text: |row| &row.tenant,
        "task_id" Text: |row| row.task_id,
        "execution_id" Text: |row| row.at.execution_id,
        "seq" Long: |row| row.at.seq,
        "agent_id" Text: |row| &row.agent,
        "commitment" Bytes: |row| &row.part.commitment,
        "salt" Bytes: |row| row.part.salt.as_slice(),
        "codec" Text: |row| row.part.codec.as_str(),
        "bytes" Bytes: |row| &row.part.bytes[..],
        "created_at" Long: |row| row.created_at,
    }
}

pub(in crate::store) fn decode(row: &dyn Row) -> Result<CheckpointRow> {
    Ok(CheckpointRow {
        tenant: parse(row, "tenant")?,
        task_id: parse(row, "task_id")?,
        at: CheckpointRef { execution_id: parse(row, "execution_id")?, seq: get(row, "seq")? },
        agent: parse(row, "agent_id")?,
        part: PackedContent {
            salt: get(row, "salt")?,
            commitment: hash32(row, "commitment")?,
            codec: codec(row)?,
            bytes: get::<Vec<u8>>(row, "bytes")?.into(),
        },
        created_at: micros(row, "created_at")?,
    })
}

/// The place of a checkpoint, with the commitment to its content.
fn place(row: &dyn Row) -> Result<CheckpointPlace> {
    let at = CheckpointRef { execution_id: parse(row, "execution_id")?, seq: get(row, "seq")? };
    Ok((at, hash32(row, "commitment")?))
}

/// See [`crate::store::HandoffStore::list_checkpoint_places`].
pub(in crate::store) async fn places<D: Database>(
    db: &D,
    (tenant, task): &TaskKey,
    after: Option<CheckpointRef>,
    limit: i64,
) -> Result<Vec<CheckpointPlace>> {
    let (behind, last) = match after {
        Some(_) => (" AND (execution_id, seq) > ($3, $4)", 5),
        None => ("", 3),
    };
    let text = format!(
        "SELECT execution_id, seq, commitment FROM checkpoints \
         WHERE tenant = $1 AND task_id = $2{behind} ORDER BY execution_id, seq LIMIT ${last}"
    );
    let mut page = Statement::new(text).bind(tenant).bind(*task);
    if let Some(CheckpointRef { execution_id, seq }) = after {
        page = page.bind(execution_id).bind(seq);
    }
    db.list(page.bind(limit.max(0)), place).await
}
