//! Rows that this store keeps in forms of its own.

use std::collections::BTreeMap;

use crate::store::streams::StreamLine;
use handoffd_domain::ids::{ContentId, HandoffId, Micros, TaskId};
use handoffd_evidence::merkle::Hash;
use handoffd_evidence::record::{LogHead, PersonalPart, RecordKind, SealedRecord};

/// A tenant's log.
#[derive(Debug)]
pub(super) struct MemoryLog {
    pub(super) head: LogHead,
    pub(super) records: Vec<MemoryRecord>,
    /// Complete subtrees by tile level and index.
    pub(super) nodes: BTreeMap<(i64, i64), Hash>,
}

/// A record with its columns.
#[derive(Debug)]
pub(super) struct MemoryRecord {
    pub(super) sealed: SealedRecord,
    pub(super) kind: RecordKind,
    pub(super) task: Option<TaskId>,
    pub(super) handoff: Option<HandoffId>,
    pub(super) at: Micros,
    pub(super) content: Option<ContentId>,
    pub(super) personal: Vec<PersonalPart>,
}

/// An opinion that is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct DueOpinion {
    pub(super) attempts: i32,
    pub(super) next_at: Micros,
}

/// A line with its lease.
#[derive(Debug, Clone)]
pub(super) struct MemoryLine {
    pub(super) line: StreamLine,
    pub(super) next_at: Micros,
    pub(super) broker: Option<String>,
    pub(super) lease_until: Micros,
}

impl MemoryLine {
    pub(super) const fn new() -> Self {
        let line = StreamLine { sent: 0, failures: 0 };
        Self { line, next_at: Micros(0), broker: None, lease_until: Micros(0) }
    }

    pub(super) const fn is_free(&self, now: Micros) -> bool {
        self.lease_until.0 <= now.0 && self.next_at.0 <= now.0
    }
}
