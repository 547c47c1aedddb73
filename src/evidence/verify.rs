//! The verifier: recomputes a log from its entries alone and names the first bad one. It shares
//! nothing with the writer but the hash function's name: it reads the stored bytes as JSON and
//! trusts no column.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::commitment::{Codec, Subject, commit, hash_text, unpack};
use crate::domain::canonical;

/// What is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Where: the leaf index of the first bad record.
    pub leaf_index: i64,
    /// What: a stable name, e.g. `record-hash`.
    pub fault: &'static str,
    /// A sentence.
    pub detail: String,
}

/// What a check of one log found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The log.
    pub log_id: String,
    /// Records read.
    pub records: u64,
    /// Contents whose commitment was recomputed.
    pub contents: u64,
    /// Contents that were erased, so that only their commitment is left.
    pub erased: u64,
    /// The first record whose content, or part of it, is gone.
    pub first_erased: Option<i64>,
    /// The last record's hash, `sha256:…`.
    pub head: Option<String>,
    /// The first bad record.
    pub first_fault: Option<Fault>,
}

/// A kept content: salt, coding, packed bytes; `None` where it was erased.
pub type Kept<'a> = Option<(&'a [u8], Codec, &'a [u8])>;

/// One entry as it lies in the store.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The index column.
    pub leaf_index: i64,
    /// The hash column.
    pub hash: &'a [u8],
    /// The kind column.
    pub kind: &'a str,
    /// The task column.
    pub task_id: Option<&'a str>,
    /// The handoff column.
    pub handoff_id: Option<&'a str>,
    /// The bytes.
    pub body: &'a [u8],
    /// Its content: absent, erased or kept.
    pub content: Option<Kept<'a>>,
    /// Personal data in order.
    pub personal: Vec<(i64, Kept<'a>)>,
}

/// Checks a log entry by entry, in constant memory.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    next: i64,
    previous: Option<String>,
}

impl Verifier {
    /// For the log of that id.
    #[must_use]
    pub fn new(log_id: impl Into<String>) -> Self {
        Self {
            report: Report { log_id: log_id.into(), ..Report::default() },
            next: 0,
            previous: None,
        }
    }

    /// Takes the next entry. After the first fault nothing more is judged, only counted.
    pub fn entry(&mut self, entry: &Entry<'_>) {
        self.report.records += 1;
        if self.report.first_fault.is_some() {
            return;
        }
        if let Err((fault, detail)) = self.check(entry) {
            self.report.first_fault = Some(Fault { leaf_index: entry.leaf_index, fault, detail });
        }
    }

