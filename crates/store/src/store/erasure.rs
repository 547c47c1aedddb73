//! Rows for erasure, access and legal hold, and their part of a batch.

use std::collections::BTreeMap;

use handoffd_domain::agent::Agent;
use handoffd_domain::handoff::{CheckpointRef, HandoffStatus};
use handoffd_domain::ids::{ContentId, ErasureId, HandoffId, Micros, TaskId, TenantId};
use handoffd_evidence::commitment::Codec;
use handoffd_evidence::erasure::{DataSlot, ErasureScope};

/// A data subject: the id as senders write it, and its keyed hash, by which rows are found after the id is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubjectRef {
    /// The tenant in which the id is unique.
    pub tenant: TenantId,
    pub id: String,
    /// Keyed hash of the id, from `Vault::subject_key`.
    pub key: [u8; 32],
}

pub type ErasureKey = (TenantId, ErasureId);
/// Key of a legal hold.
pub type HoldKey = (TenantId, String);

/// A page of an erasure to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageNeed {
    /// Only data committed before this leaf index, so that an erasure ends although senders go on.
    pub upto: i64,
    /// Most data in the page.
    pub limit: i64,
}

/// A page of purgeable data to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeNeed {
    /// First leaf index.
    pub from: i64,
    /// Only data recorded before this time.
    pub before: Micros,
    /// Most records in the page.
    pub limit: i64,
}

/// The needs of a batch for erasures and holds. If there are any, the tenant's row is locked first, so that a hold
/// and an erasure of one tenant always see each other.
#[derive(Debug, Clone, Default)]
pub struct ErasureNeeds {
    /// Subjects whose data and holds are loaded.
    pub subjects: std::collections::BTreeSet<SubjectRef>,
    /// Erasures, each with its next page.
    pub pages: BTreeMap<ErasureKey, PageNeed>,
    pub holds: std::collections::BTreeSet<HoldKey>,
    /// Tenants for which a page of purgeable data is loaded.
    pub purges: BTreeMap<TenantId, PurgeNeed>,
}

impl ErasureNeeds {
    /// The tenants concerned, in order.
    #[must_use]
    pub fn tenants(&self) -> std::collections::BTreeSet<&TenantId> {
        let subjects = self.subjects.iter().map(|subject| &subject.tenant);
        let pages = self.pages.keys().map(|(tenant, _)| tenant);
        let holds = self.holds.iter().map(|(tenant, _)| tenant);
        subjects.chain(pages).chain(holds).chain(self.purges.keys()).collect()
    }
}

/// The rows found for erasures and holds.
#[derive(Debug, Clone, Default)]
pub struct ErasureState {
    /// State of each requested subject.
    pub subjects: BTreeMap<SubjectRef, SubjectState>,
    /// Existing erasures, each with its next page.
    pub pages: BTreeMap<ErasureKey, ErasurePage>,
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// Pages of purgeable data.
    pub purges: BTreeMap<TenantId, PurgePage>,
}

/// A subject's stored data and holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectState {
    /// Number of stored data.
    pub held: i64,
    /// Whether an earlier erasure of the subject tells which tasks its data came with.
    pub traced: bool,
    /// Holds that forbid an erasure, oldest first.
    pub holds: Vec<HoldRow>,
    /// The latest erasure, if any.
    pub latest: Option<ErasureRow>,
}

/// An erasure with its next page of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasurePage {
    /// The erasure's current row.
    pub row: ErasureRow,
    /// Holds that forbid it now.
    pub holds: Vec<HoldRow>,
    /// Data in log order; empty at the end.
    pub data: Vec<(DataSlot, Option<HandoffId>)>,
    /// Handoffs that stand in for those of the data: the data is stored under the first one's id alone. With
    /// [`ErasureScope::Messages`] all handoffs of the tasks that the data, or data erased before, came with.
    pub stand_ins: Vec<HandoffId>,
    /// With [`ErasureScope::Messages`]: the contents of all records of these tasks, by leaf index, but for the words of
    /// legal holds.
    pub contents: Vec<(i64, ContentId)>,
    /// With [`ErasureScope::Messages`]: the checkpoints of these tasks, of any execution, saved before the request.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
}

/// A page of purgeable data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePage {
    /// First leaf index of the next page.
    pub next: i64,
    /// Whether all later records are too recent.
    pub ends: bool,
    /// Whether this batch changed the selection, so that the page must be loaded again.
    pub again: bool,
    /// Records with data kept back: their task is still active, or a legal hold covers the task or a person with
    /// data in the record.
    pub held: i64,
    /// Leaf index of the first such record.
    pub first_held: Option<i64>,
    /// Personal data, in log order.
    pub data: Vec<DataSlot>,
    /// Contents, with every leaf index that names them.
    pub contents: Vec<(i64, ContentId)>,
    /// Handoffs whose message is among the contents, or went with an earlier page.
    pub handoffs: Vec<HandoffId>,
    /// Checkpoints of these records' tasks.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
}

