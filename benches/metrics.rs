//! The cost of metrics: the observations that one handoff causes, and a scrape of the page.
//!
//! `cargo bench --bench metrics`. A broker has no switch that turns metrics off, so their share is this
//! time over the broker's own for a handoff (docs/performance.md).

#![allow(clippy::unwrap_used, reason = "a harness that cannot go on should stop")]

use std::hint::black_box;
use std::time::Duration;

use handoffd::metrics::Metrics;
use handoffd_domain::handoff::{Cost, DeliveryMode, Handoff, HandoffStatus};
use handoffd_domain::ids::{ExecutionId, HandoffId, Micros, TaskId};
use handoffd_domain::latency::{LatencyClock, LatencySample};
use handoffd_domain::money::Usd;
use tokio::time::Instant;

const ROUNDS: usize = 21;
const HANDOFFS: u32 = 20_000;
const SCRAPES: u32 = 20;
/// Pairs of agents: fewer than have series of their own, so that each does.
const PAIRS: usize = 190;

fn handoff(pair: usize) -> Handoff {
    Handoff {
        tenant: "default".parse().unwrap(),
        id: HandoffId(uuid::Uuid::nil()),
        task_id: TaskId(uuid::Uuid::nil()),
        parent_id: None,
        source: format!("sender-{pair}").parse().unwrap(),
        source_version: "1.0.0".to_owned(),
        source_execution: ExecutionId(uuid::Uuid::nil()),
        target: "receiver".parse().unwrap(),
        target_type: "reviewer".to_owned(),
        target_version: "1.0.0".to_owned(),
        mode: DeliveryMode::Webhook,
        status: HandoffStatus::Pending,
        fencing_token: 1,
        attempts: 1,
        deadline_at: None,
        pulse: None,
        cost: Cost { spent: Usd(0), remaining: Usd(0), prompt_tokens: 0, completion_tokens: 0 },
        idempotent: true,
        checkpoint: None,
        content_id: None,
        digest_salt: Vec::new(),
        digest: Vec::new(),
        checkpoint_commitment: None,
        commitment: None,
        origin: None,
        ruling: None,
        context: None,
        sent_id: None,
        stream: None,
        questions: Vec::new(),
        conversation_id: None,
        user_ref: None,
        topped_up: Usd(0),
        reason: None,
        traceparent: String::new(),
        tracestate: String::new(),
        span: String::new(),
        created_at: Micros(1_000_000),
        clock: LatencyClock { started_at: Micros(999_000), offered_at: Some(Micros(1_004_000)) },
        accepted_at: Some(Micros(1_020_000)),
        ended_at: None,
    }
}

/// Everything that is observed for a handoff that is submitted, delivered, accepted and completed.
fn observe(metrics: &Metrics, handoff: &mut Handoff) {
    for route in ["/handoffs", "/handoffs/{id}/complete"] {
        metrics.http_requests.with_label_values(&["POST", route, "202"]).inc();
        metrics.http_seconds.with_label_values(&[route]).observe(0.004);
    }
    metrics.count_submission("accepted", &[]);
    metrics.gate_seconds.observe(0.000_2);
    metrics.attempts.with_label_values(&["webhook", "accepted"]).inc();
    metrics.attempt_seconds.with_label_values(&["webhook"]).observe(0.003);
    for (status, event) in [
        (HandoffStatus::Pending, "agent.handoff.occurred"),
        (HandoffStatus::Accepted, "handoff.accepted"),
        (HandoffStatus::Completed, "handoff.completed"),
    ] {
        metrics.ledger_commit_seconds.observe(0.002);
        metrics.ledger_batch_size.observe(3.0);
        metrics.records_total.inc();
        metrics.events.with_label_values(&[event]).inc();
        handoff.status = status;
        metrics.count_transition(black_box(handoff));
    }
    let millis = Duration::from_millis;
    let sample = LatencySample { whole: Some(millis(21)), shares: Some((millis(5), millis(16))) };
    metrics.observe_latency(handoff, black_box(&sample));
}

/// The middle of the rounds, for one of so many.
fn median(mut rounds: Vec<Duration>, each: u32) -> Duration {
    rounds.sort();
    rounds[rounds.len() / 2] / each
}

fn main() {
    let metrics = Metrics::new().unwrap();
    let mut handoffs: Vec<_> = (0..PAIRS).map(handoff).collect();
    let mut observed = Vec::new();
    let mut scraped = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for n in 0..HANDOFFS as usize {
            observe(&metrics, &mut handoffs[n % PAIRS]);
        }
        observed.push(began.elapsed());
        let began = Instant::now();
        for _ in 0..SCRAPES {
            black_box(metrics.render().unwrap());
        }
        scraped.push(began.elapsed());
    }
    let page = metrics.render().unwrap();
    println!(
        "a handoff's observations: {:?}; a scrape of {} lines, {} KiB: {:?} (medians of {ROUNDS})",
        median(observed, HANDOFFS),
        page.lines().count(),
        page.len() / 1024,
        median(scraped, SCRAPES),
    );
}
