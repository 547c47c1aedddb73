//! SIGTERM: an orderly, bounded stop.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use crate::broker::{Broker, PATIENCE};
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::Site;
use crate::world::{Takes, World, client, message, until};
use handoffd::clock::random_id;

/// "Exit 0 within 30 s" (specification §8).
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

async fn world(broker: &Broker, pause: Duration) -> Arc<World> {
    let seen = Arc::new(Seen::default());
    let url = accepting(Arc::clone(&seen), pause).await;
    let receivers = vec![("webhook", Takes::Webhook(url, 8)), ("puller", Takes::Inbox)];
    let mut world = World::new(broker, receivers).await;
    world.seen = seen;
    Arc::new(world)
}

/// A handoff is at a receiver that will not answer for a while.
async fn one_under_way(world: &World, broker: &Broker) {
    world.submit(&broker.base, &message(&random_id().to_string(), None, "webhook")).await;
    until(PATIENCE, "the handoff is under way", async || {
        1usize.saturating_sub(world.seen.all().len())
    })
    .await;
}

pub async fn told_to_stop_under_load_it_ends_well_and_loses_nothing(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let world = world(&broker, Duration::from_millis(20)).await;
    let mut load = Load::start(&world, &[&broker.base], 6);
    load.pull("puller");
    for _ in 0..2 {
        load.more(60).await;
        let asked = tokio::time::Instant::now();
        broker.signal("TERM").await;
        assert_eq!(broker.ended(STOPPED_WITHIN).await, Some(0));
        eprintln!("{:?}: stopped under load in {:?}", site.side, asked.elapsed());
        broker = Broker::start(&site, &[]).await;
        load.redirect(0, &broker.base);
    }
    load.finish().await;
    let tally = world.settle_up(&site, &broker).await;
    // A pulled one comes again where the acceptance found the connection closed; a pushed one never.
    let pushed: Vec<_> =
        world.seen.all().into_iter().filter(|delivery| delivery.token > 0).collect();
    let handoffs: std::collections::BTreeSet<_> =
        pushed.iter().map(|delivery| &delivery.handoff).collect();
    assert_eq!(pushed.len(), handoffs.len(), "an orderly stop repeats none: {tally:?}");
    broker.stop().await;
    site.verify().await;
}

pub async fn long_polls_and_waits_end_with_the_broker(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let world = world(&broker, Duration::ZERO).await;
    let base = broker.base.clone();
    let waiting = message(&random_id().to_string(), None, "puller");
    let submitted = client()
        .post(format!("{base}/handoffs"))
        .bearer_auth(&world.sender_key)
        .header("prefer", "wait=30")
        .json(&waiting)
        .send();
    let submitted = tokio::spawn(submitted);
    let listed = format!("{base}/handoffs?status=PENDING");
    until(PATIENCE, "the handoff is committed", async || {
        let page = client().get(&listed).bearer_auth(&world.sender_key).send().await.unwrap();
        let page: Value = page.json().await.unwrap();
        1usize.saturating_sub(page["items"].as_array().unwrap().len())
    })
    .await;
    let inbox = async |wait: u32| {
        client()
            .get(format!("{base}/agents/puller/inbox?wait={wait}"))
            .bearer_auth(&world.receivers["puller"])
            .send()
            .await
    };
    // The first poll claims the one there is; the second waits.
    assert_eq!(inbox(0).await.unwrap().status(), StatusCode::OK);
    let poll = inbox(30);
    let stop = async {
        // The poll is under way once the broker counts a request that has no answer yet; there is
        // no such count, so its connection is given the time of another whole request.
        let ready = client().get(format!("{base}/readyz")).send().await.unwrap();
        assert_eq!(ready.status(), StatusCode::OK);
        broker.signal("TERM").await;
        let asked = tokio::time::Instant::now();
        assert_eq!(broker.ended(STOPPED_WITHIN).await, Some(0));
        asked.elapsed()
    };
    let (poll, took) = tokio::join!(poll, stop);
    assert!(took < Duration::from_secs(10), "long polls held the stop up for {took:?}");
    if let Ok(poll) = poll {
        assert_eq!(poll.status(), StatusCode::OK);
        assert_eq!(poll.json::<Value>().await.unwrap()["items"], serde_json::json!([]));
    }
    assert_eq!(submitted.await.unwrap().unwrap().status(), StatusCode::ACCEPTED);
    site.verify().await;
}

pub async fn a_second_signal_ends_it_at_once(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let world = world(&broker, Duration::from_secs(2)).await;
    one_under_way(&world, &broker).await;
    broker.signal("TERM").await;
    let http = client();
    until(PATIENCE, "the broker takes no more", async || {
        usize::from(http.get(format!("{}/livez", broker.base)).send().await.is_ok())
    })
    .await;
    let asked = tokio::time::Instant::now();
    broker.signal("TERM").await;
    broker.ended(Duration::from_secs(10)).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_millis(1_500), "the second signal took {took:?}");
    let broker = Broker::start(&site, &[]).await;
    world.settle_up(&site, &broker).await;
    broker.stop().await;
    site.verify().await;
}

pub async fn a_stop_is_bounded_whatever_the_receiver_does(site: Arc<Site>) {
    let bound = [("HANDOFFD_SERVER__STOP_TIMEOUT_MS", "1000")];
    let mut broker = Broker::start(&site, &bound).await;
    let world = world(&broker, Duration::from_secs(4)).await;
    one_under_way(&world, &broker).await;
    let asked = tokio::time::Instant::now();
    broker.signal("TERM").await;
    assert_eq!(broker.ended(STOPPED_WITHIN).await, Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_millis(3_500), "bound 1 s, took {took:?}");
    let broker = Broker::start(&site, &[]).await;
    world.settle_up(&site, &broker).await;
    broker.stop().await;
    site.verify().await;
}
