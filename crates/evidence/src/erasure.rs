//! Erasure facts in records, and the check that an erasure explains every gap in the log's contents.
//!
//! An erasure removes data in pages. Each page is removed in the transaction that appends an `ERASED` record,
//! whose content lists the removed data. So at any moment, also during an erasure or after a crash, a missing content
//! is either listed or was removed without authorization.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use handoffd_domain::canonical;
use handoffd_domain::handoff::CheckpointRef;
use handoffd_domain::ids::{ErasureId, TaskId};

/// How much an erasure takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Scope))]
pub enum ErasureScope {
    /// The subject's personal data, wherever it was marked as such.
    #[serde(rename = "personal-data")]
    PersonalData,
    /// That, and whole messages, replies and checkpoints of the handoffs it came with.
    #[serde(rename = "messages")]
    Messages,
}

impl ErasureScope {
    /// The name in the database and in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PersonalData => "personal-data",
            Self::Messages => "messages",
        }
    }

    /// Parses a stored scope.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::PersonalData, Self::Messages].into_iter().find(|scope| scope.as_str() == text)
    }
}

/// The facts of an erasure in a record. They hold no id of a person, only a salted commitment to it; the salt is
/// derived from the broker's master key and the id together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordErasure))]
#[serde(rename_all = "camelCase")]
pub struct ErasureFacts {
    /// UUID of the erasure.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: ErasureId,
    /// How much: `personal-data` or `messages`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub scope: ErasureScope,
    /// Commitment to the subject's id, `sha256:…`.
    pub subject_commitment: String,
    /// Personal data erased: on this page, or in all for `ERASURE_COMPLETED`.
    pub data: i64,
    /// Contents of records erased: on this page, or in all for `ERASURE_COMPLETED`.
    pub contents: i64,
    /// Checkpoints erased: on this page, or in all for `ERASURE_COMPLETED`.
    pub checkpoints: i64,
    /// Data held at the time of the request; in `ERASURE_COMPLETED` alone, as the certificate says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub held: Option<i64>,
    /// Time of the request, RFC 3339; in `ERASURE_COMPLETED` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub requested_at: Option<String>,
}

/// The data that were removed because they were past their time.
// The setting is `retention.delete_after_days`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordRetention))]
#[serde(rename_all = "camelCase")]
pub struct RetentionFacts {
    /// Data recorded before this time were removed, RFC 3339.
    pub before: String,
    /// Personal data purged, counted.
    pub data: i64,
    /// Messages and other contents of records.
    pub contents: i64,
    /// Checkpoints purged, counted.
    pub checkpoints: i64,
}

/// Legal hold that a record places or releases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecordHold))]
#[serde(rename_all = "camelCase")]
pub struct HoldFacts {
    /// Id of the hold, as its maker named it.
    pub id: String,
    /// `sha256:…`, a salted commitment to the person's id.
    // Only for a hold on a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub subject_commitment: Option<String>,
}

/// The location of personal data: a record's leaf index and the ordinal among the record's commitments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataSlot {
    /// Leaf index of the record.
    pub leaf_index: i64,
    /// Ordinal of the datum within the record.
    pub ordinal: i64,
}

/// The ordinal of a record's own content.
const CONTENT: i64 = -1;

/// The reason for which data was removed.
#[derive(Debug, Clone, Copy)]
pub enum ErasureCause<'a> {
    /// A request to erase a data subject.
    Erasure(ErasureId),
    /// The end of retention: data recorded before this time (RFC 3339).
    Retention(&'a str),
}

/// The content of an `ERASED` record: the cause and the removed data, in RFC 8785 form.
#[must_use]
pub fn list(
    cause: ErasureCause<'_>,
    data: &[DataSlot],
    contents: &[i64],
    checkpoints: &[(TaskId, CheckpointRef)],
) -> Vec<u8> {
    let data: Vec<_> = data.iter().map(|slot| json!([slot.leaf_index, slot.ordinal])).collect();
    let checkpoints: Vec<_> = checkpoints.iter().map(|(task, at)| named(*task, *at)).collect();
    let mut list = json!({
        "personalData": data, "contents": contents, "checkpoints": checkpoints,
    });
    match cause {
        ErasureCause::Erasure(id) => list["erasureId"] = json!(id),
        ErasureCause::Retention(before) => list["retention"] = json!({ "before": before }),
    }
    canonical::to_vec(&list)
}

/// The name of a checkpoint in an `ERASED` list.
fn named(task: TaskId, at: CheckpointRef) -> String {
    format!("{task}/{}/{}", at.execution_id, at.seq)
}

/// Compares missing data with the `ERASED` lists. Memory grows with the number of missing contents.
#[derive(Debug, Default)]
pub struct ErasureGaps {
    open: BTreeSet<DataSlot>,
    checkpoints: BTreeSet<String>,
}

impl ErasureGaps {
    /// Notes that a record's content is missing.
    pub fn content(&mut self, leaf_index: i64) {
        self.open.insert(DataSlot { leaf_index, ordinal: CONTENT });
    }

    /// Notes that a datum is missing.
    pub fn datum(&mut self, leaf_index: i64, ordinal: i64) {
        self.open.insert(DataSlot { leaf_index, ordinal });
    }

    /// Closes the gaps that an `ERASED` record lists.
    ///
    /// # Errors
    /// A sentence where the list cannot be read, or names data that is present (a backup restored erased data).
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
            let slot = DataSlot { leaf_index: number(Some(leaf))?, ordinal: CONTENT };
            outcome = outcome.and(self.close(slot));
        }
        for pair in items("personalData")? {
            let slot = DataSlot { leaf_index: number(pair.get(0))?, ordinal: number(pair.get(1))? };
            outcome = outcome.and(self.close(slot));
        }
        let checkpoints = items("checkpoints")?.iter().filter_map(Value::as_str);
        self.checkpoints.extend(checkpoints.map(str::to_owned));
        outcome
    }

    /// Whether an `ERASED` record lists this checkpoint.
    #[must_use]
    pub fn lists_checkpoint(&self, task: TaskId, at: CheckpointRef) -> bool {
        self.checkpoints.contains(&named(task, at))
    }

    fn close(&mut self, slot: DataSlot) -> Result<(), String> {
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

    /// The first gap without a record, and the number of gaps.
    #[must_use]
    pub fn unexplained(&self) -> Option<(i64, usize)> {
        self.open.first().map(|slot| (slot.leaf_index, self.open.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ErasureCause<'static> {
        ErasureCause::Erasure(ErasureId(uuid::Uuid::nil()))
    }

    #[test]
    fn a_gap_is_explained_by_the_list_that_names_it_and_by_no_other() {
        let mut gaps = ErasureGaps::default();
        gaps.content(2);
        gaps.datum(2, 1);
        gaps.datum(3, 0);
        gaps.erased(&list(id(), &[DataSlot { leaf_index: 2, ordinal: 1 }], &[2], &[])).unwrap();
        assert_eq!(gaps.unexplained(), Some((3, 1)));
        let past = ErasureCause::Retention("2026-01-01T00:00:00Z");
        gaps.erased(&list(past, &[DataSlot { leaf_index: 3, ordinal: 0 }], &[], &[])).unwrap();
        assert_eq!(gaps.unexplained(), None);
    }

    #[test]
    fn what_came_back_is_told() {
        let mut gaps = ErasureGaps::default();
        let said = gaps.erased(&list(id(), &[], &[7], &[])).unwrap_err();
        assert!(said.contains("record 7"), "{said}");
        assert!(gaps.erased(b"{}").is_err());
        assert!(gaps.erased(b"[").is_err());
    }
}
