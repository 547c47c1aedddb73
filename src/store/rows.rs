//! Rows to values, once for both sides: the columns have the same names and meanings there.
//!
//! A macro and not a generic function, because the bounds that sqlx would ask for are longer than
//! what they bound.

use crate::store::StoreError;

/// A column holds something that this version cannot read.
pub(super) fn unreadable(column: &str, detail: impl std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("column {column} cannot be read: {detail}"))
}

/// Columns of a task, in any order.
pub(super) const TASK: &str = "tenant, task_id, status, holder, checkpoint_execution, checkpoint_seq, fence, handoffs, undelivered, failures, spent_nanos, remaining_nanos, created_at, updated_at";

/// Columns of a handoff.
pub(super) const HANDOFF: &str = "tenant, handoff_id, task_id, parent_id, source, source_version, source_execution, target, target_type, target_version, mode, status, fencing_token, attempts, deadline_at, spent_nanos, remaining_nanos, prompt_tokens, completion_tokens, idempotent, checkpoint_execution, checkpoint_seq, content_id, digest_salt, digest, reason, traceparent, created_at, accepted_at, ended_at";

/// Columns of an outbox row.
pub(super) const OUTBOX: &str =
    "tenant, handoff_id, task_id, seq, target, mode, visible_at, attempt, claimed_by, created_at";

/// Columns of a key.
pub(super) const KEY: &str =
    "tenant, key_id, key_hash, role, agent_id, label, created_at, expires_at";

/// Columns of an agent.
pub(super) const AGENT: &str = "tenant, agent_id, doc, secrets, created_at, updated_at";

/// Columns of a dead letter.
pub(super) const DEAD_LETTER: &str =
    "tenant, handoff_id, task_id, source, target, reason, failures, status, created_at";

/// Columns of a checkpoint.
pub(super) const CHECKPOINT: &str =
    "tenant, task_id, execution_id, seq, agent_id, commitment, salt, codec, bytes, created_at";

