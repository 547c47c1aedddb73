//! Receivers: their answers to webhooks, their pulls, and their work on accepted handoffs.

use std::sync::Arc;

use super::asks::{Draft, Form, agents, ask, command, say, submit};
use super::broker::{CLAIM, LEASE, VERDICT};
use super::dice::{below, chance, one_of, pause, weighted};
use super::pieces::{self, is_opening, is_whole};
use super::senders::{fresh_id, lent, ruling};
use super::wire::{Answer, Arrival};
use super::world::{World, agent, tenant};
use crate::ledger::commands::{Lease, Leased, VerdictKind};
use handoffd_domain::handoff::{DeliveryMode, Handoff};
use handoffd_domain::ids::{AgentId, ExecutionId, HandoffId, TaskId};
use handoffd_evidence::record::Actor;

/// A receiver's accepted handoff.
#[derive(Debug, Clone)]
struct HeldHandoff {
    who: AgentId,
    task: TaskId,
    handoff: HandoffId,
    token: i64,
}

const fn answer(status: u16, body: &'static str) -> Answer {
    Answer { status, retry_after: None, body }
}

/// A webhook receiver's answer to an attempt.
pub(super) async fn receive(world: &Arc<World>, arrival: &Arrival) -> Answer {
    let Arrival { receiver, task, handoff, token, opening, .. } = arrival.clone();
    world.books().got_opening(handoff, opening);
    let held = HeldHandoff { who: receiver, task, handoff, token };
    tokio::time::sleep(pause(1, 40)).await;
    if world.fails(50) {
        // Longer than any timeout.
        tokio::time::sleep(pause(500, 3_000)).await;
    }
    let unwilling = if world.is_calm() { 0 } else { world.weather.unwilling };
    match weighted(&[600, 400, unwilling, unwilling, unwilling, unwilling / 2, unwilling / 2]) {
        0 => {
            work(world, held);
            answer(200, r#"{"status":"ACCEPTED"}"#)
        }
        1 => {
            later(world, held);
            answer(202, "")
        }
        2 => answer(422, r#"{"status":"REJECTED","reason":"NOT_MINE"}"#),
        3 => Answer { status: 503, retry_after: Some("1"), body: "" },
        4 => answer(500, ""),
        // The receiver forgets the handoff: no verdict follows its 202.
        5 => answer(202, ""),
        _ => answer(200, "<html>a proxy's page</html>"),
    }
}

/// A verdict that follows by callback.
fn later(world: &Arc<World>, held: HeldHandoff) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let unwilling = world.fails(world.weather.unwilling / 2);
        tokio::time::sleep(if unwilling { pause(100, 4_000) } else { pause(10, 700) }).await;
        let word = match weighted(&[700, if unwilling { 400 } else { 0 }, 100]) {
            0 => VerdictKind::Accept,
            1 => VerdictKind::Reject("TOO_MUCH".to_owned()),
            _ => VerdictKind::Complete,
        };
        let done = word != VerdictKind::Accept;
        if speak(&world, &held, word).await && !done {
            work(&world, held);
        }
    });
}

/// Sends a verdict, sometimes first with the token of another claim.
async fn speak(world: &Arc<World>, held: &HeldHandoff, word: VerdictKind) -> bool {
    let on = (held.task, held.handoff);
    if world.fails(world.weather.stale) {
        let wrong = held.token + if below(2) == 0 { 1 } else { -1 };
        say(world, &held.who, on, wrong, word.clone()).await;
    }
    say(world, &held.who, on, held.token, word).await
}

/// Works on an accepted handoff for a drawn time, and reports its end or fails to.
fn work(world: &Arc<World>, held: HeldHandoff) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        tokio::time::sleep(pause(10, 900)).await;
        while world.fails(300) {
            speak(&world, &held, VerdictKind::Heartbeat).await;
            tokio::time::sleep(pause(200, 2_500)).await;
        }
        if chance(200) {
            ask_sender(&world, &held).await;
        }
        if chance(900) && !comes_whole(&world, &held).await {
            return;
        }
        let unwilling = if world.is_calm() { 0 } else { world.weather.unwilling };
        match weighted(&[600, 250, unwilling / 3, unwilling / 3]) {
            0 => {
                speak(&world, &held, VerdictKind::Complete).await;
            }
            1 => {
                hand_on(&world, &held).await;
                speak(&world, &held, VerdictKind::Complete).await;
            }
            2 => {
                speak(&world, &held, VerdictKind::Fail("gave up".to_owned())).await;
            }
            // The receiver sends nothing more, and its lease runs out.
            _ => {}
        }
    });
}

