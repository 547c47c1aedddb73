//! Takeovers of a lease, the token that guards a worker's effects, and the digest of a step that a message repeats.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Agent, Answer, until};
use crate::message::Message;

const DAY_MS: u64 = 86_400_000;

/// Takes a handoff over as soon as the broker lets it.
async fn taken(agent: &Agent, message: &Message, body: &Value) -> Value {
    let path = format!("{}/takeover", message.path());
    until("the holder is silent", async || {
        let answer = agent.api.post(&path, body).await;
        if answer.status == 200 { Ok(answer.body) } else { Err(answer.body.to_string()) }
    })
    .await
}

async fn save(agent: &Agent, message: &Message, run: &str, token: i64) -> Answer {
    let path = format!("{}/checkpoints/{run}", message.task_path());
    let (id, token) = (message.id(), token.to_string());
    let headers = [("Handoff-Id", id.as_str()), ("Handoff-Fencing-Token", token.as_str())];
    agent.api.send(Method::PUT, &path, &headers, &json!({ "token": token })).await
}

async fn hand_on(agent: &Agent, message: &Message, token: i64) -> Answer {
    let token = token.to_string();
    agent.api.send(Method::POST, "/handoffs", &[("Handoff-Fencing-Token", &token)], message).await
}

both! {
    async fn a_silent_holder_is_replaced_and_its_word_counts_no_more(broker: Broker) {
        let (a, b) = (broker.pull("a", &["b"]).await, broker.pull("b", &["c"]).await);
        broker.pull("c", &[]).await;
        let run = "7d1f0f86-5a3b-4f1e-9a50-0a6b1c2d3e4f";
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let old = b.claim_one().await;
        let path = format!("{}/takeover", message.path());
        b.api.post(&path, &json!({})).await.refused(409, "CONFLICT");
        let said = b.say(&message, "accept", old, json!({ "heartbeatIntervalMs": DAY_MS })).await.expect(200).body;
        assert_eq!(said["heartbeatIntervalMs"], json!(DAY_MS), "{said}");
        assert!(said["heardAt"].is_string(), "{said}");
        // It was heard of, and the asking worker's own interval does not count.
        let early = b.api.post(&path, &json!({ "heartbeatIntervalMs": 1 })).await.refused(409, "CONFLICT");
        assert!(early.body["detail"].as_str().unwrap().contains("can be taken over at"), "{}", early.body);
        a.api.post(&path, &json!({})).await.refused(403, "FORBIDDEN");
        for bad in [json!(0), json!(DAY_MS + 1), json!("1"), json!(1.5)] {
            let body = json!({ "heartbeatIntervalMs": bad });
            assert_eq!(b.api.post(&path, &body).await.refused(422, "SCHEMA_INVALID").pointers(), ["/heartbeatIntervalMs"]);
            let beat = b.say(&message, "heartbeat", old, body).await;
            assert_eq!(beat.refused(422, "SCHEMA_INVALID").pointers(), ["/heartbeatIntervalMs"]);
        }
        b.api.post(&path, &json!({ "fencingToken": old })).await.refused(422, "SCHEMA_INVALID");
        save(&b, &message, run, old).await.expect(200);

        b.say(&message, "heartbeat", old, json!({ "heartbeatIntervalMs": 1 })).await.expect(200);
        let view = taken(&b, &message, &json!({ "heartbeatIntervalMs": DAY_MS })).await;
        let new = view["fencingToken"].as_i64().unwrap();
        assert!(new > old && view["status"] == "ACCEPTED" && view["deadlineAt"].is_string(), "{view}");
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "CHECKPOINT", "TAKEN_OVER"]);
        // Of several workers one gets it.
        b.api.post(&path, &json!({})).await.refused(409, "CONFLICT");

        for verb in ["heartbeat", "complete", "fail", "accept", "reject"] {
            b.say(&message, verb, old, json!({})).await.refused(409, "STALE_LEASE");
        }
        b.say(&message, "ask", old, json!({ "question": "which?" })).await.refused(409, "STALE_LEASE");
        save(&b, &message, run, old).await.refused(409, "STALE_LEASE");
        let next = message.next("b", "c");
        hand_on(&b, &next, old).await.refused(409, "STALE_LEASE");
        broker.admin.get(&next.path()).await.refused(404, "NOT_FOUND");

        save(&b, &message, run, new).await.expect(200);
        let kept = b.api.get(&format!("{}/checkpoints/{run}", message.task_path())).await.expect(200).body;
        assert_eq!(kept["state"], json!({ "token": new.to_string() }));
        hand_on(&b, &next, new).await.expect(202);
        b.say(&message, "complete", new, json!({ "result": "done" })).await.expect(200);
        broker.trace(&message).await;
    }

    async fn a_lease_without_an_interval_is_not_taken_over_and_half_a_guard_is_refused(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "accept", token, json!({})).await.expect(200);
        let path = format!("{}/takeover", message.path());
        let refused = b.api.post(&path, &json!({})).await.refused(409, "CONFLICT");
        assert!(refused.body["detail"].as_str().unwrap().contains("heartbeatIntervalMs"), "{}", refused.body);
        // The same word again, with an interval.
        b.say(&message, "accept", token, json!({ "heartbeatIntervalMs": 1 })).await.expect(200);
        taken(&b, &message, &json!({})).await;
        let refused = b.api.post(&path, &json!({})).await.refused(409, "CONFLICT");
        assert!(refused.body["detail"].as_str().unwrap().contains("heartbeatIntervalMs"), "{}", refused.body);
        let run = format!("{}/checkpoints/7d1f0f86-5a3b-4f1e-9a50-0a6b1c2d3e4f", message.task_path());
        let id = message.id();
        for half in [("Handoff-Fencing-Token", "1"), ("Handoff-Id", id.as_str())] {
            b.api.send(Method::PUT, &run, &[half], &json!({})).await.refused(400, "INVALID_REQUEST");
        }
        // A first handoff follows nothing that could be held.
        let own = Message::initial("a", "b");
        let refused = hand_on(&a, &own, 1).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(refused.pointers(), ["/parentHandoffId"]);
    }

    async fn a_sender_that_uses_an_id_again_is_told_the_step_that_has_it(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let digest = format!("sha256:{}", "1".repeat(64));
        let message = Message::initial("a", "b").set("/extensions", json!({ "handoffd": { "stepDigest": digest } }));
        a.submit(&message).await.expect(202);
        let again = message.clone().set("/currentState", json!({ "clause": 7 }));
        let refused = a.submit(&again).await.refused(409, "CONFLICT");
        assert_eq!(refused.body["storedStepDigest"], json!(digest), "{}", refused.body);
        // Another agent that takes the id learns nothing of its step.
        broker.admin.patch("/agents/b", &json!({ "handoffTargets": ["a"] })).await.expect(200);
        let others = Message::initial("b", "a").set("/handoffId", message["handoffId"].clone());
        let refused = b.submit(&others).await.refused(409, "CONFLICT");
        assert_eq!(refused.body.get("storedStepDigest"), None, "{}", refused.body);
        let plain = Message::initial("a", "b");
        a.submit(&plain).await.expect(202);
        let refused = a.submit(&plain.clone().set("/currentState", json!({}))).await.refused(409, "CONFLICT");
        assert_eq!(refused.body.get("storedStepDigest"), None, "{}", refused.body);
    }
}
