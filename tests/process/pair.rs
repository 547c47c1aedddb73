//! Two brokers on one Postgres.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use serde_json::{Value, json};

use crate::broker::{Broker, PATIENCE};
use crate::load::Load;
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Site};
use crate::world::{Takes, World, client, message, register, until};

const ATTEMPTS: &str = "handoff_delivery_attempts_total";
const ACCEPTED: &str = "outcome=\"accepted\"";

/// How long the log says a broker may be silent; see [`Site::command`].
const BROKER_TIMEOUT: Duration = Duration::from_secs(1);

async fn world(broker: &Broker, pause: Duration, most: u32) -> Arc<World> {
    let seen = Arc::new(Seen::default());
    let mut receivers = Vec::new();
    for id in ["one", "two", "three"] {
        receivers.push((id, Takes::Webhook(accepting(Arc::clone(&seen), pause).await, most)));
    }
    let mut world = World::new(broker, receivers).await;
    world.seen = seen;
    Arc::new(world)
}

pub async fn two_share_the_work_and_deliver_nothing_twice(site: Arc<Site>) {
    // No broker falls silent here, however busy the machine that runs the tests.
    let patient = [("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "30000")];
    let first = Broker::start(&site, &patient).await;
    let second = Broker::start(&site, &patient).await;
    // Narrow enough for a backlog, so that both also claim what the other one took.
    let world = world(&first, Duration::from_millis(5), 4).await;
    let mut load = Load::start(&world, &[&first.base, &second.base], 4);
    load.more(300).await;
    load.finish().await;
    let tally = world.settle_up(&site, &first).await;
    assert_eq!(tally.deliveries, tally.acknowledged, "no faults, so none twice");
    let mut delivered = 0.0;
    for broker in [&first, &second] {
        let taken = broker.counter("handoff_submissions_total", "result=\"accepted\"").await;
        let share = broker.counter(ATTEMPTS, ACCEPTED).await;
        assert!(taken > 0.0 && share > 0.0, "one did nothing: took {taken}, delivered {share}");
        delivered += share;
    }
    assert!((delivered - tally.acknowledged as f64).abs() < 0.5, "{delivered} of {tally:?}");
    first.stop().await;
    second.stop().await;
    site.verify().await;
}

/// A broker's cached agents take submissions and refuse none: what the other one registered or allowed a moment ago counts.
pub async fn what_one_registered_is_not_refused_by_the_other(site: Arc<Site>) {
    let cached = [("HANDOFFD_AUTH__CACHE_TTL_MS", "600000")];
    let first = Broker::start(&site, &cached).await;
    let second = Broker::start(&site, &cached).await;
    let world = world(&first, Duration::ZERO, 16).await;
    let submit = async |key: &str, source: &str, target: &str| {
        let mut wanted = message(&random_id().to_string(), None, target);
        wanted["fromAgent"]["agentId"] = source.into();
        let asked = client().post(format!("{}/handoffs", second.base)).bearer_auth(key);
        let answer = asked.json(&wanted).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let (status, answer) = submit(&world.sender_key, "source", "one").await;
    assert_eq!(status, 202, "the second broker has read the agents: {answer}");
    let late = json!({ "agentId": "late", "delivery": { "mode": "pull" } });
    let late_key = register(&first.base, late).await;
    let (status, answer) = submit(&world.sender_key, "source", "late").await;
    assert_eq!(
        (status, &answer["code"]),
        (403, &json!("FORBIDDEN")),
        "no operator allowed it: {answer}"
    );
    for (path, targets) in [("source", json!(["one", "late"])), ("late", json!(["one"]))] {
        let asked = client().patch(format!("{}/agents/{path}", first.base)).bearer_auth(ADMIN_KEY);
        let answer = asked.json(&json!({ "handoffTargets": targets })).send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    let (status, answer) = submit(&world.sender_key, "source", "late").await;
    assert_eq!(status, 202, "{answer}");
    let (status, answer) = submit(&late_key, "late", "one").await;
    assert_eq!(status, 202, "{answer}");
    let newest = json!({ "agentId": "newest", "handoffTargets": ["one"] });
    let newest_key = register(&first.base, newest).await;
    let (status, answer) = submit(&newest_key, "newest", "one").await;
    assert_eq!(status, 202, "{answer}");
    first.stop().await;
    second.stop().await;
    site.verify().await;
}

/// The same message reaches both at once, alone and to several receivers: one of them commits it, and the other says what
/// was committed.
pub async fn the_same_message_at_both_is_committed_once(site: Arc<Site>) {
    const ROUNDS: usize = 20;
    let patient = [("HANDOFFD_DELIVERY__BROKER_TIMEOUT_MS", "30000")];
    let first = Broker::start(&site, &patient).await;
    let second = Broker::start(&site, &patient).await;
    let world = world(&first, Duration::ZERO, 16).await;
    let names: Vec<&String> = world.receivers.keys().collect();
    let http = client();
    let mut handoffs = 0;
    for round in 0..2 * ROUNDS {
        let mut wanted = message(&random_id().to_string(), None, names[0]);
        let to_all = round % 2 == 1;
        if to_all {
            wanted["schemaVersion"] = json!("2.2");
            wanted["costTracking"]["costBudgetRemainingUSD"] = json!(0.01);
            wanted["receiverList"] = json!(names);
        }
        // Several times at each: the second at a broker may meet the first in its own queue.
        let bases = [&first.base, &second.base, &first.base, &second.base];
        let asked = bases.map(|base| {
            let ask = http.post(format!("{base}/handoffs")).bearer_auth(&world.sender_key);
            let ask = ask.json(&wanted).send();
            async move {
                let answer = ask.await.unwrap();
                let status = answer.status().as_u16();
                let replayed = answer.headers().contains_key("idempotency-replayed");
                (status, replayed, answer.json::<Value>().await.unwrap())
            }
        });
        let answers = futures_util::future::join_all(asked).await;
        let committed = answers.iter().filter(|(_, replayed, _)| !replayed).count();
        assert!(answers.iter().all(|(status, ..)| *status == 202), "{answers:?}");
        assert_eq!(committed, 1, "one of four committed it: {answers:?}");
        let said = |body: &Value| {
            let branches = body.pointer("/group/branches").and_then(Value::as_array);
            let id = |branch: &Value| branch["handoffId"].clone();
            let ids: Vec<Value> = branches.into_iter().flatten().map(id).collect();
            (body["handoffId"].clone(), body["receipt"]["leafIndex"].clone(), ids)
        };
        for (_, _, body) in &answers {
            assert_eq!(said(body), said(&answers[0].2), "all of them say the same");
        }
        let own = if to_all { names.len() } else { 1 };
        handoffs += own;
        let trace = format!("{}/tasks/{}/trace", second.base, wanted["taskId"].as_str().unwrap());
        let trace = http.get(trace).bearer_auth(ADMIN_KEY).send().await.unwrap();
        let trace: Value = trace.json().await.unwrap();
        assert_eq!(trace["handoffs"].as_array().unwrap().len(), own, "{trace}");
    }
    until(PATIENCE, "each is delivered", async || handoffs - world.seen.handoffs().len()).await;
    world.seen.check_attempts();
    assert_eq!(world.seen.all().len(), handoffs, "nothing is delivered twice");
    first.stop().await;
    second.stop().await;
    site.verify().await;
}

pub async fn the_one_that_is_left_takes_over(site: Arc<Site>) {
    taken_over(site, None).await;
}

/// The dead broker wrote times that lie in the future: no broker may wait for them.
pub async fn a_dead_brokers_clock_does_not_matter(site: Arc<Site>) {
    let ahead = "UPDATE brokers SET seen_at = seen_at + 86400000000; \
                 UPDATE outbox SET created_at = created_at + 86400000000, visible_at = CASE \
                   WHEN claimed_by IS NULL THEN visible_at ELSE visible_at + 86400000000 END";
    taken_over(site, Some(ahead)).await;
}

async fn taken_over(site: Arc<Site>, after_the_kill: Option<&str>) {
    let first = Broker::start(&site, &[]).await;
    let second = Broker::start(&site, &[]).await;
    // So slow that the one that is killed holds claims.
    let world = world(&first, Duration::from_millis(150), 8).await;
    let mut load = Load::start(&world, &[&first.base, &second.base], 4);
    load.more(60).await;
    first.kill().await;
    let killed = tokio::time::Instant::now();
    if let Some(sql) = after_the_kill {
        site.sql(sql).await;
    }
    load.redirect(0, &second.base);
    load.more(30).await;
    load.finish().await;
    until(PATIENCE, "the claims of the dead are delivered", async || {
        let seen = world.seen.handoffs();
        world.acknowledged.lock().unwrap().keys().filter(|id| !seen.contains(*id)).count()
    })
    .await;
    eprintln!(
        "delivered {:?} after the kill, silence allowed {BROKER_TIMEOUT:?}",
        killed.elapsed()
    );
    world.settle_up(&site, &second).await;
    second.stop().await;
    site.verify().await;
}
