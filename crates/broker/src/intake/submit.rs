//! The commit of a message that passed the gate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::Span;
use tracing::field::Empty;

use super::draft::{Ruled, requires_checkpoint, submission_of};
use super::repeat::{FirstUse, RENEWALS};
use super::{
    Answer, Body, INLINE_LIMIT, Intake, IntakeError, Request, SubmittedGroup, SubmittedHandoff,
    actor,
};
use crate::directory::Principal;
use crate::ledger::command::Call;
use crate::ledger::commands::Submit;
use crate::ledger::reply::{LedgerError, SubmissionReply};
use crate::ledger::{Committed, Outgoing, SubmissionError};
use crate::telemetry;
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::ids::{HandoffId, Micros, TenantId};
use handoffd_domain::message::Message;
use handoffd_domain::stream::Stream;
use handoffd_domain::trace_context::TraceContext;
use handoffd_evidence::record::SafetyFacts;
use handoffd_gate::{PassedMessage, RefusedMessage};
use handoffd_store::store::HandoffFilter;

/// The time after which a message to a paused receiver may come again; the length of the pause is unknown.
const PAUSED_FOR: Duration = Duration::from_secs(29);

impl Intake {
    /// Commits a message that passed, or refuses it where only the ledger can tell.
    #[expect(clippy::too_many_lines, reason = "one answer of the ledger after another")]
    pub(super) async fn commit(
        &self,
        principal: &Principal,
        passed: PassedMessage,
        safety: Option<SafetyFacts>,
        request: Request,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let PassedMessage {
            message,
            target,
            to_itself,
            contract,
            others,
            observed: _,
            marked: _,
            may_repeat: _,
            warnings,
            residency,
            context,
            group: _,
        } = passed;
        let policy = contract.as_ref().map(|ready| ready.policy().clone()).unwrap_or_default();
        let agents = self.directory.agents(&principal.tenant).await?;
        agents.roster.routed(&target.agent_id);
        let source = &message.envelope().from_agent.agent_id;
        let require_checkpoint = requires_checkpoint(&policy, &others, &agents, source);
        let body = Bytes::from(message.content());
        let personal = message.personal_data();
        let ready = contract.as_ref();
        let ruled = Ruled {
            target: &target,
            to_itself,
            policy,
            others,
            ready,
            require_checkpoint,
            safety,
            residency,
            context,
        };
        let mut submit =
            submission_of(principal, &agents, &message, &body, ruled, request.clone(), now);
        if let Some(stream) = &mut submit.handoff.stream {
            *stream = Stream::opened(now.plus(self.streams.settings.idle));
        }
        let call = Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) };
        let outgoing = Outgoing {
            body,
            personal: personal.into_iter().map(|datum| datum.canonical).collect(),
        };
        let watch = request
            .awaited
            .then(|| self.ledger.watch((principal.tenant.clone(), message.envelope().handoff_id)));
        let repeats = submit.repeat.is_some();
        let mut kept = repeats.then(|| (submit.clone(), outgoing.clone()));
        let mut reply = self.ledger.submit(call.clone(), submit, outgoing).await;
        if let Err(SubmissionError::NotHolder(returned)) = reply {
            if !self.has_part(&principal.tenant, &message).await? {
                return self.refuse_stranger(principal, message, target, now).await;
            }
            let (call, mut submit, outgoing) = *returned;
            submit.has_part = true;
            kept = repeats.then(|| (submit.clone(), outgoing.clone()));
            reply = self.ledger.submit(call, submit, outgoing).await;
        }
        // A value whose use has ended badly is free; between the look and the commit it may be used again.
        let mut first = None;
        for _ in 0..RENEWALS {
            let Err(SubmissionError::Ledger(LedgerError::Repeat { first: id, seen_at })) = &reply
            else {
                break;
            };
            let over = Some((*id, *seen_at));
            match (self.first_use(&principal.tenant, *id).await?, &kept) {
                (FirstUse::Over, Some((submit, outgoing))) => {
                    let (mut submit, outgoing) = (submit.clone(), outgoing.clone());
                    if let Some(repeat) = &mut submit.repeat {
                        repeat.over = over;
                    }
                    reply = self.ledger.submit(call.clone(), submit, outgoing).await;
                }
                (FirstUse::Counts(handoff), kept) => {
                    if let Some((submit, outgoing)) = kept
                        && request.idempotency_key.is_some()
                        && principal.agent.as_ref() == Some(&handoff.source)
                    {
                        self.keep_key(call.clone(), (submit.clone(), outgoing.clone()), over)
                            .await?;
                    }
                    first = Some(handoff);
                    break;
                }
                (FirstUse::Over, None) => break,
            }
        }
        match reply.map_err(LedgerError::from) {
            Ok(Committed { reply: SubmissionReply::Handoff { handoff, replayed }, record }) => {
                let repeated = false;
                Ok(Answer::Submitted(SubmittedHandoff {
                    handoff,
                    record,
                    replayed,
                    repeated,
                    contract,
                    watch,
                    warnings,
                }))
            }
            Ok(Committed { reply, .. }) => {
                let id = message.envelope().handoff_id;
                self.refused(&principal.tenant, reply, Some(id)).await
            }
            Err(LedgerError::Refused(failures)) => {
                let refused = RefusedMessage::after_gate(message, target, contract, failures);
                self.refuse(principal, refused, None, request, now).await
            }
            Err(err @ LedgerError::Repeat { .. }) => match first {
                Some(first) => Self::answer_with_first(principal, first, contract, warnings),
                None => Err(err.into()),
            },
            Err(err) => Err(err.into()),
        }
    }

    /// Keeps the key of a submission whose contract's dedupe key gave the answer: `answered` is the use that counts. One that
    /// was renewed in between keeps nothing.
    async fn keep_key(
        &self,
        call: Call,
        (mut submit, outgoing): (Submit, Outgoing),
        answered: Option<(HandoffId, Micros)>,
    ) -> Result<(), IntakeError> {
        if let Some(repeat) = &mut submit.repeat {
            repeat.answered = answered;
        }
        match self.ledger.submit(call, submit, outgoing).await.map_err(LedgerError::from) {
            Ok(_) | Err(LedgerError::Repeat { .. }) => Ok(()),
            Err(err) => Err(err.into()),
        }
    }

    /// Whether the sender ever sent or received a handoff on the task. Once it did it always did, so
    /// an answer read outside the transaction stays true.
    pub(super) async fn has_part(
        &self,
        tenant: &TenantId,
        message: &Message,
    ) -> Result<bool, IntakeError> {
        let filter = HandoffFilter {
            task_id: Some(message.envelope().task_id),
            party: Some(message.envelope().from_agent.agent_id.clone()),
            ..HandoffFilter::default()
        };
        match self.store.list_handoffs(tenant, &filter, None, 1).await {
            Ok(found) => Ok(!found.is_empty()),
            Err(err) => Err(Arc::new(err).into()),
        }
    }

    /// The answer to a refused submission; `id` is the handoff's or the dead letter's. A copy of the message that was
    /// committed before gives its handoff.
    pub(super) async fn refused(
        &self,
        tenant: &TenantId,
        reply: SubmissionReply,
        id: Option<HandoffId>,
    ) -> Result<Answer, IntakeError> {
        match reply {
            SubmissionReply::Handoff { handoff, replayed } => {
                Ok(Answer::Submitted(SubmittedHandoff {
                    handoff,
                    record: None,
                    replayed,
                    repeated: false,
                    contract: None,
                    watch: None,
                    warnings: Vec::new(),
                }))
            }
            SubmissionReply::Group { group, handoffs, replayed } => {
                let (record, warnings) = (None, Vec::new());
                Ok(Answer::Group(SubmittedGroup { group, handoffs, record, replayed, warnings }))
            }
            SubmissionReply::Refused { failures, dead_lettered, replayed, over, undone } => {
                if let Some(over) = &over {
                    let scope = if over.of_agent { "agent" } else { "tenant" };
                    self.metrics.cap_refusals.with_label_values(&[scope]).inc();
                }
                let failures = match id.filter(|_| dead_lettered && failures.is_empty()) {
                    Some(id) => self.failures_of(tenant, id).await?,
                    None => failures,
                };
                let paused = super::refusal::is_paused(&failures).then_some(PAUSED_FOR);
                let retry_after = over.and_then(|over| over.wait).or(paused);
                Ok(Answer::Refused { failures, replayed, retry_after, undone })
            }
            SubmissionReply::Collided => {
                Err(LedgerError::Internal("a copy was committed in between".to_owned()).into())
            }
        }
    }

    /// The failures for which a handoff is a dead letter, as they were told first; where it was taken and became one later,
    /// that it is one.
    async fn failures_of(
        &self,
        tenant: &TenantId,
        id: HandoffId,
    ) -> Result<Vec<Failure>, IntakeError> {
        let row = self.store.find_dead_letter(&(tenant.clone(), id)).await.map_err(Arc::new)?;
        let kept = row.as_ref().map(|row| row.failures.clone()).unwrap_or_default();
        if !kept.is_empty() {
            return Ok(kept);
        }
        let reason = row.map_or_else(String::new, |row| format!(" ({})", row.reason));
        let why = format!("the handoff is a dead letter{reason}: a person decides about it");
        Ok(vec![Failure::new(Stage::Route, Code::Conflict, "", why)])
    }
}

/// The span of a submission, in the trace of its sender from the first stage on. If the request has no
/// trace context, that is the message's, and the request's span is linked.
pub(super) async fn submission(body: &Body, request: Option<&TraceContext>) -> Span {
    if !telemetry::exporting() {
        return Span::none();
    }
    let span = tracing::debug_span!(
        "handoff.submit",
        handoff.id = Empty,
        handoff.task.id = Empty,
        handoff.source = Empty,
        handoff.target = Empty,
        error.type = Empty,
    );
    if request.is_none() {
        let bytes = body.bytes.clone();
        let named = if bytes.len() > INLINE_LIMIT {
            let peek = tokio::task::spawn_blocking(move || TraceContext::peek(&bytes));
            peek.await.ok().flatten()
        } else {
            TraceContext::peek(&bytes)
        };
        if let Some(context) = named {
            telemetry::under(&span, &context);
            let request = Span::current();
            // Its lines name the trace that the sender knows of.
            request.record("trace_id", context.parent.trace_id_hex());
            if let Some(own) = telemetry::own(&request) {
                telemetry::link(&span, &own);
            }
        }
    }
    span
}