/// Waits for the end of a handoff's stream and sends heartbeats meanwhile; false if the message stays incomplete.
async fn comes_whole(world: &Arc<World>, held: &HeldHandoff) -> bool {
    loop {
        let waited = tokio::time::timeout(LEASE / 2, async {
            let whole = is_whole(world, held.handoff).await;
            while whole && !world.books().is_told(held.handoff) {
                tokio::time::sleep(pause(50, 250)).await;
            }
            whole
        });
        match waited.await {
            Ok(whole) => return whole,
            Err(_) if speak(world, held, VerdictKind::Heartbeat).await => {}
            Err(_) => return false,
        }
    }
}

/// Asks the sender and usually waits for the answer; some receivers continue without it.
async fn ask_sender(world: &Arc<World>, held: &HeldHandoff) {
    let on = (held.task, held.handoff);
    if !ask(world, &held.who, on, held.token).await || chance(150) {
        return;
    }
    for _ in 0..20 {
        tokio::time::sleep(pause(50, 300)).await;
        let Ok(Some(one)) = world.store.find_handoff(&(tenant(), held.handoff)).await else {
            return;
        };
        if one.open_question().is_none() {
            return;
        }
    }
}

/// Submits the next hop of the task, with the rest of the budget.
async fn hand_on(world: &Arc<World>, held: &HeldHandoff) {
    // The receiver knows the figures from its message.
    let key = (tenant(), held.handoff);
    let Ok(Some(got)) = world.store.find_handoff(&key).await else { return };
    let next = next_hop(world, held, &got);
    submit(world, &next).await;
}

fn next_hop(world: &Arc<World>, held: &HeldHandoff, got: &Handoff) -> Draft {
    let others: Vec<_> = agents().into_iter().filter(|id| *id != held.who).collect();
    let handoff = fresh_id(world);
    let cost = below(100) as i64;
    // Some receivers state more budget than is left.
    let made_up = if world.fails(60) { 1 + below(50) as i64 } else { 0 };
    Draft {
        handoff,
        task: held.task,
        parent: Some(held.handoff),
        source: held.who.clone(),
        run: ExecutionId(handoff.0),
        target: one_of(&others).clone(),
        spent: got.cost.spent.0 + cost,
        remaining: got.cost.remaining.0 - cost + made_up,
        completed: below(6) as i64,
        ruling: lent(ruling(), &held.who),
        key: None,
        form: Form::Whole,
        body: Vec::new(),
    }
    .formed(1)
}

/// A pull receiver's request for its inbox, as `http/inbox.rs` serves it: a claim, then a token of its own.
pub(super) async fn pull(world: Arc<World>, who: AgentId) {
    loop {
        let broker = world.any_broker();
        let receiver = (tenant(), who.clone());
        let woken = {
            let watch = broker.ledger.watch_inbox(receiver.clone(), 32);
            let patience = pause(200, 1_200);
            async move {
                if let Some(mut watch) = watch {
                    let _ = tokio::time::timeout(patience, watch.changed()).await;
                }
            }
        };
        let now = broker.clock.now();
        let claimed = tokio::select! {
            biased;
            () = broker.host.dead.cancelled() => None,
            claimed = broker.store.claim(
                &receiver,
                DeliveryMode::Pull,
                &broker.host.name,
                now,
                now.plus(CLAIM),
                1 + below(3) as i64,
            ) => claimed.ok(),
        };
        let claims = claimed.unwrap_or_default();
        let nothing = claims.is_empty();
        for mut claim in claims {
            let prepared = tokio::select! {
                biased;
                () = broker.host.dead.cancelled() => continue,
                prepared = broker.compression.prepare(&broker.ledger, &mut claim) => prepared,
            };
            if prepared.is_err() {
                continue;
            }
            let lease = Lease {
                task_id: claim.task_id,
                handoff_id: claim.handoff_id,
                attempt: claim.attempt,
                verdict_by: now.plus(VERDICT),
            };
            let asked = broker.call(&world, |now| command(now, Actor::broker(), lease));
            let Some(Ok(Some(Leased { handoff, .. }))) = asked.await else { continue };
            world.books().leased(&handoff);
            world.books().sends(handoff.id, &claim.body);
            if is_opening(&claim.body) {
                tokio::spawn(pieces::read(Arc::clone(&world), handoff.id));
            }
            world.note(|| {
                let id = super::books::short(handoff.id);
                format!("{who} pulled {id} with token {}", handoff.fencing_token)
            });
            let held = HeldHandoff {
                who: who.clone(),
                task: handoff.task_id,
                handoff: handoff.id,
                token: handoff.fencing_token,
            };
            // Some receivers take longer than their claim lasts.
            if !world.fails(100) {
                later(&world, held);
            } else if chance(500) {
                let world = Arc::clone(&world);
                tokio::spawn(async move {
                    tokio::time::sleep(CLAIM + pause(0, 1_000)).await;
                    speak(&world, &held, VerdictKind::Accept).await;
                });
            }
        }
        if nothing {
            woken.await;
        }
        tokio::time::sleep(pause(20, 120)).await;
    }
}

pub(super) fn puller() -> AgentId {
    agent("p")
}
