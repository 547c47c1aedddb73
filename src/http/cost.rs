//! `GET /tasks/{taskId}/cost`: what a task may spend and who spent it, by agent and by handoff.

use std::collections::{BTreeMap, HashMap, HashSet};

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::auth::{Caller, Open};
use super::extract::Id;
use super::open;
use super::problem::Problem;
use super::tasks::find;
use handoffd_broker::trace::{self, TaskLog};
use handoffd_domain::funds::{Funds, Reservation, Spending};
use handoffd_domain::handoff::{Handoff, HandoffStatus};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};
use handoffd_domain::money::Usd;
use handoffd_evidence::account::Account;
use handoffd_evidence::account::SpentTokens;
use handoffd_store::store::HandoffFilter;

/// Handoffs read at once.
const PAGE: i64 = 500;

/// The sums of a task. At any time `grantedUSD = spentUSD + reservedUSD + remainingUSD - overdrawnUSD`.
#[derive(Debug, Serialize, ToSchema)]
pub struct SumsView {
    /// The money that may be spent in all: the task's first budget, and the amounts that operators added.
    #[serde(rename = "grantedUSD")]
    #[schema(value_type = f64)]
    pub granted: Usd,
    /// The money spent in all; never falls.
    #[serde(rename = "spentUSD")]
    #[schema(value_type = f64)]
    pub spent: Usd,
    /// The money that open handoffs set aside for their receivers.
    #[serde(rename = "reservedUSD")]
    #[schema(value_type = f64)]
    pub reserved: Usd,
    /// Neither spent nor set aside.
    #[serde(rename = "remainingUSD")]
    #[schema(value_type = f64)]
    pub remaining: Usd,
    /// The money that agents report as spent beyond their budget.
    #[serde(rename = "overdrawnUSD")]
    #[schema(value_type = f64)]
    pub overdrawn: Usd,
    /// Tokens of all agents on the task.
    pub tokens: SpentTokens,
}

/// The cost of one agent's handoffs on the task.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCostView {
    /// Id of the agent whose costs these are.
    pub agent_id: String,
    /// US dollars that it spent on the task.
    #[serde(rename = "spentUSD")]
    #[schema(value_type = f64)]
    pub spent: Usd,
    /// Tokens that it used.
    pub tokens: SpentTokens,
    /// The money that it holds and may still spend or hand on.
    #[serde(rename = "heldUSD")]
    #[schema(value_type = f64)]
    pub held: Usd,
}

/// One handoff.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HopCostView {
    /// UUID of the handoff.
    pub handoff_id: String,
    /// UUID of the handoff of this list that it follows; absent for one that follows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_handoff_id: Option<String>,
    /// Id of the agent that sent it.
    pub from_agent_id: String,
    /// Id of the agent that received it.
    pub to_agent_id: String,
    /// Its status.
    #[schema(value_type = open::HandoffStatus)]
    pub status: String,
    /// `costSpentSoFarUSD` of its message: cumulative along the path to it.
    #[serde(rename = "statedSpentUSD")]
    #[schema(value_type = f64)]
    pub stated_spent: Usd,
    /// `costBudgetRemainingUSD` of its message.
    #[serde(rename = "statedRemainingUSD")]
    #[schema(value_type = f64)]
    pub stated_remaining: Usd,
    /// The sender's spending up to the handoff, since its last report. Together with the receivers'
    /// spending, the hops of a task add up to `spentUSD`.
    #[serde(rename = "senderSpentUSD")]
    #[schema(value_type = f64)]
    pub sender_spent: Usd,
    /// The receiver's own spending, as it reported it at the end; without the money that it handed on.
    #[serde(rename = "receiverSpentUSD")]
    #[schema(value_type = f64)]
    pub receiver_spent: Usd,
    /// Tokens of sender and receiver together.
    pub tokens: SpentTokens,
    /// The part of it that its receiver holds.
    #[serde(rename = "reservedUSD")]
    #[schema(value_type = f64)]
    pub reserved: Usd,
}

/// The cost of a task.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskCostView {
    /// UUID of the task.
    pub task_id: String,
    /// Its status.
    #[schema(value_type = open::TaskStatus)]
    pub status: String,
    /// The sums; null for a task that was begun before there were books.
    pub sums: Option<SumsView>,
    /// The cost by agent.
    pub agents: Vec<AgentCostView>,
    /// By handoff, oldest first: each after the one that it follows.
    pub hops: Vec<HopCostView>,
}

