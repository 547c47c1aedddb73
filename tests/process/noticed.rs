//! One receiver as several brokers notice it, and the end of one of them.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::site::{ADMIN_KEY, Site};
use crate::world::{client, message, register, until};

async fn receiver(base: &str) -> Value {
    let request = client().get(format!("{base}/receivers/dead")).bearer_auth(ADMIN_KEY);
    request.send().await.unwrap().json().await.unwrap()
}

/// Brokers that have an open breaker for the receiver, as one of them shows it.
async fn open_at(base: &str) -> usize {
    let shown = receiver(base).await;
    let breakers = shown["breakers"].as_array().unwrap();
    breakers.iter().filter(|one| one["state"] != "closed").count()
}

pub async fn counts_add_up_and_a_dead_brokers_breaker_goes_with_it(site: Arc<Site>) {
    let first = Broker::start(&site, &[]).await;
    let second = Broker::start(&site, &[]).await;
    // Nothing listens there.
    let delivery = json!({ "mode": "webhook", "url": "http://127.0.0.1:1/" });
    register(&first.base, json!({ "agentId": "dead", "delivery": delivery })).await;
    let sender = json!({ "agentId": "source", "handoffTargets": ["dead"] });
    let key = register(&first.base, sender).await;
    for base in [&first.base, &second.base] {
        // Enough for five failures in a row at each broker.
        for _ in 0..8 {
            let wanted = message(&random_id().to_string(), None, "dead");
            let request = client().post(format!("{base}/handoffs")).bearer_auth(&key).json(&wanted);
            assert_eq!(request.send().await.unwrap().status(), 202);
        }
    }
    let minute = Duration::from_mins(1);
    until(minute, "both brokers have an open breaker", async || 2 - open_at(&second.base).await)
        .await;
    // Both wrote: the sum is that of their own counters.
    let counter = "handoff_delivery_attempts_total";
    until(minute, "the windows have the attempts of both", async || {
        let made =
            first.counter(counter, "connect").await + second.counter(counter, "connect").await;
        let shown = receiver(&second.base).await["failures"].as_f64().unwrap();
        usize::from(shown < 10.0 || shown > made)
    })
    .await;
    let listed = receiver(&first.base).await;
    let breaker = listed["breaker"].as_str().unwrap();
    assert!(["open", "half_open"].contains(&breaker), "{listed}");
    assert_eq!(listed["lastFailure"], json!("DELIVERY_CONNECT"), "{listed}");

    first.kill().await;
    until(minute, "the dead broker's breaker is gone", async || open_at(&second.base).await - 1)
        .await;
    let left = receiver(&second.base).await;
    assert!(left["failures"].as_i64().unwrap() >= 10, "its counts stay: {left}");
    second.stop().await;
    // One that starts later finds no breaker of the others.
    let third = Broker::start(&site, &[]).await;
    until(minute, "the stopped broker's breaker is gone", async || {
        let shown = receiver(&third.base).await;
        let all = shown["breakers"].as_array().unwrap().len();
        usize::from(all > 1)
    })
    .await;
    third.stop().await;
    site.verify().await;
}
