//! Decisions on handoffs in pieces (specification §10.5): a chunk, and the end of a stream.

use super::call::Call;
use super::case::Case;
use super::draft::draft_of;
use super::failure::HandoffFailure;
use super::plan::Change;
use super::reply::LedgerError;
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::{Handoff, HandoffEvent};
use handoffd_domain::ids::{AgentId, HandoffId};
use handoffd_domain::ruling::Trigger;
use handoffd_domain::stream::{STREAM_TIMEOUT, StreamStatus};
use handoffd_evidence::record::{Actor, RecordContent, RecordKind, StreamFacts};
use handoffd_store::store::BatchState;
use handoffd_store::store::streams::ChunkRow;

/// Why a handoff cannot be completed or handed on yet: its receiver may accept before the close.
const STILL_OPEN: &str = "the handoff's stream is open: it can be completed, or handed on, once its sender has closed it";

/// A record's facts about a handoff's stream.
pub(super) fn facts(handoff: &Handoff) -> Option<StreamFacts> {
    handoff.stream.as_ref().map(StreamFacts::from)
}

/// Refuses what needs the whole message while a handoff's stream is open.
pub(super) fn must_be_whole(handoff: &Handoff) -> Result<(), LedgerError> {
    if handoff.is_streaming() {
        return Err(LedgerError::Conflict(STILL_OPEN.to_owned()));
    }
    Ok(())
}

/// Refuses to hand on what the sender has in part: the handoff that it follows is an open stream to the sender.
pub(super) fn parent_must_be_whole(
    state: &BatchState,
    call: &Call,
    (parent_id, source): (Option<HandoffId>, &AgentId),
) -> Result<(), LedgerError> {
    let parent = parent_id.map(|id| (call.tenant.clone(), id));
    match parent.and_then(|key| state.handoffs.get(&key)) {
        Some(parent) if parent.target == *source => must_be_whole(parent),
        _ => Ok(()),
    }
}

/// Refuses to give a message on that never became whole.
pub(super) fn must_have_closed(handoff: &Handoff) -> Result<(), LedgerError> {
    if handoff.stream.as_ref().is_some_and(|stream| stream.status != StreamStatus::Closed) {
        return Err(LedgerError::Conflict(
            "the handoff's stream was never closed: the broker has no whole message to deliver; its sender submits a new one"
                .to_owned(),
        ));
    }
    Ok(())
}

pub(super) const fn ended<'a>(
    reason: &'a str,
    trigger: Trigger,
    content: Option<&'a RecordContent>,
) -> HandoffFailure<'a> {
    HandoffFailure {
        event: HandoffEvent::Fail,
        kind: RecordKind::Failed,
        trigger,
        reason,
        content,
        spent: None,
    }
}

/// No chunk came in time.
pub(super) const fn idle() -> HandoffFailure<'static> {
    ended(STREAM_TIMEOUT, Trigger::Timeout, None)
}

impl Case<'_> {
    pub(super) fn stream_seq(&self) -> i64 {
        self.handoff.stream.as_ref().map_or(0, |stream| stream.seq)
    }

    /// Publishes that the stream ended without a whole message.
    pub(super) fn publish_abort(&mut self) {
        let stream = self.handoff.stream.as_ref();
        let reason = stream.and_then(|stream| stream.reason.clone()).unwrap_or_default();
        let seq = self.stream_seq();
        self.publish(EventType::HandoffStreamAborted, |event| {
            event.with("seq", seq).with("reason", reason)
        });
    }

    /// Ends an open stream with its handoff: the broker's end takes the next number, for who still reads the stream.
    pub(super) fn end_stream(&mut self, reason: &str) {
        let Some(stream) = self.handoff.stream.as_mut().filter(|stream| stream.is_open()) else {
            return;
        };
        stream.seq += 1;
        stream.abort(reason);
        let seq = stream.seq;
        self.changes.push(Change::Chunk(ChunkRow {
            tenant: self.call.tenant.clone(),
            handoff_id: self.handoff.id,
            seq,
            content: None,
            commitment: None,
            ends: Some(StreamStatus::Aborted),
            reason: Some(reason.to_owned()),
            created_at: self.call.at,
        }));
        let mut draft = draft_of(self.call, RecordKind::Chunk, &self.handoff);
        draft.actor = Actor::broker();
        draft.reason = Some(reason.to_owned());
        draft.stream = facts(&self.handoff);
        self.changes.push(Change::Record(Box::new(draft)));
        self.publish_abort();
    }
}
