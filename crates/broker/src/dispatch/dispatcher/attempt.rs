//! One attempt: the receiver's endpoint as it is now, the request, and its outcome.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::Instrument;

use super::super::attempt_row;
use super::super::conventions;
use super::super::lanes::Health;
use super::{Dispatcher, DispatcherState, SETTLE_PAUSE_MAX};
use crate::early_replies::{EarlyReply, EarlyVerdict, ExpectedReply};
use crate::ledger::commands::Outcome;
use crate::transport::standard_webhooks::WebhookSecret;
use crate::transport::{
    AnswerFields, Attempt, AttemptOutcome, Encoded, Endpoint, Envelope, FailureClass, Publication,
    RawAnswer, Transport, VerdictClock, signing_secrets,
};
use handoffd_domain::agent::AgentState;
use handoffd_domain::content_coding::Coding;
use handoffd_domain::handoff::DeliveryMode;
use handoffd_domain::ids::Micros;
use handoffd_domain::receiver::AttemptEnd;
use handoffd_evidence::record::Actor;
use handoffd_gate::schema::older::SCHEMA_UNREADABLE;
use handoffd_gate::sw4rm::{self, DeliveryFacts};
use handoffd_store::fault::{self, Step};
use handoffd_store::store::attempts::AttemptRow;
use handoffd_store::store::{AgentRow, DeliveryClaim};

/// Longest rest of a verdict's time that an attempt reckons with: no attempt lasts that long.
const MOST_RUNNING: Duration = Duration::from_hours(24);

/// The outcome of an attempt that sent nothing, as label and in its row.
const NOT_SENT: &str = "not_sent";

/// A handoff's destination and the body in the receiver's form.
struct HandoffEndpoint {
    transport: Arc<dyn Transport>,
    endpoint: Endpoint,
    /// Identifies the destination in reports of its health.
    address: String,
    timeout: Duration,
    secrets: Vec<WebhookSecret>,
    /// The message in a form that the receiver accepts.
    body: Bytes,
    /// Content coding that the receiver accepts for large bodies.
    coding: Option<Coding>,
}

struct AttemptResult {
    tried: AttemptOutcome,
    address: String,
    begun_at: Micros,
    /// Deadline of the receiver's verdict, once the receiver could have the handoff.
    verdict_by: Option<Micros>,
    /// Whether that deadline has passed.
    overdue: bool,
    /// Takes the receiver's reply, where a reply channel brings it.
    reply: Option<ExpectedReply>,
    took: Duration,
    transport: Arc<dyn Transport>,
    /// As it was sent, without its secrets.
    envelope: Envelope,
    answer: Option<RawAnswer>,
}

/// Why a handoff cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnsentReason {
    /// The agent no longer exists.
    Deleted,
    /// The endpoint answered 410, or was disabled.
    Disabled,
    /// The agent was paused after the claim: the handoff waits.
    Paused,
    /// The agent now pulls.
    Pulls,
    /// The agent accepts no schema version to which the message converts: the agent changed after the gate, or is not
    /// the agent that the gate checked.
    Unreadable,
    /// The webhook secret or the credentials cannot be opened.
    Secret,
    /// This broker does not serve the agent's transport.
    Unserved,
    /// The attempt before may have reached the receiver, and the handoff must not be sent twice.
    Unsettled,
    /// The broker stops; nothing was looked up.
    Stopping,
}

