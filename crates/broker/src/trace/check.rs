//! Evidence of a task's records, recomputed as they are read.

use serde::Serialize;
use serde_json::Value;

use crate::archive::unavailable;
use handoffd_evidence::commitment::{CommitmentSubject, unpack};
use handoffd_evidence::verify::groups::GroupCheck;
use handoffd_evidence::verify::opinions::OpinionCheck;
use handoffd_evidence::verify::record;
use handoffd_evidence::verify::streams::StreamCheck;
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

/// The parts of a task's evidence that were recomputed while it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = VerificationView))]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Nothing was found wrong.
    pub ok: bool,
    /// Records whose hash was recomputed.
    pub records: u64,
    /// Contents whose commitment was recomputed.
    pub contents: u64,
    /// Contents that are not there any more.
    pub erased: u64,
    /// Of these, what was past its time; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub purged: Option<u64>,
    /// Contents that the archive does not give; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub unavailable: Option<u64>,
    /// First record that does not verify; null where all do.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub first_bad: Option<RecordFault>,
}

/// A fault in a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordFault {
    /// The record's place in the log.
    pub leaf_index: i64,
    /// The fault: a code. `state` if a row of the database differs from the records; the trace goes by the records.
    pub fault: &'static str,
    /// The same in words; of `state` with both values.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub detail: Option<String>,
}

