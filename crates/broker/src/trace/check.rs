//! Evidence of a task's records, recomputed as they are read.

use serde_json::{Value, json};

use crate::archive::unavailable;
use handoffd_core::evidence::commitment::{CommitmentSubject, unpack};
use handoffd_core::evidence::verify::record;
use handoffd_store::store::cold::ColdError;
use handoffd_store::store::{ContentStorage, StoredRecord};

/// The reason for which a record's message is gone: `erasure` by request, or the end of its `retention`.
#[must_use]
pub fn gone(record: &StoredRecord) -> Option<&'static str> {
    match record.content.as_ref()?.kept {
        ContentStorage::Erased => Some("erasure"),
        ContentStorage::Purged => Some("retention"),
        _ => None,
    }
}

/// A record's content; `None` where it was erased or cannot be unpacked.
#[must_use]
pub fn opened(record: &StoredRecord) -> Option<Value> {
    let kept = &record.content.as_ref()?.kept;
    if matches!(kept, ContentStorage::Unavailable(_)) {
        return Some(unavailable());
    }
    let (_, codec, bytes) = kept.hot()?;
    serde_json::from_slice(&unpack(codec, bytes).ok()?).ok()
}

/// Recomputes a task's evidence while it is read: record hashes and commitments. `handoffd verify` checks the chain
/// between records of different tasks.
#[derive(Debug, Default)]
pub struct EvidenceCheck {
    records: u64,
    contents: u64,
    erased: u64,
    purged: u64,
    unavailable: u64,
    first_bad: Option<(i64, &'static str)>,
}

impl EvidenceCheck {
    /// Recomputes the record's hash; returns its body.
    pub fn record(&mut self, record: &StoredRecord) -> Value {
        self.records += 1;
        record::record(&record.body, &record.hash).map_or_else(
            |_| {
                self.first_bad.get_or_insert((record.leaf_index, "record-hash"));
                serde_json::from_slice(&record.body).unwrap_or_default()
            },
            |checked| checked.body,
        )
    }

    /// Recomputes the commitment; returns the content, null where there is none or it was erased.
    pub fn content(&mut self, record: &StoredRecord, body: &Value) -> Value {
        let Some(commitment) = body.get("messageCommitment").and_then(Value::as_str) else {
            return Value::Null;
        };
        let kept = record.content.as_ref().map(|content| &content.kept);
        if let Some(ContentStorage::Unavailable(fault)) = kept {
            self.unavailable += 1;
            // An archive that is away tells nothing of the evidence.
            if *fault != ColdError::Away {
                self.first_bad.get_or_insert((record.leaf_index, fault.as_str()));
            }
            return unavailable();
        }
        let Some((salt, codec, bytes)) = kept.and_then(ContentStorage::hot) else {
            self.erased += 1;
            self.purged += u64::from(matches!(kept, Some(ContentStorage::Purged)));
            return Value::Null;
        };
        self.contents += 1;
        let content = unpack(codec, bytes).unwrap_or_default();
        if !record::opens(commitment, CommitmentSubject::Message, salt, &content) {
            self.first_bad.get_or_insert((record.leaf_index, "content"));
        }
        serde_json::from_slice(&content).unwrap_or_default()
    }

    /// The result, as `verification` of a trace.
    #[must_use]
    pub fn summary(&self) -> Value {
        let mut summary = json!({
            "ok": self.first_bad.is_none(),
            "records": self.records,
            "contents": self.contents,
            "erased": self.erased,
            "firstBad": self.first_bad.map(|(leaf, fault)| json!({"leafIndex": leaf, "fault": fault})),
        });
        for (name, count) in [("unavailable", self.unavailable), ("purged", self.purged)] {
            if let (Some(summary), 1..) = (summary.as_object_mut(), count) {
                summary.insert(name.to_owned(), json!(count));
            }
        }
        summary
    }
}
