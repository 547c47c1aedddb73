//! Decisions on handoffs to many (specification §10.4): all branches are committed by one decision, and the verdict
//! that decides the join ends the group.
//!
//! While a group is open its sender has the task: a branch's receiver works for its own part, and no agent hands
//! the task on. The group gathers the branches' results.

use super::failure::HandoffFailure;
use super::loaded::open_of;
use super::returns::resume_leases;
use std::collections::BTreeMap;

use super::call::Call;
use super::caps;
use super::case::{Case, asked_of_nobody, escalation};
use super::context::Context;
use super::contracts;
use super::crossing::{CrossingOrigin, HandoffCrossing};
use super::draft::publish;
use super::plan::{Change, Decision};
use super::reply::{LedgerError, SubmissionReply};
use super::streams;
use super::submission::{
    Submit, SubmitBranch, SubmitGroup, guard, held_by_sender, is_same, loop_guard, open_funds,
    submitted,
};
use handoffd_domain::cap::CapExceeded;
use handoffd_domain::escalation::FAILURES_TO_ESCALATE;
use handoffd_domain::event::{Alert, Event, EventType};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::funds::{Funds, FundsRequest};
use handoffd_domain::group::{
    Branch, BranchPlace, GROUP_FAILED, Group, GroupStatus, JOIN_DECIDED, Standing, branch_id,
};
use handoffd_domain::handoff::{
    CheckpointRef, Handoff, HandoffCommit, HandoffDraft, HandoffStatus,
};
use handoffd_domain::ids::{AgentId, HandoffId};
use handoffd_domain::ruling::Next;
use handoffd_domain::task::{Task, TaskEvent, TaskStatus};
use handoffd_evidence::record::{Actor, RecordDraft, RecordKind};
use handoffd_gate::completeness::no_checkpoint;
use handoffd_store::store::{BatchState, LastCheckpoint};

/// The commit of a dead letter as the group that its message asks for, or the findings that keep it. The
/// caller writes the task.
pub(super) fn release(
    state: &BatchState,
    call: &Call,
    context: &Context,
    (task, letter): (&mut Task, &Handoff),
    (wanted, waived): (&SubmitGroup, &[Failure]),
) -> Result<Result<Vec<Change>, Vec<Failure>>, LedgerError> {
    may_begin(state, call, task, &wanted.base).map_err(|err| match err {
        LedgerError::NotHolder => LedgerError::Conflict(format!(
            "the task is with {}: a list is sent by the agent that has the task",
            task.holder
        )),
        other => other,
    })?;
    task.status = task.status.next(TaskEvent::Submit)?;
    let CheckedGroup { failures, funds, .. } =
        check(state, call, context, (task, None), (wanted, waived));
    if !failures.is_empty() {
        return Ok(Err(failures));
    }
    task.funds = funds.or_else(|| task.funds.take());
    let checkpoint = letter.checkpoint.zip(letter.checkpoint_commitment);
    let committing = GroupCommit { wanted, checkpoint, released: true };
    let (_, _, changes) = committing.commit(state, call, context, task);
    Ok(Ok(changes))
}

/// Refuses a list by an agent that does not have the task, or while something of it is on its way.
pub(super) fn may_begin(
    state: &BatchState,
    call: &Call,
    task: &Task,
    base: &Submit,
) -> Result<(), LedgerError> {
    if task.holder != base.handoff.source {
        return Err(LedgerError::NotHolder);
    }
    held_by_sender(state, call, base)?;
    may_hand_on(task)?;
    let parent = (base.handoff.parent_id, &base.handoff.source);
    streams::parent_must_be_whole(state, call, parent)?;
    // One that was sent before, and is not answered, would take the task from under its group.
    let unanswered = open_of(state, call, task.id).into_iter().any(|id| {
        let known = state.handoffs.get(&(call.tenant.clone(), id));
        known.is_some_and(|one| one.status == HandoffStatus::Pending)
    });
    if unanswered || task.status == TaskStatus::HandingOff {
        return Err(LedgerError::Conflict(
            "a handoff of this task is on its way: a list is sent by the agent that has the task"
                .to_owned(),
        ));
    }
    Ok(())
}

/// A group about to be committed.
pub(super) struct GroupCommit<'a> {
    pub(super) wanted: &'a SubmitGroup,
    /// The checkpoint that a rollback restores, with its commitment.
    pub(super) checkpoint: Option<(CheckpointRef, [u8; 32])>,
    /// A person released it: the broker is the actor of its records.
    pub(super) released: bool,
}

