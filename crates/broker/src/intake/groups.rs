//! The commit of a message to many that passed the gate (specification §10.4), and what the ledger will say of one.

use std::sync::Arc;

use bytes::Bytes;

use super::draft::{Ruled, named, requires_checkpoint, ruling, submission_of};
use super::{Answer, Intake, IntakeError, Request, SubmittedGroup, actor};
use crate::directory::{Agents, Principal};
use crate::ledger::Committed;
use crate::ledger::command::Call;
use crate::ledger::commands::{Submit, SubmitBranch, SubmitGroup};
use crate::ledger::reply::{LedgerError, SubmissionReply};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::funds::FundsRequest;
use handoffd_domain::group::{BranchPlace, branch_id};
use handoffd_domain::handoff::{Handoff, HandoffDraft};
use handoffd_domain::ids::{Micros, TenantId};
use handoffd_domain::message::Message;
use handoffd_domain::policy::EdgePolicy;
use handoffd_evidence::record::{RecordParty, SafetyFacts};
use handoffd_gate::{OtherEdges, PassedBranch, PassedGroup, PassedMessage, RefusedMessage};

impl Intake {
    /// Commits a message to many that passed, or refuses it where only the ledger can tell.
    pub(super) async fn commit_group(
        &self,
        principal: &Principal,
        passed: PassedMessage,
        safety: Option<SafetyFacts>,
        request: Request,
        now: Micros,
    ) -> Result<Answer, IntakeError> {
        let PassedMessage { message, target, contract, warnings, group, .. } = passed;
        let Some(group) = group else {
            return Err(LedgerError::Internal("a list without receivers".to_owned()).into());
        };
        let agents = self.directory.agents(&principal.tenant).await?;
        let body = Bytes::from(message.content());
        let wanted = wanted(principal, &agents, &message, (&body, &group), safety, &request, now);
        let call = Call { tenant: principal.tenant.clone(), at: now, actor: actor(principal) };
        let command = wanted;
        match self.ledger.commit(call, command).await {
            Ok(Committed {
                reply: SubmissionReply::Group { group, handoffs, replayed },
                record,
            }) => Ok(Answer::Group(SubmittedGroup { group, handoffs, record, replayed, warnings })),
            Ok(Committed { reply, .. }) => {
                let id = message.envelope().handoff_id;
                self.refused(&principal.tenant, reply, Some(id)).await
            }
            Err(LedgerError::NotHolder) => {
                let why = "only the agent that has the task may send it to several receivers";
                let failure = Failure::new(Stage::Identity, Code::Forbidden, "/taskId", why);
                let refused = RefusedMessage::after_gate(message, target, None, vec![failure]);
                self.refuse(principal, refused, None, Request::default(), now).await
            }
            Err(LedgerError::Refused(failures)) => {
                let refused = RefusedMessage::after_gate(message, target, contract, failures);
                self.refuse(principal, refused, None, request, now).await
            }
            Err(err) => Err(err.into()),
        }
    }

    /// A forecast of the ledger's answer to a message to many, read beside its locks.
    pub(super) async fn guarded_group(
        &self,
        tenant: &TenantId,
        message: &Message,
        branches: &[PassedBranch],
    ) -> Result<Vec<Failure>, IntakeError> {
        let envelope = message.envelope();
        let mut failures: Vec<Failure> = Vec::new();
        for (index, branch) in branches.iter().enumerate() {
            let found = self.guarded(
                tenant,
                message,
                &branch.target,
                (branch.contract.as_ref(), &branch.others),
            );
            for mut failure in found.await? {
                if failure.pointer == "/toAgent" {
                    failure.pointer = format!("/receiverList/{index}");
                }
                if !failures.contains(&failure) {
                    failures.push(failure);
                }
            }
        }
        let key = (tenant.clone(), envelope.task_id);
        let task = self.store.find_task(&key).await.map_err(Arc::new)?;
        let books = task.as_ref().and_then(|task| task.funds.as_deref().cloned());
        let Some(mut books) = books.or_else(|| self.opened(task.as_ref(), message)) else {
            return Ok(failures);
        };
        let (source, cost) = (&envelope.from_agent.agent_id, &envelope.cost_tracking);
        for (index, branch) in branches.iter().enumerate().filter(|_| failures.is_empty()) {
            let ask = FundsRequest { parent: envelope.parent_handoff_id, source, cost };
            if let Err(short) = books.check(ask) {
                let pointer = format!("/receiverList/{index}");
                let (stage, code) = (Stage::Budget, Code::BudgetMismatch);
                return Ok(vec![Failure::new(stage, code, pointer, short.to_string())]);
            }
            books.draw(branch_id(envelope.handoff_id, place(index)), &branch.target.agent_id, ask);
        }
        Ok(failures)
    }
}

