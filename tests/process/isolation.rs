//! The effect of receivers in trouble on the others: the latency of a healthy one alone, beside two
//! more, and beside a hanging and a dead one, in one run.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, client, message};

/// Handoffs to the healthy receiver in each half.
const COUNT: usize = 200;
/// Between two of them: far below what the broker can do.
const PACE: Duration = Duration::from_millis(20);

/// From the submission to the answer that says it was accepted.
async fn latencies(world: &World, base: &str) -> Vec<Duration> {
    let http = client();
    let mut taken = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let began = tokio::time::Instant::now();
        let answer = http
            .post(format!("{base}/handoffs"))
            .bearer_auth(&world.sender_key)
            .header("Prefer", "wait=30")
            .json(&message(&random_id().to_string(), None, "healthy"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 200, "accepted");
        taken.push(began.elapsed());
        tokio::time::sleep(PACE).await;
    }
    taken.sort();
    taken
}

fn figures(taken: &[Duration]) -> (Duration, Duration) {
    (taken[taken.len() / 2], taken[taken.len() * 99 / 100])
}

/// [`latencies`], while fifty a second go to each of two others.
async fn beside(world: &Arc<World>, base: &str, others: [&'static str; 2]) -> Vec<Duration> {
    let stop = CancellationToken::new();
    let sending = {
        let (world, base, stop) = (Arc::clone(world), base.to_owned(), stop.clone());
        tokio::spawn(async move {
            let http = client();
            while !stop.is_cancelled() {
                for target in others {
                    let sent = http
                        .post(format!("{base}/handoffs"))
                        .bearer_auth(&world.sender_key)
                        .json(&message(&random_id().to_string(), None, target));
                    assert_eq!(sent.send().await.unwrap().status(), 202);
                }
                tokio::time::sleep(PACE).await;
            }
        })
    };
    let taken = latencies(world, base).await;
    stop.cancel();
    sending.await.unwrap();
    taken
}

pub async fn receivers_in_trouble_cost_the_others_nothing(site: Arc<Site>) {
    let broker = Broker::start(&site, &[]).await;
    let well = async || accepting(Arc::new(Seen::default()), Duration::ZERO).await;
    // Takes connections, and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = format!("http://{}/", silent.local_addr().unwrap());
    // No server listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let receivers = vec![
        ("healthy", Takes::Webhook(well().await, 16)),
        ("second", Takes::Webhook(well().await, 64)),
        ("third", Takes::Webhook(well().await, 64)),
        ("hanging", Takes::Webhook(hanging, 64)),
        ("dead", Takes::Webhook(dead, 64)),
    ];
    let world = Arc::new(World::new(&broker, receivers).await);
    let alone = figures(&latencies(&world, &broker.base).await);
    // The same load, so that what it costs is not taken for the fault of those in trouble.
    let fellows = figures(&beside(&world, &broker.base, ["second", "third"]).await);
    let trouble = figures(&beside(&world, &broker.base, ["hanging", "dead"]).await);
    println!(
        "{:?}: p50, p99 alone {alone:?}, beside two healthy ones {fellows:?}, beside a hanging and a dead one \
         {trouble:?}",
        site.side
    );
    // The machine's noise, which is seconds where others build beside it. A receiver that waited for the
    // hanging one would wait for that one's time-out, a minute.
    assert!(trouble.1 < fellows.1 * 4 + Duration::from_secs(2), "{fellows:?} {trouble:?}");
    broker.kill().await;
    site.verify().await;
}
