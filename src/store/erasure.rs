//! Rows for erasure, access and legal hold, and their part of a batch.

use std::collections::BTreeMap;

use crate::domain::agent::Agent;
use crate::domain::handoff::CheckpointRef;
use crate::domain::ids::{ContentId, ErasureId, HandoffId, Micros, TaskId, TenantId};
use crate::evidence::commitment::Codec;
use crate::evidence::erasure::{DataSlot, ErasureScope};

/// A data subject: the id as senders write it, and its keyed hash, by which rows are found after the id is deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubjectRef {
    /// The tenant in which the id is unique.
    pub tenant: TenantId,
    /// The subject's id.
    pub id: String,
    /// Keyed hash of the id, from `Vault::subject_key`.
    pub key: [u8; 32],
}

/// Key of an erasure.
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
    /// Holds by id.
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
    /// Existing holds.
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// Pages of purgeable data.
    pub purges: BTreeMap<TenantId, PurgePage>,
}

/// A subject's stored data and holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubjectState {
    /// Number of stored data.
    pub held: i64,
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
    /// With [`ErasureScope::Messages`]: other contents of the data's handoffs, by leaf index.
    pub contents: Vec<(i64, ContentId)>,
    /// With [`ErasureScope::Messages`]: checkpoints submitted with these handoffs.
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
    /// Handoffs whose message is among the contents.
    pub handoffs: Vec<HandoffId>,
    /// Checkpoints of these records' tasks.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
}

/// Where an erasure stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErasureStatus {
    /// Data is being erased.
    Running,
    /// No row holds any of it; files and segments are being cleaned of what was freed.
    Scrubbing,
    /// Done.
    Completed,
}

impl ErasureStatus {
    /// As stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Scrubbing => "SCRUBBING",
            Self::Completed => "COMPLETED",
        }
    }

    /// Reads a status back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Running, Self::Scrubbing, Self::Completed]
            .into_iter()
            .find(|status| status.as_str() == text)
    }
}

/// An erasure as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id.
    pub id: ErasureId,
    /// Keyed hash of the subject's id.
    pub subject_key: [u8; 32],
    /// The subject's id, until no row holds data of it.
    pub subject_id: Option<String>,
    /// Salted commitment to the subject's id, as records carry it.
    pub commitment: [u8; 32],
    /// How much goes.
    pub scope: ErasureScope,
    /// Why: a code.
    pub reason: String,
    /// Where it stands.
    pub status: ErasureStatus,
    /// Data held when it was requested.
    pub held: i64,
    /// Data erased so far.
    pub data: i64,
    /// Contents of records erased so far.
    pub contents: i64,
    /// Checkpoints erased so far.
    pub checkpoints: i64,
    /// Its `ERASURE_COMPLETED` record.
    pub leaf_index: Option<i64>,
    /// When it was asked for.
    pub requested_at: Micros,
    /// When it last went on.
    pub updated_at: Micros,
    /// When it was done.
    pub completed_at: Option<Micros>,
}

/// A legal hold as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRow {
    /// Its organisation.
    pub tenant: TenantId,
    /// Its id, a code that whoever placed it chose.
    pub id: String,
    /// Keyed hash of the subject's id, where it holds a subject.
    pub subject_key: Option<[u8; 32]>,
    /// The subject's id, until the hold is released.
    pub subject_id: Option<String>,
    /// The task, where it holds a task.
    pub task_id: Option<TaskId>,
    /// Why, in words.
    pub reason: String,
    /// When it was placed.
    pub placed_at: Micros,
    /// When it was released.
    pub released_at: Option<Micros>,
}

/// What a batch erases for one erasure, in the transaction that appends the record of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasureWrite {
    /// Whose.
    pub tenant: TenantId,
    /// Data: salt, bytes and the subject's id go.
    pub data: Vec<DataSlot>,
    /// The handoffs that the data came with: the salted digest of the whole submission goes, for it
    /// was taken over the data too, and `tracestate`, into which anybody before may have put anything.
    pub handoffs: Vec<HandoffId>,
    /// Contents: salt and bytes go. What a colder tier keeps of them is found by the salt that is
    /// gone, see `erasure::ColdTier`.
    pub contents: Vec<ContentId>,
    /// Checkpoints: salt and state go, [`ERASED_CHECKPOINT`] stays.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
    /// The words beside the handoffs go too: a receiver's reason that is no code, the gate's findings
    /// about a dead letter.
    pub words: bool,
    /// The contents are past their time, as of then; otherwise a person asked.
    pub purged_at: Option<Micros>,
}

/// What an erased checkpoint holds: an object as any checkpoint, so that a rollback to it can be read.
pub const ERASED_CHECKPOINT: &[u8] = br#"{"$erased":true}"#;

/// One datum of a subject, for the access report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectDatum {
    /// Which.
    pub slot: DataSlot,
    /// Its record's kind.
    pub kind: String,
    /// Its record's hash.
    pub record_hash: Vec<u8>,
    /// When the record was made.
    pub recorded_at: Micros,
    /// On which task.
    pub task_id: Option<String>,
    /// With which handoff.
    pub handoff_id: Option<String>,
    /// Who sent it and to whom, where the handoff is known.
    pub route: Option<HandoffRoute>,
    /// Packed bytes.
    pub kept: (Codec, Vec<u8>),
}

/// Where a handoff went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRoute {
    /// The sender.
    pub source: String,
    /// The receiver.
    pub target: String,
    /// The handoff's status.
    pub status: String,
    /// Attempts at delivery begun.
    pub attempts: i32,
    /// When the receiver accepted.
    pub accepted_at: Option<Micros>,
}

/// How thoroughly [`super::Store::scrub`] cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubOutcome {
    /// The database was rewritten: what was erased is in no file of it.
    Rewritten,
    /// Freed space was overwritten or released for reuse; the store's page says what that means.
    Freed,
    /// This role may not vacuum: what was erased is released for reuse when the server's own vacuum, or
    /// the owner's, comes by.
    Left,
}

/// Whether a receiver is entitled to personal data, as of now.
#[must_use]
pub fn entitled(agent: &Agent) -> bool {
    agent.permissions.iter().any(|name| name == crate::domain::agent::PERSONAL_DATA_PERMISSION)
}
