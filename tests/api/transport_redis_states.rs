//! Redis servers that are full or slow, and the receiver of the page, written with redis-py.

use serde_json::json;

use crate::harness::{Broker, Kind, run, until};
use crate::message::Message;
use crate::python::code_of;
use crate::queues::python;
use crate::transport_redis::{AGENTS_STREAM, REPLIES, Server, entries, pair, series};

const PAGE: &str = include_str!("../../docs/transports/redis.md");

/// Waits until the broker has found the server away.
async fn is_away(broker: &Broker) {
    let away = "handoff_delivery_attempts_total{outcome=\"away\",transport=\"redis\"}";
    until("an attempt finds it away", async || {
        let count = series(broker, away).await;
        if count > 0 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await;
}

both! {
    with [("HANDOFFD_DELIVERY__RETRY_CAP_MS", "50"), ("HANDOFFD_DELIVERY__POLL_MS", "100")]
    async fn a_full_server_takes_the_handoff_once_it_has_room(broker: Broker) {
        let server = Server::start("").await;
        let mut redis = server.connect().await;
        let (a, _) = pair(broker, &server, json!({})).await;
        let limit = async |bytes: &str| {
            let mut set = redis::cmd("CONFIG");
            set.arg("SET").arg("maxmemory").arg(bytes);
            set.query_async::<()>(&mut redis.clone()).await.unwrap();
        };
        limit("1").await;
        let test = broker.admin.post("/agents/b/delivery/test", &json!({})).await.expect(200).body;
        assert_eq!(test["detail"], "the server's memory is full", "{test}");
        assert_eq!((&test["delivered"], &test["field"]), (&json!(false), &json!("/delivery/config/server")));
        assert!(test["answered"].as_str().unwrap().contains("OOM"), "{test}");
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        is_away(broker).await;
        broker.handoff_becomes(&message, "PENDING").await;
        limit("0").await;
        let found = entries(&mut redis, AGENTS_STREAM, 1).await;
        assert_eq!(found[0].header("Handoff-Id"), message.id());
    }

    with [("HANDOFFD_DELIVERY__RETRY_CAP_MS", "50"), ("HANDOFFD_DELIVERY__POLL_MS", "100")]
    async fn a_server_that_is_slow_gets_the_handoff_once_it_answers(broker: Broker) {
        let server = Server::start("").await;
        let mut redis = server.connect().await;
        let (a, b) = pair(broker, &server, json!({})).await;
        let mut pause = redis::cmd("CLIENT");
        // Longer than an attempt may take (500 ms).
        pause.arg("PAUSE").arg(1500).arg("ALL");
        pause.query_async::<()>(&mut redis).await.unwrap();
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        is_away(broker).await;
        let found = entries(&mut redis, AGENTS_STREAM, 1).await;
        assert_eq!(found[0].header("Handoff-Id"), message.id());
        b.say(&message, "accept", found[0].token(), json!({})).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_of_the_page_accepts_and_completes() {
    let Some(python) = python(&["redis", "rfc8785"]).await else { return };
    run(Kind::Sqlite, &[], async |broker| {
        let server = Server::start("").await;
        let (a, b) = pair(broker, &server, json!({ "replyTo": REPLIES })).await;
        let code = code_of(PAGE, "python")
            .replace("hss_…", &b.signing_secret)
            .replace("whsec_…", &b.webhook_secret)
            .replace("redis://localhost:6379/0", &server.url())
            .replace("agents:summarizer", AGENTS_STREAM);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receiver.py");
        std::fs::write(&path, code).unwrap();
        let mut receiver = tokio::process::Command::new(python);
        let _receiver = receiver.arg(path).kill_on_drop(true).spawn().unwrap();
        for _ in 0..3 {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            broker.handoff_becomes(&message, "COMPLETED").await;
            assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        }
    })
    .await;
}
