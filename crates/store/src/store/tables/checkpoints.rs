//! `checkpoints`: saved states of runs.
//!
//! A row, and how it changes:
//!
//! - `checkpoints`: one saved state of one run on one task. Inserted only.

use crate::store::driver::{by_each_driver, in_memory};
use crate::store::erasure::ERASED_CHECKPOINT;
use crate::store::query::{Dialect, Row, Statement, Texts};
use crate::store::rows::{codec, get, hash32, micros, parse};
use crate::store::table::{Rights, table};
use crate::store::{
    CheckpointCursor, CheckpointPlace, CheckpointRow, Result, RunKey, Store, TaskKey,
};
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::AgentId;
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

/// Checkpoints of these tasks that are not erased, up to a time.
pub(in crate::store) const OF_TASKS: Texts = Texts {
    sqlite: "SELECT c.task_id, c.execution_id, c.seq FROM json_each(?1) AS t \
         CROSS JOIN checkpoints AS c ON c.tenant = ?2 AND c.task_id = t.value \
         WHERE length(c.salt) > 0 AND c.created_at <= ?3 ORDER BY c.task_id, c.execution_id, c.seq",
    postgres: "SELECT c.task_id, c.execution_id, c.seq FROM UNNEST($1::text[]) AS t(task_id) \
         JOIN checkpoints AS c ON c.tenant = $2 AND c.task_id = t.task_id \
         WHERE length(c.salt) > 0 AND c.created_at <= $3 \
         ORDER BY c.task_id, c.execution_id, c.seq",
};

/// Checkpoints of these tasks that are not erased, before a time.
pub(in crate::store) const TO_PURGE: Texts = Texts {
    sqlite: "SELECT c.task_id, c.execution_id, c.seq FROM json_each(?2) AS t \
         CROSS JOIN checkpoints AS c ON c.tenant = ?1 AND c.task_id = t.value \
         WHERE c.created_at < ?3 AND length(c.salt) > 0 LIMIT ?4",
    postgres: "SELECT c.task_id, c.execution_id, c.seq FROM UNNEST($2::text[]) AS t(task_id) \
         JOIN checkpoints AS c ON c.tenant = $1 AND c.task_id = t.task_id \
         WHERE c.created_at < $3 AND length(c.salt) > 0 LIMIT $4",
};

/// Postgres: erases a checkpoint.
pub(in crate::store) const ERASE: &str = "UPDATE checkpoints SET salt = '', codec = 'raw', bytes = $1 \
             WHERE tenant = $2 AND task_id = $3 AND execution_id = $4 AND seq = $5";

/// See [`crate::store::Store::list_checkpoints_at`].
pub(in crate::store) fn at(dialect: Dialect) -> String {
    match dialect {
        Dialect::Sqlite => format!(
            "WITH wanted (t, i, e, n) AS (SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 \
           FROM json_each(?)) \
         SELECT {CHECKPOINT} FROM wanted CROSS JOIN checkpoints \
           ON tenant = t AND task_id = i AND execution_id = e AND seq = n"
        ),
        Dialect::Postgres => format!(
            "SELECT {CHECKPOINT} FROM \
           UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[]) AS n(t, i, e, s) \
         JOIN checkpoints AS x ON x.tenant = n.t AND x.task_id = n.i AND x.execution_id = n.e \
           AND x.seq = n.s"
        ),
    }
}

/// SQLite: erases checkpoints.
pub(in crate::store) fn erase_these() -> String {
    let erased = String::from_utf8_lossy(ERASED_CHECKPOINT);
    format!(
        "UPDATE checkpoints SET salt = x'', codec = 'raw', bytes = CAST('{erased}' AS BLOB) \
         WHERE tenant = ? AND (task_id, execution_id, seq) IN \
           (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?))"
    )
}

