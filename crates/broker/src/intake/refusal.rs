//! The record of a message that the gate or the ledger refused.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tracing::Span;

use super::draft::{
    Ruled, addressed, handoff_of, packed_checkpoint, personal_parts, receiver, requires_checkpoint,
    sender, set_trace, submission_of,
};
use super::opinion::OpinionTime;
use super::{Answer, Intake, IntakeError, Request, actor};
use crate::directory::{Agents, Principal};
use crate::ledger::command::{Call, content};
use crate::ledger::commands::{Counted, DeadLetter, Refuse, Submit};
use crate::ledger::reply::{LedgerError, SubmissionReply};
use handoffd_domain::agent::Agent;
use handoffd_domain::canonical;
use handoffd_domain::failure::{Code, Failure, Stage, primary};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use handoffd_domain::message::Message;
use handoffd_domain::policy::Recovery;
use handoffd_domain::residency::ResidencyRules;
use handoffd_evidence::record::SafetyFacts;
use handoffd_gate::address;
use handoffd_gate::{GateVerdict, PassedMessage, RefusedMessage, UnreadMessage};

impl Intake {
    /// Refuses a sender without a part in the task.
    pub(super) async fn refuse_stranger(
        &self,
        principal: &Principal,
        message: Message,
        target: Arc<Agent>,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let refused = RefusedMessage::after_gate(message, target, None, vec![no_part()]);
        self.refuse(principal, refused, None, Request::default(), now).await
    }

    /// Records a refusal with all that the gate and the ledger's stages find.
    pub(super) async fn refuse(
        &self,
        principal: &Principal,
        refused: RefusedMessage,
        mut safety: Option<SafetyFacts>,
        request: Request,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        self.count_refusal(&refused);
        let mut failures = self.all_failures(principal, &refused).await?;
        if recovers(principal, &refused, &failures) {
            let (more, facts) = self.read_on(principal, &refused).await?;
            failures.extend(more);
            safety = facts;
        }
        let reason = primary(&failures).unwrap_or_else(|| refused.reason());
        Span::current().record("error.type", reason.as_str());
        let mut refuse = bare_refusal(failures, refused.ids, now);
        refuse.counted = self.counted(principal, &refused);
        refuse.safety.clone_from(&safety);
        if let Some(message) = &refused.message {
            let agents = self.directory.agents(&principal.tenant).await?;
            refuse.parent_handoff_id = message.envelope().parent_handoff_id;
            refuse.from = Some(sender(message, &agents));
            refuse.to = Some(receiver(message, refused.target.as_deref()));
            refuse.whole = Some(message.whole());
            let failures = &refuse.failures;
            refuse.recovery = self
                .recovery(principal, &agents, (&refused, message, failures), safety, &request, now)
                .map(Box::new);
            refuse.dead_letter = failures
                .iter()
                .any(|failure| failure.code == Code::SafetyViolation)
                .then(|| dead_letter(principal, &refused, message, request, now))
                .flatten()
                .map(Box::new);
        }
        let letter_id = refuse.dead_letter.as_ref().map(|letter| letter.handoff.id);
        let id = letter_id.or(refuse.handoff_id);
        let reply = self.record(principal, refuse, now).await?;
        self.refused(&principal.tenant, reply, id).await
    }

    /// Logs and counts what a refusal is known for.
    fn count_refusal(&self, refused: &RefusedMessage) {
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
    }

    /// The gate's failures and those of the ledger's stages; a caller without the right learns nothing of the task.
    pub(super) async fn all_failures(
        &self,
        principal: &Principal,
        refused: &RefusedMessage,
    ) -> Result<Vec<Failure>, IntakeError> {
        let mut failures = refused.failures.clone();
        if let (Some(message), Some(target)) = (&refused.message, &refused.target)
            && refused.reason() != Code::Forbidden
            && !self.is_stranger(&principal.tenant, message).await?
        {
            let edges = (refused.contract.as_ref(), &refused.others);
            let more = self.guarded(&principal.tenant, message, target, edges).await?;
            failures.extend(more.into_iter().filter(|one| !refused.failures.contains(one)));
        }
        Ok(failures)
    }

