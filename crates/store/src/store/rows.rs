//! Row mappings for both databases: columns have equal names and meanings there.
//!
//! A macro instead of a generic function, since sqlx's trait bounds would be longer than the code.

use crate::store::StoreError;
use handoffd_core::domain::ids::TaskId;

/// A column holds a value that this version cannot read.
pub(super) fn unreadable(column: &str, detail: impl std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("column {column} cannot be read: {detail}"))
}

/// Columns of a task, in any order.
pub(super) const TASK: &str = "tenant, task_id, status, holder, checkpoint_execution, checkpoint_seq, fence, handoffs, undelivered, failures, spent_nanos, remaining_nanos, created_at, updated_at, topped_up_nanos, opened_by, course, funds";

/// Columns of a handoff.
pub(super) const HANDOFF: &str = "tenant, handoff_id, task_id, parent_id, source, source_version, source_execution, target, target_type, target_version, mode, status, fencing_token, attempts, deadline_at, spent_nanos, remaining_nanos, prompt_tokens, completion_tokens, idempotent, checkpoint_execution, checkpoint_seq, content_id, digest_salt, digest, reason, traceparent, created_at, accepted_at, ended_at, policy, commitment, checkpoint_commitment, topped_up_nanos, origin, tracestate, span, started_at, offered_at, context, sent_id, question, questions, conversation_id, stream, stream_due, pulse, user_ref";

/// Columns of an outbox row.
pub(super) const OUTBOX: &str = "tenant, handoff_id, task_id, seq, target, mode, priority, visible_at, attempt, busy, claimed_by, created_at";

/// Columns of a key.
pub(super) const KEY: &str =
    "tenant, key_id, key_hash, role, agent_id, label, created_at, expires_at";

/// Columns of a session of the console.
pub(super) const SESSION: &str = "tenant, session_id, token_hash, key_id, role, created_at, last_seen_at, expires_at, user_agent";

/// Columns of an agent.
pub(super) const AGENT: &str = "tenant, agent_id, doc, secrets, created_at, updated_at";

/// Columns of a dead letter.
pub(super) const DEAD_LETTER: &str = "tenant, handoff_id, task_id, source, target, reason, failures, status, created_at, resolved_at, resolved_by";

/// Columns of a request under an `Idempotency-Key`.
pub(super) const REQUEST: &str = "tenant, request_id, asked, answer, created_at";

/// Columns of a refusal.
pub(super) const REFUSAL: &str =
    "tenant, refusal_id, created_at, source, target, task_id, handoff_id, code, pointer, findings";

/// Columns of an edge of a task.
pub(super) const EDGE: &str = "tenant, task_id, source, target, passages, repeats, completed_count, failures, spent_nanos, remaining_nanos, topped_up_nanos, updated_at";

/// Columns of an escalation.
pub(super) const ESCALATION: &str = "tenant, escalation_id, task_id, handoff_id, source, target, reason, channel, resume_as, status, created_at, timeout_at, resolved_at, resolved_by, resolution";

/// Columns of a log's head.
pub(super) const HEAD: &str = "tenant, log_id, size, hash, frontier";
/// Columns of a content besides its id, of a table called `c`.
pub(super) const KEPT: &str =
    "c.salt, c.codec, c.bytes, c.segment, c.seg_offset, c.seg_length, c.purged_at";

/// Which records of a log.
#[derive(Debug, Clone, Copy)]
pub(super) enum WhichRecords {
    All,
    OfTask(TaskId),
    AboutState,
}

impl From<Option<TaskId>> for WhichRecords {
    fn from(task: Option<TaskId>) -> Self {
        task.map_or(Self::All, Self::OfTask)
    }
}

/// Selects records about the state of objects, in the words of the index `records_state`, which serves no others.
pub(super) const ABOUT_STATE: &str = "kind IN ('AGENT_CREATED', 'AGENT_UPDATED', 'AGENT_DELETED', 'ENDPOINT_DISABLED', 'ENDPOINT_FAILING', \
     'ENDPOINT_RECOVERED', 'SECRET_ROTATED', 'CONTRACT_PUT', 'PAYLOAD_SCHEMA_PUT', 'KEY_CREATED', \
     'KEY_REVOKED', 'SUBSCRIPTION_CREATED', 'SUBSCRIPTION_UPDATED', 'SUBSCRIPTION_DELETED', \
     'SUBSCRIPTION_DISABLED', 'SUBSCRIPTION_REPLAYED', 'LEGAL_HOLD_PLACED', 'LEGAL_HOLD_RELEASED', \
     'BUDGET_CHANGED', 'STATE_ADOPTED')";

