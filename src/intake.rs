//! Intake: from the bytes a sender posts to the command that commits them, or the record that says
//! why not.

use std::sync::Arc;

use crate::clock::{self, Clock};
use crate::directory::{Agents, Directory, Principal};
use crate::domain::canonical;
use crate::domain::failure::{Code, Failure, Stage};
use crate::domain::handoff::{Handoff, HandoffStatus};
use crate::domain::ids::{AgentId, Micros};
use crate::domain::message::Message;
use crate::evidence::commitment::{Part, Subject, commit};
use crate::evidence::record::{Actor, Party, PersonalPart, Sealed};
use crate::gate::{Gate, Lookup, Passed, Refused, Verdict};
use crate::ledger::command::{
    Command, DeadLetter, Kind, LedgerError, Refuse, Reply, Submit, content,
};
use crate::ledger::{Ledger, Outgoing};
use crate::metrics::Metrics;
use crate::store::{HandoffFilter, Store, StoreError};
use crate::vault::{AgentSecrets, SecretKind, Vault};

/// Bodies above this are judged on a thread of their own, so that a large message does not hold up
/// the small ones.
const INLINE_LIMIT: usize = 64 * 1024;

/// What a sender gets.
#[derive(Debug)]
pub enum Answer {
    /// Committed, now or before.
    Submitted {
        /// The handoff as it is.
        handoff: Box<Handoff>,
        /// Its record, where this call made it.
        receipt: Option<Sealed>,
        /// It was there already.
        replayed: bool,
    },
    /// Refused, and the refusal recorded.
    Refused {
        /// Everything that was found.
        failures: Vec<Failure>,
        /// Kept for a person.
        dead_letter: Option<crate::domain::ids::HandoffId>,
        /// It was refused before.
        replayed: bool,
    },
    /// Not JSON at all; recorded too.
    Malformed(Failure),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    /// The ledger says no.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The store cannot say.
    #[error("the store is unavailable")]
    Store,
}

impl From<Arc<StoreError>> for IntakeError {
    fn from(err: Arc<StoreError>) -> Self {
        tracing::warn!(error = %err, "a lookup failed");
        Self::Store
    }
}

/// The use case.
pub struct Intake {
    /// Stages and rules.
    pub gate: Arc<Gate>,
    /// Keys and agents.
    pub directory: Arc<Directory>,
    /// The write path.
    pub ledger: Ledger,
    /// Reads.
    pub store: Arc<dyn Store>,
    /// Opens signing secrets.
    pub vault: Vault,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: Arc<Metrics>,
}

/// A body, and what must live as long as it is worked on (its share of a memory budget).
#[derive(Clone)]
pub struct Body {
    /// The bytes.
    pub bytes: bytes::Bytes,
    /// Dropped when the work is done, also where the caller went away before.
    pub guard: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// What comes with a submission besides its body.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// The request's own trace context, which goes before the message's.
    pub traceparent: Option<String>,
}

impl Intake {
    /// Runs the gate and commits what it says.
    ///
    /// # Errors
    /// [`IntakeError`]; nothing was written then.
    pub async fn submit(
        &self,
        principal: &Principal,
        body: Body,
        request: Request,
    ) -> Result<Answer, IntakeError> {
        let verdict = self.judge(principal, body).await?;
        let now = self.clock.now();
        match verdict {
            Verdict::Pass(passed) => self.commit(principal, *passed, request, now).await,
            Verdict::Malformed(failure) => {
                let refuse = bare_refusal(vec![failure.clone()], (None, None), now);
                self.count_refusal(Code::SchemaInvalid);
                self.record(principal, refuse, now).await?;
                Ok(Answer::Malformed(failure))
            }
            Verdict::Refused(refused) => self.refuse(principal, *refused, now).await,
        }
    }

