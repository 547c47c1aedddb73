//! The decision: what a command does to what is known. Pure and total; the same code serves both
//! stores, one broker or ten, tests and production.

use super::command::{Command, Kind, LedgerError, Outcome, Reply, Submit, Word};
use super::context::Context;
use super::plan::Change;
use super::{
    agents, caps, contracts, dead_letters, erasure, escalations, refusal, schemas, submit,
    subscriptions, tasks, verdict,
};
use handoffd_core::domain::event::Subscriber;
use handoffd_store::store::erasure::PageNeed;
use handoffd_store::store::{BatchState, Needs, TaskKey};

/// A decision: the changes, and the reply once they are durable.
pub type Decision = Result<Decided, LedgerError>;

/// Changes with their reply.
pub type Decided = (Vec<Change>, Reply);

/// Decides one command over what is known.
///
/// # Errors
/// [`LedgerError`]: the command changes nothing.
pub fn decide(state: &BatchState, command: &Command, context: &Context) -> Decision {
    let mut decided = decide_on(state, command, context)?;
    let checked = submitted(&command.kind).is_some() || matches!(command.kind, Kind::Release(_));
    caps::charge(state, command, context, checked, &mut decided.0);
    if tells_before_it_records(&decided.0) {
        // An event without a record would have no place in the feed.
        return Err(LedgerError::Internal("an event stands before its record".to_owned()));
    }
    Ok(decided)
}

fn tells_before_it_records(changes: &[Change]) -> bool {
    changes
        .iter()
        .take_while(|change| !matches!(change, Change::Record(_)))
        .any(|change| matches!(change, Change::Event(_) | Change::Cursor(..)))
}

fn decide_on(state: &BatchState, command: &Command, context: &Context) -> Decision {
    match &command.kind {
        Kind::Submit(submit) => submit::submit(state, command, context, submit),
        Kind::Refuse(refuse) => refusal::refuse(state, command, context, refuse),
        Kind::PutCheckpoint(put) => submit::put_checkpoint(state, command, put),
        Kind::Verdict(verdict) => verdict::verdict(state, command, context, verdict),
        Kind::Settle(settle) => verdict::settle(state, command, context, settle),
        Kind::Lease(lease) => verdict::lease(state, command, context, lease),
        Kind::Expire(expire) => verdict::expire(state, command, context, expire),
        Kind::CompleteTask(complete) => tasks::complete(state, command, context, complete),
        Kind::CancelTask(cancel) => tasks::cancel(state, command, context, cancel),
        Kind::TopUp(top_up) => tasks::top_up(state, command, top_up),
        Kind::SetCap(set) => caps::set(state, command, context, set),
        Kind::RestoreCheckpoint(restore) => tasks::restore(state, command, restore),
        Kind::Resolve(resolve) => escalations::resolve(state, command, context, resolve),
        Kind::Release(release) => dead_letters::release(state, command, context, release),
        Kind::KeepDeadLetter(release) => dead_letters::keep(state, command, release),
        Kind::Discard(discard) => dead_letters::discard(state, command, discard),
        Kind::CreateAgent(create) => agents::create(state, command, create),
        Kind::ChangeAgent(change) => agents::change(state, command, change),
        Kind::PutContract(put) => contracts::put(state, command, put),
        Kind::PutPayloadSchema(put) => schemas::put(state, command, put),
        Kind::CreateSubscription(create) => subscriptions::create(state, command, create),
        Kind::ChangeSubscription(change) => subscriptions::change(state, command, change),
        Kind::DisableSubscriber(disable) => Ok(subscriptions::disable(state, command, disable)),
        Kind::CreateKey(row) => Ok(agents::create_key(command, row)),
        Kind::ChangeTreeKey(content) => Ok(agents::change_tree_key(command, content)),
        Kind::RevokeKey { key_id } => agents::revoke_key(state, command, key_id),
        Kind::PlaceHold(place) => erasure::place_hold(state, command, place),
        Kind::ReleaseHold(release) => erasure::release_hold(state, command, release),
        Kind::RequestErasure(request) => erasure::request(state, command, request),
        Kind::Erase(next) => erasure::erase(state, command, next),
        Kind::FinishErasure(id) => erasure::finish(state, command, *id),
        Kind::Purge(next) => Ok(erasure::purge(state, command, next)),
    }
}

/// The submission that a command commits, or may.
fn submitted(kind: &Kind) -> Option<&Submit> {
    match kind {
        Kind::Submit(submit) => Some(submit),
        Kind::Refuse(refuse) => refuse.recovery.as_deref(),
        _ => None,
    }
}