/// Columns of a checkpoint.
pub(super) const CHECKPOINT: &str =
    "tenant, task_id, execution_id, seq, agent_id, commitment, salt, codec, bytes, created_at";

/// Columns of a subscription.
pub(super) const SUBSCRIPTION: &str =
    "tenant, subscription_id, doc, secrets, created_at, updated_at";

/// Columns of a contract.
pub(super) const CONTRACT: &str =
    "tenant, contract_id, version, doc, sha256, source, target, created_at";

/// Columns of a payload schema.
pub(super) const PAYLOAD_SCHEMA: &str =
    "tenant, schema_id, version, ordinal, doc, sha256, migration, created_by, created_at";

/// Columns of a dedupe value's last use.
pub(super) const REPEAT: &str = "tenant, repeat_key, handoff_id, seen_at";

/// Columns of a refused task id.
pub(super) const REFUSED_TASK: &str = "tenant, task_id, agent_id, refusals, updated_at";

/// Columns of a return.
pub(super) const RETURN: &str =
    "tenant, handoff_id, task_id, agent_id, returned_at, visible_at, question";

/// Columns of a chunk.
pub(super) const CHUNK: &str =
    "tenant, handoff_id, seq, content_id, commitment, ends, reason, created_at";

/// Columns of a chunk `k`, with those of its content `c`.
pub(super) const CHUNK_KEPT: &str = "k.tenant, k.handoff_id, k.seq, k.content_id, k.commitment, k.ends, k.reason, k.created_at, c.salt, c.codec, c.bytes, c.segment, c.seg_offset, c.seg_length, c.purged_at";

/// Columns of a cap.
pub(super) const CAP: &str = "tenant, agent_id, window_s, usd_nanos, mark, books, updated_at";

/// Columns of an event `e`, with those of its handoff `h`.
pub(super) const EVENT: &str = "e.tenant, e.leaf_index, e.ordinal, e.event_id, e.type, e.at, e.task_id, e.handoff_id, e.source, e.target, e.audience, e.data, h.reason, h.content_id";

/// Columns of a cursor.
pub(super) const CURSOR: &str = "tenant, subscriber, leaf_index, ordinal, active, broker, lease_until, next_at, failures, failing_since, attempts";

/// Columns of an attempt to publish an event.
pub(super) const EVENT_DELIVERY: &str = "tenant, subscriber, slot, number, leaf_index, ordinal, event_id, type, at, attempt, outcome, status, detail, duration_us";
/// Columns of an erasure.
pub(super) const ERASURE: &str = "tenant, erasure_id, subject_key, subject_id, commitment, scope, reason, status, held, data, contents, checkpoints, leaf_index, requested_at, updated_at, completed_at";

/// Columns of a legal hold.
pub(super) const HOLD: &str =
    "tenant, hold_id, subject_key, subject_id, task_id, reason, placed_at, released_at";

/// Columns of a datum in an access report: of `personal_data AS p`, its record `r` and its handoff `h`.
pub(super) const HELD: &str = "p.leaf_index, p.ordinal, p.codec, p.bytes, r.kind, r.record_hash, r.recorded_at, r.task_id, r.handoff_id, h.source, h.target, h.status, h.question, h.attempts, h.accepted_at";

