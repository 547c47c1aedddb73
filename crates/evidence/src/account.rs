//! The cost of a task by hop and by agent, from its records alone: the only source of the figures in traces, bundles,
//! reports and `GET /tasks/{taskId}/cost`. Pure.
//!
//! Each record states as `spent` the spending counted against the task budget (`handoffd_domain::funds`): for a handoff
//! the sender's since its last statement, for an end the receiver's except what it handed on. The sums equal the
//! budget's own. Records of older versions have only cumulative figures (ruling X1): a hop's cost is then the
//! difference between its message's figure and its parent's. If a sender sent several messages from the same parent,
//! the base is the highest figure that it stated on that parent.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use handoffd_domain::funds::Spending;
use handoffd_domain::money::Usd;

/// The cost of one handoff.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HopCost {
    pub handoff_id: String,
    pub source: String,
    pub target: String,
    /// The sender's spending since its last statement, as of the handoff.
    pub sender: Spending,
    /// The receiver's final spending, except what it handed on.
    pub receiver: Spending,
    /// The operator's cost of a model's summary, which is not part of the task's cost.
    pub compression: Usd,
    /// Whether the record states the counted spending; otherwise the figure is a difference.
    booked: bool,
}

impl HopCost {
    /// Spending of both parties.
    #[must_use]
    pub fn total(&self) -> Spending {
        self.sender.plus(self.receiver)
    }

    /// `{usd, tokens}`, with both parts if the record states them.
    #[must_use]
    pub fn view(&self) -> Value {
        let total = self.total();
        let mut view = json!({ "usd": total.usd, "tokens": tokens(total) });
        if let (Some(view), true) = (view.as_object_mut(), self.booked) {
            view.insert("senderSpentUSD".to_owned(), json!(self.sender.usd));
            view.insert("receiverSpentUSD".to_owned(), json!(self.receiver.usd));
        }
        if let (Some(view), true) = (view.as_object_mut(), self.compression > Usd(0)) {
            view.insert("compressionUSD".to_owned(), json!(self.compression));
        }
        view
    }
}

fn tokens(tally: Spending) -> Value {
    json!({ "prompt": tally.prompt, "completion": tally.completion })
}

