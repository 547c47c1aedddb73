//! What a task cost, hop by hop and agent by agent, from its records alone: the one place where the figures of a
//! trace, a bundle, a report and `GET /tasks/{taskId}/cost` are made. Pure.
//!
//! The ledger's books (`domain/funds.rs`) say with each record what they counted (`spent`): with a handoff what its
//! sender had spent since it was last heard of, with an end what the receiver spent besides what it handed on.
//! The sums of those are the books' own. Records of versions before that state cumulative figures only (ruling
//! X1): a hop's cost is then the difference between its message's figure and its parent's; where a sender sent
//! again from the same parent, the highest figure that it stated on that parent is the one before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::domain::funds::Tally;
use crate::domain::money::Usd;

/// One handoff's cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hop {
    /// The handoff.
    pub handoff_id: String,
    /// Who sent.
    pub source: String,
    /// Who received.
    pub target: String,
    /// What the sender had spent when it handed off, since it was last heard of.
    pub sender: Tally,
    /// What the receiver said at the end that it spent besides what it handed on.
    pub receiver: Tally,
    /// The record says what the books counted; else the figure is a difference.
    booked: bool,
}

impl Hop {
    /// What both spent.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.sender.plus(self.receiver)
    }

    /// `{usd, tokens}`, and both parts where the books told them apart.
    #[must_use]
    pub fn view(&self) -> Value {
        let total = self.total();
        let mut view = json!({ "usd": total.usd, "tokens": tokens(total) });
        if let (Some(view), true) = (view.as_object_mut(), self.booked) {
            view.insert("senderSpentUSD".to_owned(), json!(self.sender.usd));
            view.insert("receiverSpentUSD".to_owned(), json!(self.receiver.usd));
        }
        view
    }
}

fn tokens(tally: Tally) -> Value {
    json!({ "prompt": tally.prompt, "completion": tally.completion })
}