/// The budget of a task and its spending: by agent, and by handoff.
#[utoipa::path(
    get, path = "/tasks/{taskId}/cost", tag = "tasks", operation_id = "getTaskCost",
    params(("taskId" = String, Path, description = "The task's UUID")),
    responses(
        (status = 200, description = "Its books", body = TaskCostView),
        (status = 404, description = "No such task, or not the caller's"),
        (status = 503, description = "The store is away"),
    )
)]
pub(super) async fn cost(
    State(api): State<Api>,
    Open(Caller(principal)): Open<Caller>,
    Id(id): Id<TaskId>,
) -> Result<axum::Json<TaskCostView>, Problem> {
    let task = find(&api, &principal, id).await?;
    let filter = HandoffFilter { task_id: Some(id), ..HandoffFilter::default() };
    let (mut handoffs, mut after) = (Vec::new(), None);
    loop {
        let page =
            api.store.list_handoffs(&principal.tenant, &filter, after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.created_at, last.id.to_string()));
        handoffs.extend(page);
    }
    handoffs.reverse();
    let funds = task.funds.as_deref();
    // The log has the records of each handoff that was just read, once it is settled.
    api.store.settle_log(&principal.tenant).await?;
    let (store, contents, tenant) = (&*api.store, &api.contents, &principal.tenant);
    let account = trace::account(&TaskLog { store, contents, tenant, id, until: i64::MAX }).await?;
    Ok(axum::Json(TaskCostView {
        task_id: id.to_string(),
        status: task.status.as_str().to_owned(),
        sums: funds.map(sums),
        agents: funds.map(agents).unwrap_or_default(),
        hops: hops(&handoffs, funds, &account),
    }))
}

fn sums(funds: &Funds) -> SumsView {
    let none = Usd(0);
    let all = funds.agents.values().fold(Spending::default(), |sum, one| sum.plus(*one));
    SumsView {
        granted: funds.granted,
        spent: funds.spent,
        reserved: funds.reserved(),
        remaining: funds.free.max(none),
        overdrawn: none.minus(funds.free).max(none),
        tokens: all.into(),
    }
}

/// The agents that spent or hold money.
fn agents(funds: &Funds) -> Vec<AgentCostView> {
    let mut parts: BTreeMap<&AgentId, (Spending, Usd)> =
        funds.agents.iter().map(|(id, spent)| (id, (*spent, Usd(0)))).collect();
    for one in &funds.reserves {
        let (_, held) = parts.entry(&one.holder).or_default();
        *held = held.plus(one.left);
    }
    let view = |(id, (spent, held)): (&AgentId, (Spending, Usd))| AgentCostView {
        agent_id: id.to_string(),
        spent: spent.usd,
        tokens: spent.into(),
        held,
    };
    parts.into_iter().map(view).collect()
}

/// The handoffs that were committed, oldest first.
fn hops(handoffs: &[Handoff], funds: Option<&Funds>, account: &Account) -> Vec<HopCostView> {
    let crossed =
        |one: &&Handoff| !matches!(one.status, HandoffStatus::NoOp | HandoffStatus::DeadLettered);
    let reserves: HashMap<HandoffId, &Reservation> = funds
        .into_iter()
        .flat_map(|funds| funds.reserves.iter().map(|one| (one.handoff, one)))
        .collect();
    let mut spent: HashMap<&str, (Spending, Spending)> = HashMap::new();
    for hop in account.hops() {
        let (sender, receiver) = spent.entry(&hop.handoff_id).or_default();
        (*sender, *receiver) = (sender.plus(hop.sender), receiver.plus(hop.receiver));
    }
    let mut listed = HashSet::new();
    let mut view = |one: &Handoff| {
        // A parent comes before the handoffs that follow it; a handoff that names another parent follows none.
        let parent = one.parent_id.filter(|id| listed.contains(id));
        listed.insert(one.id);
        let spent = spent.get(one.id.to_string().as_str()).copied().unwrap_or_default();
        hop(one, parent, reserves.get(&one.id).copied(), spent)
    };
    handoffs.iter().filter(crossed).map(&mut view).collect()
}

fn hop(
    one: &Handoff,
    parent: Option<HandoffId>,
    reserve: Option<&Reservation>,
    (sender, receiver): (Spending, Spending),
) -> HopCostView {
    HopCostView {
        handoff_id: one.id.to_string(),
        parent_handoff_id: parent.map(|id| id.to_string()),
        from_agent_id: one.source.to_string(),
        to_agent_id: one.target.to_string(),
        status: one.status.as_str().to_owned(),
        stated_spent: one.cost.spent,
        stated_remaining: one.cost.remaining,
        sender_spent: sender.usd,
        receiver_spent: receiver.usd,
        tokens: sender.plus(receiver).into(),
        reserved: reserve.map_or(Usd(0), |reserve| reserve.left),
    }
}
