//! The order of waiting receivers: round robin over the tenants, and over the receivers of each. A tenant with a
//! thousand waiting receivers gets no more turns than a tenant with one. Pure.

use std::collections::{HashMap, HashSet, VecDeque};

use handoffd_core::domain::ids::{AgentId, TenantId};
use handoffd_store::store::ReceiverKey;

/// Receivers in the order of their turns, without duplicates.
#[derive(Debug, Default)]
pub(super) struct Turns {
    tenants: VecDeque<TenantId>,
    receivers: HashMap<TenantId, VecDeque<AgentId>>,
    known: HashSet<ReceiverKey>,
}

impl Turns {
    /// Queues a receiver, unless it is queued already.
    pub(super) fn push(&mut self, receiver: ReceiverKey) {
        if !self.known.insert(receiver.clone()) {
            return;
        }
        let (tenant, agent) = receiver;
        let of_tenant = self.receivers.entry(tenant.clone()).or_default();
        if of_tenant.is_empty() {
            self.tenants.push_back(tenant);
        }
        of_tenant.push_back(agent);
    }

    /// Removes the receiver whose turn has come.
    pub(super) fn pop(&mut self) -> Option<ReceiverKey> {
        let tenant = self.tenants.pop_front()?;
        let of_tenant = self.receivers.get_mut(&tenant)?;
        let agent = of_tenant.pop_front()?;
        if of_tenant.is_empty() {
            self.receivers.remove(&tenant);
        } else {
            self.tenants.push_back(tenant.clone());
        }
        let receiver = (tenant, agent);
        self.known.remove(&receiver);
        Some(receiver)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
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
