//! Column lists and decoders of the tables that have no file in `tables/` yet, for both databases.

pub(super) use super::query::unreadable;
use super::query::{FromColumn, Row};
use crate::store::erasure::{HandoffRoute, SubjectDatum};
use crate::store::events::EventRow;
use crate::store::{BatchState, LastCheckpoint, RecordWindow, Result, StoredPersonal, TreeKeyRow};
use handoffd_domain::event::{Event, Position};
use handoffd_domain::handoff::{CheckpointRef, DeliveryMode, HandoffStatus};
use handoffd_domain::ids::{Micros, TaskId};
use handoffd_evidence::commitment::Codec;
use handoffd_evidence::erasure::DataSlot;
use handoffd_evidence::merkle::Frontier;
use handoffd_evidence::record::LogHead;

/// Which records of a log, in log order unless said.
#[derive(Debug, Clone, Copy)]
pub(super) enum WhichRecords {
    All,
    OfTask(TaskId),
    AboutState,
    /// Of one task, newest first.
    NewestOfTask(TaskId, RecordWindow),
}

impl From<Option<TaskId>> for WhichRecords {
    fn from(task: Option<TaskId>) -> Self {
        task.map_or(Self::All, Self::OfTask)
    }
}

/// Reads one column.
pub(super) fn get<'r, V: FromColumn<'r>>(row: &'r dyn Row, column: &str) -> Result<V> {
    row.get(column)
}

/// Parses a text column.
pub(super) fn parse<T>(row: &dyn Row, column: &str) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    get::<&str>(row, column)?.parse().map_err(|err| unreadable(column, err))
}

/// Parses a nullable text column.
pub(super) fn parse_opt<T>(row: &dyn Row, column: &str) -> Result<Option<T>>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    get::<Option<&str>>(row, column)?
        .map(|text| text.parse().map_err(|err| unreadable(column, err)))
        .transpose()
}

/// Reads a column with a fixed set of states.
pub(super) fn state<T>(row: &dyn Row, column: &str, parse: fn(&str) -> Option<T>) -> Result<T> {
    let text = get::<&str>(row, column)?;
    parse(text).ok_or_else(|| unreadable(column, text))
}

pub(super) fn state_opt<T>(
    row: &dyn Row,
    column: &str,
    parse: fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let text = get::<Option<&str>>(row, column)?;
    text.map(|text| parse(text).ok_or_else(|| unreadable(column, text))).transpose()
}

pub(super) fn micros(row: &dyn Row, column: &str) -> Result<Micros> {
    get::<i64>(row, column).map(Micros)
}

pub(super) fn micros_opt(row: &dyn Row, column: &str) -> Result<Option<Micros>> {
    Ok(get::<Option<i64>>(row, column)?.map(Micros))
}

pub(super) fn checkpoint_ref(row: &dyn Row) -> Result<Option<CheckpointRef>> {
    let execution = parse_opt(row, "checkpoint_execution")?;
    let seq = get::<Option<i64>>(row, "checkpoint_seq")?;
    Ok(execution.zip(seq).map(|(execution_id, seq)| CheckpointRef { execution_id, seq }))
}

pub(super) fn mode(row: &dyn Row) -> Result<DeliveryMode> {
    let mode = get::<&str>(row, "mode")?;
    DeliveryMode::parse(mode).ok_or_else(|| unreadable("mode", mode))
}

pub(super) fn codec(row: &dyn Row) -> Result<Codec> {
    state(row, "codec", Codec::parse)
}

/// One data subject's data. Half of an erased row is kept as it is: it opens no commitment.
pub(super) fn personal(row: &dyn Row) -> Result<StoredPersonal> {
    let salt = get::<Option<Vec<u8>>>(row, "salt")?;
    let bytes = get::<Option<Vec<u8>>>(row, "bytes")?;
    let part = match (salt, bytes) {
        (None, None) => None,
        (salt, bytes) => Some((salt.unwrap_or_default(), codec(row)?, bytes.unwrap_or_default())),
    };
    let (ordinal, subject_id) = (get(row, "ordinal")?, get(row, "subject_id")?);
    Ok(StoredPersonal { ordinal, subject_id, kept: part })
}

/// The stored form of a content.
pub(super) fn content_kept(row: &dyn Row) -> Result<crate::store::ContentStorage> {
    let place = match get::<Option<String>>(row, "segment")? {
        Some(segment) => Some(crate::store::cold::ArchiveLocation {
            segment,
            offset: unsigned(row, "seg_offset")?,
            length: unsigned(row, "seg_length")?,
        }),
        None => None,
    };
    Ok(crate::store::ContentStorage::from_columns(
        get(row, "salt")?,
        codec(row)?,
        get(row, "bytes")?,
        place,
        get::<Option<i64>>(row, "purged_at")?.is_some(),
    ))
}

/// A record as the purge looks at it.
pub(super) fn aged(row: &dyn Row) -> Result<crate::store::purge::PurgeCandidate> {
    Ok(crate::store::purge::PurgeCandidate {
        leaf_index: get(row, "leaf_index")?,
        kind: get(row, "kind")?,
        recorded_at: micros(row, "recorded_at")?,
        task: parse_opt(row, "task_id")?,
        handoff: parse_opt(row, "handoff_id")?,
        content: parse_opt(row, "content_id")?,
    })
}

