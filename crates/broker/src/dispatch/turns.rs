//! The order of waiting receivers: round robin over the tenants, and over the receivers of each. A tenant with a
//! thousand waiting receivers gets no more turns than a tenant with one. Pure.

use handoffd_domain::ids::{AgentId, TenantId};
use handoffd_store::store::ReceiverKey;

use crate::rotation::{Rotation, Served};

/// Receivers in the order of their turns, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// A receiver's queue is its one turn.
    tenants: Rotation<TenantId, Rotation<AgentId, Turn>>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Turn {
    queued: bool,
}

impl Turns {
    /// Queues a receiver, unless it is queued already.
    pub(super) fn push(&mut self, (tenant, agent): ReceiverKey) {
        let turn = self.tenants.queue(tenant).queue(agent);
        if !std::mem::replace(&mut turn.queued, true) {
            self.waiting += 1;
        }
    }

    /// Removes the receiver whose turn has come.
    pub(super) fn pop(&mut self) -> Option<ReceiverKey> {
        let receiver = self.tenants.next(|tenant, agents| {
            let taken = agents.next(|agent, _| Served {
                taken: Some((tenant.clone(), agent.clone())),
                empty: true,
            });
            Served { taken, empty: agents.is_empty() }
        })?;
        self.waiting -= 1;
        Some(receiver)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use proptest::prelude::*;

    fn receiver(name: &str) -> ReceiverKey {
        let (tenant, agent) = name.split_once('/').unwrap();
        (tenant.parse().unwrap(), agent.parse().unwrap())
    }

    fn all(turns: &mut Turns) -> Vec<String> {
        std::iter::from_fn(|| turns.pop())
            .map(|(tenant, agent)| format!("{tenant}/{agent}"))
            .collect()
    }

    #[test]
    fn tenants_take_turns_whatever_they_bring() {
        let mut turns = Turns::default();
        for name in ["big/a", "big/b", "big/c", "big/a", "small/x", "mid/m", "mid/n"] {
            turns.push(receiver(name));
        }
        assert_eq!(turns.len(), 6);
        let order = all(&mut turns);
        assert_eq!(order, ["big/a", "small/x", "mid/m", "big/b", "mid/n", "big/c"]);
        assert!(turns.is_empty());
    }

    #[test]
    fn who_comes_again_waits_behind_the_others() {
        let mut turns = Turns::default();
        turns.push(receiver("t/a"));
        turns.push(receiver("t/b"));
        let first = turns.pop().unwrap();
        turns.push(first);
        assert_eq!(all(&mut turns), ["t/b", "t/a"]);
    }

    proptest! {
        /// Every receiver gets one turn; and between two turns of one tenant every other waiting tenant has one.
        #[test]
        fn nobody_is_passed_over(names in proptest::collection::vec((0_u8..5, 0_u8..8), 0..60)) {
            let mut turns = Turns::default();
            let mut expected = HashSet::new();
            for (tenant, agent) in names {
                let name = format!("t{tenant}/a{agent}");
                turns.push(receiver(&name));
                expected.insert(name);
            }
            let order = all(&mut turns);
            prop_assert_eq!(order.len(), expected.len());
            let mut left: HashMap<&str, usize> = HashMap::new();
            for name in &order {
                *left.entry(name.split('/').next().unwrap()).or_default() += 1;
            }
            let mut since: HashMap<&str, HashSet<&str>> = HashMap::new();
            for name in &order {
                let tenant = name.split('/').next().unwrap();
                if let Some(others) = since.get(tenant) {
                    let waiting = left.iter().filter(|(other, count)| **other != tenant && **count > 0);
                    for (other, _) in waiting {
                        prop_assert!(others.contains(other), "{other} was passed over");
                    }
                }
                since.insert(tenant, HashSet::new());
                for (other, seen) in &mut since {
                    if *other != tenant {
                        seen.insert(tenant);
                    }
                }
                *left.get_mut(tenant).unwrap() -= 1;
            }
        }
    }
}