/// SQLite: the last checkpoint of a run that a further condition finds.
pub(in crate::store) fn last(whose: &str) -> String {
    format!(
        "SELECT seq, commitment, agent_id FROM checkpoints \
             WHERE tenant = ? AND task_id = ? AND execution_id = ?{whose} ORDER BY seq DESC LIMIT 1"
    )
}

/// Postgres: the last checkpoint of each of the runs `n`, and the last one of the agent that asks.
pub(in crate::store) fn last_of(runs: &str) -> String {
    let last = |whose: &str| {
        format!(
            "(SELECT c.seq, c.commitment, c.agent_id FROM checkpoints AS c WHERE c.tenant = n.tenant \
             AND c.task_id = n.task_id AND c.execution_id = n.execution_id{whose} ORDER BY c.seq DESC LIMIT 1)"
        )
    };
    format!(
        "SELECT n.tenant, n.task_id, n.execution_id, c.seq, c.commitment, c.agent_id FROM {runs} \
         CROSS JOIN LATERAL ({} UNION {}) AS c",
        last(""),
        last(" AND c.agent_id = n.agent_id"),
    )
}

impl Store {
    /// A checkpoint by number; the run's last one where `seq` is `None`. Of one agent where given.
    pub async fn find_checkpoint(
        &self,
        run: &RunKey,
        agent: Option<&AgentId>,
        seq: Option<i64>,
    ) -> Result<Option<CheckpointRow>> {
        in_memory!(self, db => db.find_checkpoint(run, agent, seq));
        let find = Statement::new(format!("SELECT {CHECKPOINT} FROM checkpoints WHERE tenant = "));
        let find = find.push_bind(&run.0).push(" AND task_id = ").push_bind(run.1);
        let mut find = find.push(" AND execution_id = ").push_bind(run.2);
        if let Some(agent) = agent {
            find = find.push(" AND agent_id = ").push_bind(agent);
        }
        if let Some(seq) = seq {
            find = find.push(" AND seq = ").push_bind(seq);
        }
        self.find(find.push(" ORDER BY seq DESC LIMIT 1"), decode).await
    }

    /// Checkpoints by run and number, in no order; a missing one is left out.
    pub async fn list_checkpoints_at(&self, at: &[(RunKey, i64)]) -> Result<Vec<CheckpointRow>> {
        by_each_driver!(self, db => db.list_checkpoints_at(at))
    }

    /// Checkpoints of a task, newest first, of one agent where given.
    pub async fn list_checkpoints(
        &self,
        key: &TaskKey,
        agent: Option<&AgentId>,
        after: Option<&CheckpointCursor>,
        limit: i64,
    ) -> Result<Vec<CheckpointRow>> {
        in_memory!(self, db => db.list_checkpoints(key, agent, after, limit));
        let list = Statement::new(format!("SELECT {CHECKPOINT} FROM checkpoints WHERE tenant = "));
        let mut list = list.push_bind(&key.0).push(" AND task_id = ").push_bind(key.1);
        if let Some(agent) = agent {
            list = list.push(" AND agent_id = ").push_bind(agent);
        }
        if let Some((at, run, seq)) = after {
            list = list.push(" AND (created_at, execution_id, seq) < (").push_bind(*at);
            list = list.push(", ").push_bind(*run).push(", ").push_bind(*seq).push(")");
        }
        let list = list.push(" ORDER BY created_at DESC, execution_id DESC, seq DESC LIMIT ");
        self.list(list.push_bind(limit.max(0)), decode).await
    }

    /// The places and commitments of a task's checkpoints behind `after`, in the order of run and number. A page reads its own
    /// rows alone, and no contents.
    pub async fn list_checkpoint_places(
        &self,
        key: &TaskKey,
        after: Option<CheckpointRef>,
        limit: i64,
    ) -> Result<Vec<CheckpointPlace>> {
        in_memory!(self, db => db.list_checkpoint_places(key, after, limit));
        let (tenant, task) = key;
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
        self.list(page.bind(limit.max(0)), place).await
    }
}
