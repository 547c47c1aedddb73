//! Named steps at which a test makes the broker die, or its disk fail.
//!
//! They exist in test builds alone: the dependency `fail` has its feature `failpoints` from
//! `[dev-dependencies]`, which cargo leaves out of everything that is not built beside tests. In any
//! other build each call below is an empty function. `docs/reliability.md` says how to tell.
//!
//! A test build reads `FAILPOINTS` at its start, in the form of the crate `fail`:
//! `commit.written=7*off->return` lets the step pass seven times and ends the process at the eighth,
//! as SIGKILL would: at once, without a destructor. `sleep(ms)` and `pause` work at each step too.

/// A step at which a test can end the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The ledger has taken a batch; its transaction has not begun.
    CommitBegin,
    /// Within the transaction: loaded and decided, nothing written.
    CommitDecided,
    /// Within the transaction: rows written, records not.
    CommitWritten,
    /// Within the transaction: everything written, COMMIT not said.
    CommitSealed,
    /// Committed; no caller was answered, and no handoff reached the dispatcher.
    CommitDone,
    /// Within a transaction that rolls a task back: decided, nothing written.
    RollbackDecided,
    /// A rollback was committed; no caller was answered.
    RollbackDone,
    /// A submission was committed and went to the dispatcher; its tree head is not signed.
    HeadSign,
    /// A folder of tree heads has the newest in its history, and not yet as its newest.
    HeadKept,
    /// The outbox gave claims; nothing was sent.
    ClaimDone,
    /// Within a transaction that commits a group's branches: decided, nothing written.
    GroupDecided,
    /// A group's branches were committed; the sender was not answered.
    GroupDone,
    /// Within a transaction that ends a group: decided, nothing written.
    JoinDecided,
    /// A group's end was committed; no caller was answered.
    JoinDone,
    /// A chunk passed the gate, and was not said to the ledger.
    ChunkJudged,
    /// Within a transaction that takes a chunk: decided, nothing written.
    ChunkDecided,
    /// A chunk was committed; its sender was not answered.
    ChunkDone,
    /// Within a transaction that ends a stream: decided, nothing written.
    StreamEndDecided,
    /// A stream's end was committed; no caller was answered.
    StreamEndDone,
    /// A stream's line is leased; nothing was sent.
    LineClaimed,
    /// A chunk is about to be sent.
    ChunkSending,
    /// The receiver took a chunk; the line does not say so.
    ChunkSent,
    /// A line was written behind the chunk that its receiver took; the next chunk was not sent.
    LineWritten,
    /// A claim, from the outbox or fresh from the ledger, is about to be sent.
    SendBegin,
    /// The receiver has had the request and has begun to answer; the answer is not read.
    SendAnswered,
    /// A claimed message is compressed, and no record says so.
    CompressBegin,
    /// The compressed message was committed; nothing was sent.
    CompressDone,
    /// A second opinion that is due was claimed; the classifier was not asked.
    OpinionClaimed,
    /// The classifier answered; no record says so.
    OpinionAnswered,
    /// The second opinion was recorded.
    OpinionDone,
    /// An attempt's outcome is known, and not yet said to the ledger.
    SettleBegin,
    /// An attempt's outcome was committed; the receiver's place is not free yet.
    SettleDone,
    /// A puller's claims were committed; it has no fencing token yet.
    InboxClaimed,
    /// A puller's claims have their tokens; the puller has no answer.
    InboxLeased,
    /// The sweeper found an overdue handoff and has not acted.
    SweepFound,
    /// The overdue handoffs that the sweeper found have expired.
    SweepDone,
    /// A silent broker's claims were released; no dispatcher was notified.
    TakeoverFreed,
    /// An event was delivered to a subscriber; its cursor has not moved.
    EventTold,
    /// A segment is in the archive, its manifest is not.
    SegmentPut,
    /// A segment and its manifest are in the archive; no row says so.
    ManifestPut,
    /// Rows say that their contents are in a segment, and hold them no more.
    RowsCold,
    /// Within a transaction that erases: the page's data are gone, the record of it is not written.
    EraseWritten,
    /// A page of an erasure was committed; the next has not begun.
    ErasePage,
    /// All data of an erasure are gone from the rows; segments still hold some.
    EraseRows,
    /// The rows have moved from a segment with erased contents to one without; the old one is there.
    ForgetMoved,
    /// A segment was removed; its manifest is there.
    SegmentRemoved,
    /// The archive holds no erased data; the database's files may.
    EraseForgotten,
    /// SQLite's file was rewritten; its write-ahead log is not empty.
    EraseVacuumed,
    /// The files are clean; no record says that the erasure is done.
    EraseScrubbed,
    /// The record of an erasure's end was committed; no caller was answered.
    EraseDone,
    /// A page of a purge was committed; the next has not begun.
    PurgePage,
    /// Rows and archive hold no purged data; the database's files may.
    PurgeForgotten,
    /// The files hold no purged data; the mark does not say so.
    PurgeScrubbed,
    /// A log in a database of its own: its part of a batch is prepared, and nothing is decided.
    ApartPrepared,
    /// A log in a database of its own: the batch is decided on, and its part there still only prepared.
    ApartDecided,
}

