//! What a task cost: from the cumulative figures that its messages state to what each hop and each
//! agent added (ruling X1). Pure.
//!
//! A hop's cost is the difference between its message's cumulative figure and its parent's. Where a
//! sender sent again after a rollback, from the same parent, only what it spent since its first try
//! counts: the figure before is the highest that this sender stated on that parent.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::money::Usd;

/// What one handoff's record says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hop {
    /// The handoff.
    pub handoff_id: String,
    /// The one before.
    pub parent_id: Option<String>,
    /// Who sent, and so who spent.
    pub source: String,
    /// Who received.
    pub target: String,
    /// Cumulative.
    pub at: Figures,
}

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// US dollars.
    pub usd: Usd,
    /// Tokens read.
    pub prompt: u64,
    /// Tokens written.
    pub completion: u64,
}

impl Figures {
    fn since(self, before: Self) -> Self {
        Self {
            usd: self.usd.minus(before.usd),
            prompt: self.prompt.saturating_sub(before.prompt),
            completion: self.completion.saturating_sub(before.completion),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            usd: self.usd.plus(other.usd),
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            usd: self.usd.max(other.usd),
            prompt: self.prompt.max(other.prompt),
            completion: self.completion.max(other.completion),
        }
    }

    fn tokens(self) -> Value {
        json!({ "prompt": self.prompt, "completion": self.completion })
    }
}

impl Hop {
    /// Reads a `HANDOFF` record.
    #[must_use]
    pub fn from_record(body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let count = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        Self {
            handoff_id: text("/handoffId").unwrap_or_default(),
            parent_id: text("/parentHandoffId"),
            source: text("/fromAgent/agentId").unwrap_or_default(),
            target: text("/toAgent/agentId").unwrap_or_default(),
            at: Figures {
                usd: Usd::from_f64(
                    body.pointer("/costAtHandoff/costSpentSoFarUSD")
                        .and_then(Value::as_f64)
                        .unwrap_or(0.0),
                ),
                prompt: count("/costAtHandoff/promptTokens"),
                completion: count("/costAtHandoff/completionTokens"),
            },
        }
    }
}

/// The account of one task, hop by hop in log order.
#[derive(Debug, Default)]
pub struct Account {
    stated: BTreeMap<String, Figures>,
    tried: BTreeMap<(Option<String>, String), Figures>,
    per_agent: BTreeMap<String, Figures>,
    roles: BTreeMap<String, (u64, u64)>,
    per_hop: Vec<Value>,
    total: Figures,
    reported: Figures,
}

impl Account {
    /// Takes the next hop; returns what it added.
    pub fn add(&mut self, hop: &Hop) -> Value {
        let parent =
            hop.parent_id.as_ref().and_then(|id| self.stated.get(id)).copied().unwrap_or_default();
        let branch = (hop.parent_id.clone(), hop.source.clone());
        let before = self.tried.get(&branch).copied().unwrap_or(parent);
        let added = hop.at.since(before);
        self.tried.insert(branch, before.max(hop.at));
        self.stated.insert(hop.handoff_id.clone(), hop.at);
        self.total = self.total.plus(added);
        self.reported = self.reported.plus(hop.at);
        let agent = self.per_agent.entry(hop.source.clone()).or_default();
        *agent = agent.plus(added);
        self.roles.entry(hop.source.clone()).or_default().0 += 1;
        self.roles.entry(hop.target.clone()).or_default().1 += 1;
        let cost = json!({ "usd": added.usd, "tokens": added.tokens() });
        self.per_hop.push(json!({
            "handoffId": hop.handoff_id,
            "agentId": hop.source,
            "usd": added.usd,
            "tokens": added.tokens(),
        }));
        cost
    }

    /// Who took part: `[{agentId, sent, received}]`.
    #[must_use]
    pub fn agents(&self) -> Value {
        self.roles
            .iter()
            .map(
                |(id, (sent, received))| json!({"agentId": id, "sent": sent, "received": received}),
            )
            .collect()
    }

    /// The sums (specification §6).
    #[must_use]
    pub fn cost(&self) -> Value {
        let per_agent: Vec<Value> = self
            .per_agent
            .iter()
            .map(|(id, figures)| json!({"agentId": id, "usd": figures.usd, "tokens": figures.tokens()}))
            .collect();
        json!({
            "totalUSD": self.total.usd,
            "reportedSumUSD": self.reported.usd,
            "tokens": self.total.tokens(),
            "perAgent": per_agent,
            "perHop": self.per_hop,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(id: &str, parent: Option<&str>, source: &str, usd: f64, prompt: u64) -> Hop {
        Hop {
            handoff_id: id.to_owned(),
            parent_id: parent.map(str::to_owned),
            source: source.to_owned(),
            target: "next".to_owned(),
            at: Figures { usd: Usd::from_f64(usd), prompt, completion: 0 },
        }
    }

    #[test]
    fn x1_hops_are_differences_and_the_reported_sum_is_plain() {
        let mut account = Account::default();
        account.add(&hop("1", None, "a", 0.08, 100));
        account.add(&hop("2", Some("1"), "b", 0.20, 300));
        account.add(&hop("3", Some("2"), "c", 0.25, 350));
        let cost = account.cost();
        assert_eq!(cost["totalUSD"], json!(0.25));
        assert_eq!(cost["reportedSumUSD"], json!(0.53));
        assert_eq!(cost["tokens"]["prompt"], json!(350));
        assert_eq!(
            cost["perAgent"][1],
            json!({"agentId": "b", "usd": 0.12, "tokens": {"prompt": 200, "completion": 0}})
        );
    }

    #[test]
    fn what_was_spent_before_a_rollback_counts_once() {
        let mut account = Account::default();
        account.add(&hop("1", None, "a", 0.08, 0));
        account.add(&hop("1b", None, "a", 0.10, 0));
        account.add(&hop("2", Some("1b"), "b", 0.15, 0));
        assert_eq!(account.cost()["totalUSD"], json!(0.15));
    }

    #[test]
    fn two_branches_from_one_parent_each_count_from_it() {
        let mut account = Account::default();
        account.add(&hop("1", None, "a", 0.10, 0));
        account.add(&hop("2", Some("1"), "b", 0.13, 0));
        account.add(&hop("3", Some("1"), "c", 0.15, 0));
        assert_eq!(account.cost()["totalUSD"], json!(0.18));
    }
}
