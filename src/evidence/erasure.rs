//! What records say of erasures, and the check that every gap in the log's contents is one of them.
//!
//! An erasure removes data in pages. Each page is gone in the same transaction that appends an
//! `ERASED` record, whose content lists what went: so at any moment, also in the middle of an erasure
//! or after a crash, a content that is not there is either listed or was taken away.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::canonical;
use crate::domain::handoff::CheckpointRef;
use crate::domain::ids::{ErasureId, TaskId};

/// How much an erasure takes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub enum Scope {
    /// The subject's personal data, wherever it was marked as such.
    #[serde(rename = "personal-data")]
    PersonalData,
    /// That, and whole messages, replies and checkpoints of the handoffs it came with.
    #[serde(rename = "messages")]
    Messages,
}

impl Scope {
    /// As stored and as it stands in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PersonalData => "personal-data",
            Self::Messages => "messages",
        }
    }

    /// Reads a scope back.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::PersonalData, Self::Messages].into_iter().find(|scope| scope.as_str() == text)
    }
}

/// What a record says of an erasure or a hold. No id of a person: a salted commitment to it, whose
/// salt only the broker's master key and the id together can make again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErasureFacts {
    /// The erasure.
    pub id: ErasureId,
    /// How much goes.
    pub scope: Scope,
    /// `sha256:…` of the subject's id.
    pub subject_commitment: String,
    /// Personal data erased: on this page, or (`ERASURE_COMPLETED`) in all.
    pub data: i64,
    /// Contents of records erased, likewise.
    pub contents: i64,
    /// Checkpoints erased, likewise.
    pub checkpoints: i64,
}

/// What a record says of contents whose time was over (`retention.delete_after_days`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetentionFacts {
    /// What was recorded before this time went, RFC 3339.
    pub before: String,
    /// Personal data that went.
    pub data: i64,
    /// Contents of records that went.
    pub contents: i64,
    /// Checkpoints that went.
    pub checkpoints: i64,
}

/// What a record says of a legal hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldFacts {
    /// The hold.
    pub id: String,
    /// `sha256:…` of the subject's id, where it holds a subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_commitment: Option<String>,
}

/// A place of personal data: a record's leaf index, and the ordinal among the record's commitments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// The record.
    pub leaf_index: i64,
    /// Which of its data.
    pub ordinal: i64,
}

/// The ordinal that stands for a record's own content.
const CONTENT: i64 = -1;

/// Why something went.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// A person asked for its erasure.
    Erasure(ErasureId),
    /// It was recorded before this time (RFC 3339), and is past its own.
    Retention(&'a str),
}

/// The content of an `ERASED` record: why and what went, in RFC 8785 form.
#[must_use]
pub fn list(
    cause: Cause<'_>,
    data: &[Slot],
    contents: &[i64],
    checkpoints: &[(TaskId, CheckpointRef)],
) -> Vec<u8> {
    let data: Vec<_> = data.iter().map(|slot| json!([slot.leaf_index, slot.ordinal])).collect();
    let checkpoints: Vec<_> = checkpoints.iter().map(|(task, at)| named(*task, *at)).collect();
    let mut list = json!({
        "personalData": data, "contents": contents, "checkpoints": checkpoints,
    });
    match cause {
        Cause::Erasure(id) => list["erasureId"] = json!(id),
        Cause::Retention(before) => list["retention"] = json!({ "before": before }),
    }
    canonical::to_vec(&list)
}

/// What a list calls a checkpoint.
fn named(task: TaskId, at: CheckpointRef) -> String {
    format!("{task}/{}/{}", at.execution_id, at.seq)
}

/// Compares what is gone with what records say was erased. Its memory grows with what was erased.
#[derive(Debug, Default)]
pub struct Gaps {
    open: BTreeSet<Slot>,
    checkpoints: BTreeSet<String>,
}

impl Gaps {
    /// A record's content is gone.
    pub fn content(&mut self, leaf_index: i64) {
        self.open.insert(Slot { leaf_index, ordinal: CONTENT });
    }

    /// A datum is gone.
    pub fn datum(&mut self, leaf_index: i64, ordinal: i64) {
        self.open.insert(Slot { leaf_index, ordinal });
    }

    /// An `ERASED` record says that these went: they are accounted for.
    ///
    /// # Errors
    /// A sentence where the list cannot be read, or names what is still there (a backup brought back
    /// what had been erased).
    pub fn erased(&mut self, list: &[u8]) -> Result<(), String> {
        let list: Value =
            serde_json::from_slice(list).map_err(|_| "the list is not JSON".to_owned())?;
        let items = |name: &str| {
            list.get(name)
                .and_then(Value::as_array)
                .ok_or_else(|| format!("the list has no {name}"))
        };
        let number = |value: Option<&Value>| {
            value.and_then(Value::as_i64).ok_or_else(|| "the list names no place".to_owned())
        };
        // All of the list counts, whatever is wrong with one of it.
        let mut outcome = Ok(());
        for leaf in items("contents")? {
            let slot = Slot { leaf_index: number(Some(leaf))?, ordinal: CONTENT };
            outcome = outcome.and(self.close(slot));
        }
        for pair in items("personalData")? {
            let slot = Slot { leaf_index: number(pair.get(0))?, ordinal: number(pair.get(1))? };
            outcome = outcome.and(self.close(slot));
        }
        let checkpoints = items("checkpoints")?.iter().filter_map(Value::as_str);
        self.checkpoints.extend(checkpoints.map(str::to_owned));
        outcome
    }

    /// Whether a record says that this checkpoint was erased.
    #[must_use]
    pub fn lists_checkpoint(&self, task: TaskId, at: CheckpointRef) -> bool {
        self.checkpoints.contains(&named(task, at))
    }

    fn close(&mut self, slot: Slot) -> Result<(), String> {
        if self.open.remove(&slot) {
            return Ok(());
        }
        Err(match slot.ordinal {
            CONTENT => {
                format!("the content of record {} was erased, and is there", slot.leaf_index)
            }
            ordinal => {
                format!("datum {ordinal} of record {} was erased, and is there", slot.leaf_index)
            }
        })
    }

    /// The first gap that no record accounts for, and how many there are.
    #[must_use]
    pub fn unexplained(&self) -> Option<(i64, usize)> {
        self.open.first().map(|slot| (slot.leaf_index, self.open.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Cause<'static> {
        Cause::Erasure(ErasureId(uuid::Uuid::nil()))
    }

    #[test]
    fn a_gap_is_explained_by_the_list_that_names_it_and_by_no_other() {
        let mut gaps = Gaps::default();
        gaps.content(2);
        gaps.datum(2, 1);
        gaps.datum(3, 0);
        gaps.erased(&list(id(), &[Slot { leaf_index: 2, ordinal: 1 }], &[2], &[])).unwrap();
        assert_eq!(gaps.unexplained(), Some((3, 1)));
        let past = Cause::Retention("2026-01-01T00:00:00Z");
        gaps.erased(&list(past, &[Slot { leaf_index: 3, ordinal: 0 }], &[], &[])).unwrap();
        assert_eq!(gaps.unexplained(), None);
    }

    #[test]
    fn what_came_back_is_told() {
        let mut gaps = Gaps::default();
        let said = gaps.erased(&list(id(), &[], &[7], &[])).unwrap_err();
        assert!(said.contains("record 7"), "{said}");
        assert!(gaps.erased(b"{}").is_err());
        assert!(gaps.erased(b"[").is_err());
    }
}
