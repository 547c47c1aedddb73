//! Tokens under a cap: those that were stated count, none are reserved.

use super::{Cap, Defaults, Lack, Over};
use crate::domain::funds::{Funds, Tally};
use crate::domain::ids::{AgentId, Micros};

impl Cap {
    /// How many tokens may count, as an operator set it; none: the default of the settings, if there is one.
    #[must_use]
    pub const fn tokens(&self) -> Option<u64> {
        self.books.limit
    }

    /// Sets how many tokens may count. Those that were counted go on counting.
    pub const fn set_tokens(&mut self, limit: Option<u64>) {
        self.books.limit = limit;
    }

    /// How many tokens may count: as set, or as the settings have it for such a window. None: any number.
    #[must_use]
    pub fn token_limit(&self, defaults: &Defaults) -> Option<u64> {
        self.books.limit.or_else(|| self.default_of(defaults)?.tokens)
    }

    /// Tokens that were spent within the window that ends at that time.
    #[must_use]
    pub fn spent_tokens(&self, at: Micros) -> u64 {
        let recent = self.books.tokens.range(self.first(at)..);
        recent.fold(0, |sum, (_, tokens)| sum.saturating_add(*tokens))
    }

    /// Tokens that a task's change adds.
    pub(super) fn tokens_since(&self, before: Option<&Funds>, after: &Funds) -> u64 {
        let of = |tally: &Tally| tally.prompt.saturating_add(tally.completion);
        let spent = |funds: &Funds| match &self.agent {
            None => funds.agents.values().fold(0, |sum: u64, tally| sum.saturating_add(of(tally))),
            Some(agent) => funds.agents.get(agent).map_or(0, of),
        };
        spent(after).saturating_sub(before.map_or(0, spent))
    }

    /// What there is to say to a handoff that would have its receiver spend tokens, where none are left for
    /// it. An agent's cap speaks of what that agent receives: what it spent before it hands off is gone.
    pub(super) fn used_up(
        &self,
        receiver: &AgentId,
        defaults: &Defaults,
        at: Micros,
    ) -> Option<Over> {
        let cap = self.token_limit(defaults)?;
        if self.agent.as_ref().is_some_and(|agent| agent != receiver) {
            return None;
        }
        let spent = self.spent_tokens(at);
        if spent < cap {
            return None;
        }
        let mut rest = spent;
        let leaving = self.books.tokens.range(self.first(at)..).find(|(_, tokens)| {
            rest = rest.saturating_sub(**tokens);
            rest < cap
        });
        let frees = leaving.map(|(step, _)| self.leaves(*step));
        Some(self.refusal(Lack::Tokens { cap, spent }, frees, at))
    }
}