    /// Whether the sender of a message neither holds its task nor ever had a part in it.
    pub(super) async fn is_stranger(
        &self,
        tenant: &TenantId,
        message: &Message,
    ) -> Result<bool, IntakeError> {
        let envelope = message.envelope();
        let task = self.store.find_task(&(tenant.clone(), envelope.task_id)).await;
        let task = task.map_err(Arc::new)?;
        Ok(task.is_some_and(|task| task.holder != envelope.from_agent.agent_id)
            && !self.has_part(tenant, message).await?)
    }

    /// Judges a refused message by the outputs of earlier hops and by the classifier, which the gate's refusal came before:
    /// a release or a contract's recovery may deliver it all the same. Returns the failures that they add.
    ///
    /// # Errors
    /// [`IntakeError::Classifier`] where nothing passes without the classifier's answer.
    pub(super) async fn read_on(
        &self,
        principal: &Principal,
        refused: &RefusedMessage,
    ) -> Result<(Vec<Failure>, Option<SafetyFacts>), IntakeError> {
        let (Some(alone), Some(passed)) = (as_passed(refused), as_passed(refused)) else {
            return Ok((Vec::new(), None));
        };
        let mut failures = Vec::new();
        let alone = GateVerdict::Pass(alone);
        if let GateVerdict::Refused(more) = self.beside_earlier(&principal.tenant, alone).await? {
            failures.extend(more.failures);
        }
        // Its marks, where no rule refuses it: the classifier may be asked about marked messages alone.
        let at = (&principal.tenant, self.clock.now());
        let passed = match self.gate.beside_earlier(passed, at, &[]) {
            GateVerdict::Refused(_) => as_passed(refused).map(GateVerdict::Pass),
            passed => Some(passed),
        };
        let Some(passed) = passed else { return Ok((failures, None)) };
        let (verdict, safety) =
            self.with_second_opinion(principal, passed, OpinionTime::Before).await?;
        if let GateVerdict::Refused(more) = verdict {
            failures.extend(more.failures);
        }
        failures.retain(|one| !refused.failures.contains(one));
        Ok((failures, safety))
    }

    /// The handoff that the ledger commits and rejects at once: only the contract's acceptance criteria speak
    /// against it, and the contract names a recovery.
    fn recovery(
        &self,
        principal: &Principal,
        agents: &Agents,
        (refused, message, failures): (&RefusedMessage, &Message, &[Failure]),
        safety: Option<SafetyFacts>,
        request: &Request,
        now: Micros,
    ) -> Option<Submit> {
        if !recovers(principal, refused, failures) {
            return None;
        }
        let source = &message.envelope().from_agent.agent_id;
        let target = refused.target.as_deref()?;
        let policy = refused.contract.as_ref()?.policy();
        let crossings = self.gate.residency.crossings(agents.roster.find(source), Some(target));
        let ruled = Ruled {
            target,
            to_itself: false,
            policy: policy.clone(),
            others: refused.others.clone(),
            ready: refused.contract.as_ref(),
            require_checkpoint: requires_checkpoint(policy, &refused.others, agents, source),
            safety,
            residency: ResidencyRules::facts(crossings),
            context: refused.context,
        };
        let (body, request) = (message.content(), request.clone());
        Some(submission_of(principal, agents, message, &body, ruled, request, now))
    }

    /// How a refusal counts: as its sender's failure. Who speaks in another's name is not its sender.
    fn counted(&self, principal: &Principal, refused: &RefusedMessage) -> Option<Counted> {
        let by = principal.agent.clone()?;
        if is_paused(&refused.failures) {
            return None;
        }
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
            .map(|own| packed_checkpoint(&own));
        Some(Counted { by, to, target, run, checkpoint })
    }

    pub(super) async fn record(
        &self,
        principal: &Principal,
        refuse: Refuse,
        now: Micros,
    ) -> Result<SubmissionReply, LedgerError> {
        self.ledger
            .handle(
                Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) },
                refuse,
            )
            .await
    }
}

/// Whether a message is refused for no other reason than that its receiver is paused: it is to come later, and no defect of its.
pub(super) fn is_paused(failures: &[Failure]) -> bool {
    !failures.is_empty()
        && failures.iter().all(|failure| failure.rule.as_deref() == Some(address::PAUSED))
}

