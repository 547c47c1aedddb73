//! A command: everything that changes a task, an agent or a key. It is built at the edge with all the randomness that it
//! needs, so that deciding on it is pure.

use std::fmt::Debug;

pub use super::call::Call;
use super::context::Context;
use super::needs::Rows;
use super::plan::Decision;
use super::reply::{HandoffReply, SubmissionReply};
use handoffd_domain::handoff::HandoffDraft;
use handoffd_domain::ids::{ContentId, Micros};
use handoffd_evidence::commitment::{CommitmentSubject, PackedContent};
use handoffd_evidence::record::RecordContent;
use handoffd_store::clock;
use handoffd_store::store::BatchState;

/// A state change, one type in one file of [`super::commands`].
pub trait Command: Debug + Clone + Send + Sync + 'static {
    /// The answer, once the changes are durable.
    type Reply: Debug + Send + 'static;

    /// The name in spans.
    const NAME: &'static str;

    /// Whether it changes objects whose states steer the broker: its record commits to the new states.
    const CHANGES_STATES: bool = false;

    /// Whether its decision asks the caps for room. An amount that another command passes on is cut to the room that
    /// there is.
    const ASKS_CAPS: bool = false;

    /// Whether it may give a tenant its first cap.
    const CHANGES_CAPS: bool = false;

    /// Adds the rows that it reads to those of its batch.
    fn needs(&self, rows: &mut Rows<'_>);

    /// Decides over the loaded rows: pure, and the same on both stores.
    ///
    /// # Errors
    /// [`super::reply::LedgerError`]: it changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply>;

    /// The handoff that the dispatcher may deliver from memory once it is committed.
    fn delivers(&self) -> Option<&HandoffDraft> {
        None
    }

    /// The handoff that it moved.
    fn handoff(_reply: &Self::Reply) -> Option<&HandoffReply> {
        None
    }

    /// The answer to a submission, accepted or refused.
    fn submission(_reply: &Self::Reply) -> Option<&SubmissionReply> {
        None
    }

    /// The places in which it may have made handoffs claimable that its reply does not name. There is no reply after an error, and the
    /// changes may be durable: the answer to a commit can be lost.
    fn frees(&self, _reply: Option<&Self::Reply>) -> Option<Freed> {
        None
    }
}

/// The places in which a command may have made handoffs claimable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freed {
    /// In an inbox.
    Inbox,
    /// In an inbox or an outbox.
    Anywhere,
}

/// Content for a record: canonical bytes, committed to and packed.
#[must_use]
pub fn content(canonical: &[u8], now: Micros) -> RecordContent {
    RecordContent {
        id: ContentId(clock::time_ordered_id(now)),
        part: PackedContent::new(CommitmentSubject::Message, clock::random(), canonical),
    }
}
