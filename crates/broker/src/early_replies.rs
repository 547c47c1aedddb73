//! Verdicts by a reply channel that come before their attempt is settled.
//!
//! A queue acknowledges a message at once, and most receivers reply a few milliseconds later. An attempt that a queue has
//! taken therefore waits a moment (`transports.reply_wait_ms`): a verdict that comes by then is committed as the attempt's
//! own outcome, in one commit, as a verdict in a webhook's answer is. A verdict that comes later, or to another broker, is
//! carried out as a callback.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use handoffd_domain::ids::AgentId;
use handoffd_store::store::HandoffKey;

/// How long a reply may be at its attempt, whose message the queue may not have acknowledged, or whose commit may take long.
/// After that it is a callback: whichever is committed first counts, and the other changes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A verdict that ends an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum EarlyVerdict {
    Accepted,
    /// Rejected, for this reason.
    Rejected(String),
}

/// A receiver's proven reply to an attempt that is not settled.
#[derive(Debug)]
pub(crate) struct EarlyReply {
    pub(crate) verdict: EarlyVerdict,
    /// Members of the reply beside its verdict, redacted; the verdict's record keeps them.
    pub(crate) said: Map<String, Value>,
    committed: oneshot::Sender<()>,
}

impl EarlyReply {
    /// Tells who brought the reply that its effect is committed. A reply that is dropped instead has had none.
    pub(crate) fn confirm(self) {
        // Who brought it may have gone: the channel then delivers the reply again.
        let _ = self.committed.send(());
    }
}

struct Awaited {
    attempt: i32,
    fencing_token: i64,
    receiver: AgentId,
    reply: oneshot::Sender<EarlyReply>,
}

/// The attempts of this broker that take a reply.
#[derive(Default)]
pub struct EarlyReplies(Mutex<HashMap<HandoffKey, Awaited>>);

impl EarlyReplies {
    fn lock(&self) -> MutexGuard<'_, HashMap<HandoffKey, Awaited>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes replies to an attempt from now on.
    pub(crate) fn expect(
        self: &Arc<Self>,
        handoff: HandoffKey,
        attempt: i32,
        fencing_token: i64,
        receiver: AgentId,
    ) -> ExpectedReply {
        let (reply, replies) = oneshot::channel();
        let awaited = Awaited { attempt, fencing_token, receiver, reply };
        self.lock().insert(handoff.clone(), awaited);
        ExpectedReply { all: Arc::clone(self), handoff, attempt, reply: replies }
    }

    /// The receiver of an attempt under this fencing token that takes a reply.
    #[must_use]
    pub fn receiver(&self, handoff: &HandoffKey, fencing_token: i64) -> Option<AgentId> {
        let awaited = self.lock();
        let awaited = awaited.get(handoff).filter(|one| one.fencing_token == fencing_token)?;
        Some(awaited.receiver.clone())
    }

    /// Hands a proven reply to its attempt. Returns once the verdict is committed, or with false: the attempt ended without it.
    pub async fn offer(
        &self,
        handoff: &HandoffKey,
        fencing_token: i64,
        verdict: EarlyVerdict,
        said: Map<String, Value>,
    ) -> bool {
        let (committed, done) = oneshot::channel();
        {
            let mut awaited = self.lock();
            if awaited.get(handoff).is_none_or(|one| one.fencing_token != fencing_token) {
                return false;
            }
            let Some(one) = awaited.remove(handoff) else { return false };
            if one.reply.send(EarlyReply { verdict, said, committed }).is_err() {
                return false;
            }
        }
        matches!(timeout(PATIENCE, done).await, Ok(Ok(())))
    }
}

/// The reply that an attempt takes, if one comes. Dropped, it takes none.
pub(crate) struct ExpectedReply {
    all: Arc<EarlyReplies>,
    handoff: HandoffKey,
    attempt: i32,
    reply: oneshot::Receiver<EarlyReply>,
}

