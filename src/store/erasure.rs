//! What the stores keep for erasure, access and legal hold, and what a batch sees of it.

use std::collections::BTreeMap;

use crate::domain::agent::Agent;
use crate::domain::handoff::CheckpointRef;
use crate::domain::ids::{ContentId, ErasureId, HandoffId, Micros, TaskId, TenantId};
use crate::evidence::commitment::Codec;
use crate::evidence::erasure::{Scope, Slot};

/// A data subject: the id as senders write it, and the keyed hash by which it is found once the id is
/// no longer kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubjectRef {
    /// Whose world the id belongs to.
    pub tenant: TenantId,
    /// The id.
    pub id: String,
    /// Its keyed hash, from `Vault::subject_key`.
    pub key: [u8; 32],
}

/// Names an erasure.
pub type ErasureKey = (TenantId, ErasureId);
/// Names a legal hold.
pub type HoldKey = (TenantId, String);

/// A page of an erasure that a batch wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageNeed {
    /// Only what was committed before that leaf, so that an erasure ends although senders go on.
    pub upto: i64,
    /// Data at most.
    pub limit: i64,
}

/// A page of what is past its time that a batch wants to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeNeed {
    /// The first leaf to look at.
    pub from: i64,
    /// What was recorded before this goes.
    pub before: Micros,
    /// Records to look at.
    pub limit: i64,
}

/// What a batch must see for erasures and holds. Where there is any, the tenant's row is locked first:
/// a hold and an erasure of one tenant never pass each other unseen.
#[derive(Debug, Clone, Default)]
pub struct ErasureNeeds {
    /// Subjects: what is held on them, and what forbids erasing it.
    pub subjects: std::collections::BTreeSet<SubjectRef>,
    /// Erasures with their next page.
    pub pages: BTreeMap<ErasureKey, PageNeed>,
    /// Holds by id.
    pub holds: std::collections::BTreeSet<HoldKey>,
    /// Tenants of whose logs a page of what is past its time is wanted.
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

/// What was found for erasures and holds.
#[derive(Debug, Clone, Default)]
pub struct ErasureState {
    /// Of each subject that was asked for.
    pub subjects: BTreeMap<SubjectRef, Known>,
    /// Erasures that exist, with their next page.
    pub pages: BTreeMap<ErasureKey, Page>,
    /// Holds that exist.
    pub holds: BTreeMap<HoldKey, HoldRow>,
    /// The pages of what is past its time.
    pub purges: BTreeMap<TenantId, PurgePage>,
}

/// What is known of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Data that is kept.
    pub held: i64,
    /// What forbids erasing it, oldest first.
    pub holds: Vec<HoldRow>,
    /// The latest erasure, if there was one.
    pub latest: Option<ErasureRow>,
}

/// An erasure and the next data to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The erasure as it is.
    pub row: ErasureRow,
    /// What forbids it by now.
    pub holds: Vec<HoldRow>,
    /// Data in log order; empty when nothing is left.
    pub data: Vec<(Slot, Option<HandoffId>)>,
    /// With [`Scope::Messages`]: what else is kept of these data's handoffs, by leaf.
    pub contents: Vec<(i64, ContentId)>,
    /// With [`Scope::Messages`]: the checkpoints that went with these handoffs.
    pub checkpoints: Vec<(TaskId, CheckpointRef)>,
}

/// A page of what is past its time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePage {
    /// Where the next page begins.
    pub next: i64,
    /// Nothing after it is old enough.
    pub ends: bool,
    /// Something of this batch changed what may go: it is to be asked for again.
    pub again: bool,
    /// Records with something that is held back: somebody may still act on their task, or a legal hold
    /// is on it or on a person of whom it has data.
    pub held: i64,
    /// The first of these.
    pub first_held: Option<i64>,
    /// Personal data, in log order.
    pub data: Vec<Slot>,
    /// Contents by every place that they have in the log.
    pub contents: Vec<(i64, ContentId)>,
    /// Handoffs whose messages are among the contents.
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
    pub scope: Scope,
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
pub struct Erase {
    /// Whose.
    pub tenant: TenantId,
    /// Data: salt, bytes and the subject's id go.
    pub data: Vec<Slot>,
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
pub struct HeldDatum {
    /// Which.
    pub slot: Slot,
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
    pub route: Option<Route>,
    /// Packed bytes.
    pub kept: (Codec, Vec<u8>),
}

/// Where a handoff went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
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
pub enum Scrubbed {
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