    /// Runs the gate and writes nothing.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn validate(
        &self,
        principal: &Principal,
        body: Body,
    ) -> Result<Result<(), Vec<Failure>>, IntakeError> {
        Ok(match self.judge(principal, body).await? {
            Verdict::Pass(_) => Ok(()),
            Verdict::Malformed(failure) => Err(vec![failure]),
            Verdict::Refused(refused) => Err(refused.failures),
        })
    }

    async fn judge(&self, principal: &Principal, body: Body) -> Result<Verdict, IntakeError> {
        let agents = self.directory.agents(&principal.tenant).await?;
        let secrets = self.signing_secrets(principal, &agents);
        let timer = self.metrics.gate_seconds.start_timer();
        let gate = Arc::clone(&self.gate);
        let caller = principal.agent.clone();
        let large = body.bytes.len() > INLINE_LIMIT;
        let run = move || {
            let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
            let Body { bytes, guard } = body;
            let verdict = gate.run(
                &bytes,
                &Lookup {
                    caller: caller.as_ref(),
                    roster: &agents.roster,
                    signing_secrets: &secrets,
                },
            );
            drop(guard);
            verdict
        };
        let verdict = if large {
            tokio::task::spawn_blocking(run)
                .await
                .map_err(|err| LedgerError::Internal(err.to_string()))?
        } else {
            run()
        };
        timer.observe_duration();
        Ok(verdict)
    }

    fn signing_secrets(
        &self,
        principal: &Principal,
        agents: &Agents,
    ) -> Vec<zeroize::Zeroizing<Vec<u8>>> {
        let Some(row) = principal.agent.as_ref().and_then(|id| agents.row(id)) else {
            return Vec::new();
        };
        let now = self.clock.now();
        AgentSecrets::parse(&row.secrets)
            .open(&self.vault, &row.tenant, &row.agent.agent_id, SecretKind::Signing, now)
            .unwrap_or_else(|err| {
                tracing::error!(error = %err, agent = %row.agent.agent_id, "a signing secret does not open");
                Vec::new()
            })
    }

    async fn commit(
        &self,
        principal: &Principal,
        passed: Passed,
        request: Request,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let Passed { message, target, to_itself } = passed;
        let agents = self.directory.agents(&principal.tenant).await?;
        agents.roster.routed(&target.agent_id);
        let require_checkpoint = agents
            .row(&message.envelope().from_agent.agent_id)
            .is_some_and(|row| row.agent.require_checkpoint);
        let status = if to_itself { HandoffStatus::NoOp } else { HandoffStatus::Pending };
        let whole = message.whole();
        let mut handoff = row_of(principal, &message, Some(&target), status, &whole, now);
        if let Some(traceparent) = request.traceparent {
            handoff.traceparent = traceparent;
        }
        let body = message.content();
        let personal = message.personal_data();
        let checkpoint =
            message.checkpoint().map(|own| Part::new(Subject::Checkpoint, clock::random(), &own));
        // Packed only where it may be needed.
        let implied_checkpoint = checkpoint.clone().unwrap_or_else(|| {
            Part::new(Subject::Checkpoint, clock::random(), &message.implied_checkpoint())
        });
        let submit = Submit {
            from: sender(&message),
            to: receiver(&message, Some(&target)),
            content: content(&body, now),
            checkpoint,
            implied_checkpoint,
            require_checkpoint,
            personal: personal_parts(&message),
            whole,
            idempotency_key: request.idempotency_key,
            has_part: false,
            refusal_salt: clock::random(),
            claim: None,
            handoff,
        };
        let command = Command {
            tenant: principal.tenant.clone(),
            at: now,
            actor: actor(principal),
            kind: Kind::Submit(Box::new(submit)),
        };
        let outgoing = Outgoing {
            body,
            personal: personal.into_iter().map(|datum| datum.canonical).collect(),
        };
        let mut reply = self.ledger.submit(command.clone(), outgoing.clone()).await;
        if matches!(reply, Err(LedgerError::NotHolder)) {
            if !self.has_part(principal, &message).await? {
                return self.refuse_stranger(principal, message, target, now).await;
            }
            let mut command = command;
            if let Kind::Submit(submit) = &mut command.kind {
                submit.has_part = true;
            }
            reply = self.ledger.submit(command, outgoing).await;
        }
        self.answer(reply, message.envelope().handoff_id)
    }

    /// Whether the sender ever sent or received a handoff on the task. Once it did it always did, so
    /// an answer read outside the transaction stays true.
    async fn has_part(
        &self,
        principal: &Principal,
        message: &Message,
    ) -> Result<bool, IntakeError> {
        let filter = HandoffFilter {
            task_id: Some(message.envelope().task_id),
            party: Some(message.envelope().from_agent.agent_id.clone()),
            ..HandoffFilter::default()
        };
        match self.store.list_handoffs(&principal.tenant, &filter, None, 1).await {
            Ok(found) => Ok(!found.is_empty()),
            Err(err) => Err(Arc::new(err).into()),
        }
    }

    async fn refuse_stranger(
        &self,
        principal: &Principal,
        message: Message,
        target: crate::domain::agent::Agent,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let envelope = message.envelope();
        let refused = Refused {
            failures: vec![Failure::new(
                Stage::Identity,
                Code::Forbidden,
                "/taskId",
                LedgerError::NotHolder.to_string(),
            )],
            ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
            message: Some(message),
            target: Some(target),
            findings: Vec::new(),
            allowlist: None,
        };
        self.refuse(principal, refused, now).await
    }

    async fn refuse(
        &self,
        principal: &Principal,
        refused: Refused,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let reason = refused.reason();
        self.count_refusal(reason);
        for finding in &refused.findings {
            self.metrics.safety_findings.with_label_values(&[finding.rule.as_str()]).inc();
        }
        if let Some(violation) = &refused.allowlist {
            self.metrics.allowlist_violations.inc();
            tracing::warn!(
                event = "agents.handoff_allowlist_violation",
                source_agent_id = %violation.source,
                target_agent_id = %violation.target,
                allowlist_size = violation.allowlist_size,
                "agents.handoff_allowlist_violation"
            );
        }
        let handoff_id = refused.ids.1;
        let mut refuse = bare_refusal(refused.failures, refused.ids, now);
        if let Some(message) = &refused.message {
            let envelope = message.envelope();
            let whole = message.whole();
            refuse.parent_handoff_id = envelope.parent_handoff_id;
            refuse.from = Some(sender(message));
            refuse.to = Some(receiver(message, refused.target.as_ref()));
            // Only a sender that may speak for itself can have its message kept: anyone else could
            // occupy handoff ids in its name.
            let own = principal.agent.as_ref() == Some(&envelope.from_agent.agent_id);
            let unsafe_text =
                refuse.failures.iter().any(|failure| failure.code == Code::SafetyViolation);
            if own && unsafe_text {
                self.metrics.dead_letters_total.inc();
                let checkpoint =
                    message.checkpoint().unwrap_or_else(|| message.implied_checkpoint());
                refuse.dead_letter = Some(Box::new(DeadLetter {
                    handoff: row_of(
                        principal,
                        message,
                        refused.target.as_ref(),
                        HandoffStatus::DeadLettered,
                        &whole,
                        now,
                    ),
                    content: content(&message.content(), now),
                    checkpoint: Part::new(Subject::Checkpoint, clock::random(), &checkpoint),
                    personal: personal_parts(message),
                }));
            }
            refuse.whole = Some(whole);
        }
        let reply = self.record(principal, refuse, now).await;
        match handoff_id {
            Some(id) => self.answer(reply, id),
            None => match reply? {
                Reply::Refused { failures, replayed, .. } => {
                    Ok(Answer::Refused { failures, dead_letter: None, replayed })
                }
                other => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
            },
        }
    }

    async fn record(
        &self,
        principal: &Principal,
        refuse: Refuse,
        now: Micros,
    ) -> Result<Reply, LedgerError> {
        self.ledger
            .handle(Command {
                tenant: principal.tenant.clone(),
                at: now,
                actor: actor(principal),
                kind: Kind::Refuse(Box::new(refuse)),
            })
            .await
    }

    fn count_refusal(&self, reason: Code) {
        self.metrics.rejections.with_label_values(&[reason.as_str()]).inc();
    }

    fn answer(
        &self,
        reply: Result<Reply, LedgerError>,
        id: crate::domain::ids::HandoffId,
    ) -> Result<Answer, IntakeError> {
        let count = |result: &str| self.metrics.submissions.with_label_values(&[result]).inc();
        match reply {
            Ok(Reply::Submitted { handoff, receipt, replayed }) => {
                count(match (replayed, handoff.status) {
                    (true, _) => "replayed",
                    (false, HandoffStatus::NoOp) => "no_op",
                    (false, _) => "accepted",
                });
                Ok(Answer::Submitted { handoff: Box::new(handoff), receipt, replayed })
            }
            Ok(Reply::Refused { failures, dead_lettered, replayed }) => {
                count("refused");
                Ok(Answer::Refused { failures, dead_letter: dead_lettered.then_some(id), replayed })
            }
            Ok(other) => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
            Err(err) => {
                count(match err {
                    LedgerError::Unavailable | LedgerError::Overloaded => "unavailable",
                    _ => "conflict",
                });
                Err(err.into())
            }
        }
    }
}

