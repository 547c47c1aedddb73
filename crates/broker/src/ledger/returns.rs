//! Decisions on tasks that go back to the agent that asked for their return (specification §10.3).

use super::call::Call;
use super::context::Context;
use super::loaded::open_of;
use super::plan::Change;
use super::reply::LedgerError;
use handoffd_domain::course::Returned;
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, Micros};
use handoffd_domain::task::Task;
use handoffd_store::store::{BatchState, ReturnRow};

/// The receiver of a handoff that returns may not end the task: it has the task for its own part only.
const OWES_RETURN: LedgerError = LedgerError::Forbidden(
    "the handoff by which this agent holds the task returns it to another agent (returnTo): complete, fail or reject the handoff instead",
);

/// The agent that gets the task back when a handoff is completed.
pub(super) fn returns_to(handoff: &Handoff) -> Option<&AgentId> {
    handoff.ruling.as_ref()?.returns_to.as_ref()
}

/// A handoff under which its own sender asked for the task's return: the sender's incoming handoff stays open.
pub(super) fn is_own(handoff: &Handoff) -> bool {
    returns_to(handoff) == Some(&handoff.source)
}

/// A receiver that hands on hands on the return, too: the new handoff returns the task to the same agent, unless
/// its own sender asked for the return.
pub(super) fn inherit(state: &BatchState, call: &Call, handoff: &mut Handoff) {
    // The sender of a group gathers it, and returns the task itself.
    if returns_to(handoff).is_some() || handoff.branch().is_some() {
        return;
    }
    let parent = handoff.parent_id.and_then(|id| state.handoffs.get(&(call.tenant.clone(), id)));
    let parent = parent.filter(|parent| parent.target == handoff.source);
    if let Some(to) = parent.and_then(returns_to) {
        handoff.ruling.get_or_insert_default().returns_to = Some(to.clone());
    }
}

/// Notes that a handoff returned its task: an item for the inbox of the agent that asked.
pub(super) fn note(call: &Call, task: &mut Task, handoff: &Handoff, to: &AgentId) -> Change {
    task.course.returned.push(Returned { handoff: handoff.id, to: to.clone() });
    Change::Return(ReturnRow {
        tenant: call.tenant.clone(),
        handoff_id: handoff.id,
        task_id: task.id,
        agent: to.clone(),
        returned_at: call.at,
        // At once, whatever another broker's clock says.
        visible_at: Micros(0),
        question: None,
    })
}

/// Takes returns out of inboxes: the agent acted on the task, or, without an agent, the task ended.
pub(super) fn take_out(call: &Call, task: &mut Task, agent: Option<&AgentId>) -> Vec<Change> {
    let (gone, kept) = std::mem::take(&mut task.course.returned)
        .into_iter()
        .partition::<Vec<_>, _>(|one| agent.is_none_or(|agent| one.to == *agent));
    task.course.returned = kept;
    gone.into_iter().map(|one| Change::NoReturn((call.tenant.clone(), one.handoff))).collect()
}

/// Starts the lease anew under which an agent waited for a handoff that is completed, unless it waits for another
/// one, or a person is asked.
pub(super) fn resume(
    state: &BatchState,
    call: &Call,
    context: &Context,
    task: &Task,
    completed: &Handoff,
) -> Option<Change> {
    let funds = task.funds.as_deref().filter(|_| !task.status.waits_for_person())?;
    let waits = funds.above(completed.id).filter(|id| !funds.is_handed_on(*id))?;
    let waits = state.handoffs.get(&(call.tenant.clone(), waits))?;
    let suspended = waits.status == HandoffStatus::Accepted && waits.deadline_at.is_none();
    suspended.then(|| Change::Handoff(resumed(waits, call.at, context)))
}

/// A handoff whose lease begins anew. Its holder waited, and has its intervals from here.
pub(super) fn resumed(waits: &Handoff, at: Micros, context: &Context) -> Handoff {
    let until = at.plus(context.rules.lease);
    let pulse = waits.pulse.map(|pulse| pulse.renewed(at, until));
    Handoff { deadline_at: Some(until), pulse, ..waits.clone() }
}

/// Refuses to complete a handoff that returns its task while what its receiver handed on is open: that brings the task
/// back, or fails, and then the receiver has it again.
pub(super) fn may_complete(task: &Task, handoff: &Handoff) -> Result<(), LedgerError> {
    let handed_on = task.funds.as_ref().is_some_and(|funds| funds.is_handed_on(handoff.id));
    if handed_on && returns_to(handoff).is_some() {
        return Err(LedgerError::Conflict(
            "what the receiver handed on is still open, and returns the task when it is completed"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Refuses an agent to end a task that it holds under another agent's `returnTo`.
pub(super) fn may_end(
    state: &BatchState,
    call: &Call,
    task: &Task,
    agent: &AgentId,
) -> Result<(), LedgerError> {
    let owes = state.handoffs.values().any(|one| {
        one.tenant == call.tenant
            && one.task_id == task.id
            && one.status.is_held()
            && one.target == *agent
            && returns_to(one).is_some_and(|to| to != agent)
    });
    if owes && task.holder == *agent { Err(OWES_RETURN) } else { Ok(()) }
}

/// Starts the lease anew of an agent that handed on and has the task again: its handoff has ended, and was
/// not accepted. Not while a person is asked, who may send it on. `but` is decided on already.
pub(super) fn resume_leases(
    state: &BatchState,
    call: &Call,
    context: &Context,
    task: &Task,
    but: Option<HandoffId>,
) -> Vec<Change> {
    let waits = task.status.waits_for_person();
    let Some(funds) = task.funds.as_deref().filter(|_| !waits) else { return Vec::new() };
    open_of(state, call, task.id)
        .into_iter()
        .filter(|id| Some(*id) != but && funds.is_open(*id) && !funds.is_handed_on(*id))
        .map(|id| &state.handoffs[&(call.tenant.clone(), id)])
        .filter(|one| one.status == HandoffStatus::Accepted && one.deadline_at.is_none())
        .map(|one| Change::Handoff(resumed(one, call.at, context)))
        .collect()
}

/// Takes a question out of the sender's inbox.
pub(super) fn close_question(handoff: &Handoff) -> Change {
    Change::NoReturn((handoff.tenant.clone(), handoff.id))
}
