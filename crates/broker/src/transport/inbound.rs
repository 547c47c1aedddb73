//! The other direction: who takes the messages that a transport receives, and how each is to be acknowledged.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use handoffd_domain::ids::{AgentId, HandoffId, TaskId};

/// The outcome of a message that came in by a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Its effect is committed, or it has none: acknowledge it.
    Done,
    /// The gate refused it. The transport publishes the problem document on the answers' channel, if the settings name
    /// one, and acknowledges the message.
    Refused(Bytes),
    /// No later attempt can take it. The transport publishes it with this reason to the queue for such messages, if the
    /// settings name one, and acknowledges it.
    Park(String),
    /// The broker cannot take it now: leave it unacknowledged and go on after the pause.
    Later(Duration),
}

/// Takes messages that came by a transport.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Takes one message, and returns after its effect is committed.
    async fn take(&self, message: Bytes) -> Disposition;

    /// Messages with equal keys are taken in the order in which they came, others at once.
    fn order(&self, message: &[u8]) -> Option<String>;

    /// The handoffs of an agent that have no final verdict: for transports that ask receivers for theirs. `None` where
    /// the broker cannot know now.
    async fn unfinished(&self, agent: &AgentId) -> Option<Vec<UnfinishedHandoff>> {
        let _ = agent;
        Some(Vec::new())
    }
}

/// A handoff that waits for its receiver's verdict, or that its receiver holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnfinishedHandoff {
    pub task_id: TaskId,
    pub handoff_id: HandoffId,
}
