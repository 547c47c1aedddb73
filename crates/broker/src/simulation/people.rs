//! Operators, who make the decisions reserved for people, and faults: brokers that die, stall, or lose their store.

use std::sync::Arc;

use super::asks::{actor, agents, command, words};
use super::broker::Broker;
use super::dice::{below, chance, one_of, pause};
use super::world::{World, tenant};
use crate::ledger::commands::{
    AnyCommand, CancelTask, CompleteTask, Discard, Queued, Release, Resolve, TopUp,
};
use handoffd_domain::agent::{Agent, Delivery};
use handoffd_domain::dead_letter::DeadLetterStatus;
use handoffd_domain::escalation::{EscalationStatus, Resolution};
use handoffd_domain::failure::Code;
use handoffd_domain::handoff::{DeliveryMode, Priority};
use handoffd_domain::ids::{AgentId, Micros, TaskId};
use handoffd_domain::money::Usd;
use handoffd_evidence::record::ActorRole;
use handoffd_store::store::{DeadLetterFilter, EscalationFilter, TaskFilter};

/// An agent as every schedule registers it.
pub(super) fn registered(id: &AgentId) -> Agent {
    let webhook = id.as_str().starts_with('w');
    Agent {
        delivery: Delivery {
            mode: if webhook { DeliveryMode::Webhook } else { DeliveryMode::Pull },
            url: webhook.then(|| format!("https://receivers.test/{id}")),
            timeout_ms: 400,
            max_in_flight: 3,
            ..Delivery::default()
        },
        ..Agent::new(id.clone())
    }
}

/// Makes decisions from time to time while faults occur.
pub(super) async fn operate(world: Arc<World>) {
    while !world.is_calm() {
        tokio::time::sleep(pause(200, 900)).await;
        let Some(kind) = decision(&world).await else { continue };
        let broker = world.any_broker();
        let decide = |now: Micros| command(now, actor(ActorRole::Operator, None), kind(now));
        let reply = broker.call_any(&world, decide).await;
        world.note(|| match &reply {
            None => "the operator hears nothing".to_owned(),
            Some(Ok(_)) => "the operator's word is taken".to_owned(),
            Some(Err(err)) => format!("the operator hears: {err}"),
        });
    }
}

type Decision = Box<dyn FnOnce(Micros) -> AnyCommand + Send>;

/// Reads the operator's view without faults: only decisions are subject to faults.
async fn decision(world: &World) -> Option<Decision> {
    match below(10) {
        0..=4 => resolution(world).await,
        5 | 6 => appeal(world).await,
        n => about_a_task(world, n).await,
    }
}

async fn resolution(world: &World) -> Option<Decision> {
    let filter = EscalationFilter { status: Some(EscalationStatus::Open), task_id: None };
    let open = world.store.list_escalations(&tenant(), &filter, None, 5).await.ok()?;
    let row = open.first()?.clone();
    let resolution = match below(5) {
        0 => Resolution::Retry,
        1 => Resolution::Reassign(one_of(&agents()).clone()),
        2 => Resolution::RollBack,
        3 => Resolution::Cancel,
        _ => Resolution::Complete,
    };
    let mut agents = vec![row.target.clone()];
    if let Resolution::Reassign(id) = &resolution {
        agents.push(id.clone());
    }
    Some(Box::new(move |now| {
        Resolve {
            escalation_id: row.id,
            task_id: row.task_id,
            handoff_id: row.handoff_id,
            agents,
            edge: None,
            resolution: Some(resolution),
            content: Some(words(now)),
        }
        .into_any()
    }))
}

async fn appeal(world: &World) -> Option<Decision> {
    let filter = DeadLetterFilter { status: Some(DeadLetterStatus::Open), ..Default::default() };
    let open = world.store.list_dead_letters(&tenant(), &filter, None, 5).await.ok()?;
    let row = open.first()?.clone();
    let upheld = chance(600);
    if upheld && row.failures.iter().any(|failure| failure.code == Code::BudgetMismatch) {
        world.books().grants(row.handoff_id);
    }
    let kept = world.store.find_handoff(&(tenant(), row.handoff_id)).await.ok()??;
    Some(Box::new(move |now| {
        let (handoff_id, task_id, content) = (row.handoff_id, row.task_id, words(now));
        if !upheld {
            return Discard { handoff_id, task_id, content }.into_any();
        }
        let target = row.target.filter(|id| id.as_str().starts_with('w'));
        Release {
            handoff_id,
            task_id,
            source: row.source,
            parent_id: None,
            idempotent: kept.idempotent,
            declared_budget: None,
            target: registered(&target.unwrap_or_else(|| super::world::agent("w1"))),
            ruling: None,
            priority: Priority::Normal,
            subtasks: Vec::new(),
            residency: None,
            context: None,
            safety: None,
            repeat: None,
            waived: row.failures,
            content,
        }
        .into_any()
    }))
}

async fn about_a_task(world: &World, which: u64) -> Option<Decision> {
    let tasks = world.store.list_tasks(&tenant(), &TaskFilter::default(), None, 9).await.ok()?;
    if tasks.is_empty() {
        return None;
    }
    let task_id: TaskId = one_of(&tasks).id;
    let often = chance(350);
    Some(Box::new(move |now| match which {
        7 if often => CancelTask {
            task_id,
            by: None,
            grace_until: now.plus(pause(0, 1_500)),
            content: words(now),
        }
        .into_any(),
        8 if often => CompleteTask { task_id, by: None, content: words(now) }.into_any(),
        _ => TopUp { task_id, add: Usd(below(100) as i64), content: words(now) }.into_any(),
    }))
}

/// Replaces a broker that died, after a pause.
pub(super) async fn keep_alive(world: Arc<World>, place: usize) {
    let mut life = 0;
    loop {
        let broker = Arc::clone(&world.brokers()[place]);
        broker.host.dead.cancelled().await;
        broker.kill();
        let away = if world.is_calm() { pause(0, 50) } else { pause(0, 2_500) };
        tokio::time::sleep(away).await;
        life += 1;
        let next = Arc::new(Broker::start(&world, format!("b{place}.{life}")).await);
        world.note(|| format!("{} serves", next.host.name));
        world.brokers()[place] = next;
    }
}

/// Causes faults of brokers.
pub(super) async fn trouble(world: Arc<World>) {
    loop {
        tokio::time::sleep(pause(200, 2_000)).await;
        if world.is_calm() {
            return;
        }
        let broker = world.any_broker();
        let name = &broker.host.name;
        let time = pause(200, 3_500);
        match below(4) {
            0 => {
                world.note(|| format!("{name} is killed"));
                broker.kill();
            }
            1 => {
                world.note(|| format!("{name} pauses for {time:?}"));
                broker.host.stall(time);
            }
            2 => {
                world.note(|| format!("{name} loses its store for {time:?}"));
                broker.host.cut_off(time);
            }
            _ => {}
        }
    }
}
