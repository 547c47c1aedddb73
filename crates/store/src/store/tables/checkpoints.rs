//! `checkpoints`: saved states of runs.

use crate::store::query::Row;
use crate::store::rows::{codec, get, hash32, micros, parse};
use crate::store::table::table;
use crate::store::{CheckpointPlace, CheckpointRow, Result};
use handoffd_core::domain::handoff::CheckpointRef;
use handoffd_core::evidence::commitment::PackedContent;

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
pub(in crate::store) fn place(row: &dyn Row) -> Result<CheckpointPlace> {
    let at = CheckpointRef { execution_id: parse(row, "execution_id")?, seq: get(row, "seq")? };
    Ok((at, hash32(row, "commitment")?))
}
