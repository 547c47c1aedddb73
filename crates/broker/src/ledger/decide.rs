//! The decision: a command's own, the states that it changes for its record, and its part of the caps.

use super::call::Call;
use super::caps;
use super::commands::{AnyCommand, AnyReply};
use super::context::Context;
use super::plan::{Change, Decision};
use super::reply::LedgerError;
use super::states;
use handoffd_store::store::BatchState;

/// Decides one command over what is known.
///
/// # Errors
/// [`LedgerError`]: the command changes nothing.
pub fn decide(
    state: &BatchState,
    (call, command): (&Call, &AnyCommand),
    context: &Context,
) -> Decision<AnyReply> {
    let mut decided = command.decide(state, call, context)?;
    if let Some(spare) = &context.spare.states {
        states::commit(state, spare, &mut decided.0);
    }
    caps::charge(state, call, context, command.asks_caps(), &mut decided.0);
    if event_before_record(&decided.0) {
        // The feed orders an event by its record.
        return Err(LedgerError::Internal("an event comes before its record".to_owned()));
    }
    Ok(decided)
}

fn event_before_record(changes: &[Change]) -> bool {
    changes
        .iter()
        .take_while(|change| !matches!(change, Change::Record(_)))
        .any(|change| matches!(change, Change::Event(_) | Change::Cursor(..)))
}
