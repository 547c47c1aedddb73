//! Intake: from the bytes a sender posts to the command that commits them, or the record that says
//! why not.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::directory::{Agents, Directory, Principal};
use crate::ledger::command::{
    Command, Counted, DeadLetter, Kind, LedgerError, Refuse, Repeat, Reply, Submit, Undone, content,
};
use crate::ledger::context::Rules;
use crate::ledger::{HandoffWatch, Ledger, Outgoing};
use crate::metrics::Metrics;
use crate::telemetry;
use crate::vault::{AgentSecrets, SecretKind, Vault};
use handoffd_core::contract::enforce::{CompiledContract, TraceField};
use handoffd_core::contract::payload;
use handoffd_core::domain::agent::Agent;
use handoffd_core::domain::canonical;
use handoffd_core::domain::course::subtasks_of;
use handoffd_core::domain::credential::{CredentialForms, SecretPolicy};
use handoffd_core::domain::failure::{Code, Failure, Stage, primary};
use handoffd_core::domain::handoff::{Handoff, HandoffStatus};
use handoffd_core::domain::ids::{AgentId, HandoffId, Micros, TaskId};
use handoffd_core::domain::latency::LatencyClock;
use handoffd_core::domain::message::{Message, ReturnTo};
use handoffd_core::domain::policy::{EdgePolicy, Recovery};
use handoffd_core::domain::redaction::RedactionPolicy;
use handoffd_core::domain::residency::{Residency, ResidencyFacts};
use handoffd_core::domain::ruling::Ruling;
use handoffd_core::domain::trace_context::{TraceContext, TraceParent};
use handoffd_core::domain::warning::Warning;
use handoffd_core::evidence::append::LoggedRecord;
use handoffd_core::evidence::commitment::{CommitmentSubject, PackedContent, commit};
use handoffd_core::evidence::record::{Actor, PersonalPart, RecordParty, SafetyFacts};
use handoffd_core::gate::{
    Gate, GateLookup, GateVerdict, PassedMessage, RefusedMessage, UnreadMessage, budget,
};
use handoffd_store::clock::{self, Clock};
use handoffd_store::store::{HandoffFilter, Store, StoreError};

mod appeals;
mod counts;
mod dry_run;
mod guarded;
mod opinion;
pub mod policies;
pub mod what_if;

use counts::Noticed;

