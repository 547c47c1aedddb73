//! Add a chunk to a handoff's stream, or end the stream with it.

use crate::ledger::case::Case;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::draft::draft_of;
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::reply::{HandoffReply, LedgerError};
use crate::ledger::streams::{ended, facts};
use handoffd_domain::event::EventType;
use handoffd_domain::handoff::Handoff;
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_domain::ruling::Trigger;
use handoffd_domain::stream::{STREAM_ABORTED, StreamStatus};
use handoffd_domain::window::{ContextAction, ContextFacts};
use handoffd_evidence::record::{RecordContent, RecordKind, SafetyFacts};
use handoffd_store::store::BatchState;
use handoffd_store::store::streams::ChunkRow;

/// A chunk that passed the gate, or ends its stream.
#[derive(Debug, Clone)]
pub struct AppendChunk {
    pub task_id: TaskId,
    /// The handoff in pieces.
    pub handoff_id: HandoffId,
    pub seq: i64,
    /// Its length in canonical form, in bytes.
    pub bytes: u64,
    /// The chunk.
    pub content: RecordContent,
    /// The findings of the safety stage, if the record has them.
    pub safety: Option<SafetyFacts>,
    /// When the stream ends unless another chunk comes.
    pub due_at: Micros,
    /// How the stream ends with it.
    pub end: Option<StreamEnd>,
}

/// How a stream ends with a chunk.
#[derive(Debug, Clone)]
pub enum StreamEnd {
    /// The assembled message passed the gate.
    Closed(Box<ClosedStream>),
    /// The gate refused the assembled message.
    Refused {
        /// The primary reason, a code.
        reason: String,
        /// All failures.
        content: RecordContent,
    },
    /// The sender aborts it.
    Aborted,
}

/// The assembled message of a stream.
#[derive(Debug, Clone)]
pub struct ClosedStream {
    /// The message.
    pub content: RecordContent,
    /// The message against the receiver's context window.
    pub context: Option<ContextFacts>,
    /// Subtasks that it has a result of, as [`handoffd_domain::course::subtasks_of`] names them.
    pub subtasks: Vec<u64>,
    /// The findings of the safety stage, if the record has them.
    pub safety: Option<SafetyFacts>,
}

/// The reply to a chunk.
#[derive(Debug)]
pub enum Chunked {
    Taken(HandoffReply),
    /// The chunk has another number than the next one of its stream; nothing was changed.
    OutOfOrder(Handoff),
}

impl Command for AppendChunk {
    type Reply = Chunked;
    const NAME: &'static str = "chunk";

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.handoff(self.task_id, self.handoff_id);
        if self.end.is_some() {
            rows.caps([]);
        }
        // A chunk that ends its stream badly reads the rows of a failure.
        if matches!(self.end, Some(StreamEnd::Refused { .. } | StreamEnd::Aborted)) {
            rows.edges(self.task_id);
            rows.open(self.task_id);
        }
    }

    /// Adds a chunk to its stream. Numbers are dense: who is not next changes nothing.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let mut case = Case::open(state, call, context, self.task_id, self.handoff_id)?;
        let Some(stream) = &mut case.handoff.stream else {
            return Err(LedgerError::Conflict(
                "the handoff's message came whole: it has no stream".to_owned(),
            ));
        };
        if self.seq != stream.seq + 1 {
            return Ok((Vec::new(), Chunked::OutOfOrder(case.handoff)));
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
        stream.take(self.bytes, self.due_at);
        let ends = match &self.end {
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
        let content = &self.content;
        case.changes.push(Change::Chunk(ChunkRow {
            tenant: call.tenant.clone(),
            handoff_id: self.handoff_id,
            seq: self.seq,
            content: Some(content.id),
            commitment: Some(content.part.commitment),
            ends,
            reason: reason.clone(),
            created_at: call.at,
        }));
        let mut draft = draft_of(call, RecordKind::Chunk, &case.handoff);
        draft.content = Some(content.clone());
        draft.safety.clone_from(&self.safety);
        draft.stream = facts(&case.handoff);
        draft.reason = reason;
        case.changes.push(Change::Record(Box::new(draft)));
        match &self.end {
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
        let (changes, reply) = case.close();
        Ok((changes, Chunked::Taken(reply)))
    }

    fn handoff(reply: &Self::Reply) -> Option<&HandoffReply> {
        match reply {
            Chunked::Taken(reply) => Some(reply),
            Chunked::OutOfOrder(_) => None,
        }
    }
}

impl Case<'_> {
    /// The assembled message becomes the handoff's. A receiver that no attempt has reached yet gets it whole.
    fn close_stream(&mut self, closed: &ClosedStream) {
        let key = (self.call.tenant.clone(), self.handoff.id);
        let untried = self.state.outbox.get(&key).is_some_and(|row| row.attempt == 0);
        if untried {
            self.handoff.sent_id = None;
        }
        self.handoff.content_id = Some(closed.content.id);
        self.handoff.commitment = Some(closed.content.part.commitment);
        self.handoff.context = closed.context.map(|mut facts| {
            // The receiver has the pieces already: they are not sent again.
            if !untried && facts.action == ContextAction::Compress {
                facts.action = ContextAction::Flag;
            }
            facts
        });
        self.task.course.see(&closed.subtasks);
        let mut draft = draft_of(self.call, RecordKind::StreamClosed, &self.handoff);
        draft.content = Some(closed.content.clone());
        draft.safety.clone_from(&closed.safety);
        draft.context = self.handoff.context;
        draft.stream = facts(&self.handoff);
        self.changes.push(Change::Record(Box::new(draft)));
        let seq = self.stream_seq();
        self.publish(EventType::HandoffStreamClosed, |event| event.with("seq", seq));
    }
}