impl Dispatcher {
    /// One attempt, from the reserved slot to the settled outcome.
    pub(super) async fn attempt(&self, mut claim: DeliveryClaim) {
        let parts = &self.0.parts;
        if let Some(ledger) = self.0.ledger.get()
            && let Err(why) = parts.compression.prepare(ledger, &mut claim).await
        {
            // Another claim goes on with it, or the store gives this one back.
            tracing::info!(?why, "not sent");
            parts.metrics.attempts.with_label_values(&["none", NOT_SENT]).inc();
            self.unknown(&claim);
            return;
        }
        fault::at(Step::SendBegin);
        if claim.attempt == 1 {
            self.0.lanes.first(&(claim.tenant.clone(), claim.target.clone()));
        }
        let mut made = match self.send(&claim).await {
            Ok(sent) => sent,
            Err(unsent) => {
                self.not_sent(&claim, unsent).await;
                self.unknown(&claim);
                return;
            }
        };
        let (mode, overdue) = (made.transport.describe().mode, made.overdue);
        let early = match made.reply.take() {
            Some(reply) if matches!(made.tried, AttemptOutcome::Received) && !overdue => {
                self.early_reply(&claim, reply).await
            }
            _ => None,
        };
        if let Some(early) = &early {
            let fields = AnswerFields::default();
            made.tried = match early.verdict.clone() {
                EarlyVerdict::Accepted => AttemptOutcome::Accepted(fields),
                EarlyVerdict::Rejected(reason) => {
                    AttemptOutcome::Rejected { reason: Some(reason), fields }
                }
            };
        }
        let row = self.row_of(&claim, &made);
        // Frees the receiver's answer, up to a megabyte, before the settlement waits for the store.
        made.answer = None;
        let AttemptResult { tried, address, begun_at, verdict_by, took, .. } = made;
        conventions::conclude(&tried);
        let (mut outcome, mut answer, health) = self.judge(&claim, &tried, verdict_by);
        if overdue {
            outcome = Outcome::Expired;
        }
        if let Some(early) = &early {
            answer = (!early.said.is_empty()).then(|| early.said.clone().into());
        }
        parts.metrics.attempts.with_label_values(&[mode.as_str(), tried.label()]).inc();
        if let AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) = &tried {
            tracing::info!(
                class = failure.class.as_str(),
                status = failure.status,
                reached = failure.reached,
                detail = failure.detail,
                "an attempt failed"
            );
        }
        if matches!(tried, AttemptOutcome::Gone) {
            self.gone(&claim, &address).await;
        }
        let (end, code) = noticed(&tried, took);
        let receiver = (claim.tenant.clone(), claim.target.clone());
        parts.receivers.attempted(&receiver, parts.clock.now(), end, code);
        // Before the next attempt is due: an endpoint that is disabled by this one gets no other.
        if let Some(change) = self.ended(&claim, health) {
            self.report_health(&claim, address, change).await;
        }
        let wake = match &outcome {
            Outcome::Retry { at, .. } => Some(*at),
            _ => None,
        };
        fault::at(Step::SettleBegin);
        let key_id = early.as_ref().map(|_| Actor::BY_SIGNATURE);
        let settled = self.settle(&claim, Some(begun_at), outcome, answer, key_id, row).await;
        fault::at(Step::SettleDone);
        if let Some(early) = early.filter(|_| settled) {
            early.confirm();
        }
        self.over(&claim, wake);
    }

    /// Frees the slot of an attempt that sent nothing.
    fn unknown(&self, claim: &DeliveryClaim) {
        self.ended(claim, Health::Unknown);
        self.over(claim, None);
    }

    /// The receiver's reply to an attempt that a queue has taken, where it comes soon. A receiver that seldom replies at once
    /// is not waited for: handoffs behind this one want its slot.
    async fn early_reply(
        &self,
        claim: &DeliveryClaim,
        mut reply: ExpectedReply,
    ) -> Option<EarlyReply> {
        let DispatcherState { parts, lanes, .. } = &*self.0;
        let receiver = (claim.tenant.clone(), claim.target.clone());
        let wait = if lanes.waits_for_reply(&receiver) {
            parts.settings.reply_wait
        } else {
            Duration::ZERO
        };
        let early = tokio::select! {
            biased;
            early = reply.reply() => early,
            () = parts.stopping.cancelled() => None,
            () = tokio::time::sleep(wait) => None,
        };
        lanes.replied(&receiver, early.is_some());
        early
    }

    /// Settles a handoff that could not be sent.
    async fn not_sent(&self, claim: &DeliveryClaim, unsent: UnsentReason) {
        let given_up = |why: &str| Outcome::GivenUp { why: why.to_owned() };
        let outcome = match unsent {
            UnsentReason::Deleted => given_up("AGENT_DELETED"),
            UnsentReason::Disabled => given_up("ENDPOINT_DISABLED"),
            UnsentReason::Unreadable => given_up(SCHEMA_UNREADABLE),
            UnsentReason::Secret => given_up("DELIVERY_REQUEST"),
            UnsentReason::Unserved => given_up("TRANSPORT_NOT_SERVED"),
            UnsentReason::Unsettled => given_up("DELIVERY_UNKNOWN"),
            UnsentReason::Pulls => Outcome::Moved { mode: DeliveryMode::Pull },
            UnsentReason::Paused => Outcome::Held,
            // Its claim is handed back with the others.
            UnsentReason::Stopping => return,
        };
        tracing::info!(why = ?unsent, "not sent");
        self.0.parts.metrics.attempts.with_label_values(&["none", NOT_SENT]).inc();
        let moved = matches!(outcome, Outcome::Moved { .. } | Outcome::Held);
        let row = match &outcome {
            Outcome::GivenUp { why } => Some(self.unsent_row(claim, why)),
            _ => None,
        };
        self.settle(claim, None, outcome, None, None, row).await;
        if moved {
            self.0.lanes.takes_none(&(claim.tenant.clone(), claim.target.clone()));
        }
    }

    async fn send(&self, claim: &DeliveryClaim) -> Result<AttemptResult, UnsentReason> {
        let parts = &self.0.parts;
        if claim.unsettled && !claim.idempotent {
            return Err(UnsentReason::Unsettled);
        }
        let HandoffEndpoint { transport, endpoint, address, timeout, secrets, body, coding } =
            self.endpoint(claim).await?;
        let mode = transport.describe().mode;
        let encoded = match coding.filter(|_| body.len() > parts.settings.compress_above) {
            Some(coding) => encoded(coding, body.clone()).await,
            None => None,
        };
        let span = conventions::send(mode, endpoint.url.as_deref(), claim.attempt);
        let (traceparent, tracestate) = conventions::outbound(claim, &span);
        let begun = parts.clock.now();
        let granted = claim.verdict_ms.map_or(parts.settings.verdict, Duration::from_millis);
        let verdict = match claim.deadline_at {
            _ if claim.to_person => VerdictClock::Stopped,
            Some(by) => {
                VerdictClock::Running(parts.clock.judged(by).since(begun).min(MOST_RUNNING))
            }
            None => VerdictClock::FromFirstByte(granted),
        };
        let envelope = Envelope {
            handoff_id: claim.handoff_id,
            task_id: claim.task_id,
            attempt: u32::try_from(claim.attempt).unwrap_or(1),
            fencing_token: claim.fencing_token,
            traceparent: Some(traceparent),
            tracestate,
            reply_to: transport.reply_channel(&endpoint),
            timestamp_s: parts.clock.wall().seconds(),
            secrets,
            claim_check: None,
            coding: encoded.as_ref().map(|encoded| encoded.coding.as_str()),
            test: false,
        };
        let mut attempt = Attempt { endpoint, envelope, body, encoded, timeout, verdict };
        if transport.is_too_large(&attempt) {
            let link = parts.claims.link(
                &claim.tenant,
                (claim.handoff_id, claim.attempt, claim.fencing_token),
                begun,
            );
            (attempt.envelope.claim_check, attempt.envelope.coding) = (Some(link), None);
            attempt.encoded = None;
            parts.metrics.claim_checks.with_label_values(&[mode.as_str()]).inc();
        }
        // A handoff that is not idempotent is settled as soon as can be: a crash before that would leave its delivery unknown.
        let waits = attempt.envelope.reply_to.is_some() && claim.idempotent;
        let reply = (waits && !parts.settings.reply_wait.is_zero()).then(|| {
            let handoff = (claim.tenant.clone(), claim.handoff_id);
            let (attempt, token) = (claim.attempt, claim.fencing_token);
            parts.replies.expect(handoff, attempt, token, claim.target.clone())
        });
        let envelope = attempt.envelope.unsigned();
        let (begun_at, started) = (parts.clock.now(), Instant::now());
        let Publication { outcome, sent, overdue, answer } =
            transport.publish(attempt).instrument(span).await;
        let elapsed = started.elapsed();
        let attempt_seconds = parts.metrics.attempt_seconds.with_label_values(&[mode.as_str()]);
        attempt_seconds.observe(elapsed.as_secs_f64());
        let sent = sent.or_else(|| reached(&outcome).then_some(elapsed));
        let verdict_by = match verdict {
            VerdictClock::Stopped => None,
            VerdictClock::Running(left) => Some(begun.plus(left)),
            VerdictClock::FromFirstByte(all) => sent.map(|sent| begun.plus(sent + all)),
        };
        Ok(AttemptResult {
            tried: outcome,
            address,
            begun_at,
            verdict_by,
            overdue,
            reply,
            took: elapsed,
            transport,
            envelope,
            answer,
        })
    }

    /// The row of an attempt, where one is kept.
    fn row_of(&self, claim: &DeliveryClaim, made: &AttemptResult) -> Option<Box<AttemptRow>> {
        if !attempt_row::is_kept(claim.attempt, &made.tried, made.overdue) {
            return None;
        }
        let failure = match &made.tried {
            AttemptOutcome::Failed(failure) | AttemptOutcome::Away(failure) => Some(failure),
            _ => None,
        };
        let quoted = failure.and_then(|failure| failure.answered.as_deref()).map(str::as_bytes);
        let answer = made.answer.as_ref().map(|answer| &answer.body[..]).or(quoted);
        let status = made.answer.as_ref().map(|answer| answer.status);
        let status = status.or_else(|| failure.and_then(|failure| failure.status));
        let policy = &self.0.parts.redaction;
        Some(Box::new(AttemptRow {
            tenant: claim.tenant.clone(),
            handoff_id: claim.handoff_id,
            attempt: claim.attempt,
            begun_at: made.begun_at,
            duration_us: Some(i64::try_from(made.took.as_micros()).unwrap_or(i64::MAX)),
            transport: Some(made.transport.describe().mode),
            outcome: made.tried.label().to_owned(),
            status: status.map(i32::from),
            error: failure.map(|failure| attempt_row::shown_error(&failure.detail)),
            headers: attempt_row::shown_headers(made.transport.headers(&made.envelope)),
            answer: answer.and_then(|body| attempt_row::shown_answer(body, policy)),
        }))
    }

    /// The row of an attempt that sent nothing and ends the delivery.
    fn unsent_row(&self, claim: &DeliveryClaim, why: &str) -> Box<AttemptRow> {
        Box::new(AttemptRow {
            tenant: claim.tenant.clone(),
            handoff_id: claim.handoff_id,
            attempt: claim.attempt,
            begun_at: self.0.parts.clock.now(),
            duration_us: None,
            transport: None,
            outcome: NOT_SENT.to_owned(),
            status: None,
            error: Some(why.to_owned()),
            headers: Vec::new(),
            answer: None,
        })
    }

    /// Resolves a handoff's destination. A reason against delivery is refreshed from the store before it counts,
    /// because this broker's view may be older than another broker's change.
    async fn endpoint(&self, claim: &DeliveryClaim) -> Result<HandoffEndpoint, UnsentReason> {
        let DispatcherState { parts, .. } = &*self.0;
        let mut fresh = false;
        loop {
            let why = match parts.directory.agents(&claim.tenant).await {
                Ok(agents) => match self.endpoint_of(claim, agents.row(&claim.target)) {
                    Ok(found) => return Ok(found),
                    Err(why) if fresh => return Err(why),
                    Err(why) => why,
                },
                // Nothing was tried, so nothing is counted: wait for the store.
                Err(_) => {
                    tokio::select! {
                        biased;
                        () = parts.stopping.cancelled() => return Err(UnsentReason::Stopping),
                        () = tokio::time::sleep(SETTLE_PAUSE_MAX) => continue,
                    }
                }
            };
            tracing::debug!(?why, "refreshing the endpoint");
            parts.directory.agents_changed(&claim.tenant).await;
            fresh = true;
        }
    }

    fn endpoint_of(
        &self,
        claim: &DeliveryClaim,
        row: Option<&AgentRow>,
    ) -> Result<HandoffEndpoint, UnsentReason> {
        let row = row.ok_or(UnsentReason::Deleted)?;
        if row.agent.state == AgentState::Paused {
            return Err(UnsentReason::Paused);
        }
        let delivery = &row.agent.delivery;
        if delivery.disabled {
            return Err(UnsentReason::Disabled);
        }
        if !delivery.mode.is_pushed() {
            return Err(UnsentReason::Pulls);
        }
        let parts = &self.0.parts;
        let transport = parts.transports.get(delivery.mode).ok_or(UnsentReason::Unserved)?;
        let endpoint =
            Endpoint::of(row, &**transport, &parts.vault).map_err(|_| UnsentReason::Secret)?;
        let secrets =
            signing_secrets(row, &parts.vault, parts.clock.now()).ok_or(UnsentReason::Secret)?;
        let body = claim.delivered(row.agent.is_entitled());
        let body =
            parts.schemas.delivered(body, &row.agent).map_err(|_| UnsentReason::Unreadable)?;
        let facts = DeliveryFacts {
            receiver: claim.target.as_str(),
            handoff_id: &claim.handoff_id.to_string(),
            task_id: &claim.task_id.to_string(),
            attempt: claim.attempt.into(),
            fencing_token: claim.fencing_token,
        };
        let body = sw4rm::in_format(delivery.format, body, &facts);
        tracing::trace!(handoff_id = %claim.handoff_id, "endpoint resolved");
        let receiver = (claim.tenant.clone(), claim.target.clone());
        self.0.lanes.known(&receiver, delivery.max_in_flight, delivery.failing);
        let timeout = Duration::from_millis(delivery.timeout_ms);
        let coding = delivery.accept_encoding.first().copied();
        let (transport, address) = (Arc::clone(transport), delivery.address());
        Ok(HandoffEndpoint { transport, endpoint, address, timeout, secrets, body, coding })
    }
}

