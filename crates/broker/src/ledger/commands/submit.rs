//! Commit a handoff that passed the gate.

use crate::ledger::caps;
use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::contracts;
use crate::ledger::crossing::{CrossingOrigin, HandoffCrossing};
use crate::ledger::groups;
use crate::ledger::needs::Rows;
use crate::ledger::opinions;
use crate::ledger::plan::{Change, Decided, Decision};
use crate::ledger::refusal::refuse_here;
use crate::ledger::reply::{LedgerError, SubmissionReply};
use crate::ledger::returns;
use crate::ledger::streams;
use crate::ledger::submission::{
    Submit, ask_person, checkpoint, guard, held_by_sender, is_key_kept, open_funds, remember_key,
    replay, run_of, submitted, task_of,
};
use handoffd_domain::cap::CapExceeded;
use handoffd_domain::failure::Failure;
use handoffd_domain::funds::Funds;
use handoffd_domain::handoff::{Handoff, HandoffCommit, HandoffDraft, HandoffStatus};
use handoffd_domain::task::{Task, TaskEvent};
use handoffd_evidence::record::RecordDraft;
use handoffd_gate::completeness::no_checkpoint;
use handoffd_store::store::{BatchState, LastCheckpoint};

impl Command for Submit {
    type Reply = SubmissionReply;
    const NAME: &'static str = "submit";
    const ASKS_CAPS: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        rows.caps([&self.handoff.source, &self.handoff.target]);
        self.read(rows);
    }

    /// Commits a handoff that passed the gate, or answers as the first time.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        if let Some(repeated) = repeated(state, call, self)? {
            return Ok(repeated);
        }
        let no_op = self.handoff.status == HandoffStatus::NoOp;
        let mut task = task_of(state, call, &self.handoff);
        if !self.has_part && task.holder != self.handoff.source {
            return Err(LedgerError::NotHolder);
        }
        held_by_sender(state, call, self)?;
        let parent = (self.handoff.parent_id, &self.handoff.source);
        streams::parent_must_be_whole(state, call, parent)?;
        if !no_op {
            groups::may_hand_on(&task)?;
        }
        let repeat = (self.repeat.as_ref(), is_key_kept(state, call, self));
        let seen = match contracts::refuse_repeat(state, call, repeat, self.handoff.id) {
            Err(repeated) => return answered_before(state, call, self, repeated),
            Ok(seen) => seen,
        };
        if !no_op {
            task.status = task.status.next(TaskEvent::Submit)?;
        }
        let run = run_of(state, call, &self.handoff);
        let SubmissionCheck { failures, over, funds } =
            check(state, call, context, (&task, run.last), self);
        if !failures.is_empty() {
            if over.is_none() && !state.tasks.contains_key(&(call.tenant.clone(), task.id)) {
                // Refusals on a task that does not exist are counted by a command of their own.
                return Err(LedgerError::Refused(failures));
            }
            return Ok(refuse_here(state, call, context, self, (failures, over)));
        }
        let (checkpoint, stored) = checkpoint(call, self, run);
        let mut handoff = self.handoff.clone().committed(HandoffCommit {
            content: (self.content.id, self.content.part.commitment),
            checkpoint: Some(checkpoint),
            fencing_token: task.fence + i64::from(!no_op),
            topped_up: task.topped_up,
        });
        let mut changes = Vec::with_capacity(8);
        changes.extend(stored);
        let draft = submitted(call, self, &handoff);
        if no_op {
            changes.extend(stay(call, &mut task, &mut handoff, draft));
        } else {
            task.funds = funds.or_else(|| task.funds.take());
            let origin = CrossingOrigin::Message { subtasks: &self.subtasks };
            let priority = self.priority;
            let seq = None;
            let crossing = HandoffCrossing { state, call, context, origin, priority, seq };
            changes.extend(crossing.cross(&mut task, &mut handoff, draft));
        }
        if !is_key_kept(state, call, self) {
            changes.extend(remember_key(call, self.idempotency_key.as_ref(), &handoff));
        }
        changes.extend(seen);
        changes.extend(opinions::due(call, self));
        if !no_op {
            changes.extend(ask_person(call, context, &mut task, &handoff)?);
        }
        changes.push(Change::Task(task));
        let handoff = Box::new(handoff);
        Ok((changes, SubmissionReply::Handoff { handoff, replayed: false }))
    }

    fn submission(reply: &Self::Reply) -> Option<&SubmissionReply> {
        Some(reply)
    }

    fn delivers(&self) -> Option<&HandoffDraft> {
        Some(&self.handoff)
    }
}

