//! The history of a task's edges, and the decisions that depend on it: the loop guard and the budget
//! relay (specification §2.2, stages 9 and 10). Pure; the rows are read under the task's lock, so
//! that no two submissions can slip past each other.

use super::failure::{Code, Failure, Stage};
use super::funds::{Funds, FundsRequest};
use super::handoff::{Cost, Handoff};
use super::ids::{AgentId, HandoffId, Micros, TaskId, TenantId};
use super::money::Usd;
use super::policy::LoopGuard;
use super::task::Task;

/// The pointer of a loop guard's failure.
const TO: &str = "/toAgent";
/// The pointer to the spent amount in a message.
const SPENT: &str = "/costTracking/costSpentSoFarUSD";
/// The pointer to the remaining amount.
const REMAINING: &str = "/costTracking/costBudgetRemainingUSD";

/// One edge of one task: from one agent to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub tenant: TenantId,
    pub task_id: TaskId,
    pub source: AgentId,
    pub target: AgentId,
    /// Handoffs on it in all.
    pub passages: i64,
    /// Handoffs on it since a subtask was last completed on the task.
    pub repeats: i64,
    /// How many subtasks the task had a result of when it was last used.
    pub completed: i64,
    /// `costSpentSoFarUSD` of the last handoff on it.
    pub spent: Usd,
    /// `costBudgetRemainingUSD` of the last handoff on it.
    pub remaining: Usd,
    /// The task's top-ups at that time.
    pub topped_up: Usd,
    /// When it last changed.
    pub updated_at: Micros,
}

impl Edge {
    /// One that nothing has passed yet.
    #[must_use]
    pub const fn new(
        tenant: TenantId,
        task_id: TaskId,
        source: AgentId,
        target: AgentId,
        at: Micros,
    ) -> Self {
        Self {
            tenant,
            task_id,
            source,
            target,
            passages: 0,
            repeats: 0,
            completed: -1,
            spent: Usd(0),
            remaining: Usd(0),
            topped_up: Usd(0),
            updated_at: at,
        }
    }
}

/// How far a task may go before it counts as going in circles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits<'a> {
    /// Handoffs on one task.
    pub max_hops: i64,
    /// Handoffs on one edge of a task without a new completed subtask.
    pub max_edge_repeats: i64,
    /// The contract's own guard.
    pub contract: Option<&'a LoopGuard>,
}

/// A handoff that wants to be committed, as the guard sees it.
#[derive(Debug, Clone, Copy)]
pub struct Hop<'a> {
    pub source: &'a AgentId,
    pub target: &'a AgentId,
    /// How many subtasks the task has a result of, those of its message included.
    pub completed: i64,
}

fn edge_of<'a>(edges: &[&'a Edge], hop: Hop<'_>) -> Option<&'a Edge> {
    edges.iter().copied().find(|edge| edge.source == *hop.source && edge.target == *hop.target)
}

/// How often the edge will have been used without progress, counting this handoff. Progress anywhere
/// on the task counts.
fn repeats(edges: &[&Edge], hop: Hop<'_>) -> (i64, i64) {
    let mark = edges.iter().map(|edge| edge.completed).fold(hop.completed, i64::max);
    match edge_of(edges, hop) {
        Some(edge) if edge.completed >= mark => (edge.repeats + 1, mark),
        _ => (1, mark),
    }
}

/// The edge as it will be once this handoff is committed.
#[must_use]
pub fn passed(edges: &[&Edge], hop: Hop<'_>, task: &Task, cost: &Cost, at: Micros) -> Edge {
    let (repeats, mark) = repeats(edges, hop);
    let known = edge_of(edges, hop);
    Edge {
        passages: known.map_or(0, |edge| edge.passages) + 1,
        repeats,
        completed: mark,
        spent: cost.spent,
        remaining: cost.remaining,
        topped_up: task.topped_up,
        ..Edge::new(task.tenant.clone(), task.id, hop.source.clone(), hop.target.clone(), at)
    }
}

/// The loop guard. A handoff to oneself is not a hop and is not counted.
#[must_use]
pub fn check_loop(
    task: Option<&Task>,
    edges: &[&Edge],
    hop: Hop<'_>,
    limits: LoopLimits<'_>,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut found =
        |message: String| failures.push(Failure::new(Stage::Loop, Code::LoopDetected, TO, message));
    let hops = task.map_or(0, |task| task.handoffs - task.course.beside) + 1;
    if hops > limits.max_hops {
        found(format!("this would be hop {hops} of the task; {} are allowed", limits.max_hops));
    }
    let (repeats, _) = repeats(edges, hop);
    if repeats > limits.max_edge_repeats {
        let bounces = edges.iter().any(|edge| {
            edge.source == *hop.target && edge.target == *hop.source && edge.repeats > 1
        });
        let how =
            if bounces { "ping-pong between" } else { "the task went again and again between" };
        found(format!(
            "{how} {} and {}: handoff {repeats} on this edge with no new completed subtask; {} are allowed",
            hop.source, hop.target, limits.max_edge_repeats
        ));
    }
    match limits.contract {
        Some(LoopGuard::Visited)
            if edges.iter().any(|e| e.source == *hop.target || e.target == *hop.target) =>
        {
            found(format!(
                "{} has had this task before, and the contract lets each agent have it once",
                hop.target
            ));
        }
        Some(LoopGuard::Counter { max }) => {
            let passages = edge_of(edges, hop).map_or(0, |edge| edge.passages) + 1;
            if passages > i64::from(*max) {
                found(format!(
                    "this would be passage {passages} of the edge; its contract allows {max}"
                ));
            }
        }
        _ => {}
    }
    failures
}

