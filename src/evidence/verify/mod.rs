//! The verifier: recomputes a log from its entries alone, names the first bad one and says what kind
//! of change it was. It shares nothing with the writer but the hash functions: it reads the stored bytes
//! as JSON and trusts no column.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::commitment::{Codec, Subject, commit, hash_text, unpack};
use super::erasure::Gaps;
use super::merkle::Hash;
use crate::domain::canonical;

mod place;
mod tree;

use place::{Misplaced, Shift};
pub use tree::KeptHead;
use tree::Tree;

/// What is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Where: the leaf index of the first bad record.
    pub leaf_index: i64,
    /// What was done, as far as it shows: `flip`, `drop`, `insert`, `swap`, `truncation`, `rewrite`,
    /// `fork`, `foreign`; `content`, `content-gone`, `erasure` (a record lists as erased what is there), `personal-data`,
    /// `checkpoint`, `unrecorded`, `state` for what stands beside the log; `tree` and `head` for what is kept of the tree; `signature` for a
    /// tree head that no key of the log signed.
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
    /// Contents that the check was not shown.
    pub withheld: u64,
    /// The first record whose content, or part of it, is gone.
    pub first_erased: Option<i64>,
    /// The last record's hash, `sha256:…`.
    pub head: Option<String>,
    /// The Merkle tree's root as recomputed, `sha256:…`.
    pub root: Option<String>,
    /// Tree heads kept elsewhere that this log agrees with.
    pub tree_heads: u64,
    /// The first bad record.
    pub first_fault: Option<Fault>,
}

/// What is left of a content.
#[derive(Debug, Clone, Copy)]
pub enum Kept<'a> {
    /// Salt, coding, packed bytes.
    Whole(&'a [u8], Codec, &'a [u8]),
    /// Nothing: it was erased, or taken away.
    Gone,
    /// It is kept, and not shown here.
    Withheld,
}

impl<'a> From<Option<(&'a [u8], Codec, &'a [u8])>> for Kept<'a> {
    fn from(kept: Option<(&'a [u8], Codec, &'a [u8])>) -> Self {
        kept.map_or(Self::Gone, |(salt, codec, bytes)| Self::Whole(salt, codec, bytes))
    }
}

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
    /// The time column, microseconds since the epoch.
    pub recorded_at: i64,
    /// The bytes.
    pub body: &'a [u8],
    /// Its content, where it has one.
    pub content: Option<Kept<'a>>,
    /// Personal data in order.
    pub personal: Vec<(i64, Kept<'a>)>,
}

/// What an entry's check found: the kind of fault, and a sentence.
type Found = (&'static str, String);

/// The kind of record whose content lists what was erased.
const ERASED: &str = "ERASED";

/// Checks a log entry by entry, in constant memory but for the places of what was erased.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    next: i64,
    previous: Option<String>,
    tree: Tree,
    heads: Vec<KeptHead>,
    misplaced: Option<Misplaced>,
    gaps: Gaps,
}

impl Verifier {
    /// For the log of that id.
    #[must_use]
    pub fn new(log_id: impl Into<String>) -> Self {
        Self::against(log_id, Vec::new())
    }

    /// For the log of that id, which must agree with tree heads kept elsewhere.
    #[must_use]
    pub fn against(log_id: impl Into<String>, mut heads: Vec<KeptHead>) -> Self {
        heads.sort_by_key(|head| std::cmp::Reverse(head.size));
        let mut verifier = Self {
            report: Report { log_id: log_id.into(), ..Report::default() },
            next: 0,
            previous: None,
            tree: Tree::default(),
            heads,
            misplaced: None,
            gaps: Gaps::default(),
        };
        if let Some(pair) =
            verifier.heads.windows(2).find(|two| two[0].size == two[1].size && two[0] != two[1])
        {
            verifier.report.first_fault = Some(Fault {
                leaf_index: i64::try_from(pair[0].size).unwrap_or(i64::MAX),
                fault: "fork",
                detail: format!(
                    "two tree heads speak of {} records and have different roots: the log was shown in two versions",
                    pair[0].size
                ),
            });
        }
        verifier.agree();
        verifier
    }

    /// Takes the next entry. After the first fault nothing more is judged, only counted, and where an
    /// entry stood out of place, looked at for what moved it.
    pub fn entry(&mut self, entry: &Entry<'_>) {
        self.report.records += 1;
        if let Some(misplaced) = &self.misplaced {
            let stated = stated_index(entry.body);
            if let Some(shift) = misplaced.explained_by(entry.leaf_index, stated) {
                self.explain(shift);
            }
            return;
        }
        if self.report.first_fault.is_some() {
            return;
        }
        if let Err((fault, detail)) = self.check(entry) {
            self.report.first_fault = Some(Fault { leaf_index: entry.leaf_index, fault, detail });
        }
    }

