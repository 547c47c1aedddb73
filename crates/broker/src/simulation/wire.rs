//! The network between brokers and webhook receivers: it refuses, loses, delays and duplicates requests, and knows for
//! each attempt whether it reached a receiver.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use super::broker::Host;
use super::dice::{below, one_of, pause};
use super::pieces::is_opening;
use super::receivers;
use super::world::World;
use crate::dispatch::webhook::{Post, Posted, Timing, WebhookRequest};
use crate::transport::answer::classify;
use crate::transport::{AttemptFailure, AttemptOutcome, FailureClass, VerdictClock};
use handoffd_domain::ids::{AgentId, HandoffId, TaskId};

/// An attempt as its receiver sees it.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) receiver: AgentId,
    pub(super) handoff: HandoffId,
    pub(super) task: TaskId,
    pub(super) attempt: i32,
    pub(super) token: i64,
    /// Whether the rest of the message comes in chunks.
    pub(super) opening: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<&'static str>,
    pub(super) body: &'static str,
}

/// A broker's connection to its receivers.
pub(super) struct Wire {
    pub(super) world: Arc<World>,
    pub(super) host: Arc<Host>,
}

/// Reads an attempt from its headers, as a receiver does; a receiver's URL ends with its name.
fn arrival(request: &WebhookRequest) -> Option<Arrival> {
    let headers = &request.headers;
    Some(Arrival {
        receiver: request.url.rsplit('/').next()?.parse().ok()?,
        handoff: headers.handoff_id.as_ref()?.parse().ok()?,
        task: headers.task_id.as_ref()?.parse().ok()?,
        attempt: i32::try_from(headers.attempt?).ok()?,
        token: headers.fencing_token?,
        opening: is_opening(&request.body),
    })
}

/// The deadline of the receiver's verdict.
fn verdict_ends(
    request: &WebhookRequest,
    started: Instant,
    sent: Option<Instant>,
) -> Option<Instant> {
    match request.verdict {
        VerdictClock::Running(left) => Some(started + left),
        VerdictClock::FromFirstByte(all) => sent.map(|sent| sent + all),
        VerdictClock::Stopped => None,
    }
}

#[async_trait]
impl Post for Wire {
    async fn send(&self, request: WebhookRequest) -> Posted {
        let started = Instant::now();
        self.host.moves().await;
        let arrival = arrival(&request).expect("the headers that receivers are promised");
        self.world.books().posted(&arrival, &self.host.name);
        self.world.books().sends(arrival.handoff, &request.body);
        let attempt = started + request.timeout;
        let mut sent = None;
        let outcome = self.exchange(&request, &arrival, started, &mut sent).await;
        let verdict = verdict_ends(&request, started, sent);
        let cut =
            matches!(&outcome, AttemptOutcome::Failed(one) if one.class == FailureClass::Timeout);
        let overdue = cut && verdict.is_some_and(|at| at <= attempt);
        self.world.note(|| {
            format!(
                "{} attempt {} of {}: {}",
                self.host.name,
                arrival.attempt,
                arrival.handoff,
                match &outcome {
                    AttemptOutcome::Failed(failure) => failure.detail.clone(),
                    other => format!("{other:?}"),
                }
            )
        });
        self.host.moves().await;
        // The broker knows from here on.
        self.world.books().answered(&arrival, &outcome);
        let sent = sent.map(|at| at - started);
        let timing = Timing { elapsed: started.elapsed(), sent, overdue };
        Posted { outcome, timing, answer: None }
    }
}

impl Wire {
    async fn exchange(
        &self,
        request: &WebhookRequest,
        arrival: &Arrival,
        started: Instant,
        sent: &mut Option<Instant>,
    ) -> AttemptOutcome {
        let Self { world, host } = self;
        tokio::time::sleep(pause(1, 15)).await;
        host.moves().await;
        if world.fails(world.weather.refused) {
            let class = *one_of(&[FailureClass::Connect, FailureClass::Dns, FailureClass::Tls]);
            return AttemptOutcome::Failed(AttemptFailure::unreached(class, "refused"));
        }
        *sent = Some(Instant::now());
        let attempt = started + request.timeout;
        let deadline = verdict_ends(request, started, *sent).map_or(attempt, |at| at.min(attempt));
        let late = || {
            let class = FailureClass::Timeout;
            AttemptOutcome::Failed(AttemptFailure::reached(class, None, "no answer in time"))
        };
        if world.fails(world.weather.unanswered / 2) {
            // The request is lost on the way, which the broker cannot detect.
            tokio::time::sleep_until(deadline).await;
            return late();
        }
        if world.fails(world.weather.twice) {
            let (world, again) = (Arc::clone(world), arrival.clone());
            tokio::spawn(async move {
                tokio::time::sleep(pause(1, 1_000)).await;
                receivers::receive(&world, &again).await;
            });
        }
        // A message on its way arrives, whatever happens to the broker meanwhile.
        let receiving = {
            let (world, arrival) = (Arc::clone(world), arrival.clone());
            tokio::spawn(async move { receivers::receive(&world, &arrival).await })
        };
        let Ok(answer) = timeout_at(deadline, receiving).await else { return late() };
        let answer = answer.expect("a receiver does not panic");
        if world.fails(world.weather.crash * 4) {
            world.note(|| {
                format!("{} dies before it hears of attempt {}", host.name, arrival.attempt)
            });
            host.dead.cancel();
            host.moves().await;
        }
        if world.fails(world.weather.unanswered / 2) {
            if below(2) == 0 {
                let class = FailureClass::Protocol;
                let broken = AttemptFailure::reached(class, None, "the connection broke");
                return AttemptOutcome::Failed(broken);
            }
            tokio::time::sleep_until(deadline).await;
            return late();
        }
        tokio::time::sleep(Duration::from_millis(below(15))).await;
        let Answer { status, retry_after, body } = answer;
        classify(status, retry_after, body.as_bytes(), request.timestamp_s)
    }
}