pub use appeals::{Appeal, Decided};
pub use opinion::{Opinion, SecondOpinion};

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
        placed: Option<LoggedRecord>,
        /// It was there already.
        replayed: bool,
        /// The contract that rules its edge.
        contract: Option<Arc<CompiledContract>>,
        /// Told of everything since before it was committed, where [`Request::awaited`] asked for that.
        watch: Option<HandoffWatch>,
        /// What of the message does not hold in full.
        warnings: Vec<Warning>,
    },
    /// Refused, and the refusal recorded.
    Refused {
        /// Everything that was found.
        failures: Vec<Failure>,
        /// Kept for a person.
        dead_letter: Option<handoffd_core::domain::ids::HandoffId>,
        /// It was refused before.
        replayed: bool,
        /// How long until a cap has room for it.
        retry_after: Option<Duration>,
        /// What became of its task, where the refusal moved it.
        undone: Option<Undone>,
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
    /// The classifier does not say, and nothing passes without its word.
    #[error("the safety classifier is unavailable")]
    Classifier,
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
    /// Asked about what passed, where there is one.
    pub second_opinion: Option<Arc<dyn SecondOpinion>>,
    /// Keys and agents.
    pub directory: Arc<Directory>,
    /// The write path.
    pub ledger: Ledger,
    /// Reads.
    pub store: Arc<dyn Store>,
    /// What must not be kept.
    pub redaction: Arc<RedactionPolicy>,
    /// Opens signing secrets.
    pub vault: Vault,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// What the ledger goes by.
    pub rules: Rules,
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
    pub trace: Option<TraceContext>,
    /// The caller waits for the verdict.
    pub awaited: bool,
    /// When its first byte was read; now, where nobody says.
    pub arrived_at: Option<Micros>,
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
        let span = submission(&body, request.trace.as_ref()).await;
        let mut noticed = Noticed::default();
        // On the heap: with a span around it, it is too large for its caller's frame.
        let gated = Box::pin(self.gated(principal, body, request, &mut noticed));
        let answered = gated.instrument(span).await;
        self.count(&noticed, &answered);
        answered
    }

    async fn gated(
        &self,
        principal: &Principal,
        body: Body,
        request: Request,
        noticed: &mut Noticed,
    ) -> Result<Answer, IntakeError> {
        let verdict = self.judge(principal, body).await?;
        let (verdict, safety) = self.with_second_opinion(principal, verdict).await?;
        *noticed = Noticed::of(&verdict);
        let now = self.clock.now();
        match verdict {
            GateVerdict::Pass(passed) => {
                self.commit(principal, *passed, safety, request, now).await
            }
            GateVerdict::Malformed(failure) => {
                let refuse = bare_refusal(vec![failure.clone()], (None, None), now);
                self.record(principal, refuse, now).await?;
                Ok(Answer::Malformed(failure))
            }
            GateVerdict::Refused(refused) => {
                self.refuse(principal, *refused, safety, request, now).await
            }
        }
    }

    async fn judge(&self, principal: &Principal, body: Body) -> Result<GateVerdict, IntakeError> {
        self.judge_for(principal, None, body).await
    }

    /// Runs the gate for a sender, or for an agent that looks at the sender's message as its receiver.
    async fn judge_for(
        &self,
        principal: &Principal,
        receiver: Option<AgentId>,
        body: Body,
    ) -> Result<GateVerdict, IntakeError> {
        let agents = self.directory.agents(&principal.tenant).await?;
        let contracts = self.directory.contracts(&principal.tenant).await?;
        let secrets = self.signing_secrets(principal, &agents);
        let timer = self.metrics.gate_seconds.start_timer();
        let gate = Arc::clone(&self.gate);
        let redaction = Arc::clone(&self.redaction);
        let caller = principal.agent.clone();
        let tenant = principal.tenant.clone();
        let at = self.clock.now();
        let large = body.bytes.len() > INLINE_LIMIT;
        let span = Span::current();
        let run = move || {
            let secrets: Vec<&[u8]> = secrets.iter().map(|secret| secret.as_slice()).collect();
            let Body { bytes, guard } = body;
            let verdict = gate.run(
                &bytes,
                &GateLookup {
                    tenant: &tenant,
                    at,
                    caller: caller.as_ref(),
                    receiver: receiver.as_ref(),
                    roster: &agents.roster,
                    contracts: &contracts,
                    signing_secrets: &secrets,
                },
            );
            drop(guard);
            redacted(verdict, &redaction)
        };
        let verdict = if large {
            tokio::task::spawn_blocking(move || span.in_scope(run))
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
            observed: _,
            warnings,
            residency,
        } = passed;
        let policy = contract.as_ref().map(|ready| ready.policy().clone()).unwrap_or_default();
        let agents = self.directory.agents(&principal.tenant).await?;
        agents.roster.routed(&target.agent_id);
        let require_checkpoint = policy.require_checkpoint
            || agents
                .row(&message.envelope().from_agent.agent_id)
                .is_some_and(|row| row.agent.require_checkpoint);
        let body = message.content();
        let personal = message.personal_data();
        let ready = contract.as_ref();
        let ruled = Ruled {
            target: &target,
            to_itself,
            policy,
            ready,
            require_checkpoint,
            safety,
            residency,
        };
        let submit =
            submission_of(principal, &agents, &message, &body, ruled, request.clone(), now);
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
        let watch = request
            .awaited
            .then(|| self.ledger.watch((principal.tenant.clone(), message.envelope().handoff_id)));
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
        if let Err(LedgerError::Refused(failures)) = reply {
            let refused = RefusedMessage {
                failures,
                ids: (Some(message.envelope().task_id), Some(message.envelope().handoff_id)),
                unread: UnreadMessage::default(),
                message: Some(message),
                target: Some(target),
                findings: Vec::new(),
                observed: Vec::new(),
                allowlist: None,
                contract,
            };
            return self.refuse(principal, refused, None, request, now).await;
        }
        if let Err(LedgerError::Repeat(first)) = reply {
            return self.answer_with_first(principal, first, contract, warnings).await;
        }
        let mut answer = self.answer(reply, message.envelope().handoff_id)?;
        if let Answer::Submitted { contract: ruling, watch: told, warnings: shown, .. } =
            &mut answer
        {
            *ruling = contract;
            *told = watch;
            *shown = warnings;
        }
        Ok(answer)
    }

    /// A repeat under the contract's dedupe key: what the first one came to.
    async fn answer_with_first(
        &self,
        principal: &Principal,
        first: HandoffId,
        contract: Option<Arc<CompiledContract>>,
        warnings: Vec<Warning>,
    ) -> Result<Answer, IntakeError> {
        let found = self.store.find_handoff(&(principal.tenant.clone(), first)).await;
        let handoff = found
            .map_err(Arc::new)?
            .ok_or_else(|| LedgerError::Internal(format!("handoff {first} is gone")))?;
        let handoff = Box::new(handoff);
        Ok(Answer::Submitted {
            handoff,
            placed: None,
            replayed: true,
            contract,
            watch: None,
            warnings,
        })
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
        target: Arc<Agent>,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let envelope = message.envelope();
        let refused = RefusedMessage {
            failures: vec![Failure::new(
                Stage::Identity,
                Code::Forbidden,
                "/taskId",
                LedgerError::NotHolder.to_string(),
            )],
            ids: (Some(envelope.task_id), Some(envelope.handoff_id)),
            unread: UnreadMessage::default(),
            message: Some(message),
            target: Some(target),
            contract: None,
            findings: Vec::new(),
            observed: Vec::new(),
            allowlist: None,
        };
        self.refuse(principal, refused, None, Request::default(), now).await
    }

    async fn refuse(
        &self,
        principal: &Principal,
        refused: RefusedMessage,
        safety: Option<SafetyFacts>,
        request: Request,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let reason = refused.reason();
        if let Some(violation) = &refused.allowlist {
            tracing::warn!(
                event = "agents.handoff_allowlist_violation",
                source_agent_id = %violation.source,
                target_agent_id = %violation.target,
                allowlist_size = violation.allowlist_size,
                "agents.handoff_allowlist_violation"
            );
        }
        if let Some(contract) = &refused.contract {
            self.metrics.count_contract_refusal(contract.policy());
        }
        let handoff_id = refused.ids.1;
        let mut failures = refused.failures.clone();
        if let (Some(message), Some(target)) = (&refused.message, &refused.target)
            && reason != Code::Forbidden
        {
            let contract = refused.contract.as_ref();
            let more = self.guarded(&principal.tenant, message, target, contract).await?;
            failures.extend(more.into_iter().filter(|one| !refused.failures.contains(one)));
        }
        let reason = primary(&failures).unwrap_or(reason);
        Span::current().record("error.type", reason.as_str());
        let mut refuse = bare_refusal(failures, refused.ids, now);
        refuse.counted = self.counted(principal, &refused);
        refuse.safety = safety.clone();
        if let Some(message) = &refused.message {
            let envelope = message.envelope();
            let whole = message.whole();
            refuse.parent_handoff_id = envelope.parent_handoff_id;
            let agents = self.directory.agents(&principal.tenant).await?;
            refuse.from = Some(sender(message, &agents));
            refuse.to = Some(receiver(message, refused.target.as_deref()));
            let own = principal.agent.as_ref() == Some(&envelope.from_agent.agent_id);
            let unsafe_text =
                refuse.failures.iter().any(|failure| failure.code == Code::SafetyViolation);
            let contract = refused.contract.as_ref().map(|ready| ready.policy());
            if own
                && let (Some(target), Some(policy)) = (&refused.target, contract)
                && policy.on_reject != Recovery::Source
                && refuse.failures.iter().all(is_acceptance)
            {
                let agents = self.directory.agents(&principal.tenant).await?;
                let policy = policy.clone();
                let require_checkpoint = policy.require_checkpoint;
                let crossings = self
                    .gate
                    .residency
                    .crossings(agents.roster.find(&envelope.from_agent.agent_id), Some(target));
                let ruled = Ruled {
                    target,
                    to_itself: false,
                    policy,
                    ready: refused.contract.as_ref(),
                    require_checkpoint,
                    safety,
                    residency: Residency::facts(crossings),
                };
                let (body, request) = (message.content(), request.clone());
                let submit = submission_of(principal, &agents, message, &body, ruled, request, now);
                refuse.recovery = Some(Box::new(submit));
            }
            if let Some(caller) = principal.agent.as_ref().filter(|_| unsafe_text) {
                let checkpoint =
                    message.checkpoint().unwrap_or_else(|| message.implied_checkpoint());
                let (target, status) = (refused.target.as_deref(), HandoffStatus::DeadLettered);
                let mut handoff = row_of(principal, message, target, status, &whole, now);
                let contract = refused.contract.as_ref();
                let named = contract.and_then(|ready| ready.trace_id(message.value()));
                place(&mut handoff, request.trace, message, named);
                if !own {
                    // Kept as the caller's, apart from the task and the id that it named: nobody may take part
                    // in another's task that way, nor occupy ids in another's name.
                    handoff.source = caller.clone();
                    handoff.parent_id = None;
                    handoff.id = HandoffId(kept_apart("handoff", caller, envelope.handoff_id));
                    handoff.task_id = TaskId(kept_apart("task", caller, envelope.handoff_id));
                }
                refuse.dead_letter = Some(Box::new(DeadLetter {
                    handoff,
                    content: content(&message.content(), now),
                    checkpoint: PackedContent::new(
                        CommitmentSubject::Checkpoint,
                        clock::random(),
                        &checkpoint,
                    ),
                    personal: personal_parts(message),
                    idempotency_key: request.idempotency_key,
                }));
            }
            refuse.whole = Some(whole);
        }
        let letter_id = refuse.dead_letter.as_ref().map(|letter| letter.handoff.id);
        let reply = self.record(principal, refuse, now).await;
        match letter_id.or(handoff_id) {
            Some(id) => self.answer(reply, id),
            None => match reply? {
                Reply::Refused { failures, replayed, undone, .. } => Ok(Answer::Refused {
                    failures,
                    dead_letter: None,
                    replayed,
                    retry_after: None,
                    undone,
                }),
                other => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
            },
        }
    }

    /// How a refusal counts: as its sender's failure. Who speaks in another's name is not its sender.
    fn counted(&self, principal: &Principal, refused: &RefusedMessage) -> Option<Counted> {
        let by = principal.agent.clone()?;
        let target = refused.target.as_ref().map(|agent| agent.agent_id.clone());
        let (from, to, run, own) = if let Some(message) = &refused.message {
            let envelope = message.envelope();
            let named = envelope.to_agent.agent_id.as_ref().map(AgentId::to_string);
            let to = addressed(message).or(named).unwrap_or_default();
            let own = message.checkpoint().unwrap_or_else(|| message.implied_checkpoint());
            let from = &envelope.from_agent;
            (Some(&from.agent_id), to, Some(from.execution_id), Some(own))
        } else {
            let UnreadMessage { from, run, to, checkpoint } = &refused.unread;
            let own = checkpoint.as_ref().map(canonical::to_vec);
            (from.as_ref(), to.clone(), *run, own)
        };
        if from.is_some_and(|from| *from != by) {
            return None;
        }
        let checkpoint = own
            .filter(|own| own.len() <= self.gate.max_checkpoint)
            .map(|own| PackedContent::new(CommitmentSubject::Checkpoint, clock::random(), &own));
        Some(Counted { by, to, target, run, checkpoint })
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

    fn answer(
        &self,
        reply: Result<Reply, LedgerError>,
        id: handoffd_core::domain::ids::HandoffId,
    ) -> Result<Answer, IntakeError> {
        match reply? {
            Reply::Submitted { handoff, placed, replayed } => Ok(Answer::Submitted {
                handoff: Box::new(handoff),
                placed,
                replayed,
                contract: None,
                watch: None,
                warnings: Vec::new(),
            }),
            Reply::Refused { failures, dead_lettered, replayed, over, undone } => {
                if let Some(over) = &over {
                    let scope = if over.of_agent { "agent" } else { "tenant" };
                    self.metrics.cap_refusals.with_label_values(&[scope]).inc();
                }
                let dead_letter = dead_lettered.then_some(id);
                let retry_after = over.and_then(|over| over.wait);
                Ok(Answer::Refused { failures, dead_letter, replayed, retry_after, undone })
            }
            other => Err(LedgerError::Internal(format!("unexpected reply {other:?}")).into()),
        }
    }
}

