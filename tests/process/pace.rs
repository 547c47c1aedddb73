//! Open-loop load: handoffs are due at a fixed rate, whatever comes of those before.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::world::{World, client, message};

/// The kinds of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// 429 or 503, with the seconds of `Retry-After`.
    Overloaded(Option<u64>),
    Other(StatusCode),
    /// No answer.
    None,
}

/// One that was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// From when it was due to its answer, so that a stall is not hidden.
    pub took: Duration,
    pub answer: Answer,
}

/// Sends `rate` a second for so long, to all receivers in turn; yields each answer as it comes, and ends with
/// the last.
pub fn open_loop(
    world: &Arc<World>,
    base: &str,
    rate: f64,
    length: Duration,
) -> mpsc::UnboundedReceiver<Sent> {
    let (sent, answers) = mpsc::unbounded_channel();
    let (world, url, http) = (Arc::clone(world), format!("{base}/handoffs"), client());
    tokio::spawn(async move {
        let targets: Vec<&String> = world.receivers.keys().collect();
        let began = Instant::now();
        for n in 0.. {
            let due = began + Duration::from_secs_f64(f64::from(n) / rate);
            if due >= began + length {
                return;
            }
            sleep_until(due).await;
            let message =
                message(&random_id().to_string(), None, targets[n as usize % targets.len()]);
            let asked = http.post(&url).bearer_auth(&world.sender_key).json(&message).send();
            let (world, sent) = (Arc::clone(&world), sent.clone());
            tokio::spawn(async move {
                let answer = match asked.await {
                    Ok(answer) => read(&answer),
                    Err(err) => {
                        println!("no answer after {:?}: {err:?}", due.elapsed());
                        Answer::None
                    }
                };
                if answer == Answer::Taken {
                    world.acknowledge(&message);
                }
                // The counter may have ended.
                let _ = sent.send(Sent { took: due.elapsed(), answer });
            });
        }
    });
    answers
}

fn read(answer: &reqwest::Response) -> Answer {
    match answer.status() {
        StatusCode::ACCEPTED => Answer::Taken,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let after = answer.headers().get(RETRY_AFTER);
            Answer::Overloaded(after.and_then(|value| value.to_str().ok()?.parse().ok()))
        }
        other => Answer::Other(other),
    }
}

/// The value that so many percent are not above; zero of none.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
