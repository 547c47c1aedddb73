//! Subscribers of events while brokers die: nothing is missed, and order is kept.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use handoffd_domain::event::Position;
use serde_json::{Value, json};

use crate::broker::{Broker, PATIENCE};
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Site};
use crate::world::{Takes, World, client, until};

/// Kills of one broker in one case.
const KILLS: usize = 2;

/// Cursors of events in the order in which they came, repeats and all.
type Told = Arc<Mutex<Vec<(i64, i32)>>>;

fn place(event: &Value) -> (i64, i32) {
    let at: Position = event["cursor"].as_str().unwrap().parse().unwrap();
    (at.leaf_index, at.ordinal)
}

/// A subscriber that writes down what comes; returns its URL. It lives as long as the case.
async fn subscriber(told: Told) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let take = move |axum::Json(event): axum::Json<Value>| {
        let told = Arc::clone(&told);
        async move {
            told.lock().unwrap().push(place(&event));
            // So slow that there is always something under way to be killed.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let app = axum::Router::new().route("/events", axum::routing::post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn world(broker: &Broker) -> (Arc<World>, Told) {
    let seen = Arc::new(Seen::default());
    let receiver = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let mut world = World::new(broker, vec![("one", Takes::Webhook(receiver, 8))]).await;
    world.seen = seen;
    let told = Told::default();
    let spec = json!({ "url": subscriber(Arc::clone(&told)).await });
    let made = client().post(format!("{}/subscriptions", broker.base)).bearer_auth(ADMIN_KEY);
    let made = made.json(&spec).send().await.unwrap();
    assert_eq!(made.status(), 201, "{:?}", made.text().await);
    (Arc::new(world), told)
}

/// The whole feed.
async fn feed(broker: &Broker) -> BTreeSet<(i64, i32)> {
    let mut all = BTreeSet::new();
    let mut since = "-1.0".to_owned();
    loop {
        let page = format!("{}/events?limit=500&since={since}", broker.base);
        let page = client().get(page).bearer_auth(ADMIN_KEY).send().await.unwrap();
        let page: Value = page.json().await.unwrap();
        let items = page["items"].as_array().unwrap();
        if items.is_empty() {
            return all;
        }
        all.extend(items.iter().map(place));
        page["nextCursor"].as_str().unwrap().clone_into(&mut since);
    }
}

/// The subscriber got every event, and none before its predecessor.
async fn settle_up(site: &Site, broker: &Broker, told: &Told, kills: usize) {
    let all = feed(broker).await;
    until(PATIENCE, "the subscriber is told of every event", async || {
        let told: BTreeSet<_> = told.lock().unwrap().iter().copied().collect();
        all.difference(&told).count()
    })
    .await;
    let told = told.lock().unwrap().clone();
    let mut first = Vec::new();
    let mut known = BTreeSet::new();
    for place in &told {
        if known.insert(*place) {
            first.push(*place);
        }
    }
    assert!(first.is_sorted(), "out of order");
    let repeats = told.len() - first.len();
    eprintln!("{:?}: {} events, {repeats} told again after {kills} kills", site.side, first.len());
    assert!(kills > 0 || repeats == 0, "nothing failed, and {repeats} were told twice");
}

pub async fn killed_while_telling_nothing_is_missed(site: Arc<Site>) {
    let mut broker = Broker::start(&site, &[]).await;
    let (world, told) = world(&broker).await;
    let mut load = Load::start(&world, &[&broker.base], 4);
    for _ in 0..KILLS {
        load.more(40).await;
        broker.kill().await;
        broker = Broker::start(&site, &[]).await;
        load.redirect(0, &broker.base);
    }
    load.more(10).await;
    load.finish().await;
    world.settle_up(&site, &broker).await;
    settle_up(&site, &broker, &told, KILLS).await;
    broker.stop().await;
    site.verify().await;
}

pub async fn the_broker_that_is_left_goes_on_telling(site: Arc<Site>) {
    let first = Broker::start(&site, &[]).await;
    let second = Broker::start(&site, &[]).await;
    let (world, told) = world(&first).await;
    let mut load = Load::start(&world, &[&first.base, &second.base], 4);
    load.more(60).await;
    first.kill().await;
    load.redirect(0, &second.base);
    load.more(30).await;
    load.finish().await;
    world.settle_up(&site, &second).await;
    settle_up(&site, &second, &told, 1).await;
    second.stop().await;
    site.verify().await;
}

pub async fn two_that_live_tell_nothing_twice(site: Arc<Site>) {
    // No broker loses a lease here, however busy the machine that runs the tests.
    let patient =
        [("HANDOFFD_EVENTS__LEASE_MS", "60000"), ("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "30000")];
    let first = Broker::start(&site, &patient).await;
    let second = Broker::start(&site, &patient).await;
    let (world, told) = world(&first).await;
    let mut load = Load::start(&world, &[&first.base, &second.base], 4);
    load.more(80).await;
    load.finish().await;
    world.settle_up(&site, &second).await;
    settle_up(&site, &second, &told, 0).await;
    first.stop().await;
    second.stop().await;
}