/// From here on nothing sees what must not be kept.
fn redacted(verdict: GateVerdict, policy: &RedactionPolicy) -> GateVerdict {
    match verdict {
        GateVerdict::Pass(passed) => {
            let message = passed.message.redacted(policy);
            GateVerdict::Pass(Box::new(PassedMessage { message, ..*passed }))
        }
        GateVerdict::Refused(mut refused) => {
            refused.message = refused.message.map(|message| message.redacted(policy));
            if policy.secrets != SecretPolicy::Warn {
                for finding in &mut refused.findings {
                    if let Some(safe) = CredentialForms::builtin().redact(&finding.excerpt, None) {
                        finding.excerpt = safe;
                    }
                }
            }
            if let Some(kept) = &mut refused.unread.checkpoint {
                policy.redact_checkpoint(kept);
            }
            GateVerdict::Refused(refused)
        }
        malformed @ GateVerdict::Malformed(_) => malformed,
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

/// What rules the end of a handoff on this edge; nothing where only the defaults do.
fn ruling(
    edge: EdgePolicy,
    agents: &Agents,
    message: &Message,
    target: &Agent,
) -> Option<Box<Ruling>> {
    let envelope = message.envelope();
    let source = &envelope.from_agent.agent_id;
    let supervised =
        [&edge.on_reject, &edge.on_timeout, &edge.on_error].contains(&&Recovery::Supervisor);
    let supervisor = supervised
        .then(|| {
            let own = agents.row(source).and_then(|row| row.agent.supervisor_id.clone());
            own.or_else(|| target.supervisor_id.clone())
        })
        .flatten();
    let preferred = envelope.preferred_agents.iter().filter(|id| **id != target.agent_id).cloned();
    let (preferred, addressed) = (preferred.collect(), addressed(message));
    let returns_to = envelope.return_to.map(|ReturnTo::Source| source.clone());
    let ruling = Ruling { edge, supervisor, preferred, addressed, returns_to, ..Ruling::default() };
    (!ruling.is_default()).then(|| Box::new(ruling))
}

/// Subtasks that a message has a result of.
fn subtasks(message: &Message) -> Vec<u64> {
    subtasks_of(message.envelope().task_id, message.value())
}

/// How a message is addressed, where not by an agent's id.
fn addressed(message: &Message) -> Option<String> {
    let to = &message.envelope().to_agent;
    match (&to.agent_id, &to.agent_type, &to.capability) {
        (Some(_), ..) | (None, None, None) => None,
        (None, Some(name), _) => Some(format!("type:{name}")),
        (None, None, Some(name)) => Some(format!("capability:{name}")),
    }
}

/// Whether a finding is a failed acceptance criterion, and nothing else.
fn is_acceptance(failure: &Failure) -> bool {
    failure.stage == Stage::Contract
        && failure.rule.as_deref().is_some_and(|clause| clause.starts_with("acceptance_criteria."))
}

/// The id under which a message is kept whose caller is not whom it names as its sender: one for each caller and
/// id that it names, and nobody else's.
fn kept_apart(what: &str, caller: &AgentId, named: HandoffId) -> uuid::Uuid {
    let hash = Sha256::new()
        .chain_update(format!("handoffd kept apart {what} {caller} "))
        .chain_update(named.0.as_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// What rules a submission.
struct Ruled<'a> {
    target: &'a Agent,
    to_itself: bool,
    policy: EdgePolicy,
    ready: Option<&'a Arc<CompiledContract>>,
    require_checkpoint: bool,
    safety: Option<SafetyFacts>,
    residency: Option<ResidencyFacts>,
}

/// A message as the ledger commits it; `body` is its content.
fn submission_of(
    principal: &Principal,
    agents: &Agents,
    message: &Message,
    body: &[u8],
    ruled: Ruled<'_>,
    request: Request,
    now: Micros,
) -> Submit {
    let Ruled { target, to_itself, policy, ready, require_checkpoint, safety, residency } = ruled;
    let status = if to_itself { HandoffStatus::NoOp } else { HandoffStatus::Pending };
    let whole = message.whole();
    let mut handoff = row_of(principal, message, Some(target), status, &whole, now);
    handoff.clock = LatencyClock::starting(request.arrived_at.unwrap_or(now));
    let named = ready.and_then(|ready| ready.trace_id(message.value()));
    place(&mut handoff, request.trace, message, named);
    handoff.ruling = ruling(policy.clone(), agents, message, target);
    handoff.idempotent = policy.idempotent;
    let checkpoint = message
        .checkpoint()
        .map(|own| PackedContent::new(CommitmentSubject::Checkpoint, clock::random(), &own));
    // Packed only where it may be needed.
    let implied_checkpoint = checkpoint.clone().unwrap_or_else(|| {
        PackedContent::new(
            CommitmentSubject::Checkpoint,
            clock::random(),
            &message.implied_checkpoint(),
        )
    });
    Submit {
        from: sender(message, agents),
        to: receiver(message, Some(target)),
        content: content(body, now),
        checkpoint,
        implied_checkpoint,
        require_checkpoint,
        priority: message.envelope().priority,
        repeat: if to_itself { None } else { repeat_of(&policy, message) },
        policy,
        subtasks: subtasks(message),
        declared_budget: budget::declared(message.value()),
        personal: personal_parts(message),
        whole,
        idempotency_key: request.idempotency_key,
        has_part: false,
        refusal_salt: clock::random(),
        safety,
        residency,
        claim: None,
        handoff,
    }
}

fn personal_parts(message: &Message) -> Vec<PersonalPart> {
    message
        .personal_data()
        .into_iter()
        .map(|datum| PersonalPart {
            part: PackedContent::new(
                CommitmentSubject::PersonalData,
                clock::random(),
                &datum.canonical,
            ),
            subject_id: datum.subject_id,
        })
        .collect()
}

/// What tells a repeat of a message under its contract's `dedupe_key`; where the message has no such
/// value, nothing does.
fn repeat_of(policy: &EdgePolicy, message: &Message) -> Option<Repeat> {
    let (dedupe, contract) = (policy.dedupe.as_ref()?, policy.contract.as_ref()?);
    let (_, value) = payload::find(message.value(), &dedupe.name)?;
    let mut hash = Sha256::new();
    hash.update(canonical::to_vec(&value));
    Some(Repeat {
        key: format!("{}:{}", contract.id, hex::encode(hash.finalize())),
        window: Duration::from_millis(dedupe.window_ms),
    })
}

fn bare_refusal(
    failures: Vec<Failure>,
    ids: (
        Option<handoffd_core::domain::ids::TaskId>,
        Option<handoffd_core::domain::ids::HandoffId>,
    ),
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
        safety: None,
        dead_letter: None,
        counted: None,
        recovery: None,
    }
}

fn sender(message: &Message, agents: &Agents) -> RecordParty {
    let from = &message.envelope().from_agent;
    let registered = agents.row(&from.agent_id).map(|row| row.agent.agent_version.to_string());
    RecordParty {
        agent_id: Some(from.agent_id.clone()),
        agent_type: None,
        agent_version: Some(from.agent_version.clone()),
        registered_version: registered,
        execution_id: Some(from.execution_id),
    }
}

fn receiver(
    message: &Message,
    target: Option<&handoffd_core::domain::agent::Agent>,
) -> RecordParty {
    let to = &message.envelope().to_agent;
    match target {
        Some(agent) => RecordParty {
            agent_id: Some(agent.agent_id.clone()),
            agent_type: Some(agent.agent_type.clone()),
            agent_version: Some(agent.agent_version.to_string()),
            execution_id: None,
            registered_version: None,
        },
        None => RecordParty {
            agent_id: to.agent_id.clone(),
            agent_type: to.agent_type.clone(),
            agent_version: to.agent_version.clone(),
            execution_id: None,
            registered_version: None,
        },
    }
}

/// The span of a submission, in the trace of its sender from the first stage on. Where the request has
/// no trace context that is the message's, and the request's span is linked.
async fn submission(body: &Body, request: Option<&TraceContext>) -> Span {
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

/// Puts a handoff in its place in a trace: the one that its contract's field names, else the request's,
/// else the message's, else a new one. Of the trace that the contract's field names, the request or the
/// message may know the span.
fn place(
    handoff: &mut Handoff,
    request: Option<TraceContext>,
    message: &Message,
    named: Option<TraceField>,
) {
    let envelope = message.envelope();
    let span = Span::current();
    let own = telemetry::own(&span);
    let told =
        [request, TraceContext::of_message(&envelope.traceparent, envelope.tracestate.as_deref())];
    let told = told.into_iter().flatten();
    let context = match named {
        None => told.into_iter().next(),
        Some(TraceField::Parent(parent)) => Some(TraceContext { parent, state: String::new() }),
        Some(TraceField::Id(id)) => {
            let mut told = told.into_iter();
            told.find(|context| context.parent.trace_id == id).or_else(|| {
                let parent = TraceParent::new(id, clock::random(), 0)?;
                Some(TraceContext { parent, state: String::new() })
            })
        }
    };
    let context = context.or_else(|| {
        let begun = || TraceParent::new(clock::random(), clock::random(), 0);
        let parent = own.or_else(begun)?;
        Some(TraceContext { parent, state: String::new() })
    });
    span.record("handoff.id", tracing::field::display(handoff.id));
    span.record("handoff.task.id", tracing::field::display(handoff.task_id));
    span.record("handoff.source", handoff.source.as_str());
    span.record("handoff.target", handoff.target.as_str());
    handoff.span = own.map(|own| own.to_string()).unwrap_or_default();
    if let Some(TraceContext { parent, state }) = context {
        // The lines of the request say under which trace its handoff goes on.
        span.record("trace_id", parent.trace_id_hex());
        handoff.traceparent = parent.to_string();
        handoff.tracestate = state;
    }
}

/// The row of a handoff as its message tells it; the ledger fills in the rest.
fn row_of(
    principal: &Principal,
    message: &Message,
    target: Option<&handoffd_core::domain::agent::Agent>,
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
        mode: target.map_or(handoffd_core::domain::handoff::DeliveryMode::Pull, |agent| {
            agent.delivery.mode
        }),
        status,
        fencing_token: 0,
        attempts: 0,
        deadline_at: None,
        cost: envelope.cost_tracking,
        idempotent: true,
        checkpoint: None,
        content_id: None,
        checkpoint_commitment: None,
        commitment: None,
        origin: None,
        ruling: None,
        topped_up: handoffd_core::domain::money::Usd(0),
        digest_salt: salt.to_vec(),
        digest: commit(CommitmentSubject::Submission, &salt, whole).to_vec(),
        reason: None,
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: now,
        clock: LatencyClock::starting(now),
        accepted_at: None,
        ended_at: None,
    }
}
