//! The cost of a task by hop and by agent, from its records alone: the only source of the figures in traces, bundles,
//! reports and `GET /tasks/{taskId}/cost`. Pure.
//!
//! Each record states as `spent` the spending counted against the task budget (`handoffd_domain::funds`): for a handoff
//! the sender's since its last statement, for an end the receiver's except what it handed on. The sums equal the
//! budget's own. Records of older versions have only cumulative figures (ruling X1): a hop's cost is then the
//! difference between its message's figure and its parent's. If a sender sent several messages from the same parent,
//! the base is the highest figure that it stated on that parent.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::{Value, json};

use handoffd_domain::funds::Spending;
use handoffd_domain::money::Usd;

/// Tokens that agents reported as used, summed up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SpentTokensView))]
#[serde(rename_all = "camelCase")]
pub struct SpentTokens {
    /// Tokens that the agents' models read.
    pub prompt: u64,
    /// Tokens that the agents' models wrote.
    pub completion: u64,
}

impl From<Spending> for SpentTokens {
    fn from(tally: Spending) -> Self {
        Self { prompt: tally.prompt, completion: tally.completion }
    }
}

/// An agent's part in a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TraceAgent))]
#[serde(rename_all = "camelCase")]
pub struct AgentPart {
    /// Id of the agent.
    pub agent_id: String,
    /// Handoffs that it sent.
    pub sent: u64,
    /// Handoffs that it received.
    pub received: u64,
}

/// The cost of a task, by its records.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TraceCost))]
#[serde(rename_all = "camelCase")]
pub struct TaskCost {
    /// In all, in US dollars.
    #[serde(rename = "totalUSD")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub total: Usd,
    /// The plain sum of the costs that the messages stated, in US dollars.
    #[serde(rename = "reportedSumUSD")]
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub reported_sum: Usd,
    /// Tokens of all agents on the task.
    pub tokens: SpentTokens,
    /// The cost by agent.
    pub per_agent: Vec<AgentCost>,
    /// By handoff, in log order.
    pub per_hop: Vec<HopFigures>,
}

/// An agent's spending.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TraceAgentCost))]
#[serde(rename_all = "camelCase")]
pub struct AgentCost {
    /// Id of the agent whose costs these are.
    pub agent_id: String,
    /// The amount spent, in US dollars.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub usd: Usd,
    /// Tokens used, read and written.
    pub tokens: SpentTokens,
}

/// The cost of a handoff.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TraceHopCost))]
#[serde(rename_all = "camelCase")]
pub struct HopFigures {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// Id of the agent that sent it.
    pub agent_id: String,
    /// The amount spent, in US dollars.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub usd: Usd,
    /// Tokens used, read and written.
    pub tokens: SpentTokens,
    /// The sender's spending before the handoff, in US dollars; absent in records of versions without books.
    #[serde(rename = "senderSpentUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub sender_spent: Option<Usd>,
    /// The receiver's other spending, in US dollars; absent in records of versions without books.
    #[serde(rename = "receiverSpentUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub receiver_spent: Option<Usd>,
    /// The operator's cost of a model's summary of the message; not a part of the task's cost.
    #[serde(rename = "compressionUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub compression: Option<Usd>,
}

/// The cost of a hop.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HandoffCost {
    /// The amount spent, in US dollars.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub usd: Usd,
    /// Tokens used, read and written.
    pub tokens: SpentTokens,
    /// The sender's spending before the handoff, in US dollars; absent in records of versions without books.
    #[serde(rename = "senderSpentUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub sender_spent: Option<Usd>,
    /// The receiver's other spending, in US dollars; absent in records of versions without books.
    #[serde(rename = "receiverSpentUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub receiver_spent: Option<Usd>,
    /// The operator's cost of a model's summary of the message; not a part of the task's cost.
    #[serde(rename = "compressionUSD", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>, nullable = false))]
    pub compression: Option<Usd>,
}

impl From<&HopCost> for HopFigures {
    fn from(hop: &HopCost) -> Self {
        let HandoffCost { usd, tokens, sender_spent, receiver_spent, compression } = hop.view();
        Self {
            handoff_id: hop.handoff_id.clone(),
            agent_id: hop.source.clone(),
            usd,
            tokens,
            sender_spent,
            receiver_spent,
            compression,
        }
    }
}

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

    /// The cost as a trace shows it, with both parts if the record states them.
    #[must_use]
    pub fn view(&self) -> HandoffCost {
        let total = self.total();
        HandoffCost {
            usd: total.usd,
            tokens: total.into(),
            sender_spent: self.booked.then_some(self.sender.usd),
            receiver_spent: self.booked.then_some(self.receiver.usd),
            compression: Some(self.compression).filter(|cost| *cost > Usd(0)),
        }
    }
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

    /// The participating agents, as a trace has them.
    #[must_use]
    pub fn agents(&self) -> Value {
        let part = |(id, (sent, received)): (&String, &(u64, u64))| AgentPart {
            agent_id: id.clone(),
            sent: *sent,
            received: *received,
        };
        json!(self.roles.iter().map(part).collect::<Vec<_>>())
    }

    /// The totals (specification §6), as a trace has them.
    #[must_use]
    pub fn cost(&self) -> Value {
        let total = self.total();
        let per_agent = self.per_agent().into_iter().map(|(id, tally)| AgentCost {
            agent_id: id.to_owned(),
            usd: tally.usd,
            tokens: tally.into(),
        });
        json!(TaskCost {
            total: total.usd,
            reported_sum: self.reported,
            tokens: total.into(),
            per_agent: per_agent.collect(),
            per_hop: self.hops.iter().map(HopFigures::from).collect(),
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