    fn check(&mut self, entry: &Entry<'_>) -> Result<(), (&'static str, String)> {
        if entry.leaf_index != self.next {
            return Err((
                "index",
                format!(
                    "expected leaf {}, found {}: dropped or inserted",
                    self.next, entry.leaf_index
                ),
            ));
        }
        let hash: [u8; 32] =
            Sha256::new_with_prefix([0u8]).chain_update(entry.body).finalize().into();
        if hash[..] != *entry.hash {
            return Err(("record-hash", "the bytes do not hash to the kept recordHash".to_owned()));
        }
        let body: Value = serde_json::from_slice(entry.body)
            .map_err(|err| ("record-json", format!("the bytes are not JSON: {err}")))?;
        if canonical::to_vec(&body) != entry.body {
            return Err(("record-canonical", "the bytes are not in canonical form".to_owned()));
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        if body.get("leafIndex").and_then(Value::as_i64) != Some(entry.leaf_index) {
            return Err((
                "record-index",
                "the record states another leafIndex: swapped".to_owned(),
            ));
        }
        if text("previousRecordHash") != self.previous.as_deref() {
            return Err((
                "chain",
                "previousRecordHash is not the hash of the record before".to_owned(),
            ));
        }
        if text("logId") != Some(self.report.log_id.as_str()) {
            return Err(("log-id", "the record belongs to another log".to_owned()));
        }
        for (name, column) in
            [("kind", Some(entry.kind)), ("taskId", entry.task_id), ("handoffId", entry.handoff_id)]
        {
            if text(name) != column {
                return Err(("column", format!("column {name} disagrees with the record")));
            }
        }
        let erased = self.report.erased;
        self.contents(&body, entry)?;
        if self.report.erased > erased {
            self.report.first_erased.get_or_insert(entry.leaf_index);
        }
        self.next += 1;
        self.previous = Some(hash_text(&hash));
        Ok(())
    }

    fn contents(&mut self, body: &Value, entry: &Entry<'_>) -> Result<(), (&'static str, String)> {
        match (body.get("messageCommitment").and_then(Value::as_str), &entry.content) {
            (Some(expected), Some(kept)) => {
                self.opens(expected, Subject::Message, *kept)
                    .map_err(|detail| ("content", detail))?;
            }
            (Some(_), None) => {
                return Err(("content", "the content is missing and was not erased".to_owned()));
            }
            (None, Some(_)) => {
                return Err(("content", "a content that no commitment covers".to_owned()));
            }
            (None, None) => {}
        }
        let commitments = body
            .get("personalDataCommitments")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        if commitments.len() != entry.personal.len() {
            return Err((
                "personal-data",
                format!("{} commitments, {} entries kept", commitments.len(), entry.personal.len()),
            ));
        }
        for (place, (ordinal, kept)) in entry.personal.iter().enumerate() {
            let expected = commitments[place].as_str().unwrap_or_default();
            if *ordinal != place as i64 {
                return Err(("personal-data", format!("entry {place} is out of place")));
            }
            self.opens(expected, Subject::PersonalData, *kept)
                .map_err(|detail| ("personal-data", detail))?;
        }
        Ok(())
    }

    fn opens(&mut self, expected: &str, subject: Subject, kept: Kept<'_>) -> Result<(), String> {
        let Some((salt, codec, bytes)) = kept else {
            self.report.erased += 1;
            return Ok(());
        };
        let content = unpack(codec, bytes)?;
        if hash_text(&commit(subject, salt, &content)) != expected {
            return Err("the content does not open the record's commitment".to_owned());
        }
        self.report.contents += 1;
        Ok(())
    }

    /// Ends the check against what the store says of the log's head: its size and last hash.
    #[must_use]
    pub fn finish(mut self, size: i64, head: &[u8]) -> Report {
        self.report.head.clone_from(&self.previous);
        if self.report.first_fault.is_none() {
            let stated = (!head.is_empty()).then(|| hash_text(head));
            if self.next != size {
                self.report.first_fault = Some(Fault {
                    leaf_index: self.next.min(size),
                    fault: "truncated",
                    detail: format!("the head speaks of {size} records, {} are there", self.next),
                });
            } else if stated != self.previous {
                self.report.first_fault = Some(Fault {
                    leaf_index: size - 1,
                    fault: "head",
                    detail: "the head's hash is not the last record's".to_owned(),
                });
            }
        }
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::super::commitment::Part;
    use super::super::record::{
        Actor, Content, Draft, LogHead, PersonalPart, RecordKind, Sealed, seal,
    };
    use super::*;
    use crate::domain::ids::{ContentId, Micros};

    struct Kept1 {
        sealed: Sealed,
        draft: Draft,
    }

    fn log(n: i64) -> (Vec<Kept1>, LogHead) {
        let tenant: crate::domain::ids::TenantId = "t".parse().unwrap();
        let mut head =
            LogHead { tenant: tenant.clone(), log_id: "log".to_owned(), size: 0, hash: vec![] };
        let rows = (0..n)
            .map(|i| {
                let mut draft =
                    Draft::new(tenant.clone(), RecordKind::Handoff, Micros(i), Actor::broker());
                draft.content = Some(Content {
                    id: ContentId(uuid::Uuid::nil()),
                    part: Part::new(Subject::Message, [7; 16], format!("{{\"n\":{i}}}").as_bytes()),
                });
                draft.personal = vec![PersonalPart {
                    subject_id: "s".to_owned(),
                    part: Part::new(Subject::PersonalData, [9; 16], b"{}"),
                }];
                Kept1 { sealed: seal(&mut head, &draft), draft }
            })
            .collect();
        (rows, head)
    }

    fn verify(rows: &[Kept1], head: &LogHead) -> Report {
        let mut verifier = Verifier::new("log");
        for row in rows {
            let part = &row.draft.content.as_ref().unwrap().part;
            let personal = &row.draft.personal[0].part;
            verifier.entry(&Entry {
                leaf_index: row.sealed.leaf_index,
                hash: &row.sealed.hash,
                kind: row.draft.kind.as_str(),
                task_id: None,
                handoff_id: None,
                body: &row.sealed.body,
                content: Some((!part.salt.is_empty()).then_some((
                    &part.salt[..],
                    part.codec,
                    &part.bytes[..],
                ))),
                personal: vec![(0, Some((&personal.salt, personal.codec, &personal.bytes)))],
            });
        }
        verifier.finish(head.size, &head.hash)
    }

    fn fault(rows: &[Kept1], head: &LogHead) -> (i64, &'static str) {
        let fault = verify(rows, head).first_fault.expect("a fault");
        (fault.leaf_index, fault.fault)
    }

    #[test]
    fn a_sound_log_is_well_also_when_empty_or_erased() {
        let (mut rows, head) = log(5);
        let report = verify(&rows, &head);
        assert_eq!((report.records, report.contents, &report.first_fault), (5, 10, &None));
        rows[2].draft.content.as_mut().unwrap().part.salt.clear();
        let report = verify(&rows, &head);
        assert_eq!((report.erased, report.first_erased, report.first_fault), (1, Some(2), None));
        let (rows, head) = log(0);
        assert_eq!(verify(&rows, &head).first_fault, None);
    }

    #[test]
    fn each_kind_of_tampering_is_found_where_it_is() {
        let (mut rows, head) = log(5);
        rows[3].sealed.body[10] ^= 1;
        assert_eq!(fault(&rows, &head), (3, "record-hash"));

        let (mut rows, head) = log(5);
        rows[3].sealed.body = String::from_utf8(rows[3].sealed.body.clone())
            .unwrap()
            .replace("HANDOFF", "REFUSED")
            .into_bytes();
        rows[3].sealed.hash = super::super::record::record_hash(&rows[3].sealed.body);
        rows[3].draft.kind = RecordKind::Refused;
        assert_eq!(fault(&rows, &head), (4, "chain"), "a rehashed record breaks its successor");

        let (mut rows, head) = log(5);
        rows.remove(2);
        assert_eq!(fault(&rows, &head), (3, "index"));

        let (mut rows, head) = log(5);
        rows.swap(1, 2);
        assert_eq!(fault(&rows, &head), (2, "index"));

        let (mut rows, head) = log(5);
        rows.pop();
        assert_eq!(fault(&rows, &head), (4, "truncated"));

        let (mut rows, head) = log(5);
        rows[1].draft.content.as_mut().unwrap().part =
            Part::new(Subject::Message, [7; 16], b"{\"n\":9}");
        assert_eq!(fault(&rows, &head), (1, "content"));

        let (mut rows, head) = log(5);
        rows[4].draft.personal[0].part = Part::new(Subject::PersonalData, [9; 16], b"[]");
        assert_eq!(fault(&rows, &head), (4, "personal-data"));

        let (rows, mut head) = log(5);
        head.hash[0] ^= 1;
        assert_eq!(fault(&rows, &head), (4, "head"));
    }
}