fn place(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The group of a dead letter as it was submitted: what tells a copy of its message, its trace and its person are those
/// of the dead letter.
pub(super) fn released(
    principal: &Principal,
    agents: &Agents,
    message: &Message,
    group: &PassedGroup,
    safety: Option<SafetyFacts>,
    letter: &Handoff,
    now: Micros,
) -> SubmitGroup {
    let body = Bytes::from(message.content());
    let request = Request::default();
    let mut wanted = wanted(principal, agents, message, (&body, group), safety, &request, now);
    // It was kept with the checkpoint that it brought.
    wanted.base.require_checkpoint = false;
    let branches = wanted.branches.iter_mut().map(|branch| &mut branch.handoff);
    for draft in branches.chain([&mut wanted.base.handoff]) {
        draft.digest.clone_from(&letter.digest);
        draft.digest_salt.clone_from(&letter.digest_salt);
        draft.user_ref.clone_from(&letter.user_ref);
        draft.traceparent.clone_from(&letter.traceparent);
        draft.tracestate.clone_from(&letter.tracestate);
        draft.span.clone_from(&letter.span);
    }
    wanted
}

/// The group as the ledger commits it.
fn wanted(
    principal: &Principal,
    agents: &Agents,
    message: &Message,
    (body, group): (&Bytes, &PassedGroup),
    safety: Option<SafetyFacts>,
    request: &Request,
    now: Micros,
) -> SubmitGroup {
    let PassedGroup { join, on_reject, branches } = group;
    let first = &branches[0];
    let source = &message.envelope().from_agent.agent_id;
    let policies: Vec<EdgePolicy> = branches.iter().map(policy).collect();
    let require_checkpoint = policies
        .iter()
        .zip(branches)
        .any(|(policy, branch)| requires_checkpoint(policy, &branch.others, agents, source));
    let ruled = Ruled {
        target: &first.target,
        to_itself: false,
        policy: EdgePolicy::default(),
        others: OtherEdges::default(),
        ready: first.contract.as_ref(),
        require_checkpoint,
        safety,
        residency: None,
        context: first.context,
    };
    let mut base = submission_of(principal, agents, message, body, ruled, request.clone(), now);
    base.handoff.ruling = None;
    let of = place(branches.len());
    let branch = |(index, (branch, policy)): (usize, (&PassedBranch, EdgePolicy))| {
        let id = base.handoff.id;
        let at = BranchPlace { id, index: place(index), of, join: *join, on_reject: *on_reject };
        drafted(agents, message, &base, (branch, policy), at)
    };
    let branches = branches.iter().zip(policies).enumerate().map(branch).collect();
    SubmitGroup { join: *join, on_reject: *on_reject, branches, base }
}

fn policy(branch: &PassedBranch) -> EdgePolicy {
    branch.contract.as_ref().map(|ready| ready.policy().clone()).unwrap_or_default()
}

/// One branch of a group.
fn drafted(
    agents: &Agents,
    message: &Message,
    base: &Submit,
    (branch, policy): (&PassedBranch, EdgePolicy),
    place: BranchPlace,
) -> SubmitBranch {
    let target = &branch.target;
    agents.roster.routed(&target.agent_id);
    // The door that has strategies chooses one receiver.
    let others = branch.others.clone();
    let ruling = ruling(policy.clone(), others, agents, message, target, None);
    let mut ruling = ruling.unwrap_or_default();
    (ruling.addressed, ruling.branch) = (named(&branch.to), Some(place));
    let version = target.agent_version.to_string();
    let handoff = HandoffDraft {
        id: branch_id(place.id, place.index),
        target: target.agent_id.clone(),
        target_type: target.agent_type.clone(),
        target_version: version.clone(),
        mode: target.delivery.mode,
        idempotent: policy.idempotent,
        ruling: Some(ruling),
        context: branch.context,
        ..base.handoff.clone()
    };
    let to = RecordParty {
        agent_id: Some(target.agent_id.clone()),
        agent_type: Some(target.agent_type.clone()),
        agent_version: Some(version),
        ..RecordParty::default()
    };
    SubmitBranch { handoff, to, policy, residency: branch.residency.clone() }
}