macro_rules! decoders {
    ($row:ty) => {
        use $crate::domain::handoff::{CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus};
        use $crate::domain::ids::Micros;
        use $crate::domain::money::Usd;
        use $crate::domain::task::{Task, TaskStatus};
        use $crate::evidence::commitment::{Codec, Part};
        use $crate::store::rows::unreadable;
        use $crate::store::{
            AgentRow, CheckpointRow, DeadLetterRow, KeyRow, LastCheckpoint, OutboxRow, Result, Role,
        };

        /// Reads one column.
        pub(super) fn get<'r, T>(row: &'r $row, column: &str) -> Result<T>
        where
            T: sqlx::Decode<'r, <$row as sqlx::Row>::Database>
                + sqlx::Type<<$row as sqlx::Row>::Database>,
        {
            sqlx::Row::try_get(row, column).map_err(|err| unreadable(column, err))
        }

        /// Reads a text column as something that parses.
        pub(super) fn parse<T>(row: &$row, column: &str) -> Result<T>
        where
            T: std::str::FromStr,
            T::Err: std::fmt::Display,
        {
            get::<String>(row, column)?.parse().map_err(|err| unreadable(column, err))
        }

        /// Reads a nullable text column as something that parses.
        pub(super) fn parse_opt<T>(row: &$row, column: &str) -> Result<Option<T>>
        where
            T: std::str::FromStr,
            T::Err: std::fmt::Display,
        {
            get::<Option<String>>(row, column)?
                .map(|text| text.parse().map_err(|err| unreadable(column, err)))
                .transpose()
        }

        fn micros(row: &$row, column: &str) -> Result<Micros> {
            get::<i64>(row, column).map(Micros)
        }

        fn micros_opt(row: &$row, column: &str) -> Result<Option<Micros>> {
            Ok(get::<Option<i64>>(row, column)?.map(Micros))
        }

        fn checkpoint_ref(row: &$row) -> Result<Option<CheckpointRef>> {
            let execution = parse_opt(row, "checkpoint_execution")?;
            let seq = get::<Option<i64>>(row, "checkpoint_seq")?;
            Ok(execution.zip(seq).map(|(execution_id, seq)| CheckpointRef { execution_id, seq }))
        }

        fn mode(row: &$row) -> Result<DeliveryMode> {
            match get::<&str>(row, "mode")? {
                "webhook" => Ok(DeliveryMode::Webhook),
                "pull" => Ok(DeliveryMode::Pull),
                other => Err(unreadable("mode", other)),
            }
        }

        /// A codec column.
        pub(super) fn codec(row: &$row) -> Result<Codec> {
            let text = get::<&str>(row, "codec")?;
            Codec::parse(text).ok_or_else(|| unreadable("codec", text))
        }

        /// A 32-byte hash column.
        pub(super) fn hash32(row: &$row, column: &str) -> Result<[u8; 32]> {
            get::<Vec<u8>>(row, column)?.try_into().map_err(|_| unreadable(column, "not 32 bytes"))
        }

        /// A task.
        pub(super) fn task(row: &$row) -> Result<Task> {
            let status = get::<&str>(row, "status")?;
            Ok(Task {
                tenant: parse(row, "tenant")?,
                id: parse(row, "task_id")?,
                status: TaskStatus::parse(status).ok_or_else(|| unreadable("status", status))?,
                holder: parse(row, "holder")?,
                checkpoint: checkpoint_ref(row)?,
                fence: get(row, "fence")?,
                handoffs: get(row, "handoffs")?,
                undelivered: get(row, "undelivered")?,
                failures: get(row, "failures")?,
                spent: Usd(get(row, "spent_nanos")?),
                remaining: Usd(get(row, "remaining_nanos")?),
                created_at: micros(row, "created_at")?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        /// A handoff.
        pub(super) fn handoff(row: &$row) -> Result<Handoff> {
            let status = get::<&str>(row, "status")?;
            Ok(Handoff {
                tenant: parse(row, "tenant")?,
                id: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                parent_id: parse_opt(row, "parent_id")?,
                source: parse(row, "source")?,
                source_version: get(row, "source_version")?,
                source_execution: parse(row, "source_execution")?,
                target: parse(row, "target")?,
                target_type: get(row, "target_type")?,
                target_version: get(row, "target_version")?,
                mode: mode(row)?,
                status: HandoffStatus::parse(status).ok_or_else(|| unreadable("status", status))?,
                fencing_token: get(row, "fencing_token")?,
                attempts: get(row, "attempts")?,
                deadline_at: micros_opt(row, "deadline_at")?,
                cost: Cost {
                    spent: Usd(get(row, "spent_nanos")?),
                    remaining: Usd(get(row, "remaining_nanos")?),
                    prompt_tokens: get::<i64>(row, "prompt_tokens")?.max(0) as u64,
                    completion_tokens: get::<i64>(row, "completion_tokens")?.max(0) as u64,
                },
                idempotent: get(row, "idempotent")?,
                checkpoint: checkpoint_ref(row)?,
                content_id: parse_opt(row, "content_id")?,
                digest_salt: get(row, "digest_salt")?,
                digest: get(row, "digest")?,
                reason: get(row, "reason")?,
                traceparent: get(row, "traceparent")?,
                created_at: micros(row, "created_at")?,
                accepted_at: micros_opt(row, "accepted_at")?,
                ended_at: micros_opt(row, "ended_at")?,
            })
        }

        /// An outbox row.
        pub(super) fn outbox(row: &$row) -> Result<OutboxRow> {
            Ok(OutboxRow {
                tenant: parse(row, "tenant")?,
                handoff_id: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                seq: get(row, "seq")?,
                target: parse(row, "target")?,
                mode: mode(row)?,
                visible_at: micros(row, "visible_at")?,
                attempt: get(row, "attempt")?,
                claimed_by: get(row, "claimed_by")?,
                created_at: micros(row, "created_at")?,
            })
        }

        /// A key.
        pub(super) fn key(row: &$row) -> Result<KeyRow> {
            let role = get::<&str>(row, "role")?;
            Ok(KeyRow {
                tenant: parse(row, "tenant")?,
                key_id: get(row, "key_id")?,
                hash: get(row, "key_hash")?,
                role: Role::parse(role).ok_or_else(|| unreadable("role", role))?,
                agent: parse_opt(row, "agent_id")?,
                label: get(row, "label")?,
                created_at: micros(row, "created_at")?,
                expires_at: micros_opt(row, "expires_at")?,
            })
        }

        /// An agent.
        pub(super) fn agent(row: &$row) -> Result<AgentRow> {
            Ok(AgentRow {
                tenant: parse(row, "tenant")?,
                agent: serde_json::from_str(get(row, "doc")?)
                    .map_err(|err| unreadable("doc", err))?,
                secrets: get(row, "secrets")?,
                created_at: micros(row, "created_at")?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        /// A dead letter.
        pub(super) fn dead_letter(row: &$row) -> Result<DeadLetterRow> {
            Ok(DeadLetterRow {
                tenant: parse(row, "tenant")?,
                handoff_id: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                source: parse(row, "source")?,
                target: parse_opt(row, "target")?,
                reason: get(row, "reason")?,
                failures: serde_json::from_str(get(row, "failures")?)
                    .map_err(|err| unreadable("failures", err))?,
                status: get(row, "status")?,
                created_at: micros(row, "created_at")?,
            })
        }

        /// What is known of a run's last checkpoint.
        pub(super) fn last_checkpoint(row: &$row) -> Result<LastCheckpoint> {
            Ok(LastCheckpoint {
                seq: get(row, "seq")?,
                commitment: hash32(row, "commitment")?,
                agent: parse(row, "agent_id")?,
            })
        }

        /// A checkpoint.
        pub(super) fn checkpoint(row: &$row) -> Result<CheckpointRow> {
            Ok(CheckpointRow {
                tenant: parse(row, "tenant")?,
                task_id: parse(row, "task_id")?,
                at: CheckpointRef {
                    execution_id: parse(row, "execution_id")?,
                    seq: get(row, "seq")?,
                },
                agent: parse(row, "agent_id")?,
                part: Part {
                    salt: get(row, "salt")?,
                    commitment: hash32(row, "commitment")?,
                    codec: codec(row)?,
                    bytes: get(row, "bytes")?,
                },
                created_at: micros(row, "created_at")?,
            })
        }
    };
}

pub(super) use decoders;
