//! Faults and figures: a killed broker, and the time to a verdict.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{by_handoff, ensure};
use crate::Bench;
use crate::broker::{Agent, REACHED, SETTLED};
use crate::claims::Check;
use crate::message::Message;
use crate::receiver::{Receiver, Say};

/// Kills the broker in the middle of many submissions, and starts it again.
pub(crate) async fn killed(bench: &Bench) -> Check {
    if bench.hooks.crash.is_none() {
        return Check::Unsupported(
            "needs --kill and --start, the commands that end and start the broker".to_owned(),
        );
    }
    crashed(bench).await.into()
}

/// Submits until told to end; keeps what the broker acknowledged. A submission without an answer is left: the broker promised nothing.
async fn submitting(bench: &Bench, a: &Agent, b: &Agent, end: &AtomicBool) -> Vec<Message> {
    let mut acknowledged = Vec::new();
    while !end.load(Ordering::Relaxed) {
        let message = Message::first(a, b);
        match bench.broker.submit(a, &message).await {
            Ok(answer) if answer.status == 202 => acknowledged.push(message),
            _ => sleep(Duration::from_millis(20)).await,
        }
    }
    acknowledged
}

async fn crashed(bench: &Bench) -> Result<String, String> {
    const SENDERS: usize = 4;
    let crash = bench.hooks.crash.as_ref().ok_or("no command to kill the broker")?;
    let receiver = bench.receiver(Say::Accept).await?;
    let (a, b) = bench.broker.pair(&receiver).await?;
    let end = AtomicBool::new(false);
    let senders = join_all((0..SENDERS).map(|_| submitting(bench, &a, &b, &end)));
    let faults = async {
        wait_for(
            || receiver.log().len() >= bench.handoffs / 2,
            "the broker delivers before the kill",
        )
        .await?;
        crash.kill().await?;
        let killed = Instant::now();
        // A killed process listens until the system has taken it down; a broker that starts before finds its port taken.
        let down = timeout(REACHED, until_down(bench)).await;
        down.map_err(|_| "the broker answers on after the kill command".to_owned())?;
        let had = receiver.log().len();
        crash.start().await?;
        // The first delivery after the start ends the outage for a user.
        wait_for(|| receiver.log().len() > had, "the broker delivers after the start").await?;
        let resumed = killed.elapsed();
        wait_for(
            || receiver.log().len() >= had + bench.handoffs / 2,
            "the broker goes on delivering",
        )
        .await?;
        end.store(true, Ordering::Relaxed);
        Ok::<Duration, String>(resumed)
    };
    let faults = async {
        let ended = faults.await;
        end.store(true, Ordering::Relaxed);
        ended
    };
    let (sent, resumed) = tokio::join!(senders, faults);
    let (messages, resumed) = (sent.concat(), resumed?);
    if all_arrived(bench, &messages, &receiver).await {
        for message in &messages {
            bench.broker.becomes(&bench.broker.handoff_path(message), &SETTLED).await?;
        }
    }
    let arrived = by_handoff(&receiver.log());
    let lost = bench.lost(&arrived, &messages);
    let again = arrived.values().filter(|ids| ids.len() > 1).count();
    let doubled = arrived.values().filter(|ids| ids.iter().any(|id| *id != ids[0])).count();
    let counted = format!(
        "{} acknowledged, {lost} lost, {doubled} doubled; {again} came again under their webhook id; first delivery {:.1} s after the kill",
        messages.len(),
        resumed.as_secs_f64(),
    );
    ensure(lost == 0 && doubled == 0, || counted.clone())?;
    Ok(counted)
}

/// Waits until everything that was acknowledged has come, as long as something still comes.
async fn all_arrived(bench: &Bench, messages: &[Message], receiver: &Receiver) -> bool {
    let (mut had, mut since) = (0, Instant::now());
    loop {
        let log = receiver.log();
        if bench.lost(&by_handoff(&log), messages) == 0 {
            return true;
        }
        if log.len() > had {
            (had, since) = (log.len(), Instant::now());
        }
        if since.elapsed() > REACHED {
            return false;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn until_down(bench: &Bench) {
    while !bench.broker.is_down().await {
        sleep(Duration::from_millis(20)).await;
    }
}

async fn wait_for(holds: impl Fn() -> bool, hope: &str) -> Result<(), String> {
    let began = Instant::now();
    while !holds() {
        ensure(began.elapsed() < REACHED, || {
            format!("after {} s it is not true that {hope}", REACHED.as_secs())
        })?;
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Submits at a steady rate for ten seconds, each waiting for its verdict.
pub(crate) async fn latency(bench: &Bench) -> Result<String, String> {
    const SECONDS: u32 = 10;
    let (a, b, _receiver) = bench.accepting().await?;
    let count = bench.rate * SECONDS;
    let began = tokio::time::Instant::now();
    let one = async |number: u32| {
        // Waiting for the appointed time and not for the answer before: a slow broker does not slow its own measurement.
        let due = began + Duration::from_secs(1) * number / bench.rate;
        tokio::time::sleep_until(due).await;
        let answer = bench.broker.submit_and_wait(&a, &Message::first(&a, &b)).await?;
        answer.expect(200, "a submission that waits for its verdict")?;
        Ok::<Duration, String>(due.elapsed())
    };
    let times: Result<Vec<Duration>, String> =
        join_all((0..count).map(one)).await.into_iter().collect();
    let mut times = times?;
    times.sort_unstable();
    let at = |share: usize| {
        times[(times.len() * share / 1_000).min(times.len() - 1)].as_secs_f64() * 1_000.0
    };
    Ok(format!(
        "{count} verdicts at {}/s: p50 {:.1} ms, p99 {:.1} ms, slowest {:.1} ms",
        bench.rate,
        at(500),
        at(990),
        at(1_000)
    ))
}