/// A content, and where and when a record has it.
pub(super) fn sharing(row: &dyn Row) -> Result<(handoffd_domain::ids::ContentId, i64, Micros)> {
    Ok((parse(row, "content_id")?, get(row, "leaf_index")?, micros(row, "recorded_at")?))
}

pub(super) fn saved(row: &dyn Row) -> Result<(handoffd_domain::ids::TaskId, CheckpointRef)> {
    let execution_id = parse(row, "execution_id")?;
    Ok((parse(row, "task_id")?, CheckpointRef { execution_id, seq: get(row, "seq")? }))
}

/// Rejects a claim whose outbox row names another receiver than its handoff: the row was changed past the broker.
pub(super) fn addressed(row: &dyn Row) -> Result<()> {
    let (target, addressee): (&str, &str) = (get(row, "target")?, get(row, "addressee")?);
    if target == addressee {
        return Ok(());
    }
    Err(unreadable("target", format!("the handoff is for {addressee}")))
}

/// The bytes to deliver of a content without bytes: none where erased. Rejects one that is only cold,
/// by its columns `salt` and `segment`.
pub(super) fn erased(row: &dyn Row) -> Result<Vec<u8>> {
    let salt = get::<Option<&[u8]>>(row, "salt")?;
    match get::<Option<&str>>(row, "segment")?.filter(|_| salt.is_some()) {
        Some(segment) => Err(unreadable("bytes", format!("they are in {segment}"))),
        None => Ok(Vec::new()),
    }
}

pub(super) fn unsigned(row: &dyn Row, column: &str) -> Result<u64> {
    u64::try_from(get::<i64>(row, column)?).map_err(|err| unreadable(column, err))
}

pub(super) fn hash32(row: &dyn Row, column: &str) -> Result<[u8; 32]> {
    get::<Vec<u8>>(row, column)?.try_into().map_err(|_| unreadable(column, "not 32 bytes"))
}

pub(super) fn head(row: &dyn Row) -> Result<LogHead> {
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

pub(super) fn tree_key(row: &dyn Row) -> Result<TreeKeyRow> {
    Ok(TreeKeyRow {
        public: hash32(row, "public_key")?,
        created_at: micros(row, "created_at")?,
        retired_at: micros_opt(row, "retired_at")?,
    })
}

pub(super) fn hash32_opt(row: &dyn Row, column: &str) -> Result<Option<[u8; 32]>> {
    get::<Option<Vec<u8>>>(row, column)?
        .map(|bytes| bytes.try_into().map_err(|_| unreadable(column, "not 32 bytes")))
        .transpose()
}

pub(super) fn ruling(row: &dyn Row) -> Result<Option<Box<handoffd_domain::ruling::Ruling>>> {
    get::<Option<String>>(row, "policy")?
        .map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|err| unreadable("policy", err))
}

pub(super) fn context(row: &dyn Row) -> Result<Option<handoffd_domain::window::ContextFacts>> {
    get::<Option<&str>>(row, "context")?
        .map(serde_json::from_str)
        .transpose()
        .map_err(|err| unreadable("context", err))
}

/// A handoff's status: an accepted one with an open question waits for the answer.
pub(super) fn handoff_status(row: &dyn Row) -> Result<HandoffStatus> {
    let status = state(row, "status", HandoffStatus::parse)?;
    let asks = get::<Option<i64>>(row, "question")?.is_some();
    let waits = asks && status == HandoffStatus::Accepted;
    Ok(if waits { HandoffStatus::InputRequired } else { status })
}

pub(super) fn handoff_key(row: &dyn Row) -> Result<crate::store::HandoffKey> {
    Ok((parse(row, "tenant")?, parse(row, "handoff_id")?))
}

pub(super) fn position(row: &dyn Row) -> Result<Position> {
    Ok(Position { leaf_index: get(row, "leaf_index")?, ordinal: get(row, "ordinal")? })
}

pub(super) fn event(row: &dyn Row) -> Result<EventRow> {
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
            data: serde_json::from_str(get(row, "data")?).map_err(|err| unreadable("data", err))?,
        },
        words: get(row, "reason")?,
        content_id: parse_opt(row, "content_id")?,
    })
}

pub(super) fn slot(row: &dyn Row) -> Result<DataSlot> {
    Ok(DataSlot { leaf_index: get(row, "leaf_index")?, ordinal: get(row, "ordinal")? })
}

pub(super) fn held(row: &dyn Row) -> Result<SubjectDatum> {
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
    row: &dyn Row,
) -> Result<(handoffd_domain::ids::AgentId, LastCheckpoint)> {
    let last = LastCheckpoint { seq: get(row, "seq")?, commitment: hash32(row, "commitment")? };
    Ok((parse(row, "agent_id")?, last))
}

/// Adds a row to what a batch has loaded.
pub(super) type Load = fn(&dyn Row, &mut BatchState) -> Result<()>;
