//! A Postgres server that says nothing more: it neither answers nor hangs up, as behind a firewall that
//! forgot the connection.

use std::sync::Arc;
use std::time::Duration;

use handoffd::clock::random_id;
use reqwest::StatusCode;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::Instant;

use crate::broker::{Broker, PATIENCE};
use crate::receiver::{Seen, accepting};
use crate::site::{ADMIN_KEY, Site};
use crate::world::{Takes, World, client, message, until};

/// How long the store waits for the answer to a read (`ANSWER_TIMEOUT` of `crates/store/src/store/postgres/mod.rs`).
const READ_LIMIT: Duration = Duration::from_secs(35);

/// How long it waits for a batch (`BATCH_TIMEOUT`).
const BATCH_LIMIT: Duration = Duration::from_secs(40);

/// The shortest wait that counts as the limit's: the server itself would end the statement after 30 s.
const LONG: Duration = Duration::from_secs(33);

/// The time that a busy machine may add.
const SLACK: Duration = Duration::from_secs(15);

pub async fn a_server_that_falls_silent_is_waited_for_so_long_and_no_longer(site: Arc<Site>) {
    let (proxy, url) = site.behind_a_proxy().await;
    let broker = Broker::start(&site, &[("HANDOFFD_DATABASE_URL", &url)]).await;
    let seen = Arc::new(Seen::default());
    let receiver = accepting(Arc::clone(&seen), Duration::ZERO).await;
    let mut world = World::new(&broker, vec![("one", Takes::Webhook(receiver, 8))]).await;
    world.seen = seen;
    let new = || message(&random_id().to_string(), None, "one");
    let first = new();
    world.submit(&broker.base, &first).await;
    // Its settlement would be another batch that waits.
    let path = format!("{}/handoffs/{}", broker.base, first["handoffId"].as_str().unwrap());
    until(PATIENCE, "the first one is settled", async || {
        let answer = client().get(&path).bearer_auth(ADMIN_KEY).send().await.unwrap();
        let row: serde_json::Value = answer.json().await.unwrap();
        usize::from(row["status"] != "ACCEPTED")
    })
    .await;

    // Statements that the server has and cannot answer yet, when the network falls silent.
    let mut blocker = PgConnection::connect(site.url()).await.unwrap();
    blocker.execute("BEGIN; LOCK TABLE handoffs IN ACCESS EXCLUSIVE MODE").await.unwrap();
    // Longer than any limit, so that it is the broker that gives up.
    let http = reqwest::Client::builder().timeout(Duration::from_mins(3)).build().unwrap();
    let ask = |request: reqwest::RequestBuilder| {
        let began = Instant::now();
        tokio::spawn(async move { (request.send().await.unwrap().status(), began.elapsed()) })
    };
    let read = ask(http.get(format!("{}/handoffs", broker.base)).bearer_auth(ADMIN_KEY));
    let lost = new();
    let submit = http.post(format!("{}/handoffs", broker.base)).bearer_auth(&world.sender_key);
    let written = ask(submit.json(&lost));
    // These two, and not what the broker asks for itself meanwhile: the list, and the batch's own load.
    // Asked outside the blocker's transaction, which would see the same activity for ever.
    let mut onlooker = PgConnection::connect(site.url()).await.unwrap();
    until(PATIENCE, "both wait for the lock", async || {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(DISTINCT query LIKE '%FROM handoffs AS t %') FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'handoffd' \
               AND wait_event_type = 'Lock' AND (query LIKE '%FROM handoffs AS t %' \
                 OR query LIKE '%FROM handoffs WHERE tenant = %ORDER BY created_at DESC%')",
        )
        .fetch_one(&mut onlooker)
        .await
        .unwrap();
        usize::try_from(2 - waiting).unwrap()
    })
    .await;
    onlooker.close().await.unwrap();
    proxy.stall();

    // Meanwhile a liveness probe gets an answer, and the broker is not ready.
    let alive = client().get(format!("{}/livez", broker.base)).send().await.unwrap();
    assert_eq!(alive.status(), StatusCode::OK);
    let (ready, took) = ask(http.get(format!("{}/readyz", broker.base))).await.unwrap();
    assert_eq!(ready, StatusCode::SERVICE_UNAVAILABLE);
    assert!(took < READ_LIMIT, "readiness was known after {took:?}");

    let (status, took) = read.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(took >= LONG && took < READ_LIMIT + SLACK, "a read was given up after {took:?}");
    println!("a read was given up after {took:?}");
    let (status, took) = written.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(took >= LONG && took < BATCH_LIMIT + SLACK, "a batch was given up after {took:?}");
    println!("a batch was given up after {took:?}");

    let mended = Instant::now();
    proxy.mend();
    blocker.execute("ROLLBACK").await.unwrap();
    blocker.close().await.unwrap();
    until(Duration::from_mins(1), "it takes handoffs again", async || {
        let answer = client().get(format!("{}/readyz", broker.base)).send().await.unwrap();
        usize::from(answer.status() != StatusCode::OK)
    })
    .await;
    // The sender does not know what came of it, and says the same again.
    until(Duration::from_mins(1), "the lost one is taken", async || {
        let again = client().post(format!("{}/handoffs", broker.base)).json(&lost);
        let again = again.bearer_auth(&world.sender_key).send().await.unwrap();
        usize::from(again.status() != StatusCode::ACCEPTED)
    })
    .await;
    println!("it went on {:?} after the network did", mended.elapsed());
    world.acknowledge(&lost);
    world.settle_up(&site, &broker).await;
    broker.stop().await;
}