/// Recomputes a task's evidence while it is read: record hashes, commitments, groups, opinions and streams.
/// `handoffd verify` checks the chain between records of different tasks.
#[derive(Debug, Default)]
pub struct EvidenceCheck {
    records: u64,
    contents: u64,
    erased: u64,
    purged: u64,
    unavailable: u64,
    first_bad: Option<(i64, &'static str)>,
    /// A sentence on the first fault.
    detail: Option<String>,
    groups: GroupCheck,
    opinions: OpinionCheck,
    streams: StreamCheck,
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

    /// Recomputes the hash and the commitment of a record that is read without those before it; returns body and content.
    pub fn alone(&mut self, record: &StoredRecord) -> (Value, Value) {
        let body = self.record(record);
        let content = self.committed(record, &body).unwrap_or_default();
        (body, content)
    }

    /// Recomputes the commitment, and compares the record with those of its group, opinion and stream; returns the content, null
    /// where there is none or it was erased.
    pub fn content(&mut self, record: &StoredRecord, body: &Value) -> Value {
        let content = self.committed(record, body);
        if self.groups.take(body).is_err() {
            self.first_bad.get_or_insert((record.leaf_index, "group"));
        }
        if self.opinions.take(body).is_err() {
            self.first_bad.get_or_insert((record.leaf_index, "opinion"));
        }
        if self.streams.take(body, || content.clone()).is_err() {
            self.first_bad.get_or_insert((record.leaf_index, "stream"));
        }
        match (content, record.content.as_ref().map(|content| &content.kept)) {
            (Some(content), _) => content,
            (None, Some(ContentStorage::Unavailable(_))) => unavailable(),
            (None, _) => Value::Null,
        }
    }

    /// The content that the record commits to; `None` where there is none, or it cannot be had.
    fn committed(&mut self, record: &StoredRecord, body: &Value) -> Option<Value> {
        let commitment = body.get("messageCommitment").and_then(Value::as_str)?;
        let kept = record.content.as_ref().map(|content| &content.kept);
        if let Some(ContentStorage::Unavailable(fault)) = kept {
            self.unavailable += 1;
            // An archive that is away tells nothing of the evidence.
            if *fault != ColdError::Away {
                self.first_bad.get_or_insert((record.leaf_index, fault.as_str()));
            }
            return None;
        }
        let Some((salt, codec, bytes)) = kept.and_then(ContentStorage::hot) else {
            self.erased += 1;
            self.purged += u64::from(matches!(kept, Some(ContentStorage::Purged)));
            return None;
        };
        self.contents += 1;
        let content = unpack(codec, bytes).unwrap_or_default();
        if !record::opens(commitment, CommitmentSubject::Message, salt, &content) {
            self.first_bad.get_or_insert((record.leaf_index, "content"));
        }
        serde_json::from_slice(&content).ok()
    }

    /// A row is not as its records say; the first fault counts.
    pub fn row_differs(&mut self, leaf_index: i64, detail: String) {
        if self.first_bad.is_none() {
            self.first_bad = Some((leaf_index, "state"));
            self.detail = Some(detail);
        }
    }

    /// The result, as `verification` of a trace.
    #[must_use]
    pub fn summary(&self) -> Verification {
        let counted = |count: u64| Some(count).filter(|count| *count > 0);
        Verification {
            ok: self.first_bad.is_none(),
            records: self.records,
            contents: self.contents,
            erased: self.erased,
            purged: counted(self.purged),
            unavailable: counted(self.unavailable),
            first_bad: self.first_bad.map(|(leaf_index, fault)| RecordFault {
                leaf_index,
                fault,
                detail: self.detail.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handoffd_domain::ids::Micros;
    use handoffd_evidence::commitment::{Codec, commit, hash_text};
    use handoffd_evidence::record::record_hash;
    use handoffd_store::store::StoredContent;
    use serde_json::json;

    /// A sound record of a stream, with its content.
    fn record(leaf: i64, kind: &str, stream: (&str, i64), content: &Value) -> StoredRecord {
        let bytes = serde_json::to_vec(content).unwrap();
        let commitment = commit(CommitmentSubject::Message, &[7], &bytes);
        let body = json!({
            "kind": kind, "handoffId": "h", "stream": { "status": stream.0, "seq": stream.1 },
            "messageCommitment": hash_text(&commitment),
        });
        let body = serde_json::to_vec(&body).unwrap();
        StoredRecord {
            leaf_index: leaf,
            hash: record_hash(&body).to_vec(),
            kind: kind.to_owned(),
            task_id: None,
            handoff_id: Some("h".to_owned()),
            recorded_at: Micros(0),
            body,
            content: Some(StoredContent {
                id: leaf.to_string(),
                kept: ContentStorage::Hot(vec![7], Codec::Raw, bytes),
            }),
            personal: Vec::new(),
        }
    }

    fn first_bad(records: &[StoredRecord]) -> Value {
        let mut check = EvidenceCheck::default();
        for record in records {
            let body = check.record(record);
            check.content(record, &body);
        }
        json!(check.summary())["firstBad"].clone()
    }

    #[test]
    fn a_stream_that_its_chunks_do_not_make_is_named_in_a_trace() {
        let opening = json!({ "taskSummary": "a", "stream": { "open": true } });
        let opening = record(4, "HANDOFF", ("OPEN", 0), &opening);
        let chunk = |leaf, seq, status| {
            let close = status == "CLOSED";
            let chunk = json!({ "seq": seq, "append": { "/taskSummary": ["b"] }, "close": close });
            record(leaf, "CHUNK", (status, seq), &chunk)
        };
        let closed = |summary: &str| {
            let whole = json!({ "taskSummary": summary, "stream": { "open": false, "seq": 1 } });
            record(6, "STREAM_CLOSED", ("CLOSED", 1), &whole)
        };
        let of = |end: StoredRecord| [opening.clone(), chunk(5, 1, "CLOSED"), end];
        let bad = |leaf: i64| json!({ "leafIndex": leaf, "fault": "stream" });
        assert_eq!(first_bad(&of(closed("ab"))), Value::Null);
        assert_eq!(first_bad(&of(closed("ax"))), bad(6));
        assert_eq!(first_bad(&[opening.clone(), chunk(5, 2, "OPEN")]), bad(5));
        let twice = [opening.clone(), chunk(5, 1, "OPEN"), chunk(6, 1, "OPEN")];
        assert_eq!(first_bad(&twice), bad(6));
        let mut gone = of(closed("ax"));
        gone[1].content.as_mut().unwrap().kept = ContentStorage::Erased;
        assert_eq!(first_bad(&gone), Value::Null, "what is erased cannot be compared");
    }
}
