//! The inbox of a pull receiver (specification §3): claims of handoffs, each leased for a verdict, and what comes back to the
//! agent as a sender.

use bytes::Bytes;
use futures_util::future::join_all;

use crate::compress::{CompressionStep, UnpreparedReason};
use crate::intake::{Intake, Refusal};
use crate::ledger::command::Call;
use crate::ledger::commands::{Lease, Leased, Outcome, Settle};
use handoffd_domain::agent::Agent;
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::{HandoffId, Micros, TaskId};
use handoffd_evidence::record::Actor;
use handoffd_gate::schema::older::SCHEMA_UNREADABLE;
use handoffd_store::fault::{self, Step};
use handoffd_store::store::{DeliveryClaim, ReceiverKey};

/// A handoff that a poll claimed and leased.
#[derive(Debug)]
pub struct ClaimedHandoff {
    pub handoff: Handoff,
    /// Counts claims, from 1.
    pub attempt: i32,
    /// The end of the claim: without a verdict the handoff returns to the inbox.
    pub claimed_until: Micros,
    /// Trace context of this delivery, W3C `traceparent`.
    pub traceparent: String,
    pub tracestate: String,
    /// The message in the form that the agent takes.
    pub message: Bytes,
}

/// A handoff that comes back to its sender: completed, or with a question.
#[derive(Debug)]
pub struct ReturnedHandoff {
    pub handoff: Handoff,
    /// Whether its receiver asks; else it completed the handoff.
    pub asks: bool,
    pub returned_at: Micros,
    /// The end of the claim: the item comes again.
    pub claimed_until: Micros,
}

/// Claims for pull receivers.
#[derive(Clone, Copy)]
pub struct InboxDesk<'a> {
    pub intake: &'a Intake,
    /// Makes a message ready that is too large for its receiver.
    pub compression: &'a CompressionStep,
    /// This broker's name in claims.
    pub broker: &'a str,
}

impl InboxDesk<'_> {
    /// Claims handoffs of a receiver, `max` at most, and leases each.
    ///
    /// # Errors
    /// The agent is not registered or takes no handoffs by its inbox, or nothing could be leased.
    pub async fn claim(
        &self,
        receiver: &ReceiverKey,
        max: i64,
    ) -> Result<Vec<ClaimedHandoff>, Refusal> {
        let now = self.intake.clock.now();
        let until = now.plus(self.intake.rules.claim);
        let agents = self.intake.directory.agents(&receiver.0).await?;
        let agent = agents.roster.find(&receiver.1).ok_or(Refusal::NotFound("agent"))?;
        if agent.delivery.mode != DeliveryMode::Pull {
            return Err(Refusal::because(
                Code::Conflict,
                "this agent takes its handoffs by webhook; set delivery.mode to pull to use the inbox",
            ));
        }
        if max == 0 {
            return Ok(Vec::new());
        }
        let store = &self.intake.store;
        let claims =
            store.claim(receiver, DeliveryMode::Pull, self.broker, now, until, max).await?;
        if !claims.is_empty() {
            fault::at(Step::InboxClaimed);
        }
        // Together, so that they share a batch.
        let leases = claims.into_iter().map(|claim| self.lease(claim, agent, now, until));
        let mut items = Vec::new();
        let mut failed = None;
        for leased in join_all(leases).await {
            match leased {
                Ok(item) => items.extend(item),
                // Its claim runs out and it returns to the inbox; the leased ones must not go with it.
                Err(refusal) => failed = Some(refusal),
            }
        }
        if !items.is_empty() {
            fault::at(Step::InboxLeased);
        }
        match failed {
            Some(refusal) if items.is_empty() => Err(refusal),
            _ => Ok(items),
        }
    }

    /// Makes a claimed message ready, and leases its handoff for a verdict. `None` where another claim came first, or the
    /// agent takes no version of the message.
    async fn lease(
        &self,
        mut claim: DeliveryClaim,
        agent: &Agent,
        now: Micros,
        until: Micros,
    ) -> Result<Option<ClaimedHandoff>, Refusal> {
        let ledger = &self.intake.ledger;
        match self.compression.prepare(ledger, &mut claim).await {
            Ok(()) => {}
            Err(UnpreparedReason::Superseded) => return Ok(None),
            Err(UnpreparedReason::Away) => {
                let why = "the message could not be made ready";
                return Err(Refusal::because(Code::Unavailable, why));
            }
        }
        let (task_id, handoff_id, attempt) = (claim.task_id, claim.handoff_id, claim.attempt);
        let body = claim.delivered(agent.is_entitled());
        let body = self.intake.gate.schemas.delivered(body, agent);
        let call = Call { tenant: claim.tenant.clone(), at: now, actor: Actor::broker() };
        let Ok(message) = body else {
            // The agent took a version of the schema that the message has a form in when the gate looked.
            ledger.handle(call, unreadable(task_id, handoff_id, attempt, now)).await?;
            return Ok(None);
        };
        let verdict_by = now.plus(self.intake.rules.verdict);
        let lease = Lease { task_id, handoff_id, attempt, verdict_by };
        let Some(Leased { handoff, .. }) = ledger.handle(call, lease).await? else {
            return Ok(None);
        };
        let traceparent = claim
            .trace()
            .map_or_else(|| claim.traceparent.clone(), |context| context.parent.to_string());
        Ok(Some(ClaimedHandoff {
            attempt,
            claimed_until: handoff.deadline_at.map_or(until, |by| by.min(until)),
            handoff,
            traceparent,
            tracestate: claim.tracestate,
            message,
        }))
    }

    /// Claims handoffs that come back to an agent as their sender. An item whose reading fails comes again after its claim.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn returned(
        &self,
        receiver: &ReceiverKey,
        max: i64,
    ) -> Result<Vec<ReturnedHandoff>, Refusal> {
        let store = &self.intake.store;
        let now = self.intake.clock.now();
        let claimed_until = now.plus(self.intake.rules.claim);
        let mut items = Vec::new();
        for row in store.claim_returns(receiver, now, claimed_until, max).await? {
            let handoff = store.find_handoff(&(row.tenant.clone(), row.handoff_id)).await?;
            let Some(handoff) = handoff else { continue };
            let (asks, returned_at) = (row.question.is_some(), row.returned_at);
            // A question that was answered meanwhile is none.
            if !asks || handoff.open_question().is_some() {
                items.push(ReturnedHandoff { handoff, asks, returned_at, claimed_until });
            }
        }
        Ok(items)
    }
}

/// The end of an attempt at a message that its receiver cannot read.
fn unreadable(task_id: TaskId, handoff_id: HandoffId, attempt: i32, now: Micros) -> Settle {
    Settle {
        task_id,
        handoff_id,
        attempt,
        begun_at: None,
        outcome: Outcome::GivenUp { why: SCHEMA_UNREADABLE.to_owned() },
        content: None,
        lease_until: now,
        row: None,
    }
}
