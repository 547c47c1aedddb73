//! The checks, one function for each claim. A check ends early with the first fact that contradicts its claim.

pub(crate) mod delivery;
pub(crate) mod evidence;
pub(crate) mod faults;
pub(crate) mod gate;
pub(crate) mod recovery;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;

use crate::Bench;
use crate::broker::Agent;
use crate::message::Message;
use crate::receiver::{Delivery, Receiver, Say};

/// Fails unless a fact holds.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl Bench {
    /// A receiver that gives one answer to everything.
    pub(crate) async fn receiver(&self, say: Say) -> Result<Receiver, String> {
        self.scripted(move |_, _| say.clone()).await
    }

    /// A receiver that answers by a script.
    pub(crate) async fn scripted(
        &self,
        script: impl Fn(&Delivery, usize) -> Say + Send + Sync + 'static,
    ) -> Result<Receiver, String> {
        match &self.standing {
            Some(standing) => Ok(standing.scripted(script)),
            None => Receiver::start(&self.hooks.receiver_host, script).await,
        }
    }

    /// The deliveries of one message: a receiver gets the submitted id, or the one that the broker gave.
    pub(crate) fn came<'a>(
        &self,
        arrived: &'a BTreeMap<String, Vec<String>>,
        message: &Message,
    ) -> Option<&'a Vec<String>> {
        arrived.get(message.id()).or_else(|| arrived.get(&self.broker.id_of(message)))
    }

    /// How many of these messages a receiver did not get.
    pub(crate) fn lost(
        &self,
        arrived: &BTreeMap<String, Vec<String>>,
        messages: &[Message],
    ) -> usize {
        messages.iter().filter(|message| self.came(arrived, message).is_none()).count()
    }

    /// A sender and a receiver that accepts everything.
    pub(crate) async fn accepting(&self) -> Result<(Agent, Agent, Receiver), String> {
        let receiver = self.receiver(Say::Accept).await?;
        let (a, b) = self.broker.pair(&receiver).await?;
        Ok((a, b, receiver))
    }

    /// Submits so many messages from eight senders at once. Returns those that the broker acknowledged; another try follows
    /// each submission that was not answered, until `give_up`.
    pub(crate) async fn submit_all(
        &self,
        a: &Agent,
        b: &Agent,
        count: usize,
    ) -> Result<Vec<Message>, String> {
        const SENDERS: usize = 8;
        let next = AtomicUsize::new(0);
        let sender = async || {
            let mut acknowledged = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < count {
                let message = Message::first(a, b);
                self.broker.submit(a, &message).await?.expect(202, "a submission")?;
                acknowledged.push(message);
            }
            Ok::<_, String>(acknowledged)
        };
        let sent: Result<Vec<_>, String> =
            join_all((0..SENDERS).map(|_| sender())).await.into_iter().collect();
        Ok(sent?.concat())
    }
}

/// Handoffs of a receiver's log, each with the ids of its deliveries.
pub(crate) fn by_handoff(log: &[Delivery]) -> BTreeMap<String, Vec<String>> {
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for delivery in log {
        ids.entry(delivery.handoff.clone()).or_default().push(delivery.id.clone());
    }
    ids
}