/// Adds the rows that a submission reads.
fn submission(command: &Command, submit: &Submit, needs: &mut Needs) {
    let (tenant, handoff) = (&command.tenant, &submit.handoff);
    needs.tasks.insert((tenant.clone(), handoff.task_id));
    needs.handoffs.insert((tenant.clone(), handoff.id));
    needs.handoffs.extend(handoff.parent_id.map(|parent| (tenant.clone(), parent)));
    let task = (tenant.clone(), handoff.task_id);
    needs.lineage.insert((task, handoff.source.clone(), handoff.parent_id));
    needs.edges.insert((tenant.clone(), handoff.task_id));
    needs.runs.insert((tenant.clone(), handoff.task_id, handoff.source_execution));
    needs.repeats.extend(contracts::repeat_key(command, submit));
    if let Some(key) = &submit.idempotency_key {
        needs.idempotency.insert((tenant.clone(), handoff.source.clone(), key.clone()));
    }
}

/// Whether a command may change what counts against the tenant's caps.
fn moves_money(kind: &Kind) -> bool {
    submitted(kind).is_some()
        || matches!(
            kind,
            Kind::Verdict(_)
                | Kind::Settle(_)
                | Kind::Expire(_)
                | Kind::CompleteTask(_)
                | Kind::CancelTask(_)
                | Kind::Resolve(_)
                | Kind::Release(_)
        )
}

/// A task with all that is open on it.
fn whole(needs: &mut Needs, task: TaskKey) {
    needs.tasks.insert(task.clone());
    needs.edges.insert(task.clone());
    needs.open.insert(task);
}

