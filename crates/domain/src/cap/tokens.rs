//! Tokens under a cap: stated tokens count, none are reserved.

use super::{Cap, CapExceeded, CapShortage, Defaults};
use crate::funds::{Funds, Spending};
use crate::ids::{AgentId, Micros};

impl Cap {
    /// Token limit set by an operator; none for the default.
    #[must_use]
    pub const fn tokens(&self) -> Option<u64> {
        self.usage.limit
    }

    /// Sets the token limit. Counted tokens stay counted.
    pub const fn set_tokens(&mut self, limit: Option<u64>) {
        self.usage.limit = limit;
    }

    /// The effective token limit: the operator's, or the default for the window. `None` means no limit.
    #[must_use]
    pub fn token_limit(&self, defaults: &Defaults) -> Option<u64> {
        self.usage.limit.or_else(|| self.default_of(defaults)?.tokens)
    }

    /// Tokens spent within the window that ends at `at`.
    #[must_use]
    pub fn spent_tokens(&self, at: Micros) -> u64 {
        let recent = self.usage.tokens.range(self.first(at)..);
        recent.fold(0, |sum, (_, tokens)| sum.saturating_add(*tokens))
    }

    /// Tokens added by a task's change.
    pub(super) fn tokens_since(&self, before: Option<&Funds>, after: &Funds) -> u64 {
        let of = |tally: &Spending| tally.prompt.saturating_add(tally.completion);
        let spent = |funds: &Funds| match &self.agent {
            None => funds.agents.values().fold(0, |sum: u64, tally| sum.saturating_add(of(tally))),
            Some(agent) => funds.agents.get(agent).map_or(0, of),
        };
        spent(after).saturating_sub(before.map_or(0, spent))
    }

    /// The refusal of a handoff whose receiver would spend tokens where none are left. An agent's cap limits the
    /// handoffs it receives: tokens it spent before handing off are gone.
    pub(super) fn used_up(
        &self,
        receiver: &AgentId,
        defaults: &Defaults,
        at: Micros,
    ) -> Option<CapExceeded> {
        let cap = self.token_limit(defaults)?;
        if self.agent.as_ref().is_some_and(|agent| agent != receiver) {
            return None;
        }
        let spent = self.spent_tokens(at);
        if spent < cap {
            return None;
        }
        let mut rest = spent;
        let leaving = self.usage.tokens.range(self.first(at)..).find(|(_, tokens)| {
            rest = rest.saturating_sub(**tokens);
            rest < cap
        });
        let frees = leaving.map(|(step, _)| self.leaves(*step));
        Some(self.refusal(CapShortage::Tokens { cap, spent }, frees, at))
    }
}