/// The answer to a submission that was committed before, by its handoff's id.
fn repeated(
    state: &BatchState,
    call: &Call,
    submit: &Submit,
) -> Result<Option<Decided<SubmissionReply>>, LedgerError> {
    let used = submit.idempotency_key.as_ref().and_then(|name| {
        let key = (call.tenant.clone(), submit.handoff.source.clone(), name.clone());
        state.idempotency.get(&key)
    });
    if let Some(known) = state.handoffs.get(&(call.tenant.clone(), submit.handoff.id)) {
        let (mut changes, reply) = replay(known, &submit.whole)?;
        if used.is_none() {
            changes.extend(remember_key(call, submit.idempotency_key.as_ref(), &submit.handoff));
        }
        return Ok(Some((changes, reply)));
    }
    if let Some(known) = groups::again(state, call, submit.handoff.id, &submit.whole) {
        return known.map(Some);
    }
    // The key is read after the handoffs: a copy of this very submission that was committed in between shows as a key
    // without its handoff. To insert the handoff then collides, and all is read anew.
    if used.is_some_and(|used| used.handoff_id != submit.handoff.id) {
        return Err(LedgerError::IdempotencyMismatch);
    }
    Ok(None)
}

/// The answer to a repeat under a contract's dedupe key: the first handoff where the caller found that it counts, with the
/// key of this submission kept, so that another message under the key is refused.
fn answered_before(
    state: &BatchState,
    call: &Call,
    submit: &Submit,
    repeated: LedgerError,
) -> Decision<SubmissionReply> {
    let LedgerError::Repeat { first, seen_at } = repeated else { return Err(repeated) };
    let answered = submit.repeat.as_ref().and_then(|repeat| repeat.answered);
    let known = state.handoffs.get(&(call.tenant.clone(), first));
    let Some(known) = known.filter(|_| answered == Some((first, seen_at))) else {
        return Err(LedgerError::Repeat { first, seen_at });
    };
    let mut changes = Vec::new();
    if !is_key_kept(state, call, submit) {
        changes.extend(remember_key(call, submit.idempotency_key.as_ref(), &submit.handoff));
    }
    let handoff = Box::new(known.clone());
    Ok((changes, SubmissionReply::Handoff { handoff, replayed: true }))
}

/// The ledger's findings on a submission.
struct SubmissionCheck {
    failures: Vec<Failure>,
    /// The cap that has no room for it.
    over: Option<Box<CapExceeded>>,
    /// The funds of a task that begins with it.
    funds: Option<Box<Funds>>,
}

/// Checks a submission against its task, the sender's checkpoints, the task's funds and, where nothing else speaks
/// against it, the caps. A handoff to itself needs a checkpoint only.
fn check(
    state: &BatchState,
    call: &Call,
    context: &Context,
    (task, last): (&Task, Option<&LastCheckpoint>),
    submit: &Submit,
) -> SubmissionCheck {
    let no_op = submit.handoff.status == HandoffStatus::NoOp;
    let mut failures = Vec::new();
    if !no_op {
        let progress = task.course.progress(&submit.subtasks);
        failures = guard(state, call, context, &submit.handoff, progress);
    }
    if submit.checkpoint.is_none() && last.is_none() && submit.require_checkpoint {
        failures.push(no_checkpoint());
    }
    let funds = if no_op { None } else { open_funds(task, submit, context, &mut failures) };
    let mut over = None;
    if failures.is_empty() && !no_op {
        let budget = (task, funds.as_deref());
        over = caps::check(state, call, context, budget, &submit.handoff).map(Box::new);
        failures.extend(over.as_deref().map(CapExceeded::failure));
    }
    SubmissionCheck { failures, over, funds }
}

/// Commits a handoff of an agent to itself: it is recorded, and the task stays where it is.
fn stay(
    call: &Call,
    task: &mut Task,
    handoff: &mut Handoff,
    mut draft: RecordDraft,
) -> Vec<Change> {
    let mut changes = returns::take_out(call, task, Some(&handoff.source));
    handoff.ended_at = Some(call.at);
    task.state_cost(&handoff.cost);
    task.updated_at = call.at;
    draft.cost = Some(handoff.cost);
    draft.checkpoint_commitment = handoff.checkpoint_commitment;
    changes.push(Change::Handoff(handoff.clone()));
    changes.push(Change::Record(Box::new(draft)));
    changes
}
