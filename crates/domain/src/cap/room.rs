//! Check of caps for a handoff: by the ledger under their locks, and by a dry run without. Pure.

use std::collections::BTreeMap;

use super::{Cap, CapExceeded, CapKey, CapLimit, CapScope, Defaults};
use crate::funds::{Funds, FundsRequest};
use crate::ids::{AgentId, HandoffId, Micros};

/// The caps in force for the given scopes: stored caps, and default caps that have no row yet; the latter are
/// flagged.
#[must_use]
pub fn in_force<'a>(
    kept: impl IntoIterator<Item = Cap>,
    scopes: impl IntoIterator<Item = &'a CapScope>,
    defaults: &Defaults,
    (mark, at): (i64, Micros),
) -> BTreeMap<CapKey, Cap> {
    let mut caps: BTreeMap<CapKey, Cap> = kept.into_iter().map(|cap| (cap.key(), cap)).collect();
    for (tenant, agent) in scopes {
        for CapLimit { window, .. } in defaults.of(agent.is_some()) {
            let key = (tenant.clone(), agent.clone(), window);
            caps.entry(key.clone()).or_insert_with(|| Cap::new(key, None, mark, at));
        }
    }
    caps
}

/// Marks new reserves with the caps of their holder.
pub fn mark_new(caps: &BTreeMap<CapKey, Cap>, before: Option<&Funds>, after: &mut Funds) {
    after.mark_new(before, |holder: &AgentId| {
        let counts = |cap: &&Cap| cap.agent.as_ref().is_none_or(|agent| agent == holder);
        let mut marks: Vec<i64> = caps.values().filter(counts).map(|cap| cap.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        marks
    });
}

/// A handoff's request under the caps.
#[derive(Debug, Clone, Copy)]
pub struct CapRequest<'a> {
    pub handoff: HandoffId,
    pub holder: &'a AgentId,
    pub ask: FundsRequest<'a>,
}

/// The cap without room for a handoff, if any: the one with the longest wait, since an earlier retry would be refused
/// by it. `before` are the task's stored funds, if any; `funds` those the handoff finds.
#[must_use]
pub fn lacking(
    caps: &BTreeMap<CapKey, Cap>,
    (defaults, at): (&Defaults, Micros),
    (before, opened): (Option<&Funds>, &Funds),
    CapRequest { handoff, holder, ask }: CapRequest<'_>,
) -> Option<CapExceeded> {
    if caps.is_empty() {
        return None;
    }
    let mut after = opened.clone();
    after.draw(handoff, holder, ask);
    mark_new(caps, before, &mut after);
    let money = caps.values().filter_map(|cap| {
        let limit = cap.limit(defaults)?;
        let charge = cap.charge(before, &after);
        cap.excess(limit, charge, at)?;
        Some(cap.over(limit, charge, at))
    });
    let tokens = caps.values().filter_map(|cap| cap.used_up(holder, defaults, at));
    money.chain(tokens).max_by_key(|over| (over.frees.is_none(), over.frees))
}
