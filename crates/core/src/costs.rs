//! What was spent, by day, edge and agent, from records of many tasks. Pure; [`crate::account`] reads the figures.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::account;
use crate::domain::funds::Spending;
use crate::domain::ids::{AgentId, Micros};
use crate::domain::money::Usd;

/// An edge: the sender and the receiver of a handoff.
pub type Edge = (String, String);

/// Place of a line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostKey {
    /// The day of the record, UTC, such as `2026-11-21`.
    pub day: String,
    pub source: String,
    pub target: String,
    /// Who spent it: one of the two.
    pub agent: String,
}

/// What one agent spent on one edge on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostLine {
    pub spent: Spending,
    /// Handoffs that the agent sent.
    pub handoffs: u64,
}

/// Which lines count.
#[derive(Debug, Clone, Default)]
pub struct CostFilter {
    /// Only what this agent spent.
    pub agent: Option<AgentId>,
    /// Only on edges from this agent.
    pub source: Option<AgentId>,
    /// Only on edges to this agent.
    pub target: Option<AgentId>,
}

/// The lines. Records are added in any order.
#[derive(Debug, Default)]
pub struct CostTable {
    filter: CostFilter,
    lines: BTreeMap<CostKey, CostLine>,
    unbooked: u64,
}

/// What a record says of costs: who of the edge spent, how much, and whether it is a handoff.
fn statement(body: &Value) -> Option<(bool, Option<Spending>)> {
    let handoff = body.get("kind").and_then(Value::as_str) == Some("HANDOFF");
    let spent = account::spent(body);
    (handoff || spent.is_some()).then_some((handoff, spent))
}

/// Whether a record says anything of costs.
#[must_use]
pub fn counts(body: &Value) -> bool {
    statement(body).is_some()
}

/// The edge of a handoff's own record.
#[must_use]
pub fn edge(body: &Value) -> Option<Edge> {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/fromAgent/agentId")?, text("/toAgent/agentId")?))
}

impl CostTable {
    #[must_use]
    pub fn new(filter: CostFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Adds a record that was made at `at`, about a handoff of this edge.
    pub fn take(&mut self, at: Micros, (source, target): Edge, body: &Value) {
        let Some((handoff, spent)) = statement(body) else { return };
        let agent = if handoff { source.clone() } else { target.clone() };
        let is = |wanted: &Option<AgentId>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.as_str() == found)
        };
        let CostFilter { agent: spender, source: from, target: to } = &self.filter;
        if !(is(spender, &agent) && is(from, &source) && is(to, &target)) {
            return;
        }
        self.unbooked += u64::from(spent.is_none());
        let day = at.rfc3339().chars().take(10).collect();
        let line = self.lines.entry(CostKey { day, source, target, agent }).or_default();
        line.spent = line.spent.plus(spent.unwrap_or_default());
        line.handoffs += u64::from(handoff);
    }

    /// The lines by day, sender, receiver and agent, without those of agents that neither sent nor spent.
    pub fn lines(&self) -> impl Iterator<Item = (&CostKey, &CostLine)> {
        self.lines.iter().filter(|(_, line)| line.handoffs > 0 || line.spent != Spending::default())
    }

    /// Handoffs whose records state no spending: versions before 0.2 committed them.
    #[must_use]
    pub const fn unbooked(&self) -> u64 {
        self.unbooked
    }

    /// All lines together.
    #[must_use]
    pub fn total(&self) -> CostLine {
        self.lines.values().fold(CostLine::default(), |sum, line| CostLine {
            spent: sum.spent.plus(line.spent),
            handoffs: sum.handoffs + line.handoffs,
        })
    }

    /// US dollars of all lines.
    #[must_use]
    pub fn usd(&self) -> Usd {
        self.total().spent.usd
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Finding O10 of 0.3.0: costs by agent, edge and day.
    #[test]
    fn spending_is_counted_for_who_spent_it_on_its_edge_and_day() {
        let edge = || ("a".to_owned(), "b".to_owned());
        let handoff = |usd: f64| json!({ "kind": "HANDOFF", "spent": { "usd": usd, "tokenSpent": { "prompt": 3, "completion": 1 } } });
        let end = json!({ "kind": "COMPLETED", "spent": { "usd": 0.5 } });
        let day = 86_400_000_000;
        let mut all = CostTable::default();
        for (at, record) in [
            (0, handoff(0.25)),
            (day - 1, handoff(0.25)),
            (day, end),
            (day, json!({ "kind": "ACCEPTED" })),
        ] {
            assert_eq!(counts(&record), record["kind"] != "ACCEPTED");
            all.take(Micros(at), edge(), &record);
        }
        all.take(Micros(day), edge(), &json!({ "kind": "HANDOFF" }));
        let lines: Vec<_> = all
            .lines()
            .map(|(key, line)| {
                (key.day.as_str(), key.agent.as_str(), line.spent.usd, line.handoffs)
            })
            .collect();
        assert_eq!(
            lines,
            [
                ("1970-01-01", "a", Usd::from_f64(0.5), 2),
                ("1970-01-02", "a", Usd(0), 1),
                ("1970-01-02", "b", Usd::from_f64(0.5), 0),
            ]
        );
        assert_eq!(
            (all.usd(), all.total().spent.prompt, all.unbooked()),
            (Usd::from_f64(1.0), 6, 1)
        );
        let agent = "b".parse().ok();
        let mut own = CostTable::new(CostFilter { agent, ..CostFilter::default() });
        own.take(Micros(0), edge(), &handoff(7.0));
        assert_eq!(own.lines().count(), 0);
    }
}