impl GroupCommit<'_> {
    /// Commits the branches on their task; returns the group, its handoffs and the changes. The caller writes the task.
    pub(super) fn commit(
        self,
        state: &BatchState,
        call: &Call,
        context: &Context,
        task: &mut Task,
    ) -> (Group, Vec<Handoff>, Vec<Change>) {
        let Self { wanted, checkpoint, released } = self;
        let base = &wanted.base;
        // All of them stand in the same place of the task's order: one slow receiver keeps no other waiting.
        let place = task.handoffs + 1;
        let seq = Some(place);
        let (mut handoffs, mut branches, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for branch in &wanted.branches {
            let mut handoff = branch.handoff.clone().committed(HandoffCommit {
                content: (base.content.id, base.content.part.commitment),
                checkpoint,
                fencing_token: task.fence,
                topped_up: task.topped_up,
            });
            let mut draft = recorded(call, wanted, branch, &handoff);
            if released {
                draft.actor = Actor::broker();
                draft.reason = Some(RecordKind::Released.as_str().to_owned());
            }
            let origin = CrossingOrigin::Message { subtasks: &base.subtasks };
            let priority = base.priority;
            let crossing = HandoffCrossing { state, call, context, origin, priority, seq };
            changes.extend(crossing.cross(task, &mut handoff, draft));
            let (agent, status) = (handoff.target.clone(), handoff.status);
            branches.push(Branch { handoff: handoff.id, agent, status });
            handoffs.push(handoff);
        }
        let of = u32::try_from(branches.len()).unwrap_or(u32::MAX);
        task.course.beside += i64::from(of) - 1;
        let group = Group {
            id: base.handoff.id,
            source: base.handoff.source.clone(),
            of,
            join: wanted.join,
            on_reject: wanted.on_reject,
            status: GroupStatus::Pending,
            reason: None,
            branches,
            stand_ins: BTreeMap::new(),
            seq: place,
            created_at: call.at,
            accepted_at: None,
            ended_at: None,
        };
        task.course.groups.push(group.clone());
        (group, handoffs, changes)
    }
}

/// The group that a message was committed as; an error where another one was committed under its id.
pub(super) fn again(
    state: &BatchState,
    call: &Call,
    id: HandoffId,
    whole: &[u8],
) -> Option<Decision<SubmissionReply>> {
    let first = state.handoffs.get(&(call.tenant.clone(), branch_id(id, 0)))?;
    if first.branch().is_none_or(|place| place.id != id) {
        return None;
    }
    if !is_same(first, whole) {
        let what = format!("handoff {id} exists with another content, to several receivers");
        return Some(Err(LedgerError::Conflict(what)));
    }
    // Committed after its task was looked for: the caller goes on, collides with the task, and reads all anew.
    let task = state.tasks.get(&(call.tenant.clone(), first.task_id))?;
    let group = task.course.group(id).cloned();
    Some(match group {
        Some(group) => {
            let group = Box::new(group);
            Ok((
                Vec::new(),
                SubmissionReply::Group { group, handoffs: vec![first.clone()], replayed: true },
            ))
        }
        None => Err(LedgerError::Internal(format!("group {id} is gone"))),
    })
}

/// Refuses to hand a task on while a group of it is open: its branches are gathered first.
pub(super) fn may_hand_on(task: &Task) -> Result<(), LedgerError> {
    match task.course.open_group() {
        None => Ok(()),
        Some(group) => Err(LedgerError::Conflict(format!(
            "group {} of this task is open: the task can be handed on once the group has ended",
            group.id
        ))),
    }
}

/// Refuses the end of the handoff by which a sender has the task that it gathers a group for.
pub(super) fn may_end(task: &Task, handoff: &Handoff) -> Result<(), LedgerError> {
    match task.course.open_group() {
        Some(group) if group.source == handoff.target && handoff.branch().is_none() => {
            Err(LedgerError::Conflict(format!(
                "group {} is open, and its results come to this agent: wait for its end, or cancel the task",
                group.id
            )))
        }
        _ => Ok(()),
    }
}

/// The ledger's findings on a message to many.
pub(super) struct CheckedGroup {
    pub(super) failures: Vec<Failure>,
    /// The cap that has no room for it.
    pub(super) over: Option<Box<CapExceeded>>,
    /// The funds of a task that begins with it.
    pub(super) funds: Option<Box<Funds>>,
}

/// A failure about a branch, at its receiver's place in the list.
fn at_receiver(index: usize, failure: Failure) -> Failure {
    let pointer = match failure.pointer.as_str() {
        "/toAgent" => format!("/receiverList/{index}"),
        _ => return failure,
    };
    Failure { pointer, ..failure }
}