fn text(body: &Value, pointer: &str) -> String {
    body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Money and tokens at a pointer of a record, in the current or the older spelling.
fn figures(body: &Value, usd: &str) -> Option<Spending> {
    let count = |names: [&str; 2]| {
        names.iter().find_map(|name| body.pointer(name).and_then(Value::as_u64)).unwrap_or(0)
    };
    Some(Spending {
        usd: Usd::from_f64(body.get(usd)?.as_f64()?),
        prompt: count(["/tokenSpent/prompt", "/promptTokens"]),
        completion: count(["/tokenSpent/completion", "/completionTokens"]),
    })
}

/// The amount that a record counts against its task's budget; none if it states no amount.
#[must_use]
pub fn spent(body: &Value) -> Option<Spending> {
    booked(body.get("spent")?)
}

/// The amount of a `spent` member.
pub(crate) fn booked(spent: &Value) -> Option<Spending> {
    figures(spent, "usd")
}

/// The account of one task. Its records are added in log order.
#[derive(Debug, Default)]
pub struct Account {
    stated: BTreeMap<String, Spending>,
    tried: BTreeMap<(String, String), Spending>,
    roles: BTreeMap<String, (u64, u64)>,
    hops: Vec<HopCost>,
    /// The last hop of each handoff. A handoff that was released again has two hops, of which the last one ends.
    places: HashMap<String, usize>,
    reported: Usd,
}

impl Account {
    /// Adds the next record of the task.
    pub fn take(&mut self, body: &Value) {
        let spent = spent(body);
        match (body.get("kind").and_then(Value::as_str), spent) {
            (Some("HANDOFF"), spent) => self.hop(body, spent),
            (_, Some(spent)) => {
                let id = text(body, "/handoffId");
                if let Some(hop) = self.last_hop(&id) {
                    hop.receiver = hop.receiver.plus(spent);
                }
            }
            (Some("COMPRESSED"), None) => {
                let id = text(body, "/handoffId");
                let cost = body.pointer("/compression/costUSD").and_then(Value::as_f64);
                if let Some(hop) = self.last_hop(&id) {
                    hop.compression = Usd::from_f64(cost.unwrap_or_default());
                }
            }
            (_, None) => {}
        }
    }

    fn last_hop(&mut self, id: &str) -> Option<&mut HopCost> {
        self.places.get(id).and_then(|place| self.hops.get_mut(*place))
    }

    fn hop(&mut self, body: &Value, spent: Option<Spending>) {
        let (id, parent) = (text(body, "/handoffId"), text(body, "/parentHandoffId"));
        let source = text(body, "/fromAgent/agentId");
        let target = text(body, "/toAgent/agentId");
        let cost = body.get("costAtHandoff");
        let now = cost.and_then(|cost| figures(cost, "costSpentSoFarUSD")).unwrap_or_default();
        let given = self.stated.get(&parent).copied().unwrap_or_default();
        let before = self.tried.entry((parent, source.clone())).or_insert(given);
        let difference = Spending { usd: now.usd.minus(before.usd), ..now.since(*before) };
        *before = before.max(now);
        self.stated.insert(id.clone(), now);
        self.reported = self.reported.plus(now.usd);
        self.roles.entry(source.clone()).or_default().0 += 1;
        self.roles.entry(target.clone()).or_default().1 += 1;
        self.places.insert(id.clone(), self.hops.len());
        self.hops.push(HopCost {
            handoff_id: id,
            source,
            target,
            sender: spent.unwrap_or(difference),
            receiver: Spending::default(),
            compression: Usd(0),
            booked: spent.is_some(),
        });
    }

    /// The hops, in log order.
    #[must_use]
    pub fn hops(&self) -> &[HopCost] {
        &self.hops
    }

    #[must_use]
    pub fn total(&self) -> Spending {
        self.hops.iter().fold(Spending::default(), |sum, hop| sum.plus(hop.total()))
    }

    /// Spending of each agent, as a sender and as the last receiver.
    #[must_use]
    pub fn per_agent(&self) -> BTreeMap<&str, Spending> {
        let mut agents: BTreeMap<&str, Spending> = BTreeMap::new();
        for hop in &self.hops {
            let sent = agents.entry(&hop.source).or_default();
            *sent = sent.plus(hop.sender);
            if hop.receiver != Spending::default() {
                let received = agents.entry(&hop.target).or_default();
                *received = received.plus(hop.receiver);
            }
        }
        agents
    }

    /// The participating agents: `[{agentId, sent, received}]`.
    #[must_use]
    pub fn agents(&self) -> Value {
        self.roles
            .iter()
            .map(
                |(id, (sent, received))| json!({"agentId": id, "sent": sent, "received": received}),
            )
            .collect()
    }

    /// The totals (specification §6).
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
    fn a84_a_summarys_cost_stands_on_its_hop_and_is_no_part_of_the_tasks() {
        let compressed =
            json!({ "kind": "COMPRESSED", "handoffId": "1", "compression": { "costUSD": 0.001 } });
        let cost = account(&[hop("1", None, "a", 0.08, 100), compressed]).cost();
        assert_eq!(
            (&cost["totalUSD"], &cost["perHop"][0]["compressionUSD"]),
            (&json!(0.08), &json!(0.001))
        );
        let plain = account(&[hop("1", None, "a", 0.08, 100)]).cost();
        assert!(plain["perHop"][0].get("compressionUSD").is_none());
    }

    /// As many hops as `gate.max_hops` allows, each with an end.
    #[test]
    fn the_longest_task_is_summed_up() {
        let id = |n: usize| format!("h{n}");
        let mut records = Vec::new();
        for n in 0..10_000_usize {
            let parent = n.checked_sub(1).map(id);
            let mut one = hop(&id(n), parent.as_deref(), "a", 0.0, 0);
            one["spent"] = json!({ "usd": 0.001 });
            records.push(one);
        }
        let end = |n| json!({ "kind": "COMPLETED", "handoffId": id(n), "spent": { "usd": 0.001 } });
        records.extend((0..10_000).rev().map(end));
        let account = account(&records);
        assert_eq!(account.hops().len(), 10_000);
        assert_eq!(account.cost()["totalUSD"], json!(20.0));
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