/// Who acts, for the record.
#[must_use]
pub fn actor(principal: &Principal) -> Actor {
    Actor {
        role: principal.role.as_str().to_owned(),
        agent_id: principal.agent.clone(),
        key_id: Some(principal.key_id.clone()),
    }
}

fn personal_parts(message: &Message) -> Vec<PersonalPart> {
    message
        .personal_data()
        .into_iter()
        .map(|datum| PersonalPart {
            part: Part::new(Subject::PersonalData, clock::random(), &datum.canonical),
            subject_id: datum.subject_id,
        })
        .collect()
}

fn bare_refusal(
    failures: Vec<Failure>,
    ids: (Option<crate::domain::ids::TaskId>, Option<crate::domain::ids::HandoffId>),
    now: Micros,
) -> Refuse {
    let text = canonical::to_vec(&serde_json::json!({ "failures": failures }));
    Refuse {
        task_id: ids.0,
        handoff_id: ids.1,
        parent_handoff_id: None,
        from: None,
        to: None,
        content: content(&text, now),
        failures,
        whole: None,
        dead_letter: None,
    }
}

fn sender(message: &Message) -> Party {
    let from = &message.envelope().from_agent;
    Party {
        agent_id: Some(from.agent_id.clone()),
        agent_type: None,
        agent_version: Some(from.agent_version.clone()),
        execution_id: Some(from.execution_id),
    }
}

