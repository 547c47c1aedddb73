//! Spending by day, edge and agent, from records of many tasks. Pure; [`crate::account`] reads the figures.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::account;
use handoffd_domain::funds::Spending;
use handoffd_domain::ids::{AgentId, Micros};
use handoffd_domain::money::Usd;

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

/// The spending of one agent on one edge on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CostLine {
    pub spent: Spending,
    /// Handoffs that the agent sent.
    pub handoffs: u64,
    /// Of these, those whose records state no spending: versions before 0.2 committed them.
    pub unbooked: u64,
}

impl CostLine {
    fn plus(self, other: Self) -> Self {
        Self {
            spent: self.spent.plus(other.spent),
            handoffs: self.handoffs + other.handoffs,
            unbooked: self.unbooked + other.unbooked,
        }
    }
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

impl CostFilter {
    fn passes(&self, key: &CostKey) -> bool {
        let is = |wanted: &Option<AgentId>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.as_str() == found)
        };
        is(&self.agent, &key.agent)
            && is(&self.source, &key.source)
            && is(&self.target, &key.target)
    }
}

/// The lines. Records are added in any order.
#[derive(Debug, Default)]
pub struct CostTable {
    filter: CostFilter,
    lines: BTreeMap<CostKey, CostLine>,
}

/// A record's facts about costs. The other members are skipped when its bytes are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CostFacts {
    kind: Value,
    spent: Option<Value>,
    from_agent: Value,
    to_agent: Value,
}

impl CostFacts {
    /// Reads a record's body; bytes that are none say nothing.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Who of the edge spent, how much, and whether it is a handoff.
    fn statement(&self) -> Option<(bool, Option<Spending>)> {
        let handoff = self.kind == "HANDOFF";
        let spent = self.spent.as_ref().and_then(account::booked);
        (handoff || spent.is_some()).then_some((handoff, spent))
    }

    /// Whether the record says anything of costs.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.statement().is_some()
    }

    /// The edge, in a handoff's own record.
    #[must_use]
    pub fn edge(&self) -> Option<Edge> {
        let text = |agent: &Value| Some(agent.get("agentId")?.as_str()?.to_owned());
        Some((text(&self.from_agent)?, text(&self.to_agent)?))
    }
}

impl CostTable {
    #[must_use]
    pub fn new(filter: CostFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Adds a record that was made at `at`, about a handoff of this edge.
    pub fn take(&mut self, at: Micros, (source, target): Edge, facts: &CostFacts) {
        let Some((handoff, spent)) = facts.statement() else { return };
        let agent = if handoff { source.clone() } else { target.clone() };
        let day = at.rfc3339().chars().take(10).collect();
        let line = CostLine {
            spent: spent.unwrap_or_default(),
            handoffs: u64::from(handoff),
            unbooked: u64::from(spent.is_none()),
        };
        self.add(&CostKey { day, source, target, agent }, line);
    }

    /// Adds all lines of another table.
    pub fn merge(&mut self, other: &Self) {
        for (key, line) in &other.lines {
            self.add(key, *line);
        }
    }

    fn add(&mut self, key: &CostKey, line: CostLine) {
        if !self.filter.passes(key) {
            return;
        }
        match self.lines.get_mut(key) {
            Some(sum) => *sum = sum.plus(line),
            None => drop(self.lines.insert(key.clone(), line)),
        }
    }

    /// The number of lines, those without handoffs or spending among them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.lines.len()
    }

    /// The lines by day, sender, receiver and agent, without those of agents that neither sent nor spent.
    pub fn lines(&self) -> impl Iterator<Item = (&CostKey, &CostLine)> {
        self.lines.iter().filter(|(_, line)| line.handoffs > 0 || line.spent != Spending::default())
    }

    /// All lines together.
    #[must_use]
    pub fn total(&self) -> CostLine {
        self.lines.values().fold(CostLine::default(), |sum, line| sum.plus(*line))
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
        let read = |record: &Value| CostFacts::read(record.to_string().as_bytes());
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
            let facts = read(&record);
            assert_eq!(facts.counts(), record["kind"] != "ACCEPTED");
            all.take(Micros(at), edge(), &facts);
        }
        all.take(Micros(day), edge(), &read(&json!({ "kind": "HANDOFF" })));
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
            (all.usd(), all.total().spent.prompt, all.total().unbooked),
            (Usd::from_f64(1.0), 6, 1)
        );
        let agent = "b".parse().ok();
        let mut own = CostTable::new(CostFilter { agent, ..CostFilter::default() });
        own.take(Micros(0), edge(), &read(&handoff(7.0)));
        assert_eq!(own.size(), 0);
        own.merge(&all);
        assert_eq!(
            own.total(),
            CostLine { spent: all.lines().last().unwrap().1.spent, ..CostLine::default() }
        );
        let mut twice = CostTable::default();
        twice.merge(&all);
        twice.merge(&all);
        assert_eq!((twice.size(), twice.total()), (all.size(), all.total().plus(all.total())));
    }
    #[test]
    fn a_record_is_read_for_its_costs_alone() {
        let whole = json!({
            "body": { "kind": "HANDOFF", "spent": 9 },
            "fromAgent": { "agentId": "a", "agentVersion": "1" },
            "kind": "COMPLETED",
            "spent": { "usd": 0.5 },
            "toAgent": { "agentId": "b" },
        });
        let facts = CostFacts::read(whole.to_string().as_bytes());
        assert_eq!(facts.edge(), Some(("a".to_owned(), "b".to_owned())));
        assert_eq!(facts.statement().map(|(handoff, _)| handoff), Some(false));
        for other in ["", "[]", "7", r#"{"kind":3,"spent":null,"toAgent":"b"}"#] {
            let facts = CostFacts::read(other.as_bytes());
            assert_eq!((facts.counts(), facts.edge()), (false, None), "{other}");
        }
    }
}
