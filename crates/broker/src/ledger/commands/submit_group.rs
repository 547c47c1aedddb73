//! Commit a message to many that passed the gate.

use crate::ledger::command::{Call, Command};
use crate::ledger::context::Context;
use crate::ledger::groups::{CheckedGroup, GroupCommit, again, check, may_begin};
use crate::ledger::needs::Rows;
use crate::ledger::plan::{Change, Decision};
use crate::ledger::refusal::refuse_here;
use crate::ledger::reply::{LedgerError, SubmissionReply};
use crate::ledger::submission::{
    Submit, SubmitGroup, checkpoint, is_key_kept, remember_key, replay, run_of, task_of,
};
use handoffd_domain::handoff::{Handoff, HandoffDraft};
use handoffd_domain::task::TaskEvent;
use handoffd_store::store::BatchState;

impl Command for SubmitGroup {
    type Reply = SubmissionReply;
    const NAME: &'static str = "submit_group";
    const ASKS_CAPS: bool = true;

    fn needs(&self, rows: &mut Rows<'_>) {
        self.read(rows);
    }

    /// Commits a group and all of its branches, or answers as the first time.
    fn decide(&self, state: &BatchState, call: &Call, context: &Context) -> Decision<Self::Reply> {
        let base = &self.base;
        if let Some(decision) = repeated(state, call, base) {
            return decision;
        }
        let mut collides = false;
        for branch in &self.branches {
            let id = branch.handoff.id;
            match state.handoffs.get(&(call.tenant.clone(), id)) {
                Some(known) if is_in_between(state, call, known, &base.handoff) => collides = true,
                Some(_) => return Err(LedgerError::Exists(id)),
                None => {}
            }
        }
        let mut task = task_of(state, call, &base.handoff);
        if collides {
            // Tasks are read before handoffs: the branches of a task that was not there yet were committed in between, as this
            // very group or another. To insert the task is a conflict, all is read anew, and no caller sees this answer.
            return Ok((vec![Change::Task(task)], SubmissionReply::Collided));
        }
        may_begin(state, call, &task, base)?;
        task.status = task.status.next(TaskEvent::Submit)?;
        let run = run_of(state, call, &base.handoff);
        let CheckedGroup { failures, over, funds } =
            check(state, call, context, (&task, run.last), (self, &[]));
        if !failures.is_empty() {
            if over.is_none() && !state.tasks.contains_key(&(call.tenant.clone(), task.id)) {
                // Refusals on a task that does not exist are counted by a command of their own.
                return Err(LedgerError::Refused(failures));
            }
            return Ok(refuse_here(state, call, context, base, (failures, over)));
        }
        let (checkpoint, stored) = checkpoint(call, base, run);
        let mut changes: Vec<Change> = stored.into_iter().collect();
        task.funds = funds.or_else(|| task.funds.take());
        let committing =
            GroupCommit { wanted: self, checkpoint: Some(checkpoint), released: false };
        let (group, handoffs, committed) = committing.commit(state, call, context, &mut task);
        changes.extend(committed);
        if !is_key_kept(state, call, base) {
            changes.extend(remember_key(call, base.idempotency_key.as_ref(), &base.handoff));
        }
        changes.push(Change::Task(task));
        Ok((changes, SubmissionReply::Group { group: Box::new(group), handoffs, replayed: false }))
    }

    fn submission(reply: &Self::Reply) -> Option<&SubmissionReply> {
        Some(reply)
    }
}

/// The answer to a message that was committed before, by its first branch; or to one whose id is taken.
fn repeated(state: &BatchState, call: &Call, base: &Submit) -> Option<Decision<SubmissionReply>> {
    let used = base.idempotency_key.as_ref().and_then(|name| {
        let key = (call.tenant.clone(), base.handoff.source.clone(), name.clone());
        state.idempotency.get(&key)
    });
    if let Some(decision) = again(state, call, base.handoff.id, &base.whole) {
        return Some(decision.map(|(mut changes, reply)| {
            if used.is_none() {
                let key = base.idempotency_key.as_ref();
                changes.extend(remember_key(call, key, &base.handoff));
            }
            (changes, reply)
        }));
    }
    if let Some(known) = state.handoffs.get(&(call.tenant.clone(), base.handoff.id)) {
        return Some(replay(known, &base.whole));
    }
    // As for a single handoff: a copy that was committed in between is found when all is read anew.
    used.filter(|used| used.handoff_id != base.handoff.id)
        .map(|_| Err(LedgerError::IdempotencyMismatch))
}

/// Whether a handoff was committed between the reads of tasks and of handoffs, on the task that a submission is to begin.
fn is_in_between(state: &BatchState, call: &Call, known: &Handoff, wanted: &HandoffDraft) -> bool {
    known.task_id == wanted.task_id
        && !state.tasks.contains_key(&(call.tenant.clone(), known.task_id))
}
