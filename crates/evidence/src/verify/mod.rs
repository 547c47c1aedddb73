//! The verifier recomputes a log from its entries alone, and reports the first bad entry and the kind of change. It
//! shares only the hash functions with the writer: it parses the stored bytes as JSON and trusts no column.

use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::commitment::{Codec, CommitmentSubject, hash_text, unpack};
use super::erasure::ErasureGaps;
use super::merkle::Hash;

pub mod groups;
pub mod opinions;
mod place;
mod reasons;
pub mod record;
// Rows of a database, agents among them: the auditor's binary has none.
#[cfg(feature = "agents")]
pub mod states;
pub mod streams;
mod tree;

use groups::GroupCheck;
use opinions::OpinionCheck;
use place::{LeafShift, Misplaced};
pub use reasons::ToldReasons;
use record::{CheckedRecord, opens_packed};
use streams::StreamCheck;
pub use tree::TrustedHead;
use tree::VerifiedTree;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogDefect {
    /// Leaf index of the first bad record.
    pub leaf_index: i64,
    /// Kind of change, as far as it can be determined: `flip`, `drop`, `insert`, `swap`, `truncation`, `rewrite`,
    /// `fork`, `foreign`; `content`, `content-gone`, `erasure` (a record lists present data as erased),
    /// `group` (the end of a group is not what its branches come to), `stream` (the chunks of a stream are not numbered
    /// without gaps, or do not make the message that closed it), `opinion` (a second opinion that no record announces, or a
    /// second one), `personal-data`, `checkpoint`, `unrecorded`, `state` for
    /// data beside the log; `tree` and `head` for the stored tree; `signature` for a tree head that no key of the log signed.
    pub fault: &'static str,
    /// A sentence for people.
    pub detail: String,
}

/// The result of verifying one log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerificationReport {
    pub log_id: String,
    pub records: u64,
    /// Contents whose commitment was recomputed.
    pub contents: u64,
    /// Erased contents, of which only the commitment is left.
    pub erased: u64,
    /// Contents withheld from the check.
    pub withheld: u64,
    /// Leaf index of the first record with a missing content or part.
    pub first_erased: Option<i64>,
    /// The last record's hash, `sha256:…`.
    pub head: Option<String>,
    /// The Merkle tree's root as recomputed, `sha256:…`.
    pub root: Option<String>,
    /// Tree heads kept elsewhere that match this log.
    pub tree_heads: u64,
    /// Rows of agents, keys, contracts and so on that are as the log's records commit to them.
    pub committed_rows: u64,
    /// Such rows that an earlier version wrote, and no record commits to.
    pub uncommitted_rows: u64,
    /// Agents and subscriptions whose secrets could not be compared: without the master key, or without a commitment.
    pub secrets_not_compared: u64,
    /// The first defect; `None` for an intact log.
    pub first_fault: Option<LogDefect>,
}

/// The remaining data of a content.
#[derive(Debug, Clone, Copy)]
pub enum RemainingContent<'a> {
    /// Salt, coding and packed bytes.
    Whole(&'a [u8], Codec, &'a [u8]),
    /// No data: the content was erased or removed.
    Gone,
    /// The archive lost or damaged the content; the caller reports the defect.
    Lost,
    /// The content is stored, but withheld from this check.
    Withheld,
}

impl<'a> From<Option<(&'a [u8], Codec, &'a [u8])>> for RemainingContent<'a> {
    fn from(kept: Option<(&'a [u8], Codec, &'a [u8])>) -> Self {
        kept.map_or(Self::Gone, |(salt, codec, bytes)| Self::Whole(salt, codec, bytes))
    }
}

/// One log entry with its columns.
#[derive(Debug)]
pub struct LogEntry<'a> {
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
    /// The bytes of the record.
    pub body: &'a [u8],
    /// The record's content, where it has one.
    pub content: Option<RemainingContent<'a>>,
    /// Personal data by ordinal.
    pub personal: Vec<(i64, RemainingContent<'a>)>,
}

