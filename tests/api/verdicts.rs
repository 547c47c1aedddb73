//! Verdicts by callback: who may say what, when, with which token; rollback and checkpoints.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::shared;
use crate::message::Message;
use crate::receiver::{accepted, bare};

both! {
    async fn a_receiver_that_answers_202_says_yes_and_done_by_callback(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![bare(202)]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = receiver.next().await.token();
        let said = b.say(&message, "accept", token, json!({ "eta": 5 })).await.expect(200);
        assert_eq!(said.body["status"], "ACCEPTED");
        assert!(said.body["acceptedAt"].is_string() && said.body["deadlineAt"].is_string());
        let result = json!({ "result": { "score": 7 }, "iterations": 2 });
        let said = b.say(&message, "complete", token, result.clone()).await.expect(200);
        assert_eq!((&said.body["status"], &said.body["deadlineAt"]), (&json!("COMPLETED"), &Value::Null));
        let trace = broker.trace(&message).await;
        assert_eq!(trace["records"][1]["content"], json!({ "eta": 5 }));
        assert_eq!(trace["records"][2]["content"], result);
        assert_eq!(trace["records"][2]["actor"]["agentId"], "b");
        let task = broker.task(&message).await;
        assert_eq!((&task["status"], &task["holder"]), (&json!("RUNNING"), &json!("b")));
        assert_eq!(receiver.all().len(), 1);
    }

    async fn a109_a_rejection_restores_the_messages_checkpoint(broker: Broker) {
        let (a, b, receiver) = broker.pair(vec![bare(202)]).await;
        let message = Message::initial("a", "b").set("/checkpoint", json!({ "step": "extracted" }));
        a.submit(&message).await.expect(202);
        let token = receiver.next().await.token();
        let no = json!({ "reason": "OUT_OF_SCOPE", "details": { "missing": "licence" } });
        let said = b.say(&message, "reject", token, no.clone()).await.expect(200);
        assert_eq!((&said.body["status"], &said.body["reason"]), (&json!("REJECTED"), &json!("OUT_OF_SCOPE")));
        let task = broker.task(&message).await;
        assert_eq!(task["status"], "PENDING_HANDOFF");
        assert_eq!(task["holder"], "a");
        assert_eq!(task["checkpointState"], json!({ "step": "extracted" }));
        let trace = broker.trace(&message).await;
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "REJECTED", "ROLLED_BACK"]);
        assert_eq!(trace["records"][1]["reason"], "OUT_OF_SCOPE");
        assert_eq!(trace["records"][1]["content"], no);
        assert_eq!(trace["records"][2]["reason"], "OUT_OF_SCOPE");
        // The sender reads its state back; the receiver does not see it.
        let own = a.api.get(&message.task_path()).await.expect(200).body;
        assert_eq!(own["checkpointState"], json!({ "step": "extracted" }));
        let others = b.api.get(&message.task_path()).await.expect(200).body;
        assert_eq!(others["checkpointState"], Value::Null);
    }

    async fn a109_a_rejection_restores_what_was_stored_ahead(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        let run = message["fromAgent"]["executionId"].as_str().unwrap().to_owned();
        let path = format!("{}/checkpoints/{run}", message.task_path());
        for step in 1..=3 {
            let put = a.api.put(&path, &json!({ "step": step })).await.expect(200);
            assert_eq!((&put.body["seq"], &put.body["agentId"]), (&json!(step), &json!("a")));
        }
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "reject", token, json!({})).await.expect(200);
        let task = broker.task(&message).await;
        assert_eq!(task["checkpoint"], json!({ "executionId": run, "seq": 3 }));
        assert_eq!(task["checkpointState"], json!({ "step": 3 }));
        let read = a.api.get(&path).await.expect(200);
        assert_eq!(read.body["state"], json!({ "step": 3 }));
        b.api.get(&path).await.refused(404, "NOT_FOUND");
        // Under the same id the receiver has a run of its own, and `a` still reads back what it stored.
        let other = b.api.put(&path, &json!({ "step": "b's" })).await.expect(200).body;
        assert_eq!((&other["seq"], &other["agentId"]), (&json!(4), &json!("b")));
        assert_eq!(a.api.get(&path).await.expect(200).body["state"], json!({ "step": 3 }));
        assert_eq!(b.api.get(&path).await.expect(200).body["state"], json!({ "step": "b's" }));
        // A message's own checkpoint goes before what was stored.
        let second = message.again().set("/checkpoint", json!({ "step": "own" }));
        a.submit(&second).await.expect(202);
        let token = b.claim_one().await;
        b.say(&second, "reject", token, json!({})).await.expect(200);
        assert_eq!(broker.task(&message).await["checkpointState"], json!({ "step": "own" }));
    }

    async fn a109_a_rejection_restores_the_messages_own_state_where_there_is_no_other(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::review("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        b.say(&message, "fail", token, json!({ "error": { "code": "CRASHED" } })).await.expect(200);
        let task = broker.task(&message).await;
        assert_eq!(task["status"], "PENDING_HANDOFF");
        assert_eq!(task["checkpointState"]["currentState"], message["currentState"]);
        assert_eq!(task["checkpointState"]["completedSubtasks"], message["completedSubtasks"]);
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "FAILED", "ROLLED_BACK"]);
        let found = broker.admin.get(&message.path()).await.expect(200).body;
        assert_eq!((&found["status"], &found["reason"]), (&json!("FAILED"), &json!("CRASHED")));
    }

    async fn an_agent_may_be_held_to_checkpointing(broker: Broker) {
        let (a, _) = broker.pull_pair().await;
        broker.admin.patch("/agents/a", &json!({ "requireCheckpoint": true })).await.expect(200);
        let message = Message::review("a", "b");
        let answer = a.submit(&message).await.refused(422, "INCOMPLETE_CONTEXT");
        assert_eq!(answer.pointers(), ["/checkpoint"]);
        broker.admin.get(&message.path()).await.refused(404, "NOT_FOUND");
        let dry = a.api.post("/handoffs/validate", &message).await.expect(200).body;
        assert_eq!((&dry["valid"], &dry["failures"][0]["pointer"]), (&json!(false), &json!("/checkpoint")), "{dry}");
        a.submit(&message.again().set("/checkpoint", json!({ "step": 1 }))).await.expect(202);
        let run = message["fromAgent"]["executionId"].as_str().unwrap();
        let other = Message::review("a", "b").set("/fromAgent/executionId", json!(run));
        a.api
            .put(&format!("{}/checkpoints/{run}", other.task_path()), &json!({ "step": 2 }))
            .await
            .expect(200);
        a.submit(&other).await.expect(202);
    }

    async fn only_the_receiver_may_say_and_strangers_see_nothing(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let c = broker.pull("c", &[]).await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        for verb in ["accept", "reject", "heartbeat", "complete", "fail"] {
            a.say(&message, verb, token, json!({})).await.refused(403, "FORBIDDEN");
            c.say(&message, verb, token, json!({})).await.refused(404, "NOT_FOUND");
            let path = format!("{}/{verb}", message.path());
            broker.admin.post(&path, &json!({ "fencingToken": token })).await.refused(403, "FORBIDDEN");
            broker.caller(None).post(&path, &json!({})).await.refused(401, "UNAUTHENTICATED");
        }
        assert_eq!(broker.kinds(&message).await, ["HANDOFF"]);
        let nothing = Message::initial("a", "b");
        b.say(&nothing, "accept", token, json!({})).await.refused(404, "NOT_FOUND");
    }

    async fn a_verdict_needs_the_current_token(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        let message = Message::initial("a", "b");
        a.submit(&message).await.expect(202);
        let token = b.claim_one().await;
        let path = format!("{}/accept", message.path());
        let answer = b.api.post(&path, &json!({})).await.refused(422, "SCHEMA_INVALID");
        assert_eq!(answer.pointers(), ["/fencingToken"]);
        for bad in [json!("x"), json!(1.5), json!([1]), json!(true), json!("")] {
            b.api.post(&path, &json!({ "fencingToken": bad })).await.refused(422, "SCHEMA_INVALID");
        }
        let headers = [("Handoff-Fencing-Token", "x")];
        b.api.send(Method::POST, &path, &headers, &json!({})).await.refused(400, "INVALID_REQUEST");
        for stale in [token - 1, token + 1, 0, -1, i64::MAX] {
            b.say(&message, "accept", stale, json!({})).await.refused(409, "STALE_LEASE");
        }
        assert_eq!(broker.kinds(&message).await, ["HANDOFF"]);
        b.api.post(&path, &json!({ "fencingToken": token.to_string() })).await.expect(200);
    }

    async fn a_repeated_verdict_is_well_and_changes_nothing(broker: Broker) {
        for (verb, status, records) in
            [("accept", "ACCEPTED", 2), ("reject", "REJECTED", 3), ("complete", "COMPLETED", 3), ("fail", "FAILED", 3)]
        {
            let ids = [format!("a-{verb}"), format!("b-{verb}")];
            let a = broker.pull(&ids[0], &[&ids[1]]).await;
            let b = broker.pull(&ids[1], &[]).await;
            let message = Message::initial(&a.id, &b.id);
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            for _ in 0..3 {
                let said = b.say(&message, verb, token, json!({ "reason": "NO" })).await.expect(200);
                assert_eq!(said.body["status"], status);
            }
            assert_eq!(broker.kinds(&message).await.len(), records, "{verb}");
        }
    }

    async fn what_the_table_does_not_have_is_a_conflict(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for (first, refused) in [
            ("accept", vec!["reject"]),
            ("reject", vec!["accept", "complete", "fail", "heartbeat"]),
            ("complete", vec!["accept", "reject", "fail", "heartbeat"]),
            ("fail", vec!["accept", "reject", "complete", "heartbeat"]),
        ] {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            b.say(&message, "heartbeat", token, json!({})).await.refused(409, "CONFLICT");
            b.say(&message, first, token, json!({})).await.expect(200);
            let before = broker.admin.get(&message.path()).await.expect(200).body;
            for verb in refused {
                b.say(&message, verb, token, json!({})).await.refused(409, "CONFLICT");
            }
            assert_eq!(broker.admin.get(&message.path()).await.expect(200).body, before);
        }
    }

    async fn opposite_verdicts_at_once_leave_one(broker: Broker) {
        let (a, b) = broker.pull_pair().await;
        for _ in 0..5 {
            let message = Message::initial("a", "b");
            a.submit(&message).await.expect(202);
            let token = b.claim_one().await;
            let answers = futures_util::future::join_all((0..10).map(|place| {
                let verb = if place % 2 == 0 { "accept" } else { "reject" };
                b.say(&message, verb, token, json!({}))
            }))
            .await;
            let well = answers.iter().filter(|answer| answer.status == 200).count();
            let conflicts = answers.iter().filter(|answer| answer.status == 409).count();
            assert_eq!((well, conflicts), (5, 5));
            let kinds = broker.kinds(&message).await;
            assert!(kinds == ["HANDOFF", "ACCEPTED"] || kinds == ["HANDOFF", "REJECTED", "ROLLED_BACK"], "{kinds:?}");
        }
    }

    async fn a_completion_may_overtake_the_answer_to_the_delivery(broker: Broker) {
        let key = shared(None::<crate::harness::Agent>);
        let own = Arc::clone(&key);
        let receiver = broker
            .receiver(move |delivery| {
                let agent = own.lock().unwrap().clone().unwrap();
                async move {
                    let message = Message(delivery.body.clone());
                    let done = json!({ "result": 1 });
                    agent.say(&message, "complete", delivery.token(), done).await.expect(200);
                    accepted()
                }
            })
            .await;
        let a = broker.pull("a", &["b"]).await;
        let b = broker.webhook("b", &[], &receiver).await;
        *key.lock().unwrap() = Some(b);
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(said.body["status"], "COMPLETED");
        assert_eq!(broker.kinds(&message).await, ["HANDOFF", "ACCEPTED", "COMPLETED"]);
        // The place in the outbox is free: the task's next handoff goes out.
        let next = message.next("a", "b");
        let said = a.submit_and_wait(&next).await.expect(200);
        assert_eq!(said.body["status"], "COMPLETED");
        assert_eq!(receiver.all().len(), 2);
    }

    async fn a_rejection_may_overtake_a_failed_answer(broker: Broker) {
        let key = shared(None::<crate::harness::Agent>);
        let own = Arc::clone(&key);
        let receiver = broker
            .receiver(move |delivery| {
                let agent = own.lock().unwrap().clone().unwrap();
                async move {
                    let message = Message(delivery.body.clone());
                    agent.say(&message, "reject", delivery.token(), json!({})).await.expect(200);
                    bare(500)
                }
            })
            .await;
        let a = broker.pull("a", &["b"]).await;
        let b = broker.webhook("b", &[], &receiver).await;
        *key.lock().unwrap() = Some(b);
        let message = Message::initial("a", "b");
        let said = a.submit_and_wait(&message).await.expect(200);
        assert_eq!(said.body["status"], "REJECTED");
        let next = message.again();
        a.submit_and_wait(&next).await.expect(200);
        assert_eq!(receiver.all().len(), 2, "what was rejected is not tried again");
    }
}
