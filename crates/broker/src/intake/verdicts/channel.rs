//! Verdicts on reply channels. A queue carries no key: each reply is proven by its signature, and is then the same as a
//! callback. A refusal reaches no receiver; it is counted by its reason.

use std::sync::Arc;

use super::fitted::fit;
use super::words::{INTERVAL, kind_of};
use super::{Addressed, Heard};
use crate::archive::Contents;
use crate::directory::Principal;
use crate::early_replies::{EarlyReplies, EarlyVerdict};
use crate::intake::Intake;
use crate::intake::refused::Refusal;
use crate::ledger::commands::VerdictKind;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::lenient;
use handoffd_gate::reply::{Reply, ReplyError, ReplyVerdict};
use handoffd_store::store::HandoffKey;

/// The outcome of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// Its effect is committed.
    Taken,
    /// The reply has no effect, and never will: late, stale, forged, refused. Counted by reason.
    Ignored,
    /// Not a reply.
    Malformed,
    /// The broker cannot take it now.
    Unavailable,
}

/// Why a reply has no effect.
enum ReplyRefusal {
    /// Its receiver did not make it.
    Unproven(ReplyError),
    /// As a callback it is refused.
    Refused(Refusal),
}

impl<E: Into<Refusal>> From<E> for ReplyRefusal {
    fn from(err: E) -> Self {
        Self::Refused(err.into())
    }
}

/// Takes the replies of a broker's reply channels.
#[derive(Clone)]
pub struct ReplyDesk {
    pub intake: Arc<Intake>,
    pub contents: Contents,
    /// The attempts that take a verdict as their outcome.
    pub early: Arc<EarlyReplies>,
}

impl ReplyDesk {
    /// Carries out a verdict that came on a reply channel.
    pub async fn take(&self, tenant: &TenantId, mode: DeliveryMode, bytes: &[u8]) -> ReplyOutcome {
        let count = |result: &str| {
            self.intake.metrics.replies.with_label_values(&[mode.as_str(), result]).inc();
        };
        if bytes.len() > self.intake.limits.message_bytes {
            count("too_large");
            return ReplyOutcome::Malformed;
        }
        let reply = match Reply::read(bytes) {
            Ok(reply) => reply,
            Err(why) => {
                count(&why.to_string());
                return ReplyOutcome::Malformed;
            }
        };
        let (id, verdict) = (reply.handoff_id, reply.verdict);
        match self.carry_out(tenant, reply).await {
            Ok(()) => {
                count("taken");
                ReplyOutcome::Taken
            }
            Err(ReplyRefusal::Unproven(why)) => {
                count(&why.to_string());
                tracing::warn!(handoff_id = %id, transport = mode.as_str(), reason = %why, "a reply is ignored");
                ReplyOutcome::Ignored
            }
            // The reply stays in its channel, as a caller would send it again.
            Err(ReplyRefusal::Refused(refusal)) if refusal.is_temporary() => {
                refusal.log();
                count("later");
                ReplyOutcome::Unavailable
            }
            Err(ReplyRefusal::Refused(refusal)) => {
                let code = refusal.code().as_str();
                count(&code.to_ascii_lowercase());
                tracing::info!(handoff_id = %id, transport = mode.as_str(), ?verdict, code, "a reply changes nothing");
                ReplyOutcome::Ignored
            }
        }
    }

    async fn carry_out(&self, tenant: &TenantId, reply: Reply) -> Result<(), ReplyRefusal> {
        let key = (tenant.clone(), reply.handoff_id);
        if let Some(receiver) = self.early.receiver(&key, reply.fencing_token)
            && self.take_early(&key, &receiver, &reply).await?
        {
            return Ok(());
        }
        let handoff = self.intake.store.find_handoff(&key).await?;
        let handoff = handoff.ok_or(Refusal::NotFound("handoff"))?;
        self.prove(tenant, &handoff.target, &reply).await?;
        let receiver = Principal::by_signature(tenant, &handoff.target);
        let addressed = Addressed::to(&receiver, handoff)?;
        self.intake.verdict(&self.contents, addressed, fitted(reply)).await?;
        Ok(())
    }

    /// Gives a verdict to the attempt that waits for it. Returns false where it is to be carried out as a callback.
    async fn take_early(
        &self,
        handoff: &HandoffKey,
        receiver: &AgentId,
        reply: &Reply,
    ) -> Result<bool, ReplyRefusal> {
        // An attempt's outcome has no place for the interval of a holder: the acceptance is carried out as a callback.
        let states_interval = reply.said.contains_key(INTERVAL);
        if states_interval || !matches!(reply.verdict, ReplyVerdict::Accept | ReplyVerdict::Reject)
        {
            return Ok(false);
        }
        self.prove(&handoff.0, receiver, reply).await?;
        let (mut members, mut unreadable) = (reply.said.clone(), reply.unreadable.clone());
        fit(reply.verdict, &mut members, &mut unreadable);
        kind_of(reply.verdict, &members)?;
        self.intake.redact_words(&mut members)?;
        members.remove(lenient::OWN);
        unreadable.note_in(&mut members);
        let verdict = match kind_of(reply.verdict, &members)? {
            VerdictKind::Reject(reason) => EarlyVerdict::Rejected(reason),
            _ => EarlyVerdict::Accepted,
        };
        Ok(self.early.offer(handoff, reply.fencing_token, verdict, members).await)
    }

    /// Checks that a receiver made a reply.
    async fn prove(
        &self,
        tenant: &TenantId,
        receiver: &AgentId,
        reply: &Reply,
    ) -> Result<(), ReplyRefusal> {
        let secrets = self.intake.secrets_of(tenant, receiver).await?;
        let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
        let (now, max_age) = (self.intake.clock.now(), self.intake.limits.reply_age);
        reply.prove(&secrets, now, max_age).map_err(ReplyRefusal::Unproven)
    }
}

/// A proven reply as a verdict whose members fit.
fn fitted(reply: Reply) -> Heard {
    let Reply { verdict, fencing_token, timestamp, said: mut members, mut unreadable, .. } = reply;
    fit(verdict, &mut members, &mut unreadable);
    Heard { verdict, fencing_token, members, unreadable, at: timestamp }
}