/// Adds the rows that a command reads.
pub fn needs(command: &Command, needs: &mut Needs) {
    let tenant = &command.tenant;
    if moves_money(&command.kind) {
        let parties = needs.caps.entry(tenant.clone()).or_default();
        if let Some(submit) = submitted(&command.kind) {
            parties.extend([submit.handoff.source.clone(), submit.handoff.target.clone()]);
        } else if let Kind::Release(release) = &command.kind {
            parties.insert(release.target.agent_id.clone());
        }
    }
    let mut both = |task_id, handoff_id| {
        needs.tasks.insert((tenant.clone(), task_id));
        needs.handoffs.insert((tenant.clone(), handoff_id));
    };
    match &command.kind {
        Kind::Submit(submit) => submission(command, submit, needs),
        Kind::Refuse(refuse) => {
            if let (Some(task_id), Some(handoff_id)) = (refuse.task_id, refuse.handoff_id) {
                both(task_id, handoff_id);
            }
            if let (Some(task_id), Some(counted)) = (refuse.task_id, &refuse.counted) {
                needs.tasks.insert((tenant.clone(), task_id));
                needs.refused_tasks.insert((tenant.clone(), task_id, counted.by.clone()));
                needs.runs.extend(counted.run.map(|run| (tenant.clone(), task_id, run)));
            }
            if let Some(letter) = &refuse.dead_letter {
                let handoff = &letter.handoff;
                needs.tasks.insert((tenant.clone(), handoff.task_id));
                needs.handoffs.insert((tenant.clone(), handoff.id));
                needs.runs.insert((tenant.clone(), handoff.task_id, handoff.source_execution));
                if let Some(key) = &letter.idempotency_key {
                    needs.idempotency.insert((tenant.clone(), handoff.source.clone(), key.clone()));
                }
            }
            if let Some(submit) = &refuse.recovery {
                submission(command, submit, needs);
                needs.open.insert((tenant.clone(), submit.handoff.task_id));
                let ruling = submit.handoff.ruling.as_ref();
                let others = ruling.map(|ruling| ruling.fallbacks()).unwrap_or_default();
                needs.agents.extend(others.into_iter().map(|id| (tenant.clone(), id)));
            }
        }
        Kind::Verdict(verdict) => {
            both(verdict.task_id, verdict.handoff_id);
            needs.edges.insert((tenant.clone(), verdict.task_id));
            if matches!(verdict.word, Word::Accept | Word::Complete) {
                let task = (tenant.clone(), verdict.task_id);
                needs.accepted.insert((task, verdict.handoff_id));
            }
            if matches!(verdict.word, Word::Reject(_) | Word::Fail(_)) {
                // What else is open says what becomes of the task.
                needs.open.insert((tenant.clone(), verdict.task_id));
            }
        }
        Kind::Settle(settle) => {
            both(settle.task_id, settle.handoff_id);
            needs.edges.insert((tenant.clone(), settle.task_id));
            if settle.outcome == Outcome::Accepted {
                let task = (tenant.clone(), settle.task_id);
                needs.accepted.insert((task, settle.handoff_id));
            }
            if matches!(
                settle.outcome,
                Outcome::Rejected(_)
                    | Outcome::GivenUp { .. }
                    | Outcome::Expired
                    | Outcome::Unclaimed
            ) {
                needs.open.insert((tenant.clone(), settle.task_id));
            }
        }
        Kind::Lease(lease) => both(lease.task_id, lease.handoff_id),
        Kind::Expire(expire) => {
            both(expire.task_id, expire.handoff_id);
            needs.edges.insert((tenant.clone(), expire.task_id));
            needs.open.insert((tenant.clone(), expire.task_id));
        }
        Kind::PutCheckpoint(put) => {
            needs.tasks.insert((tenant.clone(), put.task_id));
            needs.runs.insert((tenant.clone(), put.task_id, put.execution_id));
        }
        Kind::CompleteTask(complete) => whole(needs, (tenant.clone(), complete.task_id)),
        Kind::CancelTask(cancel) => whole(needs, (tenant.clone(), cancel.task_id)),
        Kind::TopUp(top_up) => {
            needs.tasks.insert((tenant.clone(), top_up.task_id));
        }
        Kind::SetCap(set) => {
            needs.cap_scopes.insert((tenant.clone(), set.agent.clone()));
        }
        Kind::RestoreCheckpoint(restore) => {
            needs.tasks.insert((tenant.clone(), restore.task_id));
        }
        Kind::Resolve(resolve) => {
            whole(needs, (tenant.clone(), resolve.task_id));
            needs.handoffs.extend(resolve.handoff_id.map(|id| (tenant.clone(), id)));
            needs.agents.extend(resolve.agents.iter().map(|id| (tenant.clone(), id.clone())));
        }
        Kind::Release(release) | Kind::KeepDeadLetter(release) => {
            both(release.task_id, release.handoff_id);
            if let Some(parent) = release.parent_id {
                both(release.task_id, parent);
            }
            let task = (tenant.clone(), release.task_id);
            needs.lineage.insert((task.clone(), release.source.clone(), release.parent_id));
            whole(needs, task);
            needs.dead_letters.insert((tenant.clone(), release.handoff_id));
        }
        Kind::Discard(discard) => {
            both(discard.task_id, discard.handoff_id);
            needs.dead_letters.insert((tenant.clone(), discard.handoff_id));
        }
        Kind::CreateAgent(create) => {
            needs.agents.insert((tenant.clone(), create.row.agent.agent_id.clone()));
        }
        Kind::ChangeAgent(change) => {
            needs.agents.insert((tenant.clone(), change.agent.clone()));
        }
        Kind::PutContract(put) => {
            needs.contracts.insert(put.row.key());
        }
        Kind::PutPayloadSchema(put) => {
            needs.payload_schemas.insert((tenant.clone(), put.row.id.clone()));
        }
        Kind::CreateSubscription(create) => {
            needs.subscriptions.insert((tenant.clone(), create.row.id));
        }
        Kind::ChangeSubscription(change) => {
            needs.subscriptions.insert((tenant.clone(), change.id));
        }
        Kind::DisableSubscriber(disable) => match &disable.subscriber {
            Subscriber::Subscription(id) => {
                needs.subscriptions.insert((tenant.clone(), *id));
            }
            Subscriber::Agent(agent) => {
                needs.agents.insert((tenant.clone(), agent.clone()));
            }
        },
        Kind::CreateKey(row) => {
            needs.keys.insert((tenant.clone(), row.key_id.clone()));
        }
        Kind::ChangeTreeKey(_) => {}
        Kind::RevokeKey { key_id } => {
            needs.keys.insert((tenant.clone(), key_id.clone()));
        }
        Kind::PlaceHold(place) => {
            needs.erasure.holds.insert((tenant.clone(), place.row.id.clone()));
        }
        Kind::ReleaseHold(release) => {
            needs.erasure.holds.insert((tenant.clone(), release.id.clone()));
        }
        Kind::RequestErasure(request) => {
            needs.erasure.subjects.insert(request.subject.clone());
        }
        Kind::Erase(next) => {
            needs.erasure.pages.insert((tenant.clone(), next.id), next.page);
        }
        Kind::FinishErasure(id) => {
            let none = PageNeed { upto: 0, limit: 0 };
            needs.erasure.pages.entry((tenant.clone(), *id)).or_insert(none);
        }
        Kind::Purge(next) => {
            needs.erasure.purges.insert(tenant.clone(), next.need);
        }
    }
}
