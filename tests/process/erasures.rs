//! SIGKILL within an erasure, and how long a large one takes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use handoffd::clock::random_id;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::site::{ADMIN_KEY, Site};
use crate::world::{Takes, World, client, message, until};

/// How long an erasure may take to go on after a kill, and to end.
const WITHIN: Duration = Duration::from_mins(2);

/// Handoffs about one person, each on a task of its own.
async fn about(broker: &Broker, count: usize) -> World {
    let world = World::new(broker, vec![("puller", Takes::Inbox)]).await;
    stream::iter(0..count)
        .for_each_concurrent(32, |_| async {
            let mut message = message(&random_id().to_string(), None, "puller");
            let data = json!({ "name": "Jana Novak", "noise": random_id() });
            message["personalDataPayload"] =
                json!({ "subjects": [{ "subjectId": "jana", "data": data }] });
            world.submit(&broker.base, &message).await;
        })
        .await;
    world
}

async fn report(base: &str) -> Value {
    let ask = client().get(format!("{base}/data-subjects/jana")).bearer_auth(ADMIN_KEY);
    ask.send().await.unwrap().json().await.unwrap()
}

fn erase(base: &str, wait: &str) -> reqwest::RequestBuilder {
    client()
        .delete(format!("{base}/data-subjects/jana"))
        .bearer_auth(ADMIN_KEY)
        .header("Prefer", format!("wait={wait}"))
}

pub async fn killed_within_an_erasure_it_goes_on_and_nothing_is_unexplained(site: Arc<Site>) {
    const HANDOFFS: usize = 300;
    let settings = [("HANDOFFD_ERASURE__PAGE", "10")];
    let mut broker = Broker::start(&site, &settings).await;
    about(&broker, HANDOFFS).await;
    let asked = erase(&broker.base, "0").send().await.unwrap();
    assert_eq!(asked.status(), 202);
    let erased = async |base: &str| {
        let found = report(base).await;
        let left = found["count"].as_u64().unwrap();
        let done = &found["erasures"][0];
        (left, done["status"] == "COMPLETED")
    };
    for kill in 0..4 {
        let (before, _) = erased(&broker.base).await;
        until(WITHIN, "the erasure goes on", async || {
            let (left, done) = erased(&broker.base).await;
            usize::from(!done && left == before)
        })
        .await;
        broker.kill().await;
        let records = site.verify().await;
        eprintln!("{:?}: kill {}, {records} records verified", site.side, kill + 1);
        broker = Broker::start(&site, &settings).await;
    }
    until(WITHIN, "the erasure ends", async || {
        usize::from(erased(&broker.base).await != (0, true))
    })
    .await;
    let again = erase(&broker.base, "40").send().await.unwrap();
    assert_eq!(again.status(), 200);
    let certificate: Value = again.json().await.unwrap();
    assert_eq!(certificate["erased"]["personalData"], HANDOFFS);
    assert!(certificate["receipt"]["leafIndex"].as_u64().is_some(), "{certificate}");
    broker.stop().await;
    site.verify().await;
}

/// A figure and not a test: `cargo test --test process -- --ignored ten_thousand --nocapture`.
pub async fn ten_thousand_handoffs_of_one_person(site: Arc<Site>) {
    const HANDOFFS: usize = 10_000;
    let broker = Broker::start(&site, &[]).await;
    about(&broker, HANDOFFS).await;
    let began = Instant::now();
    let done = erase(&broker.base, "38").send().await.unwrap();
    assert_eq!(done.status(), 200, "in one call");
    let took = began.elapsed();
    let certificate: Value = done.json().await.unwrap();
    assert_eq!(certificate["erased"]["personalData"], HANDOFFS);
    eprintln!("{:?}: {HANDOFFS} handoffs of one person erased in {took:?}", site.side);
    broker.stop().await;
    site.verify().await;
}
