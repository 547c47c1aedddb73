//! Verdicts on a reply channel that come while their attempt waits for them, and those that come later: the same handoff, the
//! same records.

use std::sync::Mutex;

use redis::AsyncCommands;
use serde_json::{Value, json};

use crate::harness::{Agent, Broker, Kind, run, until};
use crate::message::Message;
use crate::transport_redis::{
    AGENTS_STREAM, Entry, REPLIES, Server, entries, pair, reply, send, series,
};

/// A server, and two agents of which the second replies on a stream that the broker reads.
async fn world(broker: &Broker) -> (Server, Agent, Agent) {
    let server = Server::start("").await;
    let (a, b) = pair(broker, &server, json!({ "replyTo": REPLIES })).await;
    let mut redis = server.connect().await;
    send(&mut redis, REPLIES, "no reply").await;
    until("the stream is read", async || {
        let left: usize = redis.clone().xlen(REPLIES).await.unwrap();
        if left == 0 { Ok(()) } else { Err(format!("{left} left")) }
    })
    .await;
    (server, a, b)
}

/// Hands off, and has the receiver reply as soon as it has the entry.
async fn answered(
    server: &Server,
    a: &Agent,
    b: &Agent,
    verdict: &str,
    more: Value,
) -> (Message, Entry) {
    let mut redis = server.connect().await;
    let before: usize = redis.xlen(AGENTS_STREAM).await.unwrap();
    let message = Message::initial("a", "b");
    a.submit(&message).await.expect(202);
    let entry = entries(&mut redis, AGENTS_STREAM, before + 1).await.remove(before);
    send(&mut redis, REPLIES, &reply(b, &entry, verdict, more).to_string()).await;
    (message, entry)
}

async fn attempts(broker: &Broker, outcome: &str) -> u64 {
    let name =
        format!("handoff_delivery_attempts_total{{outcome=\"{outcome}\",transport=\"redis\"}}");
    series(broker, &name).await
}

/// A handoff's page and records after an acceptance with words and a rejection, without times and ids.
async fn told(broker: &Broker) -> Value {
    let (server, a, b) = world(broker).await;
    let words = json!({ "details": { "eta": 5 } });
    let (taken, entry) = answered(&server, &a, &b, "accept", words).await;
    broker.handoff_becomes(&taken, "ACCEPTED").await;
    let page =
        broker.admin.get(&format!("{}?include=verdict", taken.path())).await.expect(200).body;
    let done = reply(&b, &entry, "complete", json!({ "result": 7 }));
    send(&mut server.connect().await, REPLIES, &done.to_string()).await;
    assert_eq!(broker.handoff_becomes(&taken, "COMPLETED").await["result"], 7);
    let (refused, _) = answered(&server, &a, &b, "reject", json!({ "reason": "TOO_HARD" })).await;
    let rejected = broker.handoff_becomes(&refused, "REJECTED").await;
    let mut records = Vec::new();
    for message in [&taken, &refused] {
        for record in broker.trace(message).await["records"].as_array().unwrap() {
            // The sender's key is another each time.
            if record["actor"]["agentId"] != "a" {
                records.push(json!([record["kind"], record["actor"], record["content"]]));
            }
        }
    }
    json!({
        "verdict": page["verdict"], "attempts": page["attempts"], "token": page["fencingToken"],
        "reason": rejected["reason"], "records": records,
    })
}

/// Runs the same with attempts that wait for their replies and with attempts that do not.
async fn early_and_late(kind: Kind) {
    let mut all = Vec::new();
    for (wait, outcomes) in [("1000", [1, 1, 0]), ("0", [0, 0, 2])] {
        let found = Mutex::new(Value::Null);
        run(kind, &[("HANDOFFD_TRANSPORTS__REPLY_WAIT_MS", wait)], async |broker| {
            let told = told(broker).await;
            for (outcome, count) in ["accepted", "rejected", "received"].into_iter().zip(outcomes) {
                assert_eq!(attempts(broker, outcome).await, count, "{outcome}, {wait} ms: {told}");
            }
            for (name, count) in [
                ("handoff_replies_total{result=\"taken\",transport=\"redis\"}", 3),
                ("handoff_latency_seconds_count{transport=\"redis\"}", 1),
            ] {
                assert_eq!(series(broker, name).await, count, "{name}, {wait} ms");
            }
            *found.lock().unwrap() = told;
        })
        .await;
        all.push(found.into_inner().unwrap());
    }
    assert_eq!(all[0], all[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_reply_leaves_what_a_later_one_leaves_sqlite() {
    early_and_late(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_reply_leaves_what_a_later_one_leaves_postgres() {
    early_and_late(Kind::Postgres).await;
}

both! {
    with [("HANDOFFD_TRANSPORTS__REPLY_WAIT_MS", "1000")]
    async fn what_is_not_idempotent_is_settled_before_its_reply(broker: Broker) {
        let (server, a, b) = world(broker).await;
        let contract = json!({
            "id": "a-to-b", "version": "1.0.0", "source": "a", "target": "b", "idempotency": { "idempotent": false },
        });
        let put = broker.admin.put("/contracts/a-to-b", &contract).await;
        assert!((200..300).contains(&put.status), "{put:?}");
        let (message, _) = answered(&server, &a, &b, "accept", json!({})).await;
        broker.handoff_becomes(&message, "ACCEPTED").await;
        assert_eq!((attempts(broker, "accepted").await, attempts(broker, "received").await), (0, 1));
    }

    with [("HANDOFFD_TRANSPORTS__REPLY_WAIT_MS", "1000")]
    async fn a_forged_or_stale_reply_ends_no_attempt(broker: Broker) {
        let (server, a, b) = world(broker).await;
        let mut redis = server.connect().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let entry = entries(&mut redis, AGENTS_STREAM, 1).await.remove(0);
        let mut forged = reply(&b, &entry, "accept", json!({ "details": "mine" }));
        forged["details"] = json!("another's");
        let stale = reply(&b, &entry, "accept", json!({ "fencingToken": entry.token() + 5 }));
        for bad in [forged, stale] {
            send(&mut redis, REPLIES, &bad.to_string()).await;
        }
        send(&mut redis, REPLIES, &reply(&b, &entry, "reject", json!({})).to_string()).await;
        assert_eq!(broker.handoff_becomes(&message, "REJECTED").await["reason"], "REJECTED");
        for (result, count) in [("taken", 1), ("signature", 1), ("stale_lease", 1)] {
            let name = format!("handoff_replies_total{{result=\"{result}\",transport=\"redis\"}}");
            assert_eq!(series(broker, &name).await, count, "{result}");
        }
    }
}
