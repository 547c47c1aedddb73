//! The settlement of an attempt: its outcome for the handoff, and the command that tells the ledger.

use std::time::Duration;

use serde_json::Value;

use super::super::lanes::Health;
use super::{Dispatcher, DispatcherState, SETTLE_PAUSE, SETTLE_PAUSE_MAX};
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{Outcome, Settle};
use crate::ledger::reply::LedgerError;
use crate::transport::{AttemptOutcome, FailureClass};
use handoffd_domain::canonical;
use handoffd_domain::ids::Micros;
use handoffd_evidence::record::{Actor, ActorRole};
use handoffd_store::clock;
use handoffd_store::store::DeliveryClaim;
use handoffd_store::store::attempts::AttemptRow;

impl Dispatcher {
    /// Translates an attempt's outcome for the handoff, the stored answer, and the lane.
    pub(super) fn judge(
        &self,
        claim: &DeliveryClaim,
        tried: &AttemptOutcome,
        verdict_by: Option<Micros>,
    ) -> (Outcome, Option<serde_json::Value>, Health) {
        let settings = &self.0.parts.settings;
        let now = self.0.parts.clock.now();
        let again = |retry_after: Option<Duration>, why: &str| {
            // A receiver that names a time is busy until then: that does not count as an attempt, and only the verdict's time ends it.
            let busy = retry_after.is_some();
            let made = claim.attempt - claim.busy - i32::from(busy);
            let attempts = u32::try_from(made).unwrap_or(0);
            let policy = settings.retry.within(claim.max_retries);
            let random = clock::random_fraction();
            let pause = if busy {
                Some(policy.pause(attempts, random, retry_after))
            } else {
                policy.next_delay(attempts, random, None)
            };
            match pause {
                Some(pause) => {
                    let receiver = (claim.tenant.clone(), claim.target.clone());
                    let wanted = now.plus(pause);
                    let at = self.0.lanes.retry_at(&receiver, now, wanted);
                    if at > wanted {
                        self.0.parts.metrics.retries_put_off.inc();
                    }
                    Outcome::Retry { at, why: why.to_owned(), busy, verdict_by }
                }
                None => Outcome::GivenUp { why: why.to_owned() },
            }
        };
        // The transport is away: it is asked again at the pace of failures in a row, and nothing is used up.
        let away = || {
            let failures = u32::try_from(claim.busy.saturating_add(1)).unwrap_or(1);
            let pause = settings.retry.pause(failures, clock::random_fraction(), None);
            let at = now.plus(pause);
            Outcome::Retry { at, why: "TRANSPORT_AWAY".to_owned(), busy: true, verdict_by }
        };
        match tried {
            AttemptOutcome::Accepted(fields) => (
                Outcome::Accepted,
                fields.clone().into_content().map(Value::Object),
                Health::Answered,
            ),
            AttemptOutcome::Rejected { reason, fields } => {
                let mut content = fields.clone().into_content().unwrap_or_default();
                content.insert("reason".to_owned(), reason.as_deref().unwrap_or("REJECTED").into());
                // The row keeps the reason, too: as it is redacted.
                self.0.parts.redaction.redact_words(&mut content);
                let reason = content["reason"].as_str().unwrap_or("REJECTED").to_owned();
                (Outcome::Rejected(reason), Some(Value::Object(content)), Health::Answered)
            }
            AttemptOutcome::Received => {
                // An answer without a byte sent before it is none; a person's time is not this one.
                let verdict_by = verdict_by.unwrap_or_else(|| now.plus(settings.verdict));
                (Outcome::Received { verdict_by }, None, Health::Answered)
            }
            AttemptOutcome::Busy { reached: true, .. } if !claim.idempotent => {
                // Bytes were sent: after any answer another attempt is not allowed.
                (Outcome::GivenUp { why: "RECEIVER_BUSY".to_owned() }, None, Health::Answered)
            }
            AttemptOutcome::Busy { retry_after, .. } => {
                (again(*retry_after, "RECEIVER_BUSY"), None, Health::Answered)
            }
            AttemptOutcome::Gone => {
                (Outcome::GivenUp { why: "ENDPOINT_GONE".to_owned() }, None, Health::Answered)
            }
            AttemptOutcome::Away(failure) if failure.reached && !claim.idempotent => {
                (Outcome::GivenUp { why: "DELIVERY_UNKNOWN".to_owned() }, None, Health::Away)
            }
            AttemptOutcome::Away(_) => (away(), None, Health::Away),
            AttemptOutcome::Failed(failure) => {
                let why = failure.code();
                let hopeless =
                    matches!(failure.class, FailureClass::Request | FailureClass::Egress);
                let unsafe_again = failure.reached && !claim.idempotent;
                let outcome = if hopeless || unsafe_again {
                    Outcome::GivenUp { why }
                } else {
                    again(None, &why)
                };
                (outcome, None, if hopeless { Health::Unknown } else { Health::Failed })
            }
        }
    }

    /// Repeats the settlement until the ledger has it; a broker that stops leaves the claim to expire. `key_id` is what
    /// proved the receiver's word, beside its answer to the request. Returns whether the outcome is committed.
    pub(super) async fn settle(
        &self,
        claim: &DeliveryClaim,
        begun_at: Option<Micros>,
        outcome: Outcome,
        answer: Option<serde_json::Value>,
        key_id: Option<&str>,
        row: Option<Box<AttemptRow>>,
    ) -> bool {
        let DispatcherState { parts, ledger, .. } = &*self.0;
        let Some(ledger) = ledger.get() else { return false };
        let now = parts.clock.now();
        let call = Call {
            tenant: claim.tenant.clone(),
            at: now,
            actor: match outcome {
                // The broker ends it: the receiver said nothing, or nothing that counts.
                Outcome::Expired | Outcome::GivenUp { .. } => Actor::broker(),
                _ => Actor {
                    role: ActorRole::Agent,
                    agent_id: Some(claim.target.clone()),
                    key_id: key_id.map(str::to_owned),
                },
            },
        };
        let command = Settle {
            task_id: claim.task_id,
            handoff_id: claim.handoff_id,
            attempt: claim.attempt,
            begun_at,
            outcome,
            content: answer.map(|mut answer| {
                if let Some(words) = answer.as_object_mut() {
                    self.0.parts.redaction.redact_words(words);
                }
                content(&canonical::to_vec(&answer), now)
            }),
            lease_until: now.plus(parts.settings.lease),
            row,
        };
        let receiver = (claim.tenant.clone(), claim.target.clone());
        let mut pause = SETTLE_PAUSE;
        loop {
            // If handoffs wait for this slot, it becomes free as soon as possible.
            let in_no_hurry = self.0.lanes.has_room(&receiver);
            match ledger.settle(call.clone(), command.clone(), in_no_hurry).await {
                Ok(None) => {
                    tracing::info!("the attempt was superseded");
                    return false;
                }
                Ok(Some(_)) => return true,
                Err(LedgerError::Unavailable | LedgerError::Overloaded) => {
                    tokio::select! {
                        biased;
                        () = parts.stopping.cancelled() => return false,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(SETTLE_PAUSE_MAX);
                }
                Err(err) => {
                    tracing::error!(error = %err, "an attempt could not be settled");
                    return false;
                }
            }
        }
    }
}