fn text(body: &Value, pointer: &str) -> String {
    body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Money and tokens at a place of a record, in the message's spelling or in that of older records.
fn figures(body: &Value, usd: &str) -> Option<Tally> {
    let count = |names: [&str; 2]| {
        names.iter().find_map(|name| body.pointer(name).and_then(Value::as_u64)).unwrap_or(0)
    };
    Some(Tally {
        usd: Usd::from_f64(body.get(usd)?.as_f64()?),
        prompt: count(["/tokenSpent/prompt", "/promptTokens"]),
        completion: count(["/tokenSpent/completion", "/completionTokens"]),
    })
}

/// The account of one task. Takes its records in log order.
#[derive(Debug, Default)]
pub struct Account {
    stated: BTreeMap<String, Tally>,
    tried: BTreeMap<(String, String), Tally>,
    roles: BTreeMap<String, (u64, u64)>,
    hops: Vec<Hop>,
    reported: Usd,
}

impl Account {
    /// Takes the next record of the task.
    pub fn take(&mut self, body: &Value) {
        let spent = body.get("spent").and_then(|spent| figures(spent, "usd"));
        match (body.get("kind").and_then(Value::as_str), spent) {
            (Some("HANDOFF"), spent) => self.hop(body, spent),
            (_, Some(spent)) => {
                let id = text(body, "/handoffId");
                // One that was released anew is there twice: it is the last that ends.
                if let Some(hop) = self.hops.iter_mut().rev().find(|hop| hop.handoff_id == id) {
                    hop.receiver = hop.receiver.plus(spent);
                }
            }
            (_, None) => {}
        }
    }

    fn hop(&mut self, body: &Value, spent: Option<Tally>) {
        let (id, parent) = (text(body, "/handoffId"), text(body, "/parentHandoffId"));
        let source = text(body, "/fromAgent/agentId");
        let target = text(body, "/toAgent/agentId");
        let cost = body.get("costAtHandoff");
        let now = cost.and_then(|cost| figures(cost, "costSpentSoFarUSD")).unwrap_or_default();
        let given = self.stated.get(&parent).copied().unwrap_or_default();
        let before = self.tried.entry((parent, source.clone())).or_insert(given);
        let difference = Tally { usd: now.usd.minus(before.usd), ..now.since(*before) };
        *before = before.max(now);
        self.stated.insert(id.clone(), now);
        self.reported = self.reported.plus(now.usd);
        self.roles.entry(source.clone()).or_default().0 += 1;
        self.roles.entry(target.clone()).or_default().1 += 1;
        self.hops.push(Hop {
            handoff_id: id,
            source,
            target,
            sender: spent.unwrap_or(difference),
            receiver: Tally::default(),
            booked: spent.is_some(),
        });
    }

    /// The hops, in log order.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// What was spent in all.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.hops.iter().fold(Tally::default(), |sum, hop| sum.plus(hop.total()))
    }

    /// What each agent spent, as a sender and as the last receiver.
    #[must_use]
    pub fn per_agent(&self) -> BTreeMap<&str, Tally> {
        let mut agents: BTreeMap<&str, Tally> = BTreeMap::new();
        for hop in &self.hops {
            let sent = agents.entry(&hop.source).or_default();
            *sent = sent.plus(hop.sender);
            if hop.receiver != Tally::default() {
                let received = agents.entry(&hop.target).or_default();
                *received = received.plus(hop.receiver);
            }
        }
        agents
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
            .per_agent()
            .into_iter()
            .map(|(id, tally)| json!({"agentId": id, "usd": tally.usd, "tokens": tokens(tally)}))
            .collect();
        let per_hop: Vec<Value> = self
            .hops
            .iter()
            .map(|hop| {
                let mut view = hop.view();
                view["handoffId"] = json!(hop.handoff_id);
                view["agentId"] = json!(hop.source);
                view
            })
            .collect();
        let total = self.total();
        json!({
            "totalUSD": total.usd,
            "reportedSumUSD": self.reported,
            "tokens": tokens(total),
            "perAgent": per_agent,
            "perHop": per_hop,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(id: &str, parent: Option<&str>, source: &str, usd: f64, prompt: u64) -> Value {
        json!({
            "kind": "HANDOFF", "handoffId": id, "parentHandoffId": parent,
            "fromAgent": { "agentId": source }, "toAgent": { "agentId": "next" },
            "costAtHandoff": { "costSpentSoFarUSD": usd, "promptTokens": prompt, "completionTokens": 0 },
        })
    }

    fn account(records: &[Value]) -> Account {
        let mut account = Account::default();
        for record in records {
            account.take(record);
        }
        account
    }

    #[test]
    fn x1_hops_are_differences_and_the_reported_sum_is_plain() {
        let cost = account(&[
            hop("1", None, "a", 0.08, 100),
            hop("2", Some("1"), "b", 0.20, 300),
            hop("3", Some("2"), "c", 0.25, 350),
        ])
        .cost();
        assert_eq!(cost["totalUSD"], json!(0.25));
        assert_eq!(cost["reportedSumUSD"], json!(0.53));
        assert_eq!(cost["tokens"]["prompt"], json!(350));
        assert_eq!(
            cost["perAgent"][1],
            json!({"agentId": "b", "usd": 0.12, "tokens": {"prompt": 200, "completion": 0}})
        );
        assert_eq!(
            cost["perHop"][1],
            json!({"handoffId": "2", "agentId": "b", "usd": 0.12, "tokens": {"prompt": 200, "completion": 0}}),
            "as versions before the books wrote it"
        );
    }

    #[test]
    fn what_was_spent_before_a_rollback_counts_once() {
        let account = account(&[
            hop("1", None, "a", 0.08, 0),
            hop("1b", None, "a", 0.10, 0),
            hop("2", Some("1b"), "b", 0.15, 0),
        ]);
        assert_eq!(account.cost()["totalUSD"], json!(0.15));
    }

    #[test]
    fn two_branches_from_one_parent_each_count_from_it() {
        let account = account(&[
            hop("1", None, "a", 0.10, 0),
            hop("2", Some("1"), "b", 0.13, 0),
            hop("3", Some("1"), "c", 0.15, 0),
        ]);
        assert_eq!(account.cost()["totalUSD"], json!(0.18));
    }

    #[test]
    fn f1_2_what_the_books_counted_goes_before_any_difference_and_an_end_counts_for_its_receiver() {
        let spent =
            |usd: f64| json!({ "usd": usd, "tokenSpent": { "prompt": 2, "completion": 1 } });
        let mut first = hop("1", None, "a", 0.10, 0);
        first["spent"] = spent(0.07);
        let end = |usd| json!({ "kind": "COMPLETED", "handoffId": "1", "spent": spent(usd) });
        let cost = account(&[first, end(0.02), end(0.01)]).cost();
        assert_eq!(cost["totalUSD"], json!(0.10));
        assert_eq!(cost["perAgent"][0]["usd"], json!(0.07));
        assert_eq!(cost["perAgent"][1]["usd"], json!(0.03));
        let one = &cost["perHop"][0];
        assert_eq!(
            (&one["senderSpentUSD"], &one["receiverSpentUSD"]),
            (&json!(0.07), &json!(0.03))
        );
        assert_eq!(one["tokens"], json!({ "prompt": 6, "completion": 3 }));
    }
}