macro_rules! decoders {
    ($row:ty) => {
        /// Reads one column of any type.
        pub(super) fn get<'r, T>(row: &'r $row, column: &str) -> $crate::store::Result<T>
        where
            T: sqlx::Decode<'r, <$row as sqlx::Row>::Database>
                + sqlx::Type<<$row as sqlx::Row>::Database>,
        {
            sqlx::Row::try_get(row, column).map_err(|err| unreadable(column, err))
        }

        $crate::store::rows::decoders!($row, get);
    };
    ($row:ty, get) => {
        use handoffd_core::domain::cap::{Cap, Window};
        use handoffd_core::domain::dead_letter::DeadLetterStatus;
        use handoffd_core::domain::escalation::{Escalation, EscalationOutcome, EscalationStatus};
        use handoffd_core::domain::event::{Event, Position};
        use handoffd_core::domain::handoff::{
            CheckpointRef, Cost, DeliveryMode, Handoff, HandoffStatus, Priority,
        };
        use handoffd_core::domain::ids::Micros;
        use handoffd_core::domain::latency::LatencyClock;
        use handoffd_core::domain::money::Usd;
        use handoffd_core::domain::progress::Edge;
        use handoffd_core::domain::task::{Task, TaskStatus};
        use handoffd_core::evidence::commitment::{Codec, PackedContent};
        use handoffd_core::evidence::erasure::{DataSlot, ErasureScope};
        use handoffd_core::evidence::merkle::Frontier;
        use handoffd_core::evidence::record::LogHead;
        use $crate::store::contracts::{ContractRow, RepeatRow};
        use $crate::store::erasure::{
            ErasureRow, ErasureStatus, HandoffRoute, HoldRow, SubjectDatum,
        };
        use $crate::store::events::{
            CursorRow, EventDeliveryOutcome, EventDeliveryRow, EventRow, SubscriptionRow,
        };
        use $crate::store::rows::unreadable;
        use $crate::store::schemas::PayloadSchemaRow;
        use $crate::store::{
            AgentRow, CheckpointRow, DeadLetterRow, KeyRow, LastCheckpoint, OutboxRow,
            RefusedTaskRow, Result, ReturnRow, Role, TreeKeyRow,
        };

        /// Parses a text column.
        pub(super) fn parse<T>(row: &$row, column: &str) -> Result<T>
        where
            T: std::str::FromStr,
            T::Err: std::fmt::Display,
        {
            get::<&str>(row, column)?.parse().map_err(|err| unreadable(column, err))
        }

        /// Parses a nullable text column.
        pub(super) fn parse_opt<T>(row: &$row, column: &str) -> Result<Option<T>>
        where
            T: std::str::FromStr,
            T::Err: std::fmt::Display,
        {
            get::<Option<&str>>(row, column)?
                .map(|text| text.parse().map_err(|err| unreadable(column, err)))
                .transpose()
        }

        /// Reads a column with a fixed set of states.
        fn state<T>(row: &$row, column: &str, parse: fn(&str) -> Option<T>) -> Result<T> {
            let text = get::<&str>(row, column)?;
            parse(text).ok_or_else(|| unreadable(column, text))
        }

        fn state_opt<T>(
            row: &$row,
            column: &str,
            parse: fn(&str) -> Option<T>,
        ) -> Result<Option<T>> {
            let text = get::<Option<&str>>(row, column)?;
            text.map(|text| parse(text).ok_or_else(|| unreadable(column, text))).transpose()
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
            let mode = get::<&str>(row, "mode")?;
            DeliveryMode::parse(mode).ok_or_else(|| unreadable("mode", mode))
        }

        fn priority(row: &$row) -> Result<Priority> {
            let rank = get::<i32>(row, "priority")?;
            Priority::of_rank(rank).ok_or_else(|| unreadable("priority", rank))
        }

        pub(super) fn codec(row: &$row) -> Result<Codec> {
            state(row, "codec", Codec::parse)
        }

        /// The stored form of a content.
        pub(super) fn content_kept(row: &$row) -> Result<$crate::store::ContentStorage> {
            let place = match get::<Option<String>>(row, "segment")? {
                Some(segment) => Some($crate::store::cold::ArchiveLocation {
                    segment,
                    offset: unsigned(row, "seg_offset")?,
                    length: unsigned(row, "seg_length")?,
                }),
                None => None,
            };
            Ok($crate::store::ContentStorage::from_columns(
                get(row, "salt")?,
                codec(row)?,
                get(row, "bytes")?,
                place,
                get::<Option<i64>>(row, "purged_at")?.is_some(),
            ))
        }

        /// A record as the purge looks at it.
        pub(super) fn aged(row: &$row) -> Result<$crate::store::purge::PurgeCandidate> {
            Ok($crate::store::purge::PurgeCandidate {
                leaf_index: get(row, "leaf_index")?,
                kind: get(row, "kind")?,
                recorded_at: micros(row, "recorded_at")?,
                task: parse_opt(row, "task_id")?,
                handoff: parse_opt(row, "handoff_id")?,
                content: parse_opt(row, "content_id")?,
            })
        }

        /// A content, and where and when a record has it.
        pub(super) fn sharing(
            row: &$row,
        ) -> Result<(handoffd_core::domain::ids::ContentId, i64, Micros)> {
            Ok((parse(row, "content_id")?, get(row, "leaf_index")?, micros(row, "recorded_at")?))
        }

        pub(super) fn saved(
            row: &$row,
        ) -> Result<(handoffd_core::domain::ids::TaskId, CheckpointRef)> {
            let execution_id = parse(row, "execution_id")?;
            Ok((parse(row, "task_id")?, CheckpointRef { execution_id, seq: get(row, "seq")? }))
        }

        /// Rejects a claim whose outbox row names another receiver than its handoff: the row was changed past the broker.
        pub(super) fn addressed(row: &$row) -> Result<()> {
            let (target, addressee): (&str, &str) = (get(row, "target")?, get(row, "addressee")?);
            if target == addressee {
                return Ok(());
            }
            Err(unreadable("target", format!("the handoff is for {addressee}")))
        }

        /// The bytes to deliver of a content without bytes: none where erased. Rejects one that is only cold,
        /// by its columns `salt` and `segment`.
        pub(super) fn erased(row: &$row) -> Result<Vec<u8>> {
            let salt = get::<Option<&[u8]>>(row, "salt")?;
            match get::<Option<&str>>(row, "segment")?.filter(|_| salt.is_some()) {
                Some(segment) => Err(unreadable("bytes", format!("they are in {segment}"))),
                None => Ok(Vec::new()),
            }
        }

        pub(super) fn unsigned(row: &$row, column: &str) -> Result<u64> {
            u64::try_from(get::<i64>(row, column)?).map_err(|err| unreadable(column, err))
        }

        pub(super) fn hash32(row: &$row, column: &str) -> Result<[u8; 32]> {
            get::<Vec<u8>>(row, column)?.try_into().map_err(|_| unreadable(column, "not 32 bytes"))
        }

        pub(super) fn head(row: &$row) -> Result<LogHead> {
            let tree = match get::<Option<Vec<u8>>>(row, "frontier")? {
                Some(bytes) => Frontier::parse(&bytes)
                    .ok_or_else(|| unreadable("frontier", "not a tree's right edge"))?,
                None => Frontier::default(),
            };
            Ok(LogHead {
                tenant: parse(row, "tenant")?,
                log_id: get(row, "log_id")?,
                size: get(row, "size")?,
                hash: get(row, "hash")?,
                tree,
            })
        }

        pub(super) fn tree_key(row: &$row) -> Result<TreeKeyRow> {
            Ok(TreeKeyRow {
                public: hash32(row, "public_key")?,
                created_at: micros(row, "created_at")?,
                retired_at: micros_opt(row, "retired_at")?,
            })
        }

        pub(super) fn task(row: &$row) -> Result<Task> {
            Ok(Task {
                tenant: parse(row, "tenant")?,
                id: parse(row, "task_id")?,
                status: state(row, "status", TaskStatus::parse)?,
                holder: parse(row, "holder")?,
                checkpoint: checkpoint_ref(row)?,
                fence: get(row, "fence")?,
                handoffs: get(row, "handoffs")?,
                undelivered: get(row, "undelivered")?,
                failures: get(row, "failures")?,
                spent: Usd(get(row, "spent_nanos")?),
                remaining: Usd(get(row, "remaining_nanos")?),
                created_at: micros(row, "created_at")?,
                topped_up: Usd(get(row, "topped_up_nanos")?),
                opened_by: parse_opt(row, "opened_by")?,
                course: course(row)?,
                funds: funds(row)?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        fn course(row: &$row) -> Result<handoffd_core::domain::course::Course> {
            get::<Option<&str>>(row, "course")?
                .map(serde_json::from_str)
                .transpose()
                .map(Option::unwrap_or_default)
                .map_err(|err| unreadable("course", err))
        }

        fn funds(row: &$row) -> Result<Option<Box<handoffd_core::domain::funds::Funds>>> {
            get::<Option<String>>(row, "funds")?
                .map(|text| $crate::store::budget_column::read(&text).map(Box::new))
                .transpose()
                .map_err(|err| unreadable("funds", err))
        }

        fn hash32_opt(row: &$row, column: &str) -> Result<Option<[u8; 32]>> {
            get::<Option<Vec<u8>>>(row, column)?
                .map(|bytes| bytes.try_into().map_err(|_| unreadable(column, "not 32 bytes")))
                .transpose()
        }

        pub(super) fn edge(row: &$row) -> Result<Edge> {
            Ok(Edge {
                tenant: parse(row, "tenant")?,
                task_id: parse(row, "task_id")?,
                source: parse(row, "source")?,
                target: parse(row, "target")?,
                passages: get(row, "passages")?,
                repeats: get(row, "repeats")?,
                completed: get(row, "completed_count")?,
                spent: Usd(get(row, "spent_nanos")?),
                remaining: Usd(get(row, "remaining_nanos")?),
                topped_up: Usd(get(row, "topped_up_nanos")?),
                updated_at: micros(row, "updated_at")?,
            })
        }

        pub(super) fn escalation(row: &$row) -> Result<Escalation> {
            Ok(Escalation {
                tenant: parse(row, "tenant")?,
                id: parse(row, "escalation_id")?,
                task_id: parse(row, "task_id")?,
                handoff_id: parse_opt(row, "handoff_id")?,
                source: parse(row, "source")?,
                target: parse(row, "target")?,
                reason: get(row, "reason")?,
                channel: get(row, "channel")?,
                resume_as: parse_opt(row, "resume_as")?,
                status: state(row, "status", EscalationStatus::parse)?,
                created_at: micros(row, "created_at")?,
                timeout_at: micros(row, "timeout_at")?,
                resolved_at: micros_opt(row, "resolved_at")?,
                resolved_by: get(row, "resolved_by")?,
                resolution: state_opt(row, "resolution", EscalationOutcome::parse)?,
            })
        }

        pub(super) fn ruling(
            row: &$row,
        ) -> Result<Option<Box<handoffd_core::domain::ruling::Ruling>>> {
            get::<Option<String>>(row, "policy")?
                .map(|text| serde_json::from_str(&text))
                .transpose()
                .map_err(|err| unreadable("policy", err))
        }

        pub(super) fn context(
            row: &$row,
        ) -> Result<Option<handoffd_core::domain::window::ContextFacts>> {
            get::<Option<&str>>(row, "context")?
                .map(serde_json::from_str)
                .transpose()
                .map_err(|err| unreadable("context", err))
        }

        /// A handoff's status: an accepted one with an open question waits for the answer.
        fn handoff_status(row: &$row) -> Result<HandoffStatus> {
            let status = state(row, "status", HandoffStatus::parse)?;
            let asks = get::<Option<i64>>(row, "question")?.is_some();
            let waits = asks && status == HandoffStatus::Accepted;
            Ok(if waits { HandoffStatus::InputRequired } else { status })
        }

        fn questions(row: &$row) -> Result<Vec<handoffd_core::domain::question::Question>> {
            get::<Option<&str>>(row, "questions")?
                .map(serde_json::from_str)
                .transpose()
                .map(Option::unwrap_or_default)
                .map_err(|err| unreadable("questions", err))
        }

        fn stream(row: &$row) -> Result<Option<handoffd_core::domain::stream::Stream>> {
            get::<Option<&str>>(row, "stream")?
                .map(serde_json::from_str)
                .transpose()
                .map_err(|err| unreadable("stream", err))
        }

        fn pulse(row: &$row) -> Result<Option<handoffd_core::domain::lease::HolderPulse>> {
            get::<Option<&str>>(row, "pulse")?
                .map(serde_json::from_str)
                .transpose()
                .map_err(|err| unreadable("pulse", err))
        }

        pub(super) fn handoff(row: &$row) -> Result<Handoff> {
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
                status: handoff_status(row)?,
                fencing_token: get(row, "fencing_token")?,
                attempts: get(row, "attempts")?,
                deadline_at: micros_opt(row, "deadline_at")?,
                pulse: pulse(row)?,
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
                ruling: ruling(row)?,
                context: context(row)?,
                sent_id: parse_opt(row, "sent_id")?,
                questions: questions(row)?,
                conversation_id: get(row, "conversation_id")?,
                user_ref: get(row, "user_ref")?,
                stream: stream(row)?,
                commitment: hash32_opt(row, "commitment")?,
                checkpoint_commitment: hash32_opt(row, "checkpoint_commitment")?,
                topped_up: Usd(get(row, "topped_up_nanos")?),
                origin: parse_opt(row, "origin")?,
                tracestate: get(row, "tracestate")?,
                span: get(row, "span")?,
                clock: LatencyClock {
                    // Of rows of 0.1.0 the commit is the earliest time that is known.
                    started_at: micros_opt(row, "started_at")?
                        .map_or_else(|| micros(row, "created_at"), Ok)?,
                    offered_at: micros_opt(row, "offered_at")?,
                },
            })
        }

        pub(super) fn outbox(row: &$row) -> Result<OutboxRow> {
            Ok(OutboxRow {
                tenant: parse(row, "tenant")?,
                handoff_id: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                seq: get(row, "seq")?,
                target: parse(row, "target")?,
                mode: mode(row)?,
                priority: priority(row)?,
                visible_at: micros(row, "visible_at")?,
                attempt: get(row, "attempt")?,
                busy: get(row, "busy")?,
                claimed_by: get(row, "claimed_by")?,
                created_at: micros(row, "created_at")?,
            })
        }

        pub(super) fn key(row: &$row) -> Result<KeyRow> {
            Ok(KeyRow {
                tenant: parse(row, "tenant")?,
                key_id: get(row, "key_id")?,
                hash: get(row, "key_hash")?,
                role: state(row, "role", Role::parse)?,
                agent: parse_opt(row, "agent_id")?,
                label: get(row, "label")?,
                created_at: micros(row, "created_at")?,
                expires_at: micros_opt(row, "expires_at")?,
            })
        }

        pub(super) fn agent(row: &$row) -> Result<AgentRow> {
            let mut agent: handoffd_core::domain::agent::Agent =
                serde_json::from_str(get(row, "doc")?).map_err(|err| unreadable("doc", err))?;
            // The row is found by its column, whatever the document says.
            agent.agent_id = parse(row, "agent_id")?;
            Ok(AgentRow {
                tenant: parse(row, "tenant")?,
                agent,
                secrets: get(row, "secrets")?,
                created_at: micros(row, "created_at")?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        /// An agent row joined to its change; `None` for a deleted agent.
        pub(super) fn changed_agent(
            row: &$row,
        ) -> Result<(handoffd_core::domain::ids::AgentId, Option<AgentRow>)> {
            let there = get::<Option<String>>(row, "doc")?.is_some();
            Ok((parse(row, "agent_id")?, if there { Some(agent(row)?) } else { None }))
        }

        pub(super) fn contract(row: &$row) -> Result<ContractRow> {
            Ok(ContractRow {
                tenant: parse(row, "tenant")?,
                id: get(row, "contract_id")?,
                version: get(row, "version")?,
                doc: get(row, "doc")?,
                sha256: hash32(row, "sha256")?,
                source: get(row, "source")?,
                target: get(row, "target")?,
                created_at: micros(row, "created_at")?,
            })
        }

        pub(super) fn payload_schema(row: &$row) -> Result<PayloadSchemaRow> {
            Ok(PayloadSchemaRow {
                tenant: parse(row, "tenant")?,
                id: get(row, "schema_id")?,
                version: get(row, "version")?,
                ordinal: get(row, "ordinal")?,
                doc: get(row, "doc")?,
                sha256: hash32(row, "sha256")?,
                migration: get(row, "migration")?,
                created_by: get(row, "created_by")?,
                created_at: micros(row, "created_at")?,
            })
        }

        pub(super) fn repeat(row: &$row) -> Result<RepeatRow> {
            Ok(RepeatRow {
                tenant: parse(row, "tenant")?,
                key: get(row, "repeat_key")?,
                handoff_id: parse(row, "handoff_id")?,
                seen_at: micros(row, "seen_at")?,
            })
        }

        pub(super) fn refused_task(row: &$row) -> Result<RefusedTaskRow> {
            Ok(RefusedTaskRow {
                tenant: parse(row, "tenant")?,
                task_id: parse(row, "task_id")?,
                agent: parse(row, "agent_id")?,
                refusals: get(row, "refusals")?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        /// A chunk with its content as stored.
        pub(super) fn stored_chunk(row: &$row) -> Result<$crate::store::streams::StoredChunk> {
            let content = parse_opt(row, "content_id")?;
            let kept = match (content, get::<Option<&str>>(row, "codec")?) {
                (Some(_), Some(_)) => Some(content_kept(row)?),
                (Some(_), None) => Some($crate::store::ContentStorage::Erased),
                (None, _) => None,
            };
            Ok($crate::store::streams::StoredChunk {
                row: $crate::store::streams::ChunkRow {
                    tenant: parse(row, "tenant")?,
                    handoff_id: parse(row, "handoff_id")?,
                    seq: get(row, "seq")?,
                    content,
                    commitment: hash32_opt(row, "commitment")?,
                    ends: state_opt(row, "ends", $crate::store::streams::parse_end)?,
                    reason: get(row, "reason")?,
                    created_at: micros(row, "created_at")?,
                },
                content: kept,
            })
        }

        pub(super) fn handoff_key(row: &$row) -> Result<$crate::store::HandoffKey> {
            Ok((parse(row, "tenant")?, parse(row, "handoff_id")?))
        }

        /// How far a receiver was sent a stream.
        pub(super) fn stream_line(row: &$row) -> Result<$crate::store::streams::StreamLine> {
            Ok($crate::store::streams::StreamLine {
                sent: get(row, "sent")?,
                failures: get(row, "failures")?,
            })
        }

        pub(super) fn returned(row: &$row) -> Result<ReturnRow> {
            Ok(ReturnRow {
                tenant: parse(row, "tenant")?,
                handoff_id: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                agent: parse(row, "agent_id")?,
                returned_at: micros(row, "returned_at")?,
                visible_at: micros(row, "visible_at")?,
                question: get::<Option<i64>>(row, "question")?
                    .and_then(|number| u32::try_from(number).ok()),
            })
        }

        pub(super) fn cap(row: &$row) -> Result<Cap> {
            let agent: String = get(row, "agent_id")?;
            let agent = if agent.is_empty() {
                None
            } else {
                Some(agent.parse().map_err(|err| unreadable("agent_id", err))?)
            };
            Ok(Cap {
                tenant: parse(row, "tenant")?,
                agent,
                window: Window::of_seconds(get(row, "window_s")?)
                    .map_err(|err| unreadable("window_s", err))?,
                usd: get::<Option<i64>>(row, "usd_nanos")?.map(Usd),
                mark: get(row, "mark")?,
                usage: serde_json::from_str(&get::<String>(row, "books")?)
                    .map_err(|err| unreadable("books", err))?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        pub(super) fn subscription(row: &$row) -> Result<SubscriptionRow> {
            Ok(SubscriptionRow {
                tenant: parse(row, "tenant")?,
                id: parse(row, "subscription_id")?,
                subscription: serde_json::from_str(get(row, "doc")?)
                    .map_err(|err| unreadable("doc", err))?,
                secrets: get(row, "secrets")?,
                created_at: micros(row, "created_at")?,
                updated_at: micros(row, "updated_at")?,
            })
        }

        fn position(row: &$row) -> Result<Position> {
            Ok(Position { leaf_index: get(row, "leaf_index")?, ordinal: get(row, "ordinal")? })
        }

        pub(super) fn event(row: &$row) -> Result<EventRow> {
            Ok(EventRow {
                id: parse(row, "event_id")?,
                position: position(row)?,
                event: Event {
                    kind: parse(row, "type")?,
                    tenant: parse(row, "tenant")?,
                    at: micros(row, "at")?,
                    task_id: parse_opt(row, "task_id")?,
                    handoff_id: parse_opt(row, "handoff_id")?,
                    source: parse_opt(row, "source")?,
                    target: parse_opt(row, "target")?,
                    audience: parse_opt(row, "audience")?,
                    data: serde_json::from_str(get(row, "data")?)
                        .map_err(|err| unreadable("data", err))?,
                },
                words: get(row, "reason")?,
                content_id: parse_opt(row, "content_id")?,
            })
        }

        pub(super) fn cursor(row: &$row) -> Result<CursorRow> {
            Ok(CursorRow {
                tenant: parse(row, "tenant")?,
                subscriber: parse(row, "subscriber")?,
                position: position(row)?,
                active: get(row, "active")?,
                broker: get(row, "broker")?,
                lease_until: micros(row, "lease_until")?,
                next_at: micros(row, "next_at")?,
                failures: get(row, "failures")?,
                failing_since: micros_opt(row, "failing_since")?,
                attempts: get(row, "attempts")?,
            })
        }

        pub(super) fn event_delivery(row: &$row) -> Result<EventDeliveryRow> {
            Ok(EventDeliveryRow {
                number: get(row, "number")?,
                position: position(row)?,
                event_id: get(row, "event_id")?,
                kind: get(row, "type")?,
                at: micros(row, "at")?,
                attempt: get(row, "attempt")?,
                outcome: state(row, "outcome", EventDeliveryOutcome::parse)?,
                status: get(row, "status")?,
                detail: get(row, "detail")?,
                duration_us: get(row, "duration_us")?,
            })
        }

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
                status: state(row, "status", DeadLetterStatus::parse)?,
                created_at: micros(row, "created_at")?,
                resolved_at: micros_opt(row, "resolved_at")?,
                resolved_by: get(row, "resolved_by")?,
            })
        }

        pub(super) fn request(row: &$row) -> Result<$crate::store::requests::RequestRow> {
            Ok($crate::store::requests::RequestRow {
                tenant: parse(row, "tenant")?,
                id: hash32(row, "request_id")?,
                asked: hash32(row, "asked")?,
                answer: get(row, "answer")?,
                created_at: micros(row, "created_at")?,
            })
        }

        pub(super) fn open_escalations(
            row: &$row,
        ) -> Result<handoffd_core::domain::waits::OpenEscalations> {
            Ok(handoffd_core::domain::waits::OpenEscalations {
                source: parse(row, "source")?,
                target: parse(row, "target")?,
                reason: get(row, "reason")?,
                count: get(row, "waiting")?,
                first: parse(row, "escalation_id")?,
                task_id: parse(row, "task_id")?,
                since: micros(row, "created_at")?,
                timeout_at: micros(row, "first_timeout")?,
            })
        }

        pub(super) fn open_letters(
            row: &$row,
        ) -> Result<handoffd_core::domain::waits::OpenDeadLetters> {
            Ok(handoffd_core::domain::waits::OpenDeadLetters {
                source: parse(row, "source")?,
                reason: get(row, "reason")?,
                count: get(row, "waiting")?,
                first: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                since: micros(row, "created_at")?,
            })
        }

        pub(super) fn waiting_deliveries(
            row: &$row,
        ) -> Result<handoffd_core::domain::waits::WaitingDeliveries> {
            Ok(handoffd_core::domain::waits::WaitingDeliveries {
                target: parse(row, "target")?,
                count: get(row, "waiting")?,
                first: parse(row, "handoff_id")?,
                task_id: parse(row, "task_id")?,
                since: micros(row, "created_at")?,
                attempts: get(row, "attempts")?,
                visible_at: micros(row, "first_visible")?,
                last_error: get(row, "last_error")?,
            })
        }

        pub(super) fn idle_tasks(row: &$row) -> Result<handoffd_core::domain::waits::IdleTasks> {
            Ok(handoffd_core::domain::waits::IdleTasks {
                holder: parse(row, "holder")?,
                used_up: get::<i64>(row, "used_up")? != 0,
                count: get(row, "waiting")?,
                first: parse(row, "task_id")?,
                since: micros(row, "since")?,
            })
        }

        pub(super) fn session(row: &$row) -> Result<$crate::store::console_sessions::SessionRow> {
            Ok($crate::store::console_sessions::SessionRow {
                tenant: parse(row, "tenant")?,
                id: parse(row, "session_id")?,
                token_hash: hash32(row, "token_hash")?,
                key_id: get(row, "key_id")?,
                role: state(row, "role", Role::parse)?,
                created_at: micros(row, "created_at")?,
                last_seen_at: micros(row, "last_seen_at")?,
                expires_at: micros(row, "expires_at")?,
                user_agent: get(row, "user_agent")?,
            })
        }

        pub(super) fn refusal(row: &$row) -> Result<$crate::store::refusals::RefusalRow> {
            Ok($crate::store::refusals::RefusalRow {
                tenant: parse(row, "tenant")?,
                id: parse(row, "refusal_id")?,
                created_at: micros(row, "created_at")?,
                source: parse_opt(row, "source")?,
                target: parse_opt(row, "target")?,
                task_id: parse_opt(row, "task_id")?,
                handoff_id: parse_opt(row, "handoff_id")?,
                code: get(row, "code")?,
                pointer: get(row, "pointer")?,
                findings: serde_json::from_str(get(row, "findings")?)
                    .map_err(|err| unreadable("findings", err))?,
            })
        }

        pub(super) fn erasure(row: &$row) -> Result<ErasureRow> {
            Ok(ErasureRow {
                tenant: parse(row, "tenant")?,
                id: parse(row, "erasure_id")?,
                subject_key: hash32(row, "subject_key")?,
                subject_id: get(row, "subject_id")?,
                commitment: hash32(row, "commitment")?,
                scope: state(row, "scope", ErasureScope::parse)?,
                reason: get(row, "reason")?,
                status: state(row, "status", ErasureStatus::parse)?,
                held: get(row, "held")?,
                data: get(row, "data")?,
                contents: get(row, "contents")?,
                checkpoints: get(row, "checkpoints")?,
                leaf_index: get(row, "leaf_index")?,
                requested_at: micros(row, "requested_at")?,
                updated_at: micros(row, "updated_at")?,
                completed_at: micros_opt(row, "completed_at")?,
            })
        }

        pub(super) fn hold(row: &$row) -> Result<HoldRow> {
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

        pub(super) fn slot(row: &$row) -> Result<DataSlot> {
            Ok(DataSlot { leaf_index: get(row, "leaf_index")?, ordinal: get(row, "ordinal")? })
        }

        pub(super) fn held(row: &$row) -> Result<SubjectDatum> {
            let route = match get::<Option<String>>(row, "source")? {
                Some(source) => Some(HandoffRoute {
                    source,
                    target: get(row, "target")?,
                    status: handoff_status(row)?,
                    attempts: get(row, "attempts")?,
                    accepted_at: micros_opt(row, "accepted_at")?,
                }),
                None => None,
            };
            Ok(SubjectDatum {
                slot: slot(row)?,
                kind: get(row, "kind")?,
                record_hash: get(row, "record_hash")?,
                recorded_at: micros(row, "recorded_at")?,
                task_id: get(row, "task_id")?,
                handoff_id: get(row, "handoff_id")?,
                route,
                kept: (codec(row)?, get(row, "bytes")?),
            })
        }

        /// The agent, and its last checkpoint.
        pub(super) fn last_checkpoint(
            row: &$row,
        ) -> Result<(handoffd_core::domain::ids::AgentId, LastCheckpoint)> {
            let last =
                LastCheckpoint { seq: get(row, "seq")?, commitment: hash32(row, "commitment")? };
            Ok((parse(row, "agent_id")?, last))
        }

        pub(super) fn checkpoint(row: &$row) -> Result<CheckpointRow> {
            Ok(CheckpointRow {
                tenant: parse(row, "tenant")?,
                task_id: parse(row, "task_id")?,
                at: CheckpointRef {
                    execution_id: parse(row, "execution_id")?,
                    seq: get(row, "seq")?,
                },
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
    };
}

pub(super) use decoders;
