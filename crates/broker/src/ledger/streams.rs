//! Decisions on handoffs in pieces (specification §10.5): a chunk, and the end of a stream.

use super::case::Case;
use super::command::{
    AppendChunk, ClosedStream, Command, LedgerError, RefuseChunk, Reply, StreamEnd,
};
use super::context::Context;
use super::draft::draft_of;
use super::failing::HandoffFailure;
use super::plan::{Change, Decision};
use handoffd_core::domain::event::EventType;
use handoffd_core::domain::handoff::{Handoff, HandoffEvent};
use handoffd_core::domain::ids::{AgentId, HandoffId};
use handoffd_core::domain::ruling::Trigger;
use handoffd_core::domain::stream::{STREAM_ABORTED, STREAM_TIMEOUT, StreamStatus};
use handoffd_core::domain::window::ContextAction;
use handoffd_core::evidence::record::{Actor, RecordContent, RecordKind, StreamFacts};
use handoffd_store::store::BatchState;
use handoffd_store::store::streams::ChunkRow;

/// Why a handoff cannot be completed or handed on yet: its receiver may accept before the close.
const STILL_OPEN: &str = "the handoff's stream is open: it can be completed, or handed on, once its sender has closed it";

/// Adds a chunk to its stream. Numbers are dense: who is not next changes nothing.
pub(super) fn chunk(
    state: &BatchState,
    command: &Command,
    context: &Context,
    chunk: &AppendChunk,
) -> Decision {
    let mut case = Case::open(state, command, context, chunk.task_id, chunk.handoff_id)?;
    let Some(stream) = &mut case.handoff.stream else {
        return Err(LedgerError::Conflict(
            "the handoff's message came whole: it has no stream".to_owned(),
        ));
    };
    if chunk.seq != stream.seq + 1 {
        return Ok((Vec::new(), Reply::OutOfOrder { handoff: case.handoff }));
    }
    if let Some(why) = stream.refusal() {
        return Err(LedgerError::Conflict(why));
    }
    if case.task.status.is_final() || case.handoff.status.is_final() {
        return Err(LedgerError::Conflict(format!(
            "the handoff is {}, and its task {}: it takes no chunk",
            case.handoff.status.as_str(),
            case.task.status.as_str()
        )));
    }
    stream.take(chunk.bytes, chunk.due_at);
    let ends = match &chunk.end {
        None => None,
        Some(StreamEnd::Closed(_)) => {
            stream.close();
            Some(StreamStatus::Closed)
        }
        Some(StreamEnd::Refused { reason, .. }) => {
            stream.abort(reason);
            Some(StreamStatus::Aborted)
        }
        Some(StreamEnd::Aborted) => {
            stream.abort(STREAM_ABORTED);
            Some(StreamStatus::Aborted)
        }
    };
    let reason = stream.reason.clone();
    let content = &chunk.content;
    case.changes.push(Change::Chunk(ChunkRow {
        tenant: command.tenant.clone(),
        handoff_id: chunk.handoff_id,
        seq: chunk.seq,
        content: Some(content.id),
        commitment: Some(content.part.commitment),
        ends,
        reason: reason.clone(),
        created_at: command.at,
    }));
    let mut draft = draft_of(command, RecordKind::Chunk, &case.handoff);
    draft.content = Some(content.clone());
    draft.safety.clone_from(&chunk.safety);
    draft.stream = facts(&case.handoff);
    draft.reason = reason;
    case.changes.push(Change::Record(Box::new(draft)));
    match &chunk.end {
        None => {}
        Some(StreamEnd::Closed(closed)) => case.close_stream(closed),
        Some(StreamEnd::Refused { reason, content }) => {
            case.publish_abort();
            case.undo(&ended(reason, Trigger::Error, Some(content)))?;
        }
        Some(StreamEnd::Aborted) => {
            case.publish_abort();
            case.undo(&ended(STREAM_ABORTED, Trigger::Error, None))?;
        }
    }
    Ok(case.close())
}

/// Records that the gate refused a chunk; the stream stays as it is.
pub(super) fn refuse(state: &BatchState, command: &Command, refused: &RefuseChunk) -> Decision {
    let key = (command.tenant.clone(), refused.handoff_id);
    let handoff = state.handoffs.get(&key).ok_or(LedgerError::NotFound("handoff"))?;
    let mut draft = draft_of(command, RecordKind::Refused, handoff);
    draft.reason = Some(refused.reason.clone());
    draft.content = Some(refused.content.clone());
    draft.stream = facts(handoff);
    Ok((vec![Change::Record(Box::new(draft))], Reply::Recorded))
}

/// What a record says of a handoff's stream.
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
    command: &Command,
    (parent_id, source): (Option<HandoffId>, &AgentId),
) -> Result<(), LedgerError> {
    let parent = parent_id.map(|id| (command.tenant.clone(), id));
    match parent.and_then(|key| state.handoffs.get(&key)) {
        Some(parent) if parent.target == *source => must_be_whole(parent),
        _ => Ok(()),
    }
}

/// Refuses to give a message on that never became whole.
pub(super) fn must_have_closed(handoff: &Handoff) -> Result<(), LedgerError> {
    if handoff.stream.as_ref().is_some_and(|stream| stream.status != StreamStatus::Closed) {
        return Err(LedgerError::Conflict(
            "the handoff's stream was never closed: there is no whole message to deliver; its sender submits a new one"
                .to_owned(),
        ));
    }
    Ok(())
}

const fn ended<'a>(
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
    /// The assembled message becomes the handoff's. A receiver that no attempt has reached yet gets it whole.
    fn close_stream(&mut self, closed: &ClosedStream) {
        let key = (self.command.tenant.clone(), self.handoff.id);
        let untried = self.state.outbox.get(&key).is_some_and(|row| row.attempt == 0);
        if untried {
            self.handoff.sent_id = None;
        }
        self.handoff.content_id = Some(closed.content.id);
        self.handoff.commitment = Some(closed.content.part.commitment);
        self.handoff.context = closed.context.map(|mut facts| {
            // What was sent in pieces is not sent again.
            if !untried && facts.action == ContextAction::Compress {
                facts.action = ContextAction::Flag;
            }
            facts
        });
        self.task.course.see(&closed.subtasks);
        let mut draft = draft_of(self.command, RecordKind::StreamClosed, &self.handoff);
        draft.content = Some(closed.content.clone());
        draft.safety.clone_from(&closed.safety);
        draft.context = self.handoff.context;
        draft.stream = facts(&self.handoff);
        self.changes.push(Change::Record(Box::new(draft)));
        let seq = self.stream_seq();
        self.publish(EventType::HandoffStreamClosed, |event| event.with("seq", seq));
    }

    fn stream_seq(&self) -> i64 {
        self.handoff.stream.as_ref().map_or(0, |stream| stream.seq)
    }

    /// Publishes that the stream ended without a whole message.
    fn publish_abort(&mut self) {
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
            tenant: self.command.tenant.clone(),
            handoff_id: self.handoff.id,
            seq,
            content: None,
            commitment: None,
            ends: Some(StreamStatus::Aborted),
            reason: Some(reason.to_owned()),
            created_at: self.command.at,
        }));
        let mut draft = draft_of(self.command, RecordKind::Chunk, &self.handoff);
        draft.actor = Actor::broker();
        draft.reason = Some(reason.to_owned());
        draft.stream = facts(&self.handoff);
        self.changes.push(Change::Record(Box::new(draft)));
        self.publish_abort();
    }
}
