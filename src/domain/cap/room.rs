//! Whether the caps have room for a handoff: what the ledger asks under their locks, and a dry run beside
//! them. Pure.

use std::collections::BTreeMap;

use super::{Cap, CapKey, Defaults, Limit, Over, Scope};
use crate::domain::funds::{Ask, Funds};
use crate::domain::ids::{AgentId, HandoffId, Micros};

/// The caps that may count for some scopes: those that are kept, and those of the settings that begin. What
/// begins is marked so.
#[must_use]
pub fn in_force<'a>(
    kept: impl IntoIterator<Item = Cap>,
    scopes: impl IntoIterator<Item = &'a Scope>,
    defaults: &Defaults,
    (mark, at): (i64, Micros),
) -> BTreeMap<CapKey, Cap> {
    let mut caps: BTreeMap<CapKey, Cap> = kept.into_iter().map(|cap| (cap.key(), cap)).collect();
    for (tenant, agent) in scopes {
        for Limit { window, .. } in defaults.of(agent.is_some()) {
            let key = (tenant.clone(), agent.clone(), window);
            caps.entry(key.clone()).or_insert_with(|| Cap::new(key, None, mark, at));
        }
    }
    caps
}

/// Marks what is reserved anew with the caps of its holder.
pub fn mark_new(caps: &BTreeMap<CapKey, Cap>, before: Option<&Funds>, after: &mut Funds) {
    after.mark_new(before, |holder: &AgentId| {
        let counts = |cap: &&Cap| cap.agent.as_ref().is_none_or(|agent| agent == holder);
        let mut marks: Vec<i64> = caps.values().filter(counts).map(|cap| cap.mark).collect();
        marks.sort_unstable();
        marks.dedup();
        marks
    });
}

/// A handoff that wants its part of a task's funds.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The handoff.
    pub handoff: HandoffId,
    /// Who may spend it.
    pub holder: &'a AgentId,
    /// What it asks for.
    pub ask: Ask<'a>,
}

/// The cap that has no room for a handoff, if any: the one that keeps it longest, since who comes back
/// earlier is refused by that. Of the task there are its funds as they are kept, if they are, and as the
/// handoff finds them.
#[must_use]
pub fn lacking(
    caps: &BTreeMap<CapKey, Cap>,
    (defaults, at): (&Defaults, Micros),
    (before, books): (Option<&Funds>, &Funds),
    Wanted { handoff, holder, ask }: Wanted<'_>,
) -> Option<Over> {
    if caps.is_empty() {
        return None;
    }
    let mut after = books.clone();
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