/// The state of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErasureStatus {
    /// Data is being erased.
    Running,
    /// No row holds any of it; the erased bytes are being cleaned out of files and segments.
    Scrubbing,
    /// Done.
    Completed,
}

impl ErasureStatus {
    /// The name in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Scrubbing => "SCRUBBING",
            Self::Completed => "COMPLETED",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Scrubbing, Self::Completed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureRow {
    pub tenant: TenantId,
    pub id: ErasureId,
    /// Keyed hash of the subject's id.
    pub subject_key: [u8; 32],
    /// The subject's id; deleted once no row holds its data.
    pub subject_id: Option<String>,
    /// Salted commitment to the subject's id, as in records.
    pub commitment: [u8; 32],
    pub scope: ErasureScope,
    /// Code of the reason.
    pub reason: String,
    /// Progress of the erasure.
    pub status: ErasureStatus,
    /// Number of data stored at the time of the request.
    pub held: i64,
    /// Data erased so far.
    pub data: i64,
    /// Contents of records erased so far.
    pub contents: i64,
    /// Checkpoints erased so far.
    pub checkpoints: i64,
    /// Leaf index of the `ERASURE_COMPLETED` record.
    pub leaf_index: Option<i64>,
    /// Time of the request.
    pub requested_at: Micros,
    /// Time of the last progress.
    pub updated_at: Micros,
    pub completed_at: Option<Micros>,
}

/// A legal hold row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRow {
    pub tenant: TenantId,
    /// The hold's id, a code chosen at its placement.
    pub id: String,
    /// Keyed hash of the subject's id; only for a hold on a subject.
    pub subject_key: Option<[u8; 32]>,
    /// The subject's id; deleted at the release of the hold.
    pub subject_id: Option<String>,
    /// The task; only for a hold on a task.
    pub task_id: Option<TaskId>,
    /// Free text of the reason.
    pub reason: String,
    pub placed_at: Micros,
    pub released_at: Option<Micros>,
}

/// The data a batch deletes, in the transaction that appends the record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureWrite {
    pub tenant: TenantId,
    /// The erasure, for a later one of a wider scope; `None` for a purge.
    pub erasure: Option<ErasureId>,
    /// Personal data: salt, bytes and the subject's id are deleted.
    pub data: Vec<DataSlot>,
    /// The handoffs with this data, and those that stand in for them: the salted digest of the whole submission is
    /// deleted, since it covers the data too, and `tracestate`, into which any earlier party may have written; and their
    /// attempts, whose answers may repeat the data.
    pub handoffs: Vec<HandoffId>,
    /// Contents: salt and bytes are deleted. The cold tier finds its copies by the missing salt, see
    /// `erasure::ColdTier`.
    pub contents: Vec<ContentId>,
    /// Checkpoints: salt and state are deleted, [`ERASED_CHECKPOINT`] takes their place.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
    /// Whether free text beside the handoffs is deleted too: a receiver's reason that is not a code, the
    /// gate's findings about a dead letter.
    pub words: bool,
    /// Time of a purge; `None` for an erasure on request.
    pub purged_at: Option<Micros>,
    /// The person that was erased: handoffs name it no more.
    pub user_ref: Option<String>,
}

/// The state of an erased checkpoint: an object like any checkpoint, so that a rollback to it can be read.
pub const ERASED_CHECKPOINT: &[u8] = br#"{"$erased":true}"#;

/// A datum of a subject, for the access report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectDatum {
    /// Location of the datum.
    pub slot: DataSlot,
    /// Kind of its record.
    pub kind: String,
    pub record_hash: Vec<u8>,
    /// Time of its record.
    pub recorded_at: Micros,
    /// Task of its record.
    pub task_id: Option<String>,
    /// Handoff of its record.
    pub handoff_id: Option<String>,
    /// Sender and receiver, where the handoff is known.
    pub route: Option<HandoffRoute>,
    /// Codec and packed bytes.
    pub kept: (Codec, Vec<u8>),
}

/// A handoff's parties and delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRoute {
    pub source: String,
    pub target: String,
    pub status: HandoffStatus,
    /// Delivery attempts begun.
    pub attempts: i32,
    pub accepted_at: Option<Micros>,
}

/// Result of [`crate::store::Store::scrub`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// The database was rewritten: no file of it holds erased data.
    Rewritten,
    /// Freed space was overwritten or released for reuse, as the store's documentation states.
    Freed,
    /// This role may not vacuum: the server's own vacuum, or the owner's, releases the space of erased data.
    Left,
}

/// Whether a receiver is currently entitled to personal data.
#[must_use]
pub fn entitled(agent: &Agent) -> bool {
    agent.permissions.iter().any(|name| name == handoffd_domain::agent::PERSONAL_DATA_PERMISSION)
}