fn receiver(message: &Message, target: Option<&crate::domain::agent::Agent>) -> Party {
    let to = &message.envelope().to_agent;
    match target {
        Some(agent) => Party {
            agent_id: Some(agent.agent_id.clone()),
            agent_type: Some(agent.agent_type.clone()),
            agent_version: Some(agent.agent_version.to_string()),
            execution_id: None,
        },
        None => Party {
            agent_id: to.agent_id.clone(),
            agent_type: to.agent_type.clone(),
            agent_version: to.agent_version.clone(),
            execution_id: None,
        },
    }
}

/// The row of a handoff as its message tells it; the ledger fills in the rest.
fn row_of(
    principal: &Principal,
    message: &Message,
    target: Option<&crate::domain::agent::Agent>,
    status: HandoffStatus,
    whole: &[u8],
    now: Micros,
) -> Handoff {
    let envelope = message.envelope();
    let salt: [u8; 16] = clock::random();
    let unresolved: AgentId =
        envelope.to_agent.agent_id.clone().unwrap_or_else(|| envelope.from_agent.agent_id.clone());
    Handoff {
        tenant: principal.tenant.clone(),
        id: envelope.handoff_id,
        task_id: envelope.task_id,
        parent_id: envelope.parent_handoff_id,
        source: envelope.from_agent.agent_id.clone(),
        source_version: envelope.from_agent.agent_version.clone(),
        source_execution: envelope.from_agent.execution_id,
        target: target.map_or(unresolved, |agent| agent.agent_id.clone()),
        target_type: target.map_or_else(
            || envelope.to_agent.agent_type.clone().unwrap_or_default(),
            |agent| agent.agent_type.clone(),
        ),
        target_version: target.map_or_else(
            || envelope.to_agent.agent_version.clone().unwrap_or_default(),
            |agent| agent.agent_version.to_string(),
        ),
        mode: target
            .map_or(crate::domain::handoff::DeliveryMode::Pull, |agent| agent.delivery.mode),
        status,
        fencing_token: 0,
        attempts: 0,
        deadline_at: None,
        cost: envelope.cost_tracking,
        idempotent: true,
        checkpoint: None,
        content_id: None,
        digest_salt: salt.to_vec(),
        digest: commit(Subject::Submission, &salt, whole).to_vec(),
        reason: None,
        traceparent: envelope.traceparent.clone(),
        created_at: now,
        accepted_at: None,
        ended_at: None,
    }
}
