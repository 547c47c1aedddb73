//! A batch's part in rolling caps.

use super::absent::AbsentRows;
use super::batch::{Bound, Sql, bind, some};
use super::call::Call;
use super::session::Tx;
use crate::store::caps::{self, CAPS};
use crate::store::{BatchState, Needs, Result, Writes};
use handoffd_domain::cap::Cap;

static CAPS_LOAD: Sql = Sql::new(|| CAPS.shape.select_of_locked(Bound::Arrays, "agent_id"));
static CAPS_INSERT: Sql = Sql::new(|| CAPS.shape.insert(1, Bound::Arrays));
static CAPS_UPDATE: Sql = Sql::new(|| CAPS.shape.update());

/// Loads and locks the caps that may be charged: after all rows that determine them, and last of all locks. Of two
/// brokers charging the same cap, the second waits here and sees the first one's entries.
pub(super) async fn load(tx: &mut Tx, needs: &Needs, state: &mut BatchState) -> Result<()> {
    state.cap_scopes = state.charged(needs);
    if state.cap_scopes.is_empty() {
        return Ok(());
    }
    let call = Call::new(CAPS_LOAD.as_str());
    let call = bind!(call, state.cap_scopes, |scope| scope.0.as_str(), caps::of(scope.1.as_ref()));
    for row in tx.fetch(call).await? {
        caps::load(&row, state)?;
    }
    Ok(())
}

/// Writes a batch's changes. A default cap without a row could not be locked: it is inserted plainly, so that of two
/// brokers creating it at once the second conflicts, and then sees it.
pub(super) fn calls(writes: &Writes, absent: &AbsentRows) -> Vec<Call> {
    let kept = writes.caps.iter().filter_map(|(key, cap)| Some((key, cap.as_ref()?)));
    let (known, new): (Vec<_>, Vec<_>) = kept.partition(|(key, _)| absent.known_caps.contains(key));
    let bound = |(sql, caps): (&'static Sql, Vec<(_, &Cap)>)| {
        let caps: Vec<&Cap> = caps.into_iter().map(|(_, cap)| cap).collect();
        Call::new(sql.as_str()).rows(CAPS.columns, &caps)
    };
    let mut calls: Vec<Call> =
        some([(&CAPS_INSERT, new), (&CAPS_UPDATE, known)]).map(bound).collect();
    let lifted = writes.caps.iter().filter(|(_, cap)| cap.is_none());
    calls.extend(lifted.map(|(key, _)| Call::of(caps::lift(key))));
    calls
}