/// The findings on a group besides those in `waived`: the message is checked once, each branch against the loop guard, and
/// the sum of the branches against the task's funds and the caps.
pub(super) fn check(
    state: &BatchState,
    call: &Call,
    context: &Context,
    (task, last): (&Task, Option<&LastCheckpoint>),
    (wanted, waived): (&SubmitGroup, &[Failure]),
) -> CheckedGroup {
    let base = &wanted.base;
    let progress = task.course.progress(&base.subtasks);
    let mut failures = Vec::new();
    for (index, branch) in wanted.branches.iter().enumerate() {
        let found = if index == 0 {
            guard(state, call, context, &branch.handoff, progress)
        } else {
            loop_guard(state, call, context, &branch.handoff, progress)
        };
        failures.extend(found.into_iter().map(|failure| at_receiver(index, failure)));
    }
    if base.checkpoint.is_none() && last.is_none() && base.require_checkpoint {
        failures.push(no_checkpoint());
    }
    let funds = open_funds(task, base, context, &mut failures);
    failures.retain(|failure| !waived.contains(failure));
    let mut over = None;
    let current = funds.as_deref().or(task.funds.as_deref());
    if failures.is_empty()
        && let Some(current) = current
    {
        let mut current = current.clone();
        for (index, branch) in wanted.branches.iter().enumerate() {
            let HandoffDraft { id, parent_id: parent, source, target, cost, .. } = &branch.handoff;
            let ask = FundsRequest { parent: *parent, source, cost };
            if let Err(short) = current.check(ask) {
                let (stage, code) = (Stage::Budget, Code::BudgetMismatch);
                let pointer = format!("/receiverList/{index}");
                failures.push(Failure::new(stage, code, pointer, short.to_string()));
                break;
            }
            let known = (task, Some(&current));
            over = caps::check(state, call, context, known, &branch.handoff).map(Box::new);
            if let Some(over) = &over {
                failures.push(at_receiver(index, over.failure()));
                break;
            }
            current.draw(*id, target, ask);
        }
    }
    CheckedGroup { failures, over, funds }
}

/// The record of a branch. The first one's holds the message, the others name it.
fn recorded(
    call: &Call,
    wanted: &SubmitGroup,
    branch: &SubmitBranch,
    handoff: &Handoff,
) -> RecordDraft {
    let base = &wanted.base;
    let mut draft = submitted(call, base, handoff);
    draft.to = Some(branch.to.clone());
    draft.contract = contracts::named(&branch.policy);
    draft.residency.clone_from(&branch.residency);
    if handoff.branch().is_some_and(|place| place.index > 0) {
        draft.content = None;
        draft.shared = Some((base.content.id, base.content.part.commitment));
    }
    draft
}

/// Ends the open group of a task: the record and the event.
pub(super) fn end(
    call: &Call,
    task: &mut Task,
    status: GroupStatus,
    reason: Option<&str>,
) -> Vec<Change> {
    let task_status = task.status.as_str();
    let Some(group) = task.course.open_group_mut() else { return Vec::new() };
    let completed = |one: &&Branch| one.status == HandoffStatus::Completed;
    let completed = group.branches.iter().filter(completed).count();
    group.end(status, reason, call.at);
    let group = group.clone();
    let mut draft =
        RecordDraft::new(call.tenant.clone(), RecordKind::GroupEnded, call.at, Actor::broker());
    draft.task_id = Some(task.id);
    draft.reason.clone_from(&group.reason);
    draft.group = Some(group.facts());
    let event = Event::of_task(EventType::HandoffGroupEnded, task, call.at)
        .with("status", status.as_str())
        .with("reason", group.reason.as_deref())
        .with("join", group.join.to_string())
        .with("of", group.of)
        .with("completed", completed)
        .with("taskStatus", task_status);
    let event = Event {
        handoff_id: Some(group.id),
        source: Some(group.source.clone()),
        audience: Some(group.source),
        ..event
    };
    vec![Change::Record(Box::new(draft)), publish(event)]
}

