//! Senders: each begins a task, hands it off, and continues when the task returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::asks::{Draft, Form, agents, command, give, submit, submit_all};
use super::dice::{below, chance, one_of, pause};
use super::world::{World, agent, tenant};
use crate::ledger::commands::{DeadLetter, Refuse};
use handoffd_domain::failure::{Code, Failure, Stage};
use handoffd_domain::handoff::HandoffStatus;
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_domain::policy::{EdgePolicy, HumanTarget, Recovery};
use handoffd_domain::ruling::Ruling;
use handoffd_domain::task::TaskStatus;
use handoffd_evidence::record::ActorRole;
use handoffd_store::store::HandoffFilter;

/// Budget of a task, in nano-dollars.
const BUDGET: i64 = 1_000;

/// The next id of this schedule: they count up, so that a trace can be read.
pub(super) fn fresh_id(world: &World) -> HandoffId {
    HandoffId(numbered(&world.ids))
}

fn numbered(ids: &AtomicU64) -> uuid::Uuid {
    let n = u128::from(ids.fetch_add(1, Ordering::Relaxed) + 1);
    uuid::Uuid::from_u128(n << 96)
}

fn recovery() -> Recovery {
    match below(6) {
        0 => Recovery::Human,
        1 => Recovery::Agent(agent("w2")),
        2 => Recovery::Agent(agent("p")),
        3 => Recovery::Supervisor,
        _ => Recovery::Source,
    }
}

/// The ruling on a handoff's end: mostly the defaults.
pub(super) fn ruling() -> Option<Box<Ruling>> {
    if chance(500) {
        return None;
    }
    let human = HumanTarget {
        target: chance(200),
        channel: None,
        timeout_ms: Some(500 + below(2_000)),
        resume_as: chance(500).then(|| agent("w1")),
    };
    let edge = EdgePolicy {
        timeout_ms: chance(300).then(|| 300 + below(2_000)),
        max_retries: chance(300).then(|| below(4) as u32),
        idempotent: !chance(250),
        on_reject: recovery(),
        on_timeout: recovery(),
        on_error: recovery(),
        human: chance(600).then_some(human),
        ..EdgePolicy::default()
    };
    let preferred = if chance(250) { vec![agent("w2"), agent("p")] } else { Vec::new() };
    let supervisor = chance(500).then(|| agent("w1"));
    Some(Box::new(Ruling { edge, supervisor, preferred, ..Ruling::default() }))
}

/// The same for a sender that now and then asks for the task's return.
pub(super) fn lent(ruling: Option<Box<Ruling>>, source: &AgentId) -> Option<Box<Ruling>> {
    if !chance(250) {
        return ruling;
    }
    let mut ruling = ruling.unwrap_or_default();
    ruling.returns_to = Some(source.clone());
    Some(ruling)
}

fn draft(world: &World, source: &AgentId, task: TaskId, spent: i64, completed: i64) -> Draft {
    let others: Vec<_> = agents().into_iter().filter(|id| id != source).collect();
    let handoff = fresh_id(world);
    let made_up = if world.fails(60) { 1 + below(50) as i64 } else { 0 };
    Draft {
        handoff,
        task,
        parent: None,
        source: source.clone(),
        run: ExecutionId(task.0),
        target: one_of(&others).clone(),
        spent,
        remaining: BUDGET - spent + made_up,
        completed,
        ruling: lent(ruling(), source),
        key: chance(200).then(|| format!("key-{handoff}")),
        form: Form::Whole,
        body: Vec::new(),
    }
    .formed(0)
}

/// Begins a task and continues it until its end.
pub(super) async fn send(world: Arc<World>) {
    let me = agent("a");
    let task = TaskId(numbered(&world.ids));
    tokio::time::sleep(pause(0, 800)).await;
    if chance(80) {
        keep_for_a_person(&world, &me, task).await;
    }
    let mut spent = 0;
    for round in 0..4 {
        let first = draft(&world, &me, task, spent, round);
        if chance(250) {
            submit_all(&world, &first.whole()).await;
        } else if submit(&world, &first).await.is_some() && chance(250) {
            // Another one beside it, of the same task.
            submit(&world, &draft(&world, &me, task, spent, round)).await;
        }
        spent += below(80) as i64;
        if world.is_calm() || !comes_back(&world, &me, task).await {
            return;
        }
    }
}

/// Answers what receivers ask, sooner or later or never: without an answer a handoff expires.
pub(super) async fn answer(world: Arc<World>) {
    loop {
        tokio::time::sleep(pause(50, 500)).await;
        let filter = HandoffFilter {
            status: Some(HandoffStatus::InputRequired),
            ..HandoffFilter::default()
        };
        let Ok(open) = world.store.list_handoffs(&tenant(), &filter, None, 9).await else { return };
        for handoff in open.into_iter().filter(|_| chance(500)) {
            let world = Arc::clone(&world);
            tokio::spawn(async move { give(&world, &handoff).await });
        }
    }
}

/// Waits for the task's return; false where it ended elsewhere.
async fn comes_back(world: &World, me: &AgentId, task: TaskId) -> bool {
    for _ in 0..20 {
        tokio::time::sleep(pause(100, 600)).await;
        let Ok(Some(task)) = world.store.find_task(&(tenant(), task)).await else { return false };
        match task.status {
            TaskStatus::PendingHandoff if task.holder == *me => return true,
            TaskStatus::Completed | TaskStatus::Canceled => return false,
            _ => {}
        }
        if world.is_calm() {
            return false;
        }
    }
    false
}

/// A message that the safety stage refused: not delivered until a person decides.
async fn keep_for_a_person(world: &Arc<World>, me: &AgentId, task: TaskId) {
    let draft = draft(world, me, task, 0, 0).whole();
    let found =
        Failure::new(Stage::Safety, Code::SafetyViolation, "/taskDescription", "it says so");
    for _ in 0..5 {
        let broker = world.any_broker();
        let reply = broker
            .call(world, |now| {
                let refuse = Refuse {
                    task_id: Some(task),
                    handoff_id: Some(draft.handoff),
                    parent_handoff_id: None,
                    from: None,
                    to: None,
                    counted: None,
                    recovery: None,
                    failures: vec![found.clone()],
                    content: super::asks::words(now),
                    whole: Some(draft.body.clone()),
                    safety: None,
                    dead_letter: Some(Box::new(DeadLetter {
                        handoff: draft.derived(HandoffStatus::DeadLettered, now),
                        content: draft.content(now),
                        checkpoint: draft.state(),
                        personal: Vec::new(),
                        idempotency_key: None,
                    })),
                };
                let actor = super::asks::actor(ActorRole::Agent, Some(me));
                command(now, actor, refuse)
            })
            .await;
        if matches!(reply, Some(Ok(_))) {
            return;
        }
        tokio::time::sleep(pause(50, 300)).await;
    }
}