/// Kind of the defect, and a sentence.
type EntryDefect = (&'static str, String);

/// The kind of record whose content lists erased data.
const ERASED: &str = "ERASED";

/// Checks a log entry by entry. Memory grows only with the number of erased contents, groups and pending opinions, and with the messages
/// of the streams that are open at one time.
#[derive(Debug)]
pub struct Verifier {
    report: VerificationReport,
    /// The tenant that each record names; `None` where the caller knows none.
    tenant: Option<String>,
    next: i64,
    previous: Option<String>,
    tree: VerifiedTree,
    heads: Vec<TrustedHead>,
    misplaced: Option<Misplaced>,
    gaps: ErasureGaps,
    groups: GroupCheck,
    opinions: OpinionCheck,
    streams: StreamCheck,
}

impl Verifier {
    /// Begins a check of the log `log_id`.
    #[must_use]
    pub fn new(log_id: impl Into<String>) -> Self {
        Self::against(log_id, Vec::new())
    }

    /// Begins a check of the log `log_id` against tree heads kept elsewhere.
    #[must_use]
    pub fn against(log_id: impl Into<String>, mut heads: Vec<TrustedHead>) -> Self {
        heads.sort_by_key(|head| std::cmp::Reverse(head.size));
        let mut verifier = Self {
            report: VerificationReport { log_id: log_id.into(), ..VerificationReport::default() },
            tenant: None,
            next: 0,
            previous: None,
            tree: VerifiedTree::default(),
            heads,
            misplaced: None,
            gaps: ErasureGaps::default(),
            groups: GroupCheck::default(),
            opinions: OpinionCheck::default(),
            streams: StreamCheck::default(),
        };
        if let Some(pair) =
            verifier.heads.windows(2).find(|two| two[0].size == two[1].size && two[0] != two[1])
        {
            verifier.report.first_fault = Some(LogDefect {
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

    /// Holds each record to the tenant `tenant`, too.
    #[must_use]
    pub fn of_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Checks the next entry. After the first defect, entries are only counted, and used to explain an entry out
    /// of place.
    pub fn entry(&mut self, entry: &LogEntry<'_>) {
        self.checked_entry(entry, EntryCheck::of(entry));
    }

    /// [`Verifier::entry`] with the check of the entry alone made before.
    pub fn checked_entry(&mut self, entry: &LogEntry<'_>, alone: EntryCheck) {
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
        if let Err((fault, detail)) = self.check(entry, alone) {
            self.report.first_fault =
                Some(LogDefect { leaf_index: entry.leaf_index, fault, detail });
        }
    }

    fn explain(&mut self, shift: LeafShift) {
        if let (Some(misplaced), Some(fault)) =
            (self.misplaced.take(), &mut self.report.first_fault)
        {
            (fault.fault, fault.detail) = misplaced.told(shift);
        }
    }

    fn check(&mut self, entry: &LogEntry<'_>, alone: EntryCheck) -> Result<(), EntryDefect> {
        if entry.leaf_index > self.next {
            let dropped = entry.leaf_index - self.next;
            return Err(("drop", format!("{dropped} records before this one are missing")));
        }
        if entry.leaf_index < self.next {
            return Err(("insert", "there are two records of this index".to_owned()));
        }
        let CheckedRecord { hash, body } = alone.record?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        if text("logId") != Some(self.report.log_id.as_str()) {
            return Err(("foreign", "the record belongs to another log".to_owned()));
        }
        if self.tenant.is_some() && text("tenant") != self.tenant.as_deref() {
            return Err(("foreign", "the record belongs to another tenant".to_owned()));
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
        self.contents(entry.leaf_index, &alone.parts?);
        self.groups.take(&body).map_err(|detail| ("group", detail))?;
        self.opinions.take(&body).map_err(|detail| ("opinion", detail))?;
        let streamed = self.streams.take(&body, || parsed(entry.content?));
        streamed.map_err(|detail| ("stream", detail))?;
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

    /// Compares the tree with the trusted heads of its current size.
    fn agree(&mut self) {
        let size = self.tree.size();
        while self.heads.last().is_some_and(|head| head.size == size) {
            let Some(head) = self.heads.pop() else { break };
            if head.root == self.tree.root() {
                self.report.tree_heads += 1;
            } else if self.report.first_fault.is_none() {
                self.report.first_fault = Some(LogDefect {
                    leaf_index: self.next - 1,
                    fault: "rewrite",
                    detail: format!(
                        "a tree head kept elsewhere has another root over the first {size} records: this record or one before it was rewritten, with all hashes after it"
                    ),
                });
            }
        }
    }

    /// Counts the parts of an entry, and keeps the missing ones until a record explains them.
    fn contents(&mut self, leaf_index: i64, parts: &[(Option<i64>, PartState)]) {
        for (ordinal, state) in parts {
            match state {
                PartState::Opens => self.report.contents += 1,
                PartState::Withheld => self.report.withheld += 1,
                PartState::Lost => {}
                PartState::Gone => {
                    self.report.erased += 1;
                    self.report.first_erased.get_or_insert(leaf_index);
                    match ordinal {
                        Some(ordinal) => self.gaps.datum(leaf_index, *ordinal),
                        None => self.gaps.content(leaf_index),
                    }
                }
            }
        }
    }

    /// Closes the gaps that an `ERASED` record lists.
    fn listed(&mut self, entry: &LogEntry<'_>) -> Result<(), String> {
        match entry.content {
            Some(RemainingContent::Whole(_, codec, bytes)) => {
                self.gaps.erased(&unpack(codec, bytes)?)
            }
            // Its own list is gone: then nothing accounts for what it listed, nor for itself.
            _ => Ok(()),
        }
    }

    /// Takes an entry beyond the verified head. Data it lists as erased was present when the check began, so only
    /// its list counts.
    pub fn later(&mut self, entry: &LogEntry<'_>) {
        if entry.kind == ERASED {
            // A list may name data that this check still saw: they were erased since, so it is not a fault.
            let _ = self.listed(entry);
        }
    }

    /// Missing data without an `ERASED` record so far.
    #[must_use]
    pub const fn gaps(&self) -> &ErasureGaps {
        &self.gaps
    }

    /// The nodes completed since the last call, at every eighth level: `(tile level, index, hash)`, for
    /// comparison with the stored tree.
    pub fn take_nodes(&mut self) -> Vec<(u32, u64, Hash)> {
        self.tree.take_nodes()
    }

    /// Counts the rows that were compared with committed states.
    pub const fn rows(&mut self, committed: u64, uncommitted: u64, secrets_not_compared: u64) {
        self.report.committed_rows = committed;
        self.report.uncommitted_rows = uncommitted;
        self.report.secrets_not_compared = secrets_not_compared;
    }

    /// Reports a defect found beside the entries; only the first one counts.
    pub fn fault(&mut self, fault: LogDefect) {
        self.report.first_fault.get_or_insert(fault);
    }

    /// [`Verifier::fault`] from its members.
    pub fn beside(&mut self, leaf_index: i64, fault: &'static str, detail: String) {
        self.fault(LogDefect { leaf_index, fault, detail });
    }

    /// The report so far.
    #[must_use]
    pub const fn report(&self) -> &VerificationReport {
        &self.report
    }

    /// Ends the check against the log's stored head: its size, its last hash and, where stored, the right edge of
    /// its tree (size, then the roots of its complete subtrees).
    #[must_use]
    pub fn finish(mut self, size: i64, head: &[u8], edge: Option<&[u8]>) -> VerificationReport {
        self.report.head.clone_from(&self.previous);
        self.report.root = Some(hash_text(&self.tree.root()));
        self.ended(size, head, edge);
        self.report
    }

    /// Checks the end of the log, as [`Verifier::finish`].
    pub fn ended(&mut self, size: i64, head: &[u8], edge: Option<&[u8]>) {
        if self.report.first_fault.is_none() {
            self.report.first_fault = self.end(size, head, edge);
        }
    }

    fn end(&self, size: i64, head: &[u8], edge: Option<&[u8]>) -> Option<LogDefect> {
        let fault = |leaf_index, fault, detail| Some(LogDefect { leaf_index, fault, detail });
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

/// The check of one entry alone: all that needs no other entry. Entries are so checked side by side.
#[derive(Debug)]
pub struct EntryCheck {
    record: Result<CheckedRecord, EntryDefect>,
    /// The message (`None`) and the personal data by ordinal.
    parts: Result<Vec<(Option<i64>, PartState)>, EntryDefect>,
}

/// The state of a committed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartState {
    /// Opens its commitment.
    Opens,
    /// Only its commitment is left.
    Gone,
    /// Lost by the archive.
    Lost,
    /// Withheld from the check.
    Withheld,
}

impl EntryCheck {
    /// Checks the record's bytes, the columns beside them, and the contents against their commitments.
    #[must_use]
    pub fn of(entry: &LogEntry<'_>) -> Self {
        let record = record::record(entry.body, entry.hash)
            .map_err(|defect| (defect.fault(), defect.to_string()));
        let parts = match &record {
            Ok(checked) => columns(&checked.body, entry).and_then(|()| parts(&checked.body, entry)),
            Err(_) => Ok(Vec::new()),
        };
        Self { record, parts }
    }
}

/// A content as JSON; `None` where it is gone or withheld.
fn parsed(content: RemainingContent<'_>) -> Option<Value> {
    let RemainingContent::Whole(_, codec, bytes) = content else { return None };
    serde_json::from_slice(&unpack(codec, bytes).ok()?).ok()
}

fn parts(body: &Value, entry: &LogEntry<'_>) -> Result<Vec<(Option<i64>, PartState)>, EntryDefect> {
    let mut parts = Vec::new();
    match (body.get("messageCommitment").and_then(Value::as_str), &entry.content) {
        (Some(expected), Some(kept)) => {
            let state = part(expected, CommitmentSubject::Message, *kept);
            parts.push((None, state.map_err(|detail| ("content", detail))?));
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
        let state = part(expected, CommitmentSubject::PersonalData, *kept);
        parts.push((Some(*ordinal), state.map_err(|detail| ("personal-data", detail))?));
    }
    Ok(parts)
}

/// Checks a part against its commitment.
fn part(
    expected: &str,
    subject: CommitmentSubject,
    kept: RemainingContent<'_>,
) -> Result<PartState, String> {
    match kept {
        RemainingContent::Whole(salt, codec, bytes) => {
            opens_packed(expected, subject, (salt, codec, bytes)).map(|()| PartState::Opens)
        }
        RemainingContent::Gone => Ok(PartState::Gone),
        RemainingContent::Lost => Ok(PartState::Lost),
        RemainingContent::Withheld => Ok(PartState::Withheld),
    }
}

/// Compares the columns with the record: the index must match the bytes.
fn columns(body: &Value, entry: &LogEntry<'_>) -> Result<(), EntryDefect> {
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

fn stated_index(body: &[u8]) -> Option<i64> {
    serde_json::from_slice::<Value>(body).ok()?.get("leafIndex")?.as_i64()
}

#[cfg(test)]
mod tests;