impl Step {
    /// Every step from a submission to its verdict and the publication of its events, with one database.
    pub const ALL: [Self; 20] = [
        Self::CommitBegin,
        Self::CommitDecided,
        Self::CommitWritten,
        Self::CommitSealed,
        Self::CommitDone,
        Self::RollbackDecided,
        Self::RollbackDone,
        Self::HeadSign,
        Self::HeadKept,
        Self::ClaimDone,
        Self::SendBegin,
        Self::SendAnswered,
        Self::SettleBegin,
        Self::SettleDone,
        Self::InboxClaimed,
        Self::InboxLeased,
        Self::SweepFound,
        Self::SweepDone,
        Self::TakeoverFreed,
        Self::EventTold,
    ];

    /// The steps of archiving, in their order.
    pub const ARCHIVE: [Self; 3] = [Self::SegmentPut, Self::ManifestPut, Self::RowsCold];

    /// The steps of an erasure of contents that lie in a segment, in their order.
    pub const ERASE: [Self; 11] = [
        Self::EraseWritten,
        Self::ErasePage,
        Self::EraseRows,
        Self::SegmentPut,
        Self::ManifestPut,
        Self::ForgetMoved,
        Self::SegmentRemoved,
        Self::EraseForgotten,
        Self::EraseVacuumed,
        Self::EraseScrubbed,
        Self::EraseDone,
    ];

    /// The steps of a purge of contents that lie in a segment, in their order.
    pub const PURGE: [Self; 6] = [
        Self::EraseWritten,
        Self::PurgePage,
        Self::SegmentRemoved,
        Self::PurgeForgotten,
        Self::EraseVacuumed,
        Self::PurgeScrubbed,
    ];

    /// The steps of a compression, in their order.
    pub const COMPRESS: [Self; 2] = [Self::CompressBegin, Self::CompressDone];

    /// The steps of a second opinion after the commit, in their order.
    pub const OPINION: [Self; 3] = [Self::OpinionClaimed, Self::OpinionAnswered, Self::OpinionDone];

    /// The steps of a group, in their order.
    pub const GROUP: [Self; 4] =
        [Self::GroupDecided, Self::GroupDone, Self::JoinDecided, Self::JoinDone];

    /// The steps of a stream, from a chunk's commit to its delivery by webhook.
    pub const STREAM: [Self; 9] = [
        Self::ChunkJudged,
        Self::ChunkDecided,
        Self::ChunkDone,
        Self::StreamEndDecided,
        Self::StreamEndDone,
        Self::LineClaimed,
        Self::ChunkSending,
        Self::ChunkSent,
        Self::LineWritten,
    ];

    /// The steps between two databases.
    pub const APART: [Self; 2] = [Self::ApartPrepared, Self::ApartDecided];

