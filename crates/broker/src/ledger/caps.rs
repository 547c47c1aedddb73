//! Decisions on rolling caps: who sets them, whether a handoff fits, and what each command adds to their
//! accounts. The effect of a command on a task's funds is the difference between before and after, so one
//! function charges, for every command that moved money.

use std::collections::BTreeMap;

use super::call::Call;
use super::context::Context;
use super::plan::Change;
use handoffd_domain::cap::room::CapRequest;
use handoffd_domain::cap::{Cap, CapExceeded, CapKey, Charge, room};
use handoffd_domain::funds::{Funds, FundsRequest, Reservation};
use handoffd_domain::handoff::HandoffTerms;
use handoffd_domain::ids::TenantId;
use handoffd_domain::money::Usd;
use handoffd_domain::task::Task;
use handoffd_store::store::BatchState;

/// The mark on the reserves under caps that begin with this command.
pub(super) fn mark(context: &Context) -> i64 {
    context.spare.handoff.0.as_u64_pair().1.cast_signed()
}

/// The caps of a tenant that may count here: those that are kept, and those of the settings that begin.
fn in_force(state: &BatchState, call: &Call, context: &Context) -> BTreeMap<CapKey, Cap> {
    let own = |tenant: &TenantId| *tenant == call.tenant;
    let kept = state.caps.values().filter(|cap| own(&cap.tenant)).cloned();
    let scopes = state.cap_scopes.iter().filter(|(tenant, _)| own(tenant));
    room::in_force(kept, scopes, &context.rules.caps, (mark(context), call.at))
}

/// Whether the caps have room for a handoff that takes its part of these funds; `opened` are the funds of
/// a task that begins with it.
pub(super) fn check<'a>(
    state: &BatchState,
    call: &Call,
    context: &Context,
    (task, opened): (&Task, Option<&Funds>),
    handoff: impl Into<HandoffTerms<'a>>,
) -> Option<CapExceeded> {
    let caps = in_force(state, call, context);
    let known = state.tasks.get(&(call.tenant.clone(), task.id));
    let before = known.and_then(|task| task.funds.as_deref());
    let funds = opened.or(task.funds.as_deref())?;
    let HandoffTerms { id, parent_id: parent, source, target, cost, .. } = handoff.into();
    let ask = FundsRequest { parent, source, cost };
    let wanted = CapRequest { handoff: id, holder: target, ask };
    room::lacking(&caps, (&context.rules.caps, call.at), (before, funds), wanted)
}

/// Enters into the caps' accounts what a command did to its task's funds. No sender that could be refused
/// asked for the amount that recovery passes on: it gets no more than there is room for.
pub(super) fn charge(
    state: &BatchState,
    call: &Call,
    context: &Context,
    checked: bool,
    changes: &mut Vec<Change>,
) {
    if state.caps.is_empty() && state.cap_scopes.is_empty() {
        return;
    }
    let task = changes.iter_mut().rev().find_map(|change| match change {
        Change::Task(task) => Some(task),
        _ => None,
    });
    let Some(task) = task else { return };
    let before = state.tasks.get(&(call.tenant.clone(), task.id));
    let before = before.and_then(|task| task.funds.as_deref());
    let Some(after) = task.funds.as_deref_mut() else { return };
    let caps = in_force(state, call, context);
    room::mark_new(&caps, before, after);
    if !checked {
        trim(&caps, (call, context), before, after);
    }
    let mut entered = Vec::new();
    for mut cap in caps.into_values() {
        let charge = cap.charge(before, after);
        if charge != Charge::default() {
            cap.enter(charge, call.at);
            entered.push(Change::Cap(Box::new(cap)));
        }
    }
    changes.extend(entered);
}

fn trim(
    caps: &BTreeMap<CapKey, Cap>,
    (call, context): (&Call, &Context),
    before: Option<&Funds>,
    after: &mut Funds,
) {
    let was = |id| before.is_some_and(|funds| funds.reserves.iter().any(|one| one.handoff == id));
    // A handoff that was committed and rejected at once has a reserve as well, with nothing left in it.
    let fresh = |one: &&Reservation| one.left > Usd(0) && !was(one.handoff);
    let Some(new) = after.reserves.iter().find(fresh).map(|one| one.handoff) else { return };
    let excess = caps.values().filter_map(|cap| {
        let limit = cap.limit(&context.rules.caps)?;
        cap.excess(limit, cap.charge(before, after), call.at)
    });
    let most = excess.max().unwrap_or(Usd(0));
    after.trim(new, most);
}