/// The handoff that is kept for a person; `None` if the caller is not an agent.
fn dead_letter(
    principal: &Principal,
    refused: &RefusedMessage,
    message: &Message,
    request: Request,
    now: Micros,
) -> Option<DeadLetter> {
    let caller = principal.agent.as_ref()?;
    let envelope = message.envelope();
    let checkpoint = message.checkpoint().unwrap_or_else(|| message.implied_checkpoint());
    let (target, status) = (refused.target.as_deref(), HandoffStatus::DeadLettered);
    let mut handoff = handoff_of(principal, message, target, status, &message.whole(), now);
    handoff.user_ref = request.user_ref;
    let named = refused.contract.as_ref().and_then(|ready| ready.trace_id(message.value()));
    set_trace(&mut handoff, request.trace, message, named);
    if *caller != envelope.from_agent.agent_id {
        // Kept under the caller's name, apart from the task and the id that it named: so no agent
        // can take part in another's task, nor occupy ids in another's name.
        handoff.source = caller.clone();
        handoff.parent_id = None;
        handoff.id = HandoffId(kept_apart("handoff", caller, envelope.handoff_id));
        handoff.task_id = TaskId(kept_apart("task", caller, envelope.handoff_id));
    }
    Some(DeadLetter {
        handoff,
        content: content(&message.content(), now),
        checkpoint: packed_checkpoint(&checkpoint),
        personal: personal_parts(message),
        idempotency_key: request.idempotency_key,
    })
}

/// A refused message as one that passes; the rules' findings in it count as observed. `None` if it has no receiver.
fn as_passed(refused: &RefusedMessage) -> Option<Box<PassedMessage>> {
    let group = refused.group.clone();
    let first = group.as_ref().and_then(|group| group.branches.first());
    let target = refused.target.as_ref().or(first.map(|branch| &branch.target))?;
    let message = refused.message.as_ref()?;
    Some(Box::new(PassedMessage {
        message: message.clone(),
        target: Arc::clone(target),
        to_itself: false,
        contract: refused.contract.clone(),
        others: refused.others.clone(),
        observed: refused.observed.iter().chain(&refused.findings).cloned().collect(),
        marked: Vec::new(),
        may_repeat: true,
        warnings: Vec::new(),
        residency: None,
        context: refused.context,
        group,
    }))
}

/// Whether only the contract's acceptance criteria speak against a message, and the contract names who gets it then.
fn recovers(principal: &Principal, refused: &RefusedMessage, failures: &[Failure]) -> bool {
    let (Some(message), Some(_), Some(contract)) =
        (&refused.message, &refused.target, &refused.contract)
    else {
        return false;
    };
    let envelope = message.envelope();
    principal.agent.as_ref() == Some(&envelope.from_agent.agent_id)
        && contract.policy().on_reject != Recovery::Source
        // No other agent can go on with a part of a message.
        && !envelope.stream.is_some_and(|stream| stream.open)
        && failures.iter().all(is_acceptance)
}

/// Whether a finding is a failed acceptance criterion, and nothing else.
fn is_acceptance(failure: &Failure) -> bool {
    // Of another edge that the message may take there is nothing that a recovery could mend.
    failure.stage == Stage::Contract
        && !failure.pointer.starts_with("/preferredAgents")
        && failure.rule.as_deref().is_some_and(|clause| clause.starts_with("acceptance_criteria."))
}

/// The id of a kept message whose caller is not the sender that it names: one for each caller and named id, and
/// no other caller's.
fn kept_apart(what: &str, caller: &AgentId, named: HandoffId) -> uuid::Uuid {
    let hash = Sha256::new()
        .chain_update(format!("handoffd kept apart {what} {caller} "))
        .chain_update(named.0.as_bytes())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// A refusal with nothing but its failures.
pub(super) fn bare_refusal(
    failures: Vec<Failure>,
    ids: (Option<TaskId>, Option<HandoffId>),
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

/// The refusal of a sender without a part in the task.
pub(super) fn no_part() -> Failure {
    let why = LedgerError::NotHolder.to_string();
    Failure::new(Stage::Identity, Code::Forbidden, "/taskId", why)
}
