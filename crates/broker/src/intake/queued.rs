//! Handoffs from queues. A queue carries no key: the message's signature proves its sender.

use bytes::Bytes;
use serde_json::Value;

use super::refused::Refusal;
use super::{Answer, Body, Intake, Request};
use crate::directory::Principal;
use handoffd_domain::canonical::CanonicalObject;
use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_domain::json;
use handoffd_gate::signature;

/// The outcome of a handoff that came in by a queue.
#[derive(Debug)]
pub enum QueuedOutcome {
    /// Committed, now or before.
    Committed,
    /// Refused, with the id that the message states.
    Refused(Refusal, String),
    /// No sender can be told: it cannot be read, or its sender is not registered. A reason.
    Poison(&'static str),
    /// The broker cannot take it now.
    Unavailable,
}

impl Intake {
    /// Takes a signed message in as a request with a key is taken.
    pub async fn submit_queued(&self, tenant: &TenantId, message: Bytes) -> QueuedOutcome {
        if message.len() > self.limits.message_bytes {
            return QueuedOutcome::Poison("too large");
        }
        let Ok(value) = json::parse(&message) else {
            return QueuedOutcome::Poison("not one JSON object");
        };
        let sender = value.pointer("/fromAgent/agentId").and_then(Value::as_str);
        let Some(sender) = sender.and_then(|text| text.parse::<AgentId>().ok()) else {
            return QueuedOutcome::Poison("names no fromAgent.agentId");
        };
        match self.submit_signed(tenant, &sender, &value, message).await {
            Ok(None) => QueuedOutcome::Committed,
            Ok(Some(why)) => QueuedOutcome::Poison(why),
            // The message stays in its queue, as a caller would send it again.
            Err(refusal) if refusal.is_temporary() => {
                refusal.log();
                QueuedOutcome::Unavailable
            }
            Err(refusal) => {
                let id = value.get("handoffId").and_then(Value::as_str).unwrap_or_default();
                QueuedOutcome::Refused(refusal, id.to_owned())
            }
        }
    }

    /// `Some` is why the message has no sender.
    async fn submit_signed(
        &self,
        tenant: &TenantId,
        sender: &AgentId,
        value: &Value,
        bytes: Bytes,
    ) -> Result<Option<&'static str>, Refusal> {
        let secrets = self.secrets_of(tenant, sender).await?;
        if secrets.is_empty() {
            return Ok(Some("its fromAgent is not registered"));
        }
        let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
        let Some(canonical) = CanonicalObject::from_value(value) else {
            return Ok(Some("not one JSON object"));
        };
        signature::verify(&canonical, value.get(signature::FIELD), &secrets, true)?;
        let principal = Principal::by_signature(tenant, sender);
        let request = Request { arrived_at: Some(self.clock.now()), ..Request::default() };
        match self.submit(&principal, Body { bytes, guard: None }, request).await? {
            Answer::Submitted(_) | Answer::Group(_) => Ok(None),
            Answer::Refused { failures, undone, .. } => Err(Refusal::Recorded(failures, undone)),
            Answer::Malformed(failure) => Err(Refusal::Malformed(failure)),
        }
    }
}