impl Case<'_> {
    pub(super) fn open_branch(&self) -> Option<BranchPlace> {
        let place = self.handoff.branch()?;
        self.task.course.open_group().filter(|group| group.id == place.id).map(|_| place)
    }

    /// A branch moved: its group counts as accepted, ends, or goes on.
    pub(super) fn branch_moved(&mut self, place: BranchPlace) -> Result<(), LedgerError> {
        let (handoff, agent, status) =
            (self.handoff.id, self.handoff.target.clone(), self.handoff.status);
        let Some(group) = self.task.course.open_group_mut() else { return Ok(()) };
        group.note(place.index, Branch { handoff, agent, status });
        match group.standing() {
            Standing::Open { joined } => {
                if joined && group.status == GroupStatus::Pending {
                    self.join_holds()?;
                }
                Ok(())
            }
            Standing::Completed => self.group_completed(),
            Standing::Failed(reason) => self.group_failed(reason),
        }
    }

    /// The group counts as accepted, and its task runs: with its sender.
    fn join_holds(&mut self) -> Result<(), LedgerError> {
        let Some(group) = self.task.course.open_group_mut() else { return Ok(()) };
        group.status = GroupStatus::Accepted;
        group.accepted_at.get_or_insert(self.call.at);
        self.task.status = self.task.status.next(TaskEvent::Accept)?;
        Ok(())
    }

    /// The results are there: what is open of the group is withdrawn, and its sender goes on.
    fn group_completed(&mut self) -> Result<(), LedgerError> {
        let Some(group) = self.task.course.open_group() else { return Ok(()) };
        let open: Vec<HandoffId> = group.open_branches().collect();
        if group.status == GroupStatus::Pending {
            self.join_holds()?;
        }
        self.task.status = self.task.status.next(TaskEvent::Return)?;
        self.end_group(GroupStatus::Completed, None, (open, JOIN_DECIDED))
    }

    /// The join cannot hold: what is open of the group is withdrawn, and the task goes back to the checkpoint of
    /// before. The third failure asks a person, as after any handoff.
    fn group_failed(&mut self, reason: &'static str) -> Result<(), LedgerError> {
        let Some(group) = self.task.course.open_group() else { return Ok(()) };
        let open: Vec<HandoffId> = group.open_branches().collect();
        self.end_group(GroupStatus::Failed, Some(reason), (open, GROUP_FAILED))?;
        self.task.failures += 1;
        self.roll_back(reason)?;
        let (source, edges) = (&self.handoff.source, &self.task.course.failing);
        let own = edges
            .iter()
            .find(|one| one.from == *source && one.to == super::case::addressed(&self.handoff));
        let failures = own.map_or(0, |one| one.failures).max(self.task.failures);
        if failures >= FAILURES_TO_ESCALATE && self.task.status != TaskStatus::Escalated {
            self.task.status = self.task.status.next(TaskEvent::Escalate)?;
            let edge = (&self.handoff.source, &self.handoff.target);
            let row = escalation(self.call, self.context, self.task.id, edge, reason);
            self.changes.extend(asked_of_nobody(self.call, &self.task, row));
            self.alert(Alert::HandoffEscalated, reason);
        }
        Ok(())
    }

    /// Ends the group, withdraws its open branches, and starts the lease of its sender anew.
    fn end_group(
        &mut self,
        status: GroupStatus,
        reason: Option<&str>,
        (open, why): (Vec<HandoffId>, &str),
    ) -> Result<(), LedgerError> {
        self.changes.extend(end(self.call, &mut self.task, status, reason));
        for id in open.into_iter().filter(|id| *id != self.handoff.id) {
            let handoff = self.state.handoffs.get(&(self.call.tenant.clone(), id));
            let handoff = handoff.ok_or_else(|| {
                LedgerError::Internal(format!("branch {id} of a group was not loaded"))
            })?;
            let task = self.task.clone();
            let mut case = Case::of(self.state, self.call, self.context, task, handoff.clone());
            case.withdraw(why)?;
            case.handoff.reason = Some(why.to_owned());
            let (changes, task) = case.finish();
            self.changes.extend(changes);
            self.task = task;
            self.freed = true;
        }
        let own = Some(self.handoff.id);
        self.changes.extend(resume_leases(self.state, self.call, self.context, &self.task, own));
        Ok(())
    }

    /// Ends a branch badly: the agent that its contract names takes over, or the group goes on or fails.
    pub(super) fn undo_branch(
        &mut self,
        place: BranchPlace,
        failure: &HandoffFailure<'_>,
    ) -> Result<(), LedgerError> {
        self.fail(failure)?;
        let ruling = self.handoff.ruling.as_deref().cloned().unwrap_or_default();
        let untouched = self.was == HandoffStatus::Pending;
        let taken = |id: &AgentId| {
            self.task.course.open_group().is_some_and(|group| group.has_receiver(id))
        };
        let next =
            ruling.next(failure.trigger, untouched, |id| !taken(id) && self.can_take_over(id));
        let Next::Readdress(agent, ruling) = next else { return self.branch_moved(place) };
        self.readdress(&agent, *ruling, false)?;
        let handoff = self.context.spare.handoff;
        if let Some(group) = self.task.course.open_group_mut() {
            group.note(place.index, Branch { handoff, agent, status: HandoffStatus::Pending });
        }
        Ok(())
    }
}