/// Whether the receiver may have the handoff.
fn reached(outcome: &AttemptOutcome) -> bool {
    match outcome {
        AttemptOutcome::Away(failure) | AttemptOutcome::Failed(failure) => failure.reached,
        AttemptOutcome::Busy { .. } | AttemptOutcome::Gone => false,
        AttemptOutcome::Accepted(_)
        | AttemptOutcome::Rejected { .. }
        | AttemptOutcome::Received => true,
    }
}

/// The end of an attempt as it concerns its receiver, and the code of its failure.
fn noticed(tried: &AttemptOutcome, took: Duration) -> (AttemptEnd, Option<String>) {
    match tried {
        AttemptOutcome::Accepted(_)
        | AttemptOutcome::Rejected { .. }
        | AttemptOutcome::Received
        | AttemptOutcome::Busy { .. } => (AttemptEnd::Answered(took), None),
        AttemptOutcome::Gone => (AttemptEnd::Failed, Some("ENDPOINT_GONE".to_owned())),
        AttemptOutcome::Away(_) => (AttemptEnd::Failed, Some("TRANSPORT_AWAY".to_owned())),
        AttemptOutcome::Failed(failure) => {
            let end = match failure.class {
                FailureClass::Timeout => AttemptEnd::TimedOut(took),
                _ => AttemptEnd::Failed,
            };
            (end, Some(failure.code()))
        }
    }
}

/// Encodes a body on a blocking thread; `None` on failure, because the body can be sent plain.
async fn encoded(coding: Coding, body: Bytes) -> Option<Encoded> {
    let encoding = tokio::task::spawn_blocking(move || coding.encode(&body));
    let bytes = encoding.await.ok()?.ok()?;
    Some(Encoded { coding, bytes: bytes.into() })
}
