//! The decision: what a command does to what is known. Pure and total; the same code serves both
//! stores, one broker or ten, tests and production.

use super::command::{Command, Kind, LedgerError, Reply};
use super::plan::Change;
use super::{agents, submit, verdict};
use crate::store::{Needs, State};

/// What was decided: the changes, and the answer to give once they are durable.
pub type Decision = Result<Decided, LedgerError>;

/// Changes, and the answer that goes with them.
pub type Decided = (Vec<Change>, Reply);

/// Decides one command over what is known.
///
/// # Errors
/// [`LedgerError`]: the command changes nothing.
pub fn decide(state: &State, command: &Command) -> Decision {
    match &command.kind {
        Kind::Submit(submit) => submit::submit(state, command, submit),
        Kind::Refuse(refuse) => submit::refuse(state, command, refuse),
        Kind::PutCheckpoint(put) => submit::put_checkpoint(state, command, put),
        Kind::Verdict(verdict) => verdict::verdict(state, command, verdict),
        Kind::Settle(settle) => verdict::settle(state, command, settle),
        Kind::Lease(lease) => verdict::lease(state, command, lease),
        Kind::Expire(expire) => verdict::expire(state, command, expire),
        Kind::CompleteTask(complete) => verdict::complete_task(state, command, complete),
        Kind::CreateAgent(create) => agents::create(state, command, create),
        Kind::ChangeAgent(change) => agents::change(state, command, change),
        Kind::CreateKey(row) => Ok(agents::create_key(command, row)),
        Kind::RevokeKey { key_id } => agents::revoke_key(state, command, key_id),
    }
}

/// What a command must see.
pub fn needs(command: &Command, needs: &mut Needs) {
    let tenant = &command.tenant;
    let mut both = |task_id, handoff_id| {
        needs.tasks.insert((tenant.clone(), task_id));
        needs.handoffs.insert((tenant.clone(), handoff_id));
    };
    match &command.kind {
        Kind::Submit(submit) => {
            let handoff = &submit.handoff;
            both(handoff.task_id, handoff.id);
            needs.runs.insert((tenant.clone(), handoff.task_id, handoff.source_execution));
            if let Some(key) = &submit.idempotency_key {
                needs.idempotency.insert((tenant.clone(), handoff.source.clone(), key.clone()));
            }
        }
        Kind::Refuse(refuse) => {
            if let (Some(task_id), Some(handoff_id)) = (refuse.task_id, refuse.handoff_id) {
                both(task_id, handoff_id);
            }
            if let Some(letter) = &refuse.dead_letter {
                let handoff = &letter.handoff;
                needs.runs.insert((tenant.clone(), handoff.task_id, handoff.source_execution));
            }
        }
        Kind::Verdict(verdict) => both(verdict.task_id, verdict.handoff_id),
        Kind::Settle(settle) => both(settle.task_id, settle.handoff_id),
        Kind::Lease(lease) => both(lease.task_id, lease.handoff_id),
        Kind::Expire(expire) => both(expire.task_id, expire.handoff_id),
        Kind::PutCheckpoint(put) => {
            needs.tasks.insert((tenant.clone(), put.task_id));
            needs.runs.insert((tenant.clone(), put.task_id, put.execution_id));
        }
        Kind::CompleteTask(complete) => {
            needs.tasks.insert((tenant.clone(), complete.task_id));
        }
        Kind::CreateAgent(create) => {
            needs.agents.insert((tenant.clone(), create.row.agent.agent_id.clone()));
        }
        Kind::ChangeAgent(change) => {
            needs.agents.insert((tenant.clone(), change.agent.clone()));
        }
        Kind::CreateKey(row) => {
            needs.keys.insert((tenant.clone(), row.key_id.clone()));
        }
        Kind::RevokeKey { key_id } => {
            needs.keys.insert((tenant.clone(), key_id.clone()));
        }
    }
}