/// The reference for a handoff's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Baseline {
    spent: Usd,
    remaining: Usd,
    topped_up: Usd,
}

/// The budget relay: what was spent never falls, and what remains never exceeds what was left minus
/// what was spent since, unless an operator topped the task up or more came back to the sender.
///
/// Several handoffs of a task may be open at once, each with the figures of its own branch. So a
/// message is measured against the handoff it follows: its parent, where the sender sent or received
/// that; else everything the sender was handed on this task; else what it said last itself; else the
/// task's own figures.
#[must_use]
pub fn check_budget(
    task: Option<&Task>,
    edges: &[&Edge],
    parent: Option<&Handoff>,
    source: &AgentId,
    cost: &Cost,
) -> Vec<Failure> {
    let Some(task) = task.filter(|task| task.handoffs > 0) else { return Vec::new() };
    let of = |edge: &&&Edge| Baseline {
        spent: edge.spent,
        remaining: edge.remaining,
        topped_up: edge.topped_up,
    };
    let own = |handoff: &&Handoff| {
        handoff.task_id == task.id && (handoff.target == *source || handoff.source == *source)
    };
    let named = task.funds.as_ref().filter(|funds| {
        // A budget that was named for the whole task: what is left of it is for the books to say.
        funds.is_declared_root(parent.map(|parent| parent.id), source)
    });
    let mut baselines: Vec<Baseline> = match (named, parent.filter(own)) {
        (Some(funds), _) => vec![Baseline {
            spent: edges
                .iter()
                .filter(|edge| edge.source == *source)
                .map(|edge| edge.spent)
                .max()
                .unwrap_or(funds.stated.usd),
            remaining: Usd(i64::MAX),
            topped_up: task.topped_up,
        }],
        (None, Some(parent)) => vec![Baseline {
            spent: parent.cost.spent,
            remaining: parent.cost.remaining,
            topped_up: parent.topped_up,
        }],
        (None, None) => {
            edges.iter().filter(|edge| edge.target == *source).map(|e| of(&e)).collect()
        }
    };
    if baselines.is_empty() {
        baselines = edges.iter().filter(|edge| edge.source == *source).map(|e| of(&e)).collect();
    }
    if baselines.is_empty() {
        baselines.push(Baseline {
            spent: task.spent,
            remaining: task.remaining,
            topped_up: task.topped_up,
        });
    }
    let parent = parent.map(|parent| parent.id);
    // The sender may hand out again the amount that came back to it, whatever it stated before.
    let ask = FundsRequest { parent, source, cost };
    let covered = task.funds.as_ref().is_some_and(|funds| funds.covers(ask));
    let found = baselines.iter().find_map(|base| mismatch(*base, task.topped_up, cost, covered));
    let short = || task.funds.as_ref().and_then(|funds| short(funds, parent, source, cost));
    found.unwrap_or_else(|| short().into_iter().collect())
}

/// An amount that the relay lets pass must also be left once the amounts that other handoffs of the
/// task hold are set aside.
#[must_use]
pub fn short(
    funds: &Funds,
    parent: Option<HandoffId>,
    source: &AgentId,
    cost: &Cost,
) -> Option<Failure> {
    let short = funds.check(FundsRequest { parent, source, cost }).err()?;
    Some(Failure::new(Stage::Budget, Code::BudgetMismatch, REMAINING, short.to_string()))
}

fn mismatch(base: Baseline, topped_up: Usd, cost: &Cost, covered: bool) -> Option<Vec<Failure>> {
    let mut failures = Vec::new();
    let mut found = |pointer: &str, message: String| {
        failures.push(Failure::new(Stage::Budget, Code::BudgetMismatch, pointer, message));
    };
    if cost.spent < base.spent {
        found(
            SPENT,
            format!(
                "the message says that {} USD were spent so far; {} USD were spent before it",
                cost.spent, base.spent
            ),
        );
    }
    let since = Usd(cost.spent.minus(base.spent).0.max(0));
    let added = topped_up.minus(base.topped_up);
    let left = base.remaining.plus(added).minus(since);
    if cost.remaining > left && !covered {
        found(
            REMAINING,
            format!(
                "the message says that {} USD remain; {} USD were left, {} USD were added and {} USD spent since, which leaves {} USD",
                cost.remaining, base.remaining, added, since, left
            ),
        );
    }
    (!failures.is_empty()).then_some(failures)
}
