//! The rows that a batch did not find.

use std::collections::BTreeSet;

use crate::store::contracts::RepeatKey;
use crate::store::{AgentKey, BatchState, Needs, RefusedTaskKey};
use handoffd_domain::cap::CapKey;
use handoffd_domain::ids::TenantId;

/// Agents, keys, refused tasks and repeats that were asked for and not found. A row that is not there cannot be locked, so
/// two brokers may both plan to make it: it is then inserted plainly, and the second one conflicts
/// instead of overwriting the first one's secrets.
pub(super) struct AbsentRows {
    pub(super) agents: BTreeSet<AgentKey>,
    pub(super) keys: BTreeSet<(TenantId, String)>,
    pub(super) refused_tasks: BTreeSet<RefusedTaskKey>,
    pub(super) repeats: BTreeSet<RepeatKey>,
    /// Caps that have a row; the others are inserted.
    pub(super) known_caps: BTreeSet<CapKey>,
}

impl AbsentRows {
    pub(super) fn of(needs: &Needs, state: &BatchState) -> Self {
        Self {
            agents: needs
                .agents
                .iter()
                .filter(|key| !state.agents.contains_key(key))
                .cloned()
                .collect(),
            keys: needs.keys.iter().filter(|key| !state.keys.contains_key(key)).cloned().collect(),
            refused_tasks: needs
                .refused_tasks
                .iter()
                .filter(|key| !state.refused_tasks.contains_key(key))
                .cloned()
                .collect(),
            repeats: needs
                .repeats
                .iter()
                .filter(|key| !state.repeats.contains_key(key))
                .cloned()
                .collect(),
            known_caps: state.caps.keys().cloned().collect(),
        }
    }
}