    /// Its name in `FAILPOINTS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommitBegin => "commit.begin",
            Self::CommitDecided => "commit.decided",
            Self::CommitWritten => "commit.written",
            Self::CommitSealed => "commit.sealed",
            Self::CommitDone => "commit.done",
            Self::RollbackDecided => "rollback.decided",
            Self::RollbackDone => "rollback.done",
            Self::GroupDecided => "group.decided",
            Self::GroupDone => "group.done",
            Self::JoinDecided => "join.decided",
            Self::JoinDone => "join.done",
            Self::ChunkJudged => "chunk.judged",
            Self::ChunkDecided => "chunk.decided",
            Self::ChunkDone => "chunk.done",
            Self::StreamEndDecided => "stream.end.decided",
            Self::StreamEndDone => "stream.end.done",
            Self::LineClaimed => "line.claimed",
            Self::ChunkSending => "chunk.sending",
            Self::ChunkSent => "chunk.sent",
            Self::LineWritten => "line.written",
            Self::HeadSign => "head.sign",
            Self::HeadKept => "head.kept",
            Self::ClaimDone => "claim.done",
            Self::SendBegin => "send.begin",
            Self::SendAnswered => "send.answered",
            Self::CompressBegin => "compress.begin",
            Self::CompressDone => "compress.done",
            Self::OpinionClaimed => "opinion.claimed",
            Self::OpinionAnswered => "opinion.answered",
            Self::OpinionDone => "opinion.done",
            Self::SettleBegin => "settle.begin",
            Self::SettleDone => "settle.done",
            Self::InboxClaimed => "inbox.claimed",
            Self::InboxLeased => "inbox.leased",
            Self::SweepFound => "sweep.found",
            Self::SweepDone => "sweep.done",
            Self::TakeoverFreed => "takeover.freed",
            Self::EventTold => "event.told",
            Self::SegmentPut => "segment.put",
            Self::ManifestPut => "manifest.put",
            Self::RowsCold => "rows.cold",
            Self::EraseWritten => "erase.written",
            Self::ErasePage => "erase.page",
            Self::EraseRows => "erase.rows",
            Self::ForgetMoved => "forget.moved",
            Self::SegmentRemoved => "segment.removed",
            Self::EraseForgotten => "erase.forgotten",
            Self::EraseVacuumed => "erase.vacuumed",
            Self::EraseScrubbed => "erase.scrubbed",
            Self::EraseDone => "erase.done",
            Self::PurgePage => "purge.page",
            Self::PurgeForgotten => "purge.forgotten",
            Self::PurgeScrubbed => "purge.scrubbed",
            Self::ApartPrepared => "apart.prepared",
            Self::ApartDecided => "apart.decided",
        }
    }
}

/// A call to SQLite's file that can be made to fail. Postgres is cut off at its connection instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Io {
    /// A transaction does not begin.
    Begin,
    /// COMMIT fails; nothing was written.
    Commit,
    /// COMMIT took effect, and fails all the same.
    Committed,
}

impl Io {
    pub const ALL: [Self; 3] = [Self::Begin, Self::Commit, Self::Committed];

    /// Its name in `FAILPOINTS`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begin => "io.begin",
            Self::Commit => "io.commit",
            Self::Committed => "io.committed",
        }
    }
}

/// Whether this build contains the steps.
#[must_use]
pub const fn compiled_in() -> bool {
    fail::has_failpoints()
}

/// The armed steps of `FAILPOINTS`, until dropped.
pub struct Armed(
    #[expect(dead_code, reason = "held for its drop")] Option<fail::FailScenario<'static>>,
);

/// Arms the steps that `FAILPOINTS` names, where this build has them.
///
/// # Panics
/// When `FAILPOINTS` cannot be read.
#[must_use]
pub fn arm() -> Armed {
    Armed(compiled_in().then(fail::FailScenario::setup))
}

/// Ends the process here if a test armed the step.
#[inline]
#[allow(unused_variables, reason = "without the steps there is nothing to look up")]
pub fn at(step: Step) {
    fail::fail_point!(step.name(), |_| std::process::abort());
}

/// Whether a test armed the step: only then is it worth a wait of its own.
#[must_use]
pub fn is_armed(step: Step) -> bool {
    compiled_in() && fail::list().iter().any(|(name, _)| name == step.name())
}

/// Whether this call is to fail.
#[inline]
#[must_use]
#[allow(unused_variables, reason = "without the steps there is nothing to look up")]
pub fn fails(call: Io) -> bool {
    fail::fail_point!(call.name(), |_| true);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_build_has_the_steps_and_each_its_own_name() {
        assert!(compiled_in());
        // An erasure puts segments as archiving does.
        let erase = Step::ERASE.iter().filter(|step| !Step::ARCHIVE.contains(step));
        let steps: Vec<&str> = Step::ALL
            .iter()
            .chain(&Step::ARCHIVE)
            .chain(&Step::APART)
            .chain(&Step::COMPRESS)
            .chain(&Step::OPINION)
            .chain(&Step::GROUP)
            .chain(&Step::STREAM)
            .chain(erase)
            .chain(&[Step::PurgePage, Step::PurgeForgotten, Step::PurgeScrubbed])
            .map(|step| step.name())
            .collect();
        let calls = Io::ALL.iter().map(|call| call.name());
        let names: std::collections::BTreeSet<&str> = steps.iter().copied().chain(calls).collect();
        assert_eq!(names.len(), steps.len() + Io::ALL.len());
    }
}