    fn explain(&mut self, shift: Shift) {
        if let (Some(misplaced), Some(fault)) =
            (self.misplaced.take(), &mut self.report.first_fault)
        {
            (fault.fault, fault.detail) = misplaced.told(shift);
        }
    }

    fn check(&mut self, entry: &Entry<'_>) -> Result<(), Found> {
        if entry.leaf_index > self.next {
            let dropped = entry.leaf_index - self.next;
            return Err(("drop", format!("{dropped} records before this one are missing")));
        }
        if entry.leaf_index < self.next {
            return Err(("insert", "there are two records of this index".to_owned()));
        }
        let hash: Hash = Sha256::new_with_prefix([0u8]).chain_update(entry.body).finalize().into();
        if hash[..] != *entry.hash {
            return Err(("flip", "the bytes do not hash to the kept recordHash".to_owned()));
        }
        let body: Value = serde_json::from_slice(entry.body)
            .map_err(|err| ("rewrite", format!("the bytes are not JSON: {err}")))?;
        if canonical::to_vec(&body) != entry.body {
            return Err(("rewrite", "the bytes are not in canonical form".to_owned()));
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        if text("logId") != Some(self.report.log_id.as_str()) {
            return Err(("foreign", "the record belongs to another log".to_owned()));
        }
        let stated = body.get("leafIndex").and_then(Value::as_i64);
        if stated != Some(entry.leaf_index) {
            let misplaced = Misplaced { at: entry.leaf_index, stated };
            let found = misplaced.told(misplaced.alone());
            self.misplaced = Some(misplaced);
            return Err(found);
        }
        if text("previousRecordHash") != self.previous.as_deref() {
            return Err((
                "rewrite",
                "previousRecordHash is not the hash of the record before: that one or this one was replaced by another with a hash of its own"
                    .to_owned(),
            ));
        }
        columns(&body, entry)?;
        let erased = self.report.erased;
        self.contents(&body, entry)?;
        if self.report.erased > erased {
            self.report.first_erased.get_or_insert(entry.leaf_index);
        }
        if entry.kind == ERASED {
            self.listed(entry).map_err(|detail| ("erasure", detail))?;
        }
        self.next += 1;
        self.previous = Some(hash_text(&hash));
        self.tree.push(hash);
        self.agree();
        match &self.report.first_fault {
            None => Ok(()),
            Some(fault) => Err((fault.fault, fault.detail.clone())),
        }
    }

    /// Compares with the tree heads of just this size.
    fn agree(&mut self) {
        let size = self.tree.size();
        while self.heads.last().is_some_and(|head| head.size == size) {
            let Some(head) = self.heads.pop() else { break };
            if head.root == self.tree.root() {
                self.report.tree_heads += 1;
            } else if self.report.first_fault.is_none() {
                self.report.first_fault = Some(Fault {
                    leaf_index: self.next - 1,
                    fault: "rewrite",
                    detail: format!(
                        "a tree head kept elsewhere has another root over the first {size} records: this record or one before it was rewritten, with all hashes after it"
                    ),
                });
            }
        }
    }

    fn contents(&mut self, body: &Value, entry: &Entry<'_>) -> Result<(), Found> {
        match (body.get("messageCommitment").and_then(Value::as_str), &entry.content) {
            (Some(expected), Some(kept)) => {
                let gone = self.is_gone(expected, Subject::Message, *kept);
                if gone.map_err(|detail| ("content", detail))? {
                    self.gaps.content(entry.leaf_index);
                }
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
            let gone = self.is_gone(expected, Subject::PersonalData, *kept);
            if gone.map_err(|detail| ("personal-data", detail))? {
                self.gaps.datum(entry.leaf_index, *ordinal);
            }
        }
        Ok(())
    }

    /// What an `ERASED` record lists is accounted for.
    fn listed(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        match entry.content {
            Some(Kept::Whole(_, codec, bytes)) => self.gaps.erased(&unpack(codec, bytes)?),
            // Its own list is gone: then nothing accounts for what it listed, nor for itself.
            _ => Ok(()),
        }
    }

    /// Takes an entry that lies beyond the head that is judged. What it says was erased was there when
    /// the check began: only that counts of it.
    pub fn later(&mut self, entry: &Entry<'_>) {
        if entry.kind == ERASED {
            // A list that names what this check still saw is no fault: it was erased since.
            let _ = self.listed(entry);
        }
    }

    /// What is gone and no record seen so far accounts for.
    #[must_use]
    pub const fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Opens a commitment, or says that its content is gone.
    fn is_gone(
        &mut self,
        expected: &str,
        subject: Subject,
        kept: Kept<'_>,
    ) -> Result<bool, String> {
        match kept {
            Kept::Whole(salt, codec, bytes) => {
                opens(expected, subject, (salt, codec, bytes))?;
                self.report.contents += 1;
                Ok(false)
            }
            Kept::Gone => {
                self.report.erased += 1;
                Ok(true)
            }
            Kept::Withheld => {
                self.report.withheld += 1;
                Ok(false)
            }
        }
    }

    /// The nodes that became complete since this was asked last, at every eighth level: `(tile level,
    /// index, hash)`, to be compared with what is kept of the tree.
    pub fn take_nodes(&mut self) -> Vec<(u32, u64, Hash)> {
        self.tree.take_nodes()
    }

    /// A fault that was found beside the entries; only the first one counts.
    pub fn fault(&mut self, fault: Fault) {
        self.report.first_fault.get_or_insert(fault);
    }

    /// [`Verifier::fault`], put together.
    pub fn beside(&mut self, leaf_index: i64, fault: &'static str, detail: String) {
        self.fault(Fault { leaf_index, fault, detail });
    }

    /// What was found so far.
    #[must_use]
    pub const fn report(&self) -> &Report {
        &self.report
    }

    /// Ends the check against what the store says of the log's head: its size and last hash, and the right
    /// edge of its tree as kept (size, then the roots of its complete subtrees), where it is kept.
    #[must_use]
    pub fn finish(mut self, size: i64, head: &[u8], edge: Option<&[u8]>) -> Report {
        self.report.head.clone_from(&self.previous);
        self.report.root = Some(hash_text(&self.tree.root()));
        self.ended(size, head, edge);
        self.report
    }

    /// Looks at the end before the check ends: see [`Verifier::finish`].
    pub fn ended(&mut self, size: i64, head: &[u8], edge: Option<&[u8]>) {
        if self.report.first_fault.is_none() {
            self.report.first_fault = self.end(size, head, edge);
        }
    }

    fn end(&self, size: i64, head: &[u8], edge: Option<&[u8]>) -> Option<Fault> {
        let fault = |leaf_index, fault, detail| Some(Fault { leaf_index, fault, detail });
        if self.next < size {
            let detail = format!("the head speaks of {size} records, {} are there", self.next);
            return fault(self.next, "truncation", detail);
        }
        if self.next > size {
            let detail = format!("the head speaks of {size} records, and there are more");
            return fault(size, "insert", detail);
        }
        if let Some(kept) = self.heads.first() {
            let detail = format!(
                "a tree head kept elsewhere speaks of {} records, {} are there: the end was cut off",
                kept.size, self.next
            );
            return fault(self.next, "truncation", detail);
        }
        let stated = (!head.is_empty()).then(|| hash_text(head));
        if stated != self.previous {
            let detail = "the head's hash is not the last record's".to_owned();
            return fault(size - 1, "head", detail);
        }
        if edge.is_some_and(|edge| edge != self.tree.edge()) {
            let detail = "the kept edge of the tree is not what the records make".to_owned();
            return fault(size - 1, "tree", detail);
        }
        if let Some((leaf_index, gaps)) = self.gaps.unexplained() {
            let detail =
                format!("{gaps} contents are gone, and no record says that they were erased");
            return fault(leaf_index, "content-gone", detail);
        }
        None
    }
}

/// The columns beside the bytes: an index by which records are found must not lie about them.
fn columns(body: &Value, entry: &Entry<'_>) -> Result<(), Found> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    for (name, column) in
        [("kind", Some(entry.kind)), ("taskId", entry.task_id), ("handoffId", entry.handoff_id)]
    {
        if text(name) != column {
            return Err(("flip", format!("column {name} disagrees with the record")));
        }
    }
    let time = text("time").and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    if time.map(|time| time.unix_timestamp_nanos() / 1_000) != Some(entry.recorded_at.into()) {
        return Err(("flip", "the time's column disagrees with the record".to_owned()));
    }
    Ok(())
}

/// Whether a kept content opens a record's commitment (`sha256:…`).
///
/// # Errors
/// A sentence that says why not.
pub fn opens(
    expected: &str,
    subject: Subject,
    (salt, codec, bytes): (&[u8], Codec, &[u8]),
) -> Result<(), String> {
    let content = unpack(codec, bytes)?;
    if hash_text(&commit(subject, salt, &content)) == expected {
        Ok(())
    } else {
        Err("the content does not open the record's commitment".to_owned())
    }
}

fn stated_index(body: &[u8]) -> Option<i64> {
    serde_json::from_slice::<Value>(body).ok()?.get("leafIndex")?.as_i64()
}

#[cfg(test)]
mod tests;