impl ExpectedReply {
    /// Resolves with the reply.
    pub(crate) async fn reply(&mut self) -> Option<EarlyReply> {
        (&mut self.reply).await.ok()
    }
}

impl Drop for ExpectedReply {
    fn drop(&mut self) {
        let mut awaited = self.all.lock();
        // A later attempt of the handoff takes replies for itself.
        if awaited.get(&self.handoff).is_some_and(|one| one.attempt == self.attempt) {
            awaited.remove(&self.handoff);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn handoff() -> HandoffKey {
        ("t".parse().unwrap(), "0193a6c8-5b1c-7c4e-8f00-0242ac120001".parse().unwrap())
    }

    fn expect(replies: &Arc<EarlyReplies>, attempt: i32) -> ExpectedReply {
        replies.expect(handoff(), attempt, 7, "b".parse().unwrap())
    }

    fn said() -> Map<String, Value> {
        json!({ "details": "x" }).as_object().unwrap().clone()
    }

    #[tokio::test]
    async fn a_reply_is_taken_once_its_attempt_is_committed() {
        let (replies, handoff) = (Arc::new(EarlyReplies::default()), handoff());
        let mut expected = expect(&replies, 1);
        assert_eq!(replies.receiver(&handoff, 7), Some("b".parse().unwrap()));
        let offered = replies.offer(&handoff, 7, EarlyVerdict::Accepted, said());
        let attempt = async {
            let early = expected.reply().await.unwrap();
            assert_eq!((&early.verdict, &early.said), (&EarlyVerdict::Accepted, &said()));
            early.confirm();
        };
        let (taken, ()) = tokio::join!(offered, attempt);
        assert!(taken);
        // The second one is a callback.
        assert!(!replies.offer(&handoff, 7, EarlyVerdict::Accepted, said()).await);
    }

    #[tokio::test]
    async fn a_reply_whose_attempt_ends_without_it_is_given_back() {
        let (replies, handoff) = (Arc::new(EarlyReplies::default()), handoff());
        let mut expected = expect(&replies, 1);
        let offered = replies.offer(&handoff, 7, EarlyVerdict::Accepted, said());
        let attempt = async { drop(expected.reply().await) };
        assert!(!tokio::join!(offered, attempt).0, "its commit failed");

        let expected = expect(&replies, 1);
        let offered = replies.offer(&handoff, 7, EarlyVerdict::Accepted, said());
        assert!(!tokio::join!(offered, async { drop(expected) }).0, "its message was not taken");
        assert!(!replies.offer(&handoff, 7, EarlyVerdict::Accepted, said()).await);
        assert_eq!(replies.receiver(&handoff, 7), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_does_not_wait_for_an_attempt_that_takes_long() {
        let replies = Arc::new(EarlyReplies::default());
        let mut expected = expect(&replies, 1);
        assert!(!replies.offer(&handoff(), 7, EarlyVerdict::Accepted, said()).await);
        // The attempt has it all the same.
        assert!(expected.reply().await.is_some());
    }

    #[tokio::test]
    async fn another_fencing_token_or_handoff_is_not_of_the_attempt() {
        let (replies, handoff) = (Arc::new(EarlyReplies::default()), handoff());
        let _expected = expect(&replies, 1);
        assert_eq!(replies.receiver(&handoff, 6), None);
        assert!(!replies.offer(&handoff, 6, EarlyVerdict::Accepted, said()).await);
        let other = (handoff.0.clone(), "0193a6c8-5b1c-7c4e-8f00-0242ac120002".parse().unwrap());
        assert!(!replies.offer(&other, 7, EarlyVerdict::Accepted, said()).await);
    }

    #[tokio::test]
    async fn the_end_of_an_attempt_leaves_the_next_one_its_reply() {
        let (replies, handoff) = (Arc::new(EarlyReplies::default()), handoff());
        let first = expect(&replies, 1);
        let _second = expect(&replies, 2);
        drop(first);
        assert!(replies.receiver(&handoff, 7).is_some());
    }
}
