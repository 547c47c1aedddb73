//! The decision: what a command does to what is known. Pure and total; the same code serves both
//! stores, one broker or ten, tests and production.

use super::command::{Command, Kind, LedgerError};
use super::context::Context;
use super::plan::{Change, Decision};
use super::{
    agents, caps, contracts, dead_letters, erasure, escalations, groups, opinions, questions,
    refusal, schemas, states, streams, submit, subscriptions, tasks, verdict,
};
use handoffd_core::evidence::record::RecordKind;
use handoffd_store::store::BatchState;

/// Decides one command over what is known.
///
/// # Errors
/// [`LedgerError`]: the command changes nothing.
pub fn decide(state: &BatchState, command: &Command, context: &Context) -> Decision {
    let mut decided = decide_on(state, command, context)?;
    if let Some(spare) = &context.spare.states {
        states::commit(state, spare, &mut decided.0);
    }
    // What is refused and goes on to a recovery is asked for by nobody who could be told of a cap.
    let checked = matches!(
        command.kind,
        Kind::Submit(_) | Kind::SubmitGroup(_) | Kind::Release(_) | Kind::ReleaseGroup(_)
    );
    caps::charge(state, command, context, checked, &mut decided.0);
    if event_before_record(&decided.0) {
        // The feed orders an event by its record.
        return Err(LedgerError::Internal("an event stands before its record".to_owned()));
    }
    Ok(decided)
}

fn event_before_record(changes: &[Change]) -> bool {
    changes
        .iter()
        .take_while(|change| !matches!(change, Change::Record(_)))
        .any(|change| matches!(change, Change::Event(_) | Change::Cursor(..)))
}

fn decide_on(state: &BatchState, command: &Command, context: &Context) -> Decision {
    match &command.kind {
        Kind::Submit(submit) => submit::submit(state, command, context, submit),
        Kind::SubmitGroup(group) => groups::submit(state, command, context, group),
        Kind::Refuse(refuse) => refusal::refuse(state, command, context, refuse),
        Kind::PutCheckpoint(put) => submit::put_checkpoint(state, command, put),
        Kind::Verdict(verdict) => verdict::verdict(state, command, context, verdict),
        Kind::Ask(ask) => questions::ask(state, command, context, ask),
        Kind::Answer(answer) => questions::answer(state, command, context, answer),
        Kind::Settle(settle) => verdict::settle(state, command, context, settle),
        Kind::Compress(compress) => verdict::compress(state, command, compress),
        Kind::RecordOpinion(opinion) => opinions::record(state, command, opinion),
        Kind::Chunk(chunk) => streams::chunk(state, command, context, chunk),
        Kind::RefuseChunk(refused) => streams::refuse(state, command, refused),
        Kind::Lease(lease) => verdict::lease(state, command, context, lease),
        Kind::TakeOver(take) => verdict::take_over(state, command, context, take),
        Kind::Expire(expire) => verdict::expire(state, command, context, expire),
        Kind::CompleteTask(complete) => tasks::complete(state, command, context, complete),
        Kind::CancelTask(cancel) => tasks::cancel(state, command, context, cancel),
        Kind::TopUp(top_up) => tasks::top_up(state, command, top_up),
        Kind::SetCap(set) => caps::set(state, command, context, set),
        Kind::RestoreCheckpoint(restore) => tasks::restore(state, command, restore),
        Kind::Resolve(resolve) => escalations::resolve(state, command, context, resolve),
        Kind::Release(release) => dead_letters::release(state, command, context, release),
        Kind::ReleaseGroup(release) => {
            dead_letters::release_group(state, command, context, release)
        }
        Kind::KeepDeadLetter(keep) => dead_letters::keep(state, command, keep),
        Kind::Discard(discard) => dead_letters::discard(state, command, discard),
        Kind::CreateAgent(create) => agents::create(state, command, create),
        Kind::ChangeAgent(change) => agents::change(state, command, change),
        Kind::PutContract(put) => contracts::put(state, command, put),
        Kind::PutPayloadSchema(put) => schemas::put(state, command, put),
        Kind::CreateSubscription(create) => subscriptions::create(state, command, create),
        Kind::ChangeSubscription(change) => subscriptions::change(state, command, change),
        Kind::DisableSubscriber(disable) => Ok(subscriptions::disable(state, command, disable)),
        Kind::CreateKey(row) => Ok(agents::create_key(command, row)),
        Kind::ChangeTreeKey(content) => {
            Ok(agents::change_of_keys(command, RecordKind::TreeKeyChanged, content))
        }
        Kind::ChangeMasterKey(content) => {
            Ok(agents::change_of_keys(command, RecordKind::MasterKeyChanged, content))
        }
        Kind::AdoptStates(adopt) => Ok(states::adopt(command, adopt)),
        Kind::RevokeKey { key_id } => agents::revoke_key(state, command, key_id),
        Kind::PlaceHold(place) => erasure::place_hold(state, command, place),
        Kind::ReleaseHold(release) => erasure::release_hold(state, command, release),
        Kind::RequestErasure(request) => erasure::request(state, command, request),
        Kind::Erase(next) => erasure::erase(state, command, next),
        Kind::FinishErasure(id) => erasure::finish(state, command, *id),
        Kind::Purge(next) => Ok(erasure::purge(state, command, next)),
    }
}
